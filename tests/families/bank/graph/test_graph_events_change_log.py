"""What the change log says of a graph, and how little must be read for it."""

from pathlib import Path

from everkept.engines.sqlite.library import SqliteLibrary
from everkept.families.bank.graph.graph_events import MAX_FOLLOWED_CHANGES, read_events_since
from graph_mirror import CountedRecords, CountingStore, Mirroring, mirrored, upserted


async def test_following_one_change_among_many_reads_that_change_alone(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    async with mirrored(tmp_path, library) as here:
        await follow_one_of_many(here)
    await library.close()


async def follow_one_of_many(here: Mirroring) -> None:
    at = here.clock()
    here.append(*(upserted(f"entity {number}", at) for number in range(10_000)))
    await here.meet()
    store = CountingStore(await here.store())
    project = await here.banking.records.find_project_id(here.bank)
    here.restart(records=CountedRecords(project, store))
    await here.follow()
    await here.observe("entity 5000", "is in the middle")
    size = here.path.stat().st_size
    here.files.done.clear()
    store.asked.clear()
    store.rows = 0
    await here.follow()
    assert here.files.calls("read", "write") == []
    [(_, written)] = here.files.calls("append")
    assert here.path.stat().st_size == size + written
    assert written < 500
    assert store.asked["read_changes"] == 1
    assert store.asked.total() <= 6
    assert store.rows <= 5


async def test_a_long_way_is_made_up_for_by_a_comparison(tmp_path: Path) -> None:
    async with mirrored(tmp_path) as here:
        await here.upsert("Ada")
        await here.follow()
        for number in range(MAX_FOLLOWED_CHANGES):
            await here.upsert("Ada", number=number)
        assert await read_events_since(await here.store(), 0) is None
        before = len(here.lines)
        await here.follow()
        assert len(here.lines) == before + 1
        assert here.told() == await here.stored()
