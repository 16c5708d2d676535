from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.app.engines import MIGRATION_ORIGIN_NOTE, FinishedLibrary, make_library
from everkept.core.ports import Library
from everkept.core.sessions import Session
from everkept.core.times import read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Refused
from everkept.settings import read_settings


async def nothing() -> None:
    """To be done at the first call."""


async def unfinished(folder: Path, origin: str = "sqlite:/old place") -> None:
    library = SqliteLibrary(folder)
    await library.set_note(MIGRATION_ORIGIN_NOTE, origin)
    await library.close()


async def test_an_unfinished_copy_is_not_used_and_the_command_is_named_that_finishes_it(tmp_path: Path) -> None:
    await unfinished(tmp_path)
    library = make_library(read_settings({"data_dir": tmp_path, "config": "none"}, {}), read_clock)
    for ask in (library.list_projects(), library.open_user_store(), library.create("shop", "")):
        with pytest.raises(Refused) as caught:
            await ask
        assert "unfinished copy of sqlite:/old place" in caught.value.message
        assert "everkept migrate --from 'sqlite:/old place' --to" in (caught.value.hint or "")
        assert str(tmp_path) in (caught.value.hint or "")
    await library.close()


async def test_no_tool_writes_to_an_unfinished_copy(tmp_path: Path) -> None:
    await unfinished(tmp_path)
    app = App(read_settings({"data_dir": tmp_path, "config": "none", "embedding_model": "none"}, {}))
    with pytest.raises(Refused, match="unfinished copy"):
        await app.call(Session(), "store_memory", {"content": "this", "type": "semantic", "scope": "user"})
    await app.close()


async def test_a_server_is_named_as_the_command_takes_it() -> None:
    library: Library = MemoryLibrary()
    await library.set_note(MIGRATION_ORIGIN_NOTE, "ws://old:8000 (memory/default)")
    with pytest.raises(Refused) as caught:
        await FinishedLibrary(library, "wss://new (memory/default)", nothing).list_projects()
    assert "--from ws://old:8000 --to wss://new`" in (caught.value.hint or "")


async def test_what_is_finished_is_looked_at_once_and_is_what_it_was() -> None:
    library, firsts = MemoryLibrary(), list[str]()

    async def first() -> None:
        firsts.append("done")

    checked = FinishedLibrary(library, "memory", first)
    assert checked.condition == library.condition
    await checked.create("shop", "about it")
    assert [project.name for project in await checked.list_projects()] == ["shop"]
    assert firsts == ["done"]
    await library.set_note(MIGRATION_ORIGIN_NOTE, "elsewhere")
    assert await checked.get_note(MIGRATION_ORIGIN_NOTE) == "elsewhere"


async def test_a_copy_is_used_as_soon_as_it_is_finished() -> None:
    library = MemoryLibrary()
    await library.set_note(MIGRATION_ORIGIN_NOTE, "elsewhere")
    checked = FinishedLibrary(library, "memory", nothing)
    with pytest.raises(Refused):
        await checked.list_projects()
    await library.set_note(MIGRATION_ORIGIN_NOTE, None)
    assert await checked.list_projects() == []
