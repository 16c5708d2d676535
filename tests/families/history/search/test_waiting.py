import pytest

from everkept.core.ports import RecordStore
from everkept.embedders.hashing import HashingEmbedder
from everkept.families.history.search.recalling import Asking, found
from everkept.families.history.search.waiting import waiting
from making import DAY_ONE
from telling import embed, tell


async def told(store: RecordStore, ready: int, left: int) -> None:
    await tell(store, "s1", *(f"The login form, number {n}" for n in range(ready)))
    await embed(store)
    await tell(store, "s2", *(f"The login page, number {n}" for n in range(left)))


@pytest.mark.parametrize(("ready", "left"), [(8, 2), (0, 3)])
async def test_an_answer_says_when_many_turns_wait_for_their_vectors(
    store: RecordStore, ready: int, left: int
) -> None:
    await told(store, ready, left)
    answer = await found(store, "login", limit=5, asking=Asking(HashingEmbedder(), DAY_ONE))
    assert [(notice.code, notice.message) for notice in answer.notices] == [
        ("partial_results", f"{left} of {ready + left} turns are found by words alone so far.")
    ]


@pytest.mark.parametrize(("ready", "left"), [(18, 2), (5, 0), (0, 0)])
async def test_a_few_that_wait_are_not_worth_a_word(
    store: RecordStore, ready: int, left: int
) -> None:
    await told(store, ready, left)
    assert await waiting(store, HashingEmbedder()) is None


async def test_nothing_waits_where_nothing_gets_a_vector(store: RecordStore) -> None:
    await told(store, 0, 3)
    assert await waiting(store, None) is None
