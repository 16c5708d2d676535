"""The commit loop."""

import pytest

from everkept.core.commits import MAX_ATTEMPTS, ChangeWriter, Planned, collect_touched, commit, retry
from everkept.core.ports import RecordStore
from everkept.core.records import Insert, RecordFilter
from everkept.engines.memory.store import MemoryStore
from everkept.errors import Conflict
from records import DAY_ONE, batch, entity


class Rivals:
    """An attempt at which others are faster some times."""

    def __init__(self, faster: int) -> None:
        self.faster = faster
        self.attempts = 0

    async def __call__(self) -> int:
        self.attempts += 1
        if self.attempts <= self.faster:
            raise Conflict(f"Rival {self.attempts}.")
        return self.attempts


async def test_an_attempt_is_repeated_until_nobody_is_faster() -> None:
    assert await retry(Rivals(3)) == 4
    assert await retry(Rivals(MAX_ATTEMPTS - 1)) == MAX_ATTEMPTS


async def test_who_is_never_the_fastest_gets_the_last_conflict() -> None:
    with pytest.raises(Conflict) as last:
        await retry(Rivals(MAX_ATTEMPTS))
    assert last.value.message == f"Rival {MAX_ATTEMPTS}."
    with pytest.raises(Conflict) as told:
        await retry(Rivals(MAX_ATTEMPTS), "the shop")
    assert "the shop" in told.value.message


async def test_an_attempt_without_a_chance_is_not_repeated() -> None:
    async def never() -> bool:
        return False

    rivals = Rivals(1)
    with pytest.raises(Conflict):
        await retry(rivals, again=never)
    assert rivals.attempts == 1


async def test_a_commit_records_what_it_touched() -> None:
    store = MemoryStore()
    with collect_touched() as noted:
        await commit(store, batch(entity("a"), entity("b")))
        await commit(store, batch(entity("index"), derived=True))
    assert list(noted.ids) == ["a", "b"]


async def test_a_writer_plans_again_where_the_state_has_moved() -> None:
    store = MemoryStore()
    writer = ChangeWriter(lambda: DAY_ONE, "test")
    seen: list[int] = []

    async def plan(store: RecordStore, at: int) -> Planned[str]:
        there = await store.scan(RecordFilter(kinds=("entity",)))
        seen.append(len(there))
        if there:
            return [], there[0].id
        await store.commit(batch(entity("shop", id="theirs")))
        return [Insert(entity("shop", id="ours"))], "ours"

    with collect_touched() as noted:
        assert await writer.commit(store, plan) == "theirs"
    assert seen == [0, 1]
    assert list(noted.ids) == []
