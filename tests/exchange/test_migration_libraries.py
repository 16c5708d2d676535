from pathlib import Path

import numpy as np
import pytest

from everkept.app.engines import MIGRATION_ORIGIN_NOTE
from everkept.core.answers import SearchRecord
from everkept.core.mcp import ToolUsage
from everkept.core.ports import Library, RecordStore, RecordVector, Token
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Ref, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Conflict
from everkept.exchange import migration
from everkept.exchange.migration import MigrationEnd, MigrationResult, migrate_library
from records import DAY_ONE

MODEL = "model"
EVERYTHING = RecordFilter(deleted=None)


async def filled(library: Library, count: int = 12) -> Library:
    """Some of all that a library can hold."""
    for name in ("shop", "old", "quiet"):
        project = await library.create(name, f"about {name}")
        await library.link_workspace(f"/work/{name}", project)
        await fill((await library.open(name))[1], name, count)
    await library.archive("old")
    await library.set_off("quiet", off=True)
    await fill(await library.open_user_store(), "user", count)
    await fill(await library.open_history_store(), "history", count)
    await library.set_note("kept", "value")
    await library.add_token(Token("t1", "laptop", DAY_ONE), "hash")
    await library.add_searches([SearchRecord(DAY_ONE, "recall", "q", 1, 2.0, "s", {})])
    await library.add_usage([ToolUsage("tool", 2, 1, 3.0, 2.0, DAY_ONE)])
    return library


async def fill(store: RecordStore, name: str, count: int) -> None:
    records = [
        Record(f"{name}-{number}", "memory", DAY_ONE, DAY_ONE, text=f"text {number} of {name}")
        for number in range(count)
    ]
    await store.commit(Batch(tuple(map(Insert, records)), DAY_ONE, "test"))
    link = RecordLink(f"{name}-link", records[0].id, "about", records[1].id, DAY_ONE)
    await store.commit(Batch((Insert(link),), DAY_ONE + 1, "test"))
    await store.commit(Batch((Update(records[2].id, {"text": "changed"}, 1), Delete(records[3].ref)), DAY_ONE + 2, "t"))
    vector = np.zeros(8, np.float32)
    vector[0] = 1.0
    await store.put_vectors(MODEL, [RecordVector(records[0].id, 1, vector)])
    await store.note_accesses({records[0].id: 3}, DAY_ONE)


async def moved(source: Library, target: Library) -> MigrationResult:
    return await migrate_library(
        MigrationEnd(source, "the source"), MigrationEnd(target, "the target"), MODEL, lambda _done, _total: None
    )


async def told(library: Library) -> list[object]:
    """All that can be read of it."""
    projects = await library.list_projects()
    stores = [await library.open_user_store(), await library.open_history_store()]
    stores += [await library.get_store(project) for project in projects]
    return [
        projects,
        await library.list_off_periods(),
        [await library.list_workspaces(project) for project in projects],
        await library.get_note("kept"),
        await library.list_tokens(),
        await library.has_token("hash"),
        await library.list_searches(),
        await library.list_usage(),
        [
            (
                await store.scan(EVERYTHING),
                await store.scan_links(deleted=None),
                await store.read_changes(limit=1_000),
                await store.get_accesses([record.id for record in await store.scan(EVERYTHING)]),
                sorted(await store.get_vectors(MODEL, ["shop-0", "old-0", "user-0", "history-0"])),
            )
            for store in stores
        ],
    ]


async def test_the_copy_is_the_same_in_all_that_can_be_read(tmp_path: Path) -> None:
    source, target = await filled(MemoryLibrary()), SqliteLibrary(tmp_path / "data")
    outcome = await moved(source, target)
    assert await told(target) == await told(source)
    assert outcome.projects == 3
    assert {each.store for each in outcome.stores} == {"@user", "@history", "shop", "old", "quiet"}
    assert all((each.records, each.links, each.log_entries, each.vectors) == (12, 1, 3, 1) for each in outcome.stores)
    await target.close()


async def test_what_was_copied_can_be_copied_back(tmp_path: Path) -> None:
    source, between, back = await filled(MemoryLibrary()), SqliteLibrary(tmp_path), MemoryLibrary()
    there = await moved(source, between)
    again = await moved(between, back)
    assert await told(back) == await told(source)
    assert [each.sha256 for each in there.stores] == [each.sha256 for each in again.stores]
    await between.close()


async def test_an_interrupted_copy_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "PAGE_ROWS", 5)
    source, target = await filled(MemoryLibrary(), 23), MemoryLibrary()
    seen: list[tuple[int, int]] = []

    def interrupted(done: int, total: int) -> None:
        seen.append((done, total))
        if len(seen) == 8:
            raise KeyboardInterrupt

    ends = MigrationEnd(source, "the source"), MigrationEnd(target, "the target")
    with pytest.raises(KeyboardInterrupt):
        await migrate_library(*ends, MODEL, interrupted)
    assert await target.get_note(MIGRATION_ORIGIN_NOTE) == "the source"
    first, seen[:] = list(seen), []
    await migrate_library(*ends, MODEL, lambda done, total: seen.append((done, total)))
    assert seen[0][0] >= 20, "what was there was not copied again"
    assert seen[-1] == (first[0][1], first[0][1])
    assert await told(target) == await told(source)
    assert await target.get_note(MIGRATION_ORIGIN_NOTE) is None


async def test_what_changed_since_the_interruption_is_brought_over_too() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()

    def interrupted(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    ends = MigrationEnd(source, "the source"), MigrationEnd(target, "the target")
    with pytest.raises(KeyboardInterrupt):
        await migrate_library(*ends, MODEL, interrupted)
    _, store = await source.open("shop")
    await store.commit(Batch((Update("shop-5", {"text": "later"}, 1),), DAY_ONE + 9, "test"))
    await store.purge([Ref("record", "shop-6")])
    await moved(source, target)
    assert await told(target) == await told(source)


async def begun(source: Library, target: Library) -> None:
    """A copy of which everything is there, but that it is finished."""

    def interrupted(done: int, total: int) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await migrate_library(
            MigrationEnd(source, "the source"), MigrationEnd(target, "the target"), MODEL, interrupted
        )


async def test_what_somebody_stored_in_an_unfinished_copy_is_kept() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await begun(source, target)
    _, store = await target.open("shop")
    new = Record("new", "memory", DAY_ONE, DAY_ONE, text="acknowledged")
    await store.commit(Batch((Insert(new),), DAY_ONE + 7, "store_memory"))
    before = await told(target)
    with pytest.raises(Conflict, match="Another program has written"):
        await moved(source, target)
    assert await told(target) == before


async def test_a_project_that_somebody_made_in_an_unfinished_copy_is_kept() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await begun(source, target)
    await target.create("mine", "")
    with pytest.raises(Conflict, match="mine"):
        await moved(source, target)
    assert "mine" in {project.name for project in await target.list_projects()}


async def test_a_token_that_somebody_made_in_an_unfinished_copy_is_kept() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await begun(source, target)
    await target.add_token(Token("mine", "desk", DAY_ONE), "another hash")
    with pytest.raises(Conflict, match="tokens"):
        await moved(source, target)
    assert await target.has_token("another hash")


async def test_a_project_that_was_deleted_since_the_interruption_goes_from_the_copy_too() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await begun(source, target)
    await source.delete("shop")
    await moved(source, target)
    assert await told(target) == await told(source)


async def test_a_place_that_holds_something_is_not_written_to() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await target.create("mine", "")
    with pytest.raises(Conflict):
        await moved(source, target)
    assert [project.name for project in await target.list_projects()] == ["mine"]


async def test_a_finished_copy_is_not_written_over() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await moved(source, target)
    with pytest.raises(Conflict):
        await moved(source, target)


async def test_an_unfinished_copy_of_another_place_is_left_alone() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await target.set_note(MIGRATION_ORIGIN_NOTE, "elsewhere")
    with pytest.raises(Conflict) as caught:
        await moved(source, target)
    assert "elsewhere" in str(caught.value)


async def test_an_unfinished_copy_is_not_copied_on() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await source.set_note(MIGRATION_ORIGIN_NOTE, "elsewhere")
    with pytest.raises(Conflict) as caught:
        await moved(source, target)
    assert "elsewhere" in str(caught.value)
    assert await target.read_catalog_data() == await MemoryLibrary().read_catalog_data()


async def test_a_token_is_something_that_is_not_written_over() -> None:
    source, target = await filled(MemoryLibrary()), MemoryLibrary()
    await target.add_token(Token("mine", "desk", DAY_ONE), "another hash")
    with pytest.raises(Conflict):
        await moved(source, target)
    assert await target.has_token("another hash")
