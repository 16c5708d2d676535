from pathlib import Path

from everkept.core.projects import OffPeriod
from everkept.engines.sqlite.connection import connect
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.project_list import note_deletion
from everkept.engines.sqlite.schema import LIBRARY
from records import DAY_ONE

FOLDER = "/work/shop"


async def test_a_deletion_that_did_not_come_about_leaves_it_off(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path, clock=lambda: DAY_ONE)
    made = await library.create("shop", "")
    await library.link_workspace(FOLDER, made)
    off = await library.set_off("shop", off=True)
    db = connect(tmp_path / "_meta.db", LIBRARY)
    note_deletion(db, made.id, DAY_ONE + 5)  # and then the process dies
    db.close()
    assert await library.get_project("shop") == off
    [silence] = await library.list_off_periods()
    assert silence.until is None
    assert not (await library.set_off("shop", off=False)).is_off
    await library.delete("shop")
    assert [silence.until for silence in await library.list_off_periods()] == [DAY_ONE]
    await library.close()


async def test_who_only_reads_can_see_that_it_is_off(tmp_path: Path) -> None:
    from everkept.engines.sqlite.read_only_library import open_read_only_library

    library = SqliteLibrary(tmp_path)
    await library.link_workspace(FOLDER, await library.create("shop", ""))
    room = open_read_only_library(tmp_path)
    assert room is not None
    assert await room.list_off_periods() == []
    await room.close()
    off = await library.set_off("shop", off=True)
    room = open_read_only_library(tmp_path)
    assert room is not None
    assert await room.get_project("shop") == off
    assert await room.find_workspace_project(FOLDER) == off
    assert await room.list_off_periods() == await library.list_off_periods() == [OffPeriod(FOLDER, off.off_since or 0)]
    await room.close()
    await library.close()
