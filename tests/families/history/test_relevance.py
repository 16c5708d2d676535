from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations import DAY, Written, assistant, embed, tell, user
from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.families.history.model import CODE, DECISION, SAID, TURN
from everkept.families.history.relevance import (
    BLOCK_RESULTS,
    MIN_NEARNESS,
    MIN_SCORE_SHARE,
    MinNearness,
    QueryContext,
    build_pending_notice,
    find_turns,
    find_words,
    keep_newest_duplicates,
    merge_code_hits,
    parse_query,
    prefer_decisions,
    round_score,
    select_relevant,
    sort_for_display,
    strip_decision_words,
)
from everkept.language import telling_words
from everkept.retrieval.candidates import MAX_CANDIDATES
from everkept.retrieval.profile import SearchHit
from hash_embedder import HashingEmbedder
from records import DAY_ONE

ASKING = QueryContext(HashingEmbedder(), DAY_ONE + DAY)


def hit(score: float, at: int, name: str = "x") -> SearchHit:
    return SearchHit(Record(name, TURN, at, at), score)


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
    answer = await find_turns(cast(RecordStore, noting), "login form", asking=ASKING)
    assert {hit.record.id for hit in answer.hits} == {*turns}
    assert [sorted(ids) for ids in noting.read] == [sorted(turns)]


async def test_a_turn_and_its_code_are_found_once(store: RecordStore) -> None:
    code = (Written("def parse_invoice(): ..."), Written("parse_invoice()"))
    before = user("What do you have for me?")
    await tell(store, "s1", before, assistant("Here is parse_invoice", code=code))
    await embed(store)
    answer = await find_turns(store, "parse_invoice", asking=ASKING)
    assert [hit.record.kind for hit in answer.hits] == [CODE]  # its turn's text does not show it
    code_alone = await find_turns(store, "parse_invoice", kinds=(CODE,), asking=ASKING)
    assert len(code_alone.hits) == 2


async def test_a_turn_stands_for_the_code_in_its_text(store: RecordStore) -> None:
    code = "def parse_invoice(): ..."
    said = assistant(f"We read it line by line.\n```python\n{code}\n```", code=(Written(code),))
    [turn] = await tell(store, "s1", said)
    await embed(store)
    answer = await find_turns(store, "parse_invoice", asking=ASKING)
    assert [hit.record.id for hit in answer.hits] == [turn]
    by_the_code = await find_turns(store, "invoice", kinds=(CODE,), asking=ASKING)
    assert [hit.record.kind for hit in by_the_code.hits] == [CODE]


async def test_of_equal_texts_the_newest_is_found(store: RecordStore) -> None:
    await tell(store, "s1", "Look at the login form.")
    [newest] = await tell(store, "s2", "Look at the  login form.", at=DAY_ONE + DAY)
    await tell(store, "s3", "Look at the login form.")
    await embed(store)
    answer = await find_turns(store, "login form", asking=ASKING)
    assert [hit.record.id for hit in answer.hits] == [newest]
    repeated = await find_turns(store, "login form", asking=ASKING, repeated=True)
    assert len(repeated.hits) == 3


async def test_what_only_stands_beside_an_answer_and_says_nothing_is_no_result(store: RecordStore) -> None:
    await tell(store, "s1", "Where is the login form?", "In login.html.", "Great, thanks!")
    await embed(store)
    answer = await find_turns(store, "login form", asking=ASKING)
    assert "Great, thanks!" not in [hit.record.text for hit in answer.hits]
    named = await find_turns(store, "thanks", asking=ASKING)
    assert "Great, thanks!" in [hit.record.text for hit in named.hits]


async def test_all_that_match_are_counted_and_more_than_a_search_takes_are_at_least_these(store: RecordStore) -> None:
    await tell(store, "s1", *(f"the login form number {number}" for number in range(30)))
    await embed(store)
    answer = await find_turns(store, "login form", asking=ASKING)
    assert (len(answer.hits), answer.total, answer.is_lower_bound) == (30, 30, False)
    await tell(store, "s2", *(f"the login form again, number {number}" for number in range(MAX_CANDIDATES)))
    answer = await find_turns(store, "login form", asking=ASKING)
    assert answer.is_lower_bound
    assert answer.total >= MAX_CANDIDATES


async def test_the_user_is_no_name_in_a_question(store: RecordStore) -> None:
    """What the assistant says about users is found as well as what the user says."""
    [_, told] = await tell(store, "s1", "How is the weather?", "The user table has an index on the email column.")
    await tell(store, "s2", *(f"Remark {number} by me." for number in range(9)))
    await embed(store)
    answer = await find_turns(store, "index of the user table", asking=ASKING)
    assert answer.hits[0].record.id == told


def test_of_about_one_score_the_newest_comes_first() -> None:
    hits = [hit(0.89, 1), hit(0.85, 3), hit(0.81, 2), hit(0.79, 9)]
    assert [one.record.effective_at for one in sort_for_display(hits)] == [3, 2, 1, 9]


def test_of_about_one_score_what_is_preferred_comes_first() -> None:
    hits = [hit(0.89, 1, "a"), hit(0.85, 3, "b"), hit(0.79, 9, "c")]
    assert [one.record.id for one in sort_for_display(hits, {"a", "c"})] == ["a", "b", "c"]


def test_a_score_at_the_edge_of_a_bucket_is_in_the_higher_one() -> None:
    assert [one.record.effective_at for one in sort_for_display([hit(0.3, 1), hit(0.299999, 2), hit(0.29, 3)])] == [
        2,
        1,
        3,
    ]


HITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 9)), max_size=35)


@given(HITS)
def test_more_results_begin_with_those_that_fewer_have(pairs: list[tuple[float, int]]) -> None:
    hits = [hit(score, at, str(n)) for n, (score, at) in enumerate(sorted(pairs, reverse=True))]
    shown = sort_for_display(hits)
    assert sort_for_display(hits[:BLOCK_RESULTS]) == shown[:BLOCK_RESULTS]
    assert sorted(one.record.id for one in shown) == sorted(one.record.id for one in hits)
    for start in range(0, len(shown), BLOCK_RESULTS):
        block = shown[start : start + BLOCK_RESULTS]
        buckets = [int(round_score(one.score) * 10 + 1e-6) for one in block]
        assert buckets == sorted(buckets, reverse=True)
        for one, other in pairwise(block):
            same = int(round_score(one.score) * 10 + 1e-6) == int(round_score(other.score) * 10 + 1e-6)
            assert not same or one.record.effective_at >= other.record.effective_at


FAR = MIN_NEARNESS - 0.05
LONG = "Clean up the caching of docker layers."


def said(text: str, score: float = 0.5, nearness: float | None = None, **more: object) -> SearchHit:
    fields = {"type": SAID, "kind": TURN, "name": None, "parent": None, "at": 1} | more
    record = Record(
        str(fields.get("id", text)),
        str(fields["kind"]),
        1,
        1,
        text=text,
        type=str(fields["type"]),
        name=fields["name"],  # type: ignore[arg-type]
        parent=fields["parent"],  # type: ignore[arg-type]
        occurred_at=int(str(fields["at"])),
    )
    why = fields.get("why", {})
    return SearchHit(record, score, why, nearness=nearness)  # type: ignore[arg-type]


def texts(hits: list[SearchHit]) -> list[str]:
    return [one.record.text for one in hits]


@pytest.mark.parametrize(
    ("query", "one", "is_shown"),
    [
        ("kubernetes pod evicted", said(LONG, nearness=FAR), False),
        ("kubernetes pod evicted", said(LONG, nearness=MIN_NEARNESS), True),
        ("xyzzyplugh", said(LONG, nearness=MIN_NEARNESS), False),
        ("xyzzyplugh", said(LONG, nearness=MinNearness().one_word), True),
        ("docker images", said(LONG), True),
        ("kubernetes pods", said(LONG, why={"keyword": 0.5}), False),  # a word beside it
        ("what was said in May", said(LONG, why={"date": 0.5}), True),
        ("what did Ann say", said(LONG, why={"author": 0.5}), True),
        ("state of the cart", said("Go with Zustand.", type=DECISION, why={"keyword": 0.3}), True),
        ("login", said("Perfect, thanks!", nearness=1.0), False),
        ("is it perfect", said("Perfect, thanks!", nearness=0.1), True),
        ("state library of the cart", said("Let me see src/Cart.tsx.", nearness=1.0), False),
        ("the cart", said("Let me see src/Cart.tsx."), True),
        ("the anthropic package", said("Use [masked: anthropic key] as key for it"), False),
        ("cache.py", said("x = 1", kind=CODE, name="src/cache.py"), True),
    ],
)
def test_something_of_its_own_must_speak_for_a_hit(query: str, one: SearchHit, is_shown: bool) -> None:
    assert bool(select_relevant([one], query, MinNearness())) is is_shown


def test_what_is_far_behind_the_best_is_left_out() -> None:
    best, good = said("the login form", 0.8), said("a login form", 0.8 * MIN_SCORE_SHARE)
    bad = said("some login form", 0.8 * MIN_SCORE_SHARE - 0.01)
    assert select_relevant([best, good, bad], "which login form is it", MinNearness()) == [best, good]


def test_a_stop_word_of_another_language_speaks_for_nothing() -> None:
    assert not select_relevant([said("Das ist der Fehler im Programm.")], "Wie war das mit dem Login?", MinNearness())
    assert select_relevant([said("Das ist der Fehler im Programm.")], "das", MinNearness())


def test_a_rare_word_wins_over_what_is_only_near() -> None:
    near = said("The throttle of the sign-in page", 1.0, nearness=1.0)
    exact = said("Call bucket_key(account) here", 0.3, nearness=0.1)
    assert texts(select_relevant([near, exact], "`bucket_key`", MinNearness())) == texts([exact, near])
    # In a sentence the words are not meant that literally.
    assert select_relevant([near, exact], "how is the bucket_key of the throttle made", MinNearness())[0] == near


def test_of_equal_texts_the_newest_has_the_best_score() -> None:
    old, new = said("The  same", 0.9, id="a", at=1), said("The same", 0.4, id="b", at=2)
    [one] = keep_newest_duplicates([old, new])
    assert (one.record.id, one.score) == ("b", 0.9)


def test_a_text_that_no_other_equals_keeps_its_hit() -> None:
    hits = [said("one text"), said("another text")]
    assert [new is old for new, old in zip(keep_newest_duplicates(hits), hits, strict=True)] == [True] * 2


def test_a_turn_stands_for_code_that_its_text_shows() -> None:
    turn = Record("t", TURN, 1, 1, text="So:\n```\nx = 1\n```")
    shown = said("x = 1", 0.9, kind=CODE, id="c1", parent="t")
    edit = said("y = 2", 0.8, kind=CODE, id="c2", parent="t")
    found = [*merge_code_hits([shown, edit], {"t": turn})]
    assert [(one.record.id, one.score) for one in found] == [("t", 0.9)]
    assert [one.record.id for one in merge_code_hits([edit], {"t": turn})] == ["c2"]
    assert [one.record.id for one in merge_code_hits([shown], {})] == ["c1"]


def test_a_text_without_the_letters_of_a_word_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    prepare = telling_words.build_index_text

    def noted(text: str) -> str:
        read.append(text)
        return prepare(text)

    monkeypatch.setattr(telling_words, "build_index_text", noted)
    query = "kubernetes pods evicted overnight"
    far = [said(f"Clean up the caching of docker layers, part {n}.") for n in range(60)]
    near = said("The pods were evicted when the disk was full.")
    assert select_relevant([*far, near], query, MinNearness()) == [near]
    assert len(read) == 2  # the question, and the text that has its words


def spoken(name: str, score: float, position: int, is_decision: bool = False) -> SearchHit:
    kind = DECISION if is_decision else SAID
    return SearchHit(Record(name, TURN, 1, 1, type=kind, parent="c", position=position), score)


@pytest.mark.parametrize(
    ("question", "rest"),
    [
        ("what did we decide about the login", "what did we  about the login"),
        ("parser design decision", "parser design "),
        ("what did we decide?", "what did we decide?"),
        ("the login form", "the login form"),
    ],
)
def test_words_that_ask_for_a_decision_are_not_looked_for(question: str, rest: str) -> None:
    assert strip_decision_words(question) == rest


def test_to_whom_asks_for_them_decisions_come_first() -> None:
    hits = [spoken("asked", 0.9, 1), spoken("decided", 0.7, 9, is_decision=True)]
    first = prefer_decisions("what did we decide about the login", hits)
    assert [one.record.id for one in first] == ["decided", "asked"]
    assert prefer_decisions("the login", hits) == hits


def test_a_decision_counts_as_what_led_to_it() -> None:
    hits = [spoken("asked", 0.9, 1), spoken("decided", 0.2, 3, is_decision=True)]
    assert prefer_decisions("what did we decide", hits)[0].record.id == "decided"
    later = [spoken("decided", 0.2, 0, is_decision=True), spoken("asked", 0.9, 1)]
    assert prefer_decisions("what did we decide", later)[0].record.id == "asked"


async def told(store: RecordStore, ready: int, left: int) -> None:
    await tell(store, "s1", *(f"The login form, number {n}" for n in range(ready)))
    await embed(store)
    await tell(store, "s2", *(f"The login page, number {n}" for n in range(left)))


@pytest.mark.parametrize(("ready", "left"), [(8, 2), (0, 3)])
async def test_an_answer_says_when_many_turns_wait_for_their_vectors(store: RecordStore, ready: int, left: int) -> None:
    await told(store, ready, left)
    answer = await find_turns(store, "login", asking=QueryContext(HashingEmbedder(), DAY_ONE))
    assert [(notice.code, notice.message) for notice in answer.notices] == [
        ("partial_results", f"{left} of {ready + left} turns have no embedding yet, so only their words are searched.")
    ]


@pytest.mark.parametrize(("ready", "left"), [(18, 2), (5, 0), (0, 0)])
async def test_a_few_that_wait_are_not_worth_a_word(store: RecordStore, ready: int, left: int) -> None:
    await told(store, ready, left)
    assert await build_pending_notice(store, HashingEmbedder()) is None


async def test_nothing_waits_where_nothing_gets_a_vector(store: RecordStore) -> None:
    await told(store, 0, 3)
    assert await build_pending_notice(store, None) is None


def test_a_question_asks_for_no_stop_words_of_other_languages() -> None:
    assert parse_query("Wie haben wir das Ruckeln behoben?").stems == {"ruckeln", "behoben"}
    assert parse_query("das").stems  # there is nothing else


def test_what_a_mask_says_nobody_said() -> None:
    assert find_words("use [masked: aws key] here", parse_query("Which aws key is used?")) == {"us"}
    assert parse_query("use [masked: aws key] here").stems == {"us"}
