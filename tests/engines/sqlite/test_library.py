import asyncio
import contextlib
import gc
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

from everkept.core.answers import SearchRecord
from everkept.core.ports import RecordVector
from everkept.core.records import RecordFilter
from everkept.engines.sqlite import library as libraries
from everkept.engines.sqlite import project_lifecycle
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import EverkeptError, ReadOnly
from processes import Actor
from records import batch, entity, record_ref

PROJECT_NAME = "project"


async def test_nothing_is_made_before_the_first_call(folder: Path) -> None:
    library = SqliteLibrary(folder)
    await library.close()
    assert not folder.exists()  # noqa: ASYNC240


async def test_a_library_is_the_same_after_a_restart(library: SqliteLibrary, folder: Path) -> None:
    before = await library.list_projects()
    await library.set_note("key", "value")
    await library.close()
    again = SqliteLibrary(folder)
    assert await again.list_projects() == before
    assert await again.get_note("key") == "value"
    await again.close()


async def test_a_data_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    with pytest.raises(EverkeptError) as caught:
        await SqliteLibrary(tmp_path / "data").list_projects()
    assert caught.value.code == "unavailable"


async def test_more_projects_may_be_used_than_are_kept_open(
    library: SqliteLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "MAX_OPEN_STORES", 2)
    stores = {}
    for name in "abcd":
        await library.create(name, "")
        _, stores[name] = await library.open(name)
    for name, store in stores.items():
        await store.commit(batch(entity(f"in {name}")))
    for name, store in stores.items():
        assert [record.id for record in await store.scan(RecordFilter())] == [f"in {name}"]


def names(folder: Path, pattern: str) -> set[str]:
    return {path.name for path in folder.glob(pattern)}


def open_files(folder: Path) -> set[str]:
    """Those below the folder that this process has open."""
    found = {opened.path for opened in psutil.Process().open_files()}
    return {path for path in found if path.startswith(str(folder))}


async def test_nothing_is_open_after_a_close_not_even_what_was_dropped_while_in_use(
    library: SqliteLibrary, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "MAX_OPEN_STORES", 1)
    stores = []
    for name in "abc":
        await library.create(name, "")
        stores.append((await library.open(name))[1])
    for store in stores:
        await store.commit(batch(entity("Ada")))
    assert len(open_files(folder / "projects")) >= 3
    await library.close()
    assert open_files(folder) == set()


async def test_a_library_may_be_closed_while_projects_are_being_opened(library: SqliteLibrary) -> None:
    names = [f"project {number}" for number in range(12)]
    for name in names:
        await library.create(name, "")

    async def use(name: str) -> None:
        with contextlib.suppress(EverkeptError):  # what a close ends says so
            _, store = await library.open(name)
            await store.scan(RecordFilter())

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(use(name))
            group.create_task(library.close())
    await library.close()
    assert [project.name for project in await library.list_projects()][1:] == sorted(names)


async def test_calls_that_open_one_project_at_once_share_its_store(library: SqliteLibrary) -> None:
    await library.close()
    opened = await asyncio.gather(*(library.open("project") for _ in range(8)))
    assert len({id(store) for _, store in opened}) == 1


@pytest.mark.parametrize("operation", ["create", "archive", "delete"])
async def test_a_move_whose_caller_gives_up_is_finished(
    library: SqliteLibrary, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()
    transition = project_lifecycle._read_transition

    def slow(*arguments: object) -> object:
        has_begun.set()
        may_go_on.wait()
        return transition(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(project_lifecycle, "_read_transition", slow)
    arguments = ("made", "") if operation == "create" else ("project",)
    moving = asyncio.create_task(getattr(library, operation)(*arguments))
    await asyncio.to_thread(has_begun.wait)
    moving.cancel()
    await asyncio.wait([moving])
    may_go_on.set()
    # The next write waits for it.
    await library.set_note("key", "value")
    found = {project.name: project.status for project in await library.list_projects()}
    assert (
        found
        == {"create": {"made": "active", "project": "active"}, "archive": {"project": "archived"}, "delete": {}}[
            operation
        ]
    )
    for name, status in found.items():
        if status == "active":
            _, store = await library.open(name)
            await store.commit(batch(entity("after")))


async def test_two_libraries_on_one_folder_share_what_is_the_users(library: SqliteLibrary, folder: Path) -> None:
    other = SqliteLibrary(folder)
    ours, theirs = await asyncio.gather(library.open_user_store(), other.open_user_store())
    await ours.commit(batch(entity("ours")))
    await theirs.commit(batch(entity("theirs")))
    for store in (ours, theirs):
        assert [record.id for record in await store.scan(RecordFilter())] == ["ours", "theirs"]
    assert (await other.open_user_store()) is theirs
    await other.close()
    assert names(folder, "user.*") <= {"user.db", "user.db-wal", "user.db-shm"}


async def test_the_users_store_is_closed_with_the_library_and_opens_again(library: SqliteLibrary, folder: Path) -> None:
    await (await library.open_user_store()).commit(batch(entity("mine")))
    assert (folder / "user.db").stat().st_mode & 0o777 == 0o600
    await library.close()
    assert open_files(folder) == set()
    assert [record.id for record in await (await library.open_user_store()).scan(RecordFilter())] == ["mine"]


async def test_a_folder_that_cannot_be_written_has_an_empty_store_of_the_user(library: SqliteLibrary) -> None:
    await library.list_projects()
    library._read_only = True  # as root, permissions would not bind
    store = await library.open_user_store()
    assert await store.scan(RecordFilter(deleted=None)) == []
    assert await store.get_revision() == 0
    for attempt in (
        store.commit(batch(entity("new"))),
        store.purge([record_ref("new")]),
        store.redact([record_ref("new")], lambda _, values: values),
        store.put_vectors("model", []),
        store.note_accesses({"new": 1}, 1),
    ):
        with pytest.raises(ReadOnly):
            await attempt
    library._read_only = False
    await (await library.open_user_store()).commit(batch(entity("mine")))


async def test_what_other_processes_store_shows_in_the_stamp(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open(PROJECT_NAME)
    before = await store.get_stamp()
    Actor("commit_numbers", folder, PROJECT_NAME, "other", 2).finish()
    after = await store.get_stamp()
    assert after == (before[0] + 2, before[1])
    other = SqliteLibrary(folder)
    _, theirs = await other.open(PROJECT_NAME)
    await theirs.put_vectors("model", [RecordVector("kept", 1, np.ones(2, np.float32))])
    assert await store.get_stamp() == (after[0], after[1] + 1)
    await other.close()


async def test_a_stamp_is_the_same_after_a_restart(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open(PROJECT_NAME)
    await store.put_vectors("model", [RecordVector("kept", 1, np.ones(2, np.float32))])
    before = await store.get_stamp()
    await library.close()
    again = SqliteLibrary(folder)
    _, store = await again.open(PROJECT_NAME)
    assert await store.get_stamp() == before
    await again.close()


async def test_searches_are_kept_on_the_disk_and_shared(library: SqliteLibrary, folder: Path) -> None:
    other = SqliteLibrary(folder)
    for asking, query in ((library, "ours"), (other, "theirs")):
        await asking.add_searches([SearchRecord(1, "search", query, 0, 1.0)])
    for asking in (library, other):
        assert [search.query for search in await asking.list_searches()] == ["theirs", "ours"]
    assert await other.forget_searches() == 2
    assert await library.list_searches() == []
    await other.close()
    assert (folder / "_meta.db").stat().st_mode & 0o777 == 0o600


async def test_the_store_of_conversations_is_made_once_whoever_asks_first(library: SqliteLibrary, folder: Path) -> None:
    other = SqliteLibrary(folder)
    ours, theirs = await asyncio.gather(library.open_history_store(), other.open_history_store())
    await ours.commit(batch(entity("ours")))
    await theirs.commit(batch(entity("theirs")))
    assert [record.id for record in await ours.scan(RecordFilter())] == ["ours", "theirs"]
    await other.close()
    assert names(folder, "history.*") <= {"history.db", "history.db-wal", "history.db-shm"}


async def test_a_library_closes_files_that_nothing_else_holds(tmp_path: Path) -> None:
    for number in range(5):
        library = SqliteLibrary(tmp_path / str(number))
        await library.create("project", "")
        gc.collect()  # what is over holds nothing
        await library.close()
        assert open_files(tmp_path) == set()
