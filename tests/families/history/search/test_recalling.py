from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.embedders.hashing import HashingEmbedder
from everkept.families.history.model import CODE, TURN
from everkept.families.history.search.recalling import (
    BLOCK,
    Asking,
    found,
    in_order,
    shown_score,
)
from everkept.retrieval.profile import Hit
from making import DAY_ONE
from telling import DAY, Written, assistant, embed, tell, user

ASKING = Asking(HashingEmbedder(), DAY_ONE + DAY)


def hit(score: float, at: int, name: str = "x") -> Hit:
    return Hit(Record(name, TURN, at, at), score)


class Noting:
    """A store that notes which records are read by their ids."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.read: list[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[Record]:
        self.read.append(list(ids))
        return await self._store.get(ids, include_deleted=include_deleted)


async def test_turns_that_were_found_are_read_once(store: RecordStore) -> None:
    turns = await tell(store, "s1", "The login form", "Another login form", "One more login form")
    await embed(store)
    noting = Noting(store)
    answer = await found(cast(RecordStore, noting), "login form", limit=10, asking=ASKING)
    assert {hit.record.id for hit in answer.hits} == {*turns}
    assert [sorted(ids) for ids in noting.read] == [sorted(turns)]


async def test_a_turn_and_its_code_are_found_once(store: RecordStore) -> None:
    code = (Written("def parse_invoice(): ..."), Written("parse_invoice()"))
    before = user("What do you have for me?")
    await tell(store, "s1", before, assistant("Here is parse_invoice", code=code))
    await embed(store)
    answer = await found(store, "parse_invoice", limit=10, asking=ASKING)
    assert [hit.record.kind for hit in answer.hits] == [CODE]  # its turn's text does not show it
    code_alone = await found(store, "parse_invoice", kinds=(CODE,), limit=10, asking=ASKING)
    assert len(code_alone.hits) == 2


async def test_a_turn_stands_for_the_code_in_its_text(store: RecordStore) -> None:
    code = "def parse_invoice(): ..."
    said = assistant(f"We read it line by line.\n```python\n{code}\n```", code=(Written(code),))
    [turn] = await tell(store, "s1", said)
    await embed(store)
    answer = await found(store, "parse_invoice", limit=10, asking=ASKING)
    assert [hit.record.id for hit in answer.hits] == [turn]
    by_the_code = await found(store, "invoice", kinds=(CODE,), limit=10, asking=ASKING)
    assert [hit.record.kind for hit in by_the_code.hits] == [CODE]


async def test_of_equal_texts_the_newest_is_found(store: RecordStore) -> None:
    await tell(store, "s1", "Look at the login form.")
    [newest] = await tell(store, "s2", "Look at the  login form.", at=DAY_ONE + DAY)
    await tell(store, "s3", "Look at the login form.")
    await embed(store)
    answer = await found(store, "login form", limit=10, asking=ASKING)
    assert [hit.record.id for hit in answer.hits] == [newest]
    repeated = await found(store, "login form", limit=10, asking=ASKING, repeated=True)
    assert len(repeated.hits) == 3


async def test_what_only_stands_beside_an_answer_and_says_nothing_is_no_result(
    store: RecordStore,
) -> None:
    await tell(store, "s1", "Where is the login form?", "In login.html.", "Great, thanks!")
    await embed(store)
    answer = await found(store, "login form", limit=10, asking=ASKING)
    assert "Great, thanks!" not in [hit.record.text for hit in answer.hits]
    named = await found(store, "thanks", limit=10, asking=ASKING)
    assert "Great, thanks!" in [hit.record.text for hit in named.hits]


async def test_no_more_are_found_than_asked_for(store: RecordStore) -> None:
    await tell(store, "s1", *(f"the login form number {number}" for number in range(30)))
    await embed(store)
    answer = await found(store, "login form", limit=7, asking=ASKING)
    assert len(answer.hits) == 7


async def test_the_user_is_no_name_in_a_question(store: RecordStore) -> None:
    """What the assistant says about users is found as well as what the user says."""
    [_, told] = await tell(
        store, "s1", "How is the weather?", "The user table has an index on the email column."
    )
    await tell(store, "s2", *(f"Remark {number} by me." for number in range(9)))
    await embed(store)
    answer = await found(store, "index of the user table", limit=3, asking=ASKING)
    assert answer.hits[0].record.id == told


def test_of_about_one_score_the_newest_comes_first() -> None:
    hits = [hit(0.89, 1), hit(0.85, 3), hit(0.81, 2), hit(0.79, 9)]
    assert [one.record.at for one in in_order(hits)] == [3, 2, 1, 9]


def test_of_about_one_score_what_is_preferred_comes_first() -> None:
    hits = [hit(0.89, 1, "a"), hit(0.85, 3, "b"), hit(0.79, 9, "c")]
    assert [one.record.id for one in in_order(hits, {"a", "c"})] == ["a", "b", "c"]


def test_a_score_at_the_edge_of_a_bucket_is_in_the_higher_one() -> None:
    assert [one.record.at for one in in_order([hit(0.3, 1), hit(0.299999, 2), hit(0.29, 3)])] == [
        2,
        1,
        3,
    ]


HITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), max_size=35)


@given(HITS)
def test_more_results_begin_with_those_that_fewer_have(pairs: list[tuple[float, int]]) -> None:
    hits = [hit(score, at, str(n)) for n, (score, at) in enumerate(sorted(pairs, reverse=True))]
    shown = in_order(hits)
    assert in_order(hits[:BLOCK]) == shown[:BLOCK]
    assert sorted(one.record.id for one in shown) == sorted(one.record.id for one in hits)
    for start in range(0, len(shown), BLOCK):
        block = shown[start : start + BLOCK]
        buckets = [int(shown_score(one.score) * 10 + 1e-6) for one in block]
        assert buckets == sorted(buckets, reverse=True)
        for one, other in pairwise(block):
            same = int(shown_score(one.score) * 10 + 1e-6) == int(
                shown_score(other.score) * 10 + 1e-6
            )
            assert not same or one.record.at >= other.record.at
