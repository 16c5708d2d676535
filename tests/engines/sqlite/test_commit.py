import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

from everkept.core.records import Delete, RecordFilter
from everkept.engines.sqlite.library import SqliteLibrary
from processes import acting
from records import batch, entity, record_ref

PROCESSES = 4
COMMITS = 60
KILLS = 6


async def test_commits_of_several_processes_are_all_kept(library: SqliteLibrary, folder: Path) -> None:
    with ExitStack() as stack:
        writers = [
            stack.enter_context(acting("commit_numbers", folder, "project", f"p{n}", COMMITS)) for n in range(PROCESSES)
        ]
        said = [set(writer.finish()) for writer in writers]
    assert [len(acknowledged) for acknowledged in said] == [COMMITS] * PROCESSES
    _, store = await library.open("project")
    found = [record.id for record in await store.scan(RecordFilter())]
    assert set(found) == {"kept"}.union(*said)
    changes = await store.read_changes(limit=10_000)
    assert [change.seq for change in changes] == list(range(1, PROCESSES * COMMITS + 2))
    assert [edit.id for change in changes for edit in change.edits] == found
    assert await store.find_faults() == []


async def test_what_was_acknowledged_survives_a_kill_at_any_moment(library: SqliteLibrary, folder: Path) -> None:
    acknowledged: set[str] = set()
    for kill in range(KILLS):
        with acting("commit_numbers", folder, "project", f"k{kill}", 1_000_000) as writer:
            acknowledged.update(writer.hear() for _ in range(5 + 7 * kill))
            acknowledged.update(writer.kill())
        _, store = await library.open("project")
        assert acknowledged <= {record.id for record in await store.scan(RecordFilter())}
        assert await store.find_faults() == []


async def test_of_several_who_commit_the_same_at_once_one_does_and_all_hear_of_it(
    library: SqliteLibrary, folder: Path
) -> None:
    others = [SqliteLibrary(folder) for _ in range(PROCESSES)]
    stores = [(await other.open("project"))[1] for other in others]
    for number in range(10):
        once = batch(entity(f"once {number}"), Delete(record_ref("kept")), key=f"key {number}")
        if number:
            once = batch(entity(f"once {number}"), revision=number + 1, key=f"key {number}")
        told = await asyncio.gather(*(store.commit(once) for store in stores))
        assert told == [told[0]] * PROCESSES
        assert told[0].seq == number + 2
    _, store = await library.open("project")
    expected = [f"once {number}" for number in range(10)]
    assert [record.id for record in await store.scan(RecordFilter())] == expected
    assert len(await store.read_changes()) == 11
    for other in others:
        await other.close()


async def test_two_processes_that_start_at_once_make_one_library(folder: Path) -> None:
    with ExitStack() as stack:
        starters = [
            stack.enter_context(acting("create_projects", folder, f"starter{number}", 3)) for number in range(PROCESSES)
        ]
        said = [starter.finish() for starter in starters]
    assert json.dumps(said).count("ok") == PROCESSES * 3
    library = SqliteLibrary(folder)
    assert len(await library.list_projects()) == PROCESSES * 3
    await library.close()
