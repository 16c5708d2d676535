import asyncio
import contextlib
import threading
from pathlib import Path

import psutil
import pytest

from making import batch, entity
from recollect.core.records import Where
from recollect.engines.sqlite import library as libraries
from recollect.engines.sqlite import moves
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.errors import RecollectError


async def test_nothing_is_made_before_the_first_call(folder: Path) -> None:
    library = SqliteLibrary(folder)
    await library.close()
    assert not folder.exists()  # noqa: ASYNC240


async def test_a_library_is_the_same_after_a_restart(library: SqliteLibrary, folder: Path) -> None:
    before = await library.projects()
    await library.set_note("key", "value")
    await library.close()
    again = SqliteLibrary(folder)
    assert await again.projects() == before
    assert await again.note("key") == "value"
    await again.close()


async def test_a_data_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file", encoding="utf-8")
    with pytest.raises(RecollectError) as caught:
        await SqliteLibrary(tmp_path / "data").projects()
    assert caught.value.code == "unavailable"


async def test_more_projects_may_be_used_than_are_kept_open(
    library: SqliteLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "OPEN_STORES", 2)
    stores = {}
    for name in "abcd":
        await library.create(name, "")
        _, stores[name] = await library.open(name)
    for name, store in stores.items():
        await store.commit(batch(entity(f"in {name}")))
    for name, store in stores.items():
        assert [record.id for record in await store.scan(Where())] == [f"in {name}"]


def open_files(folder: Path) -> set[str]:
    """Those below the folder that this process has open."""
    found = {opened.path for opened in psutil.Process().open_files()}
    return {path for path in found if path.startswith(str(folder))}


async def test_nothing_is_open_after_a_close_not_even_what_was_dropped_while_in_use(
    library: SqliteLibrary, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "OPEN_STORES", 1)
    stores = []
    for name in "abc":
        await library.create(name, "")
        stores.append((await library.open(name))[1])
    for store in stores:
        await store.commit(batch(entity("Ada")))
    assert len(open_files(folder / "projects")) >= 3
    await library.close()
    assert open_files(folder) == set()


async def test_a_library_may_be_closed_while_projects_are_being_opened(
    library: SqliteLibrary,
) -> None:
    names = [f"project {number}" for number in range(12)]
    for name in names:
        await library.create(name, "")

    async def use(name: str) -> None:
        _, store = await library.open(name)
        with contextlib.suppress(RecollectError):
            await store.scan(Where())

    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(use(name))
            group.create_task(library.close())
    await library.close()
    assert [project.name for project in await library.projects()][1:] == sorted(names)


async def test_calls_that_open_one_project_at_once_share_its_store(
    library: SqliteLibrary,
) -> None:
    await library.close()
    opened = await asyncio.gather(*(library.open("project") for _ in range(8)))
    assert len({id(store) for _, store in opened}) == 1


@pytest.mark.parametrize("operation", ["create", "archive", "delete"])
async def test_a_move_whose_caller_gives_up_is_finished(
    library: SqliteLibrary, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_go_on = threading.Event(), threading.Event()
    transition = moves._transition

    def slow(*arguments: object) -> object:
        has_begun.set()
        may_go_on.wait()
        return transition(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(moves, "_transition", slow)
    arguments = ("made", "") if operation == "create" else ("project",)
    moving = asyncio.create_task(getattr(library, operation)(*arguments))
    await asyncio.to_thread(has_begun.wait)
    moving.cancel()
    await asyncio.wait([moving])
    may_go_on.set()
    # The next write waits for it.
    await library.set_note("key", "value")
    found = {project.name: project.status for project in await library.projects()}
    assert (
        found
        == {
            "create": {"made": "active", "project": "active"},
            "archive": {"project": "archived"},
            "delete": {},
        }[operation]
    )
    for name, status in found.items():
        if status == "active":
            _, store = await library.open(name)
            await store.commit(batch(entity("after")))
