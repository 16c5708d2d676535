"""Past conversations to a hook, while a project is off."""

from pathlib import Path

import pytest

from everkept.core.projects import find_workspace
from everkept.core.records import Record, RecordFilter
from everkept.core.runtime import run_without_loop
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.read_only_library import SqliteReadOnlyLibrary, open_read_only_library
from everkept.families.history.model import TURN
from everkept.hooks.workspace import open_history
from records import DAY_ONE, batch
from worktrees import add_worktree


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A repository with a worktree and a link to it beside it."""
    folder = tmp_path / "shop"
    add_worktree(folder, tmp_path / "tree")
    (tmp_path / "link").symlink_to(folder)
    return folder


def said_in(folder: Path) -> Record:
    return Record(f"turn in {folder.name}", TURN, DAY_ONE, DAY_ONE, text="Hm.", scope=str(folder))


async def filled(library: MemoryLibrary | SqliteLibrary, shop: Path) -> None:
    names = ("shop", "tree", "link", "other")
    history = await library.open_history_store()
    await history.commit(batch(*(said_in(shop.parent / name) for name in names)))
    home = find_workspace(shop)
    assert home is not None
    await library.link_workspace(home.key, await library.create("shop", ""))


async def told(room: MemoryLibrary | SqliteReadOnlyLibrary) -> set[str]:
    past = await open_history(room)
    assert past is not None
    return {Path(record.scope).name for record in await past.scan(RecordFilter(kinds=(TURN,)))}


async def test_nothing_of_a_project_that_is_off_is_told_whatever_its_folder_is_called(shop: Path) -> None:
    library = MemoryLibrary()
    await filled(library, shop)
    assert await open_history(library) is await library.open_history_store()
    await library.set_off("shop", off=True)
    assert await told(library) == {"other"}
    await library.set_off("shop", off=False)
    assert await open_history(library) is await library.open_history_store()


async def test_it_is_so_without_an_event_loop(shop: Path, tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    await filled(library, shop)
    await library.set_off("shop", off=True)
    room = open_read_only_library(tmp_path / "data")
    assert room is not None
    assert run_without_loop(told(room)) == {"other"}
    await room.close()
    await library.close()


async def test_where_nothing_was_taken_in_there_is_no_past(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path / "data")
    await library.create("shop", "")
    room = open_read_only_library(tmp_path / "data")
    assert room is not None
    assert await open_history(room) is None
    await room.close()
    await library.close()
