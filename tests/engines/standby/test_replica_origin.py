"""A database that comes back with less than it had."""

import asyncio
from collections.abc import AsyncIterator
from logging import WARNING
from pathlib import Path
from typing import Any, cast

import pytest

from everkept.core.answers import CatalogData
from everkept.core.ports import Library, Token
from everkept.core.records import RecordFilter
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.standby import replica_follower
from everkept.engines.standby.replica import IDENTITY_NOTES, ensure_identity
from everkept.engines.standby.replica_follower import FULL_PASS_INTERVAL
from everkept.errors import Refused, StorageFull
from records import DAY_ONE, batch, entity, note
from standby import EVERY, Standing, standing_by


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    async with standing_by(tmp_path) as made:
        await made.library.create("project", "")
        await (await made.store()).commit(batch(entity("Ada"), note("Ada", "text")))
        await made.followed()
        yield made


def kept(folder: Path) -> list[Path]:
    return sorted(folder.glob("replica.before-*"))


async def ids(library: SqliteLibrary, name: str = "project") -> set[str]:
    _, store = await library.open(name)
    return {record.id for record in await store.scan(RecordFilter())}


async def test_what_an_emptied_database_had_is_kept(
    standing: Standing, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await standing.library.close()
    emptied = MemoryLibrary(standing.clock)
    async with standing_by(tmp_path, emptied) as standing:
        await standing.library.list_projects()
        await standing.followed()
        await standing.followed()
        [folder] = kept(tmp_path)
        before = SqliteLibrary(folder)
        assert await ids(before) == {"Ada", "text"}
        await before.close()
        assert standing.library.condition.copy_kept == str(folder)
        [said] = [each.getMessage() for each in caplog.records if each.levelno >= WARNING]
        assert str(folder) in said
        # From now on the copy is that of the database which is there.
        await standing.library.create("new", "")
        await (await standing.store("new")).commit(batch(entity("Bob")))
        await standing.followed()
        assert [project.name for project in await standing.replica.list_projects()] == ["new"]
        assert await ids(standing.replica, "new") == {"Bob"}
    assert len(kept(tmp_path)) == 1
    async with standing_by(tmp_path, emptied) as standing:
        await standing.goes()
        assert standing.library.condition.copy_kept == str(folder)


async def test_one_that_is_emptied_under_a_running_program_is_no_different(standing: Standing, tmp_path: Path) -> None:
    """What was acknowledged last is kept too, though no copy was made of it."""
    store = await standing.store()
    await store.commit(batch(entity("last")))
    user = await standing.library.open_user_store()
    await user.commit(batch(entity("me")))
    await standing.goes()
    await standing.database.replace_catalog_data(CatalogData())
    await standing.returns()
    await standing.followed()
    [folder] = kept(tmp_path)
    before = SqliteLibrary(folder)
    assert await ids(before) == {"Ada", "text", "last"}
    assert len(await (await before.open_user_store()).get(["me"])) == 1
    await before.close()


@pytest.mark.parametrize("count", [1, 5])
async def test_what_a_restored_backup_lacks_is_kept(tmp_path: Path, count: int) -> None:
    """The changes that it has got since then may be fewer, or more, than those that it lost."""
    async with standing_by(tmp_path) as standing:
        user = await standing.library.open_user_store()
        for name in ("a", "b", "c"):
            await user.commit(batch(entity(name)))
        await standing.library.create("project", "")
        await (await standing.store()).commit(batch(entity("Ada")))
        await standing.followed()
        catalog_data = await standing.database.read_catalog_data()
    restored = MemoryLibrary(standing.clock)
    await restored.replace_catalog_data(catalog_data)
    await (await restored.open("project"))[1].commit(batch(entity("Ada")))
    for number in range(count):
        await (await restored.open_user_store()).commit(batch(entity(f"x{number}"), at=DAY_ONE + 9))
    async with standing_by(tmp_path, restored) as standing:
        await standing.library.open_user_store()
        await standing.followed()
        await standing.followed()
        [folder] = kept(tmp_path)
        before = SqliteLibrary(folder)
        assert len(await (await before.open_user_store()).get(["a", "b", "c"])) == 3
        assert await ids(before) == {"Ada"}
        await before.close()
        here = await standing.replica.open_user_store()
        assert await here.read_changes() == await (await restored.open_user_store()).read_changes()
        assert await ids(standing.replica) == {"Ada"}
    assert len(kept(tmp_path)) == 1


async def test_a_project_that_others_have_deleted_is_ordinary(standing: Standing, tmp_path: Path) -> None:
    """Also where there was no other."""
    await standing.database.delete("project")
    for _ in range(FULL_PASS_INTERVAL):
        await standing.time.comes(EVERY)
        await standing.followed()
    assert await standing.replica.list_projects() == []
    assert kept(tmp_path) == []
    assert standing.library.condition.copy_kept == ""


async def test_a_database_that_lost_nothing_but_its_name_gets_another(standing: Standing, tmp_path: Path) -> None:
    await standing.library.add_token(Token("t", "label", 5), "hash")
    await standing.followed()
    for key in await standing.database.list_notes(IDENTITY_NOTES):
        await standing.database.set_note(key, None)
    for _ in range(2):
        await standing.library.set_note("a write", "of the library")
        await standing.followed()
    assert await standing.database.list_notes(IDENTITY_NOTES)
    assert await standing.replica.list_notes(IDENTITY_NOTES) == await standing.database.list_notes(IDENTITY_NOTES)
    assert kept(tmp_path) == []


class Late:
    """A database whose notes somebody else writes only when it is time."""

    def __init__(self, database: MemoryLibrary) -> None:
        self._database = database
        self.waits = asyncio.Event()
        self.is_time = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    async def set_note(self, key: str, value: str | None) -> None:
        self.waits.set()
        await self.is_time.wait()
        await self._database.set_note(key, value)


async def test_a_database_that_two_have_named_at_once_is_the_same_to_both(tmp_path: Path) -> None:
    database = MemoryLibrary(lambda: DAY_ONE)
    late = Late(database)
    naming = asyncio.create_task(ensure_identity(cast(Library, late), {}))
    await late.waits.wait()
    async with standing_by(tmp_path, database) as standing:
        user = await standing.library.open_user_store()
        await standing.followed()
        await standing.goes()
        late.is_time.set()
        await naming
        await user.commit(batch(entity("Ada")))
        await standing.returns()
        assert standing.library.condition.waiting == 0
        assert await (await standing.database.open_user_store()).get(["Ada"])


async def test_what_cannot_be_kept_is_not_followed(
    standing: Standing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await standing.library.close()

    def full(_folder: Path, _at: int) -> Path:
        raise StorageFull("There is no room.")

    monkeypatch.setattr(replica_follower, "save_copy", full)
    async with standing_by(tmp_path, MemoryLibrary(standing.clock)) as standing:
        await standing.library.list_projects()
        await standing.followed()
        assert await ids(standing.replica) == {"Ada", "text"}
        monkeypatch.undo()
        await standing.time.comes(EVERY)
        await standing.followed()
        assert len(kept(tmp_path)) == 1


async def test_who_may_only_read_has_a_copy_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(_key: str, _value: str | None) -> None:
        raise Refused("This user may only read.")

    database = MemoryLibrary(lambda: DAY_ONE)
    await database.create("project", "")
    monkeypatch.setattr(database, "set_note", refuses)
    async with standing_by(tmp_path, database) as standing:
        await standing.library.list_projects()
        await standing.followed()
        assert len(await standing.replica.list_projects()) == 1


async def test_what_waits_is_not_brought_to_another_database(standing: Standing, tmp_path: Path) -> None:
    await standing.goes()
    await standing.library.set_note("key", "waits")
    await standing.library.close()
    other = MemoryLibrary(standing.clock)
    await other.create("foreign", "")
    async with standing_by(tmp_path, other) as standing:
        assert await standing.library.get_note("key") == "waits"  # what was last seen, and stored since
        await standing.time.sees(1.0)
        assert await other.get_note("key") is None
        condition = standing.library.condition
        assert (condition.status, condition.waiting) == ("reconnecting", 1)
        assert "The database is not the one" in condition.reason
        assert str(tmp_path) in condition.reason
