from pathlib import Path

from everkept.core.projects import Silence
from everkept.engines.sqlite.connection import connect
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.project_list import note_leaving
from everkept.engines.sqlite.schema import LIBRARY
from records import DAY_ONE

FOLDER = "/work/shop"


async def test_a_deletion_that_did_not_come_about_leaves_it_off(tmp_path: Path) -> None:
    library = SqliteLibrary(tmp_path, clock=lambda: DAY_ONE)
    made = await library.create("shop", "")
    await library.assign_workspace(FOLDER, made)
    off = await library.switch("shop", off=True)
    db = connect(tmp_path / "_meta.db", LIBRARY)
    note_leaving(db, made.id, DAY_ONE + 5)  # and then the process dies
    db.close()
    assert await library.project("shop") == off
    [silence] = await library.silences()
    assert silence.until is None
    assert not (await library.switch("shop", off=False)).is_off
    await library.delete("shop")
    assert [silence.until for silence in await library.silences()] == [DAY_ONE]
    await library.close()


async def test_who_only_reads_can_see_that_it_is_off(tmp_path: Path) -> None:
    from everkept.engines.sqlite.read_only_library import reading_room

    library = SqliteLibrary(tmp_path)
    await library.assign_workspace(FOLDER, await library.create("shop", ""))
    room = reading_room(tmp_path)
    assert room is not None
    assert await room.silences() == []
    await room.close()
    off = await library.switch("shop", off=True)
    room = reading_room(tmp_path)
    assert room is not None
    assert await room.project("shop") == off
    assert await room.project_of_workspace(FOLDER) == off
    assert (
        await room.silences() == await library.silences() == [Silence(FOLDER, off.off_since or 0)]
    )
    await room.close()
    await library.close()
