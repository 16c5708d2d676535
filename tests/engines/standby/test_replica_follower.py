"""Keeping the local copy near the database."""

from collections.abc import AsyncIterator, Callable
from itertools import count
from logging import WARNING
from pathlib import Path

import pytest

from everkept.core.answers import StorePage
from everkept.core.ports import RecordVector, Token
from everkept.core.times import Clock, read_clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.standby import replica_follower
from everkept.engines.standby.replica import IDENTITY_NOTES, STANDBY_NOTES
from everkept.engines.standby.replica_follower import (
    DELAY_SECONDS,
    FULL_PASS_INTERVAL,
    LEVEL_NOTE,
    LIBRARY_SECONDS,
    NOTE_MICROSECONDS,
)
from everkept.errors import StorageFull
from records import DAY_ONE, batch, entity, note
from standby import EVERY, Standing, standing_by
from store_copies import axis


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    async with standing_by(tmp_path) as made:
        yield made


async def test_everything_is_copied_soon_after_the_first_call(standing: Standing) -> None:
    for name in ("one", "two"):
        await standing.database.create(name, "")
        await (await standing.stored(name)).commit(batch(entity(name)))
    await (await standing.database.open_user_store()).commit(batch(entity("me")))
    await (await standing.database.open_history_store()).commit(batch(entity("past")))
    await standing.database.add_token(Token("t", "label", 5), "hash")
    await standing.database.set_note("key", "value")
    await standing.library.list_projects()
    await standing.followed()
    replica = standing.replica
    assert [project.name for project in await replica.list_projects()] == ["one", "two"]
    assert len(await (await replica.open("two"))[1].get(["two"])) == 1
    assert len(await (await replica.open_user_store()).get(["me"])) == 1
    assert len(await (await replica.open_history_store()).get(["past"])) == 1
    assert await replica.has_token("hash")
    assert await replica.get_note("key") == "value"


async def test_what_is_written_is_copied_soon(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await standing.followed()
    await store.commit(batch(entity("Ada")))
    await store.commit(batch(note("Ada", "text")))
    await standing.followed()
    _, here = await standing.replica.open("project")
    assert await here.read_changes() == await (await standing.stored()).read_changes()


async def test_what_others_write_is_copied_after_a_while(standing: Standing) -> None:
    await standing.library.create("project", "")
    await standing.store()
    await standing.followed()
    await (await standing.stored()).commit(batch(entity("Ada")))
    await standing.time.comes(EVERY)
    await standing.followed()
    assert len(await (await standing.replica.open("project"))[1].get(["Ada"])) == 1


async def test_where_nothing_happens_each_store_in_use_is_asked_once_in_a_while(standing: Standing) -> None:
    for name in ("used", "unused"):
        await standing.library.create(name, "")
        await (await standing.stored(name)).commit(batch(entity(name)))
    await standing.store("used")
    await standing.library.open_user_store()
    for _ in range(2):  # the first look may still find something to do
        await standing.followed()
        await standing.time.comes(EVERY)
    await standing.followed()
    standing.line.asked.clear()
    await standing.time.comes(EVERY)
    await standing.followed()
    assert standing.line.asked == {"GetStamp": 2, "user": 1}


async def test_now_and_then_everything_is_looked_at(standing: Standing) -> None:
    await standing.library.list_projects()
    await standing.followed()
    await standing.database.create("made elsewhere", "")
    await (await standing.stored("made elsewhere")).commit(batch(entity("Ada")))
    for _ in range(FULL_PASS_INTERVAL):
        await standing.time.comes(EVERY)
        await standing.followed()
    _, here = await standing.replica.open("made elsewhere")
    assert len(await here.get(["Ada"])) == 1


class Telling(MemoryLibrary):
    """A database that tells of changes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.tell: Callable[[], None] = lambda: None

    async def on_change(self, hear: Callable[[], None]) -> bool:
        self.tell = hear
        return True


async def test_what_a_database_tells_of_is_copied_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = count(0.0, 3600.0)
    monkeypatch.setattr(replica_follower, "_get_loop_time", lambda: next(hours))
    database = Telling(read_clock)
    async with standing_by(tmp_path, database) as standing:
        await standing.library.create("project", "")
        await standing.store()
        await standing.followed()
        await database.create("made elsewhere", "")
        await (await standing.stored()).commit(batch(entity("Ada")))
        database.tell()
        await standing.followed()
        assert len(await standing.replica.list_projects()) == 2
        assert len(await (await standing.replica.open("project"))[1].get(["Ada"])) == 1


async def test_what_others_store_where_nobody_here_looks_is_copied_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count(3600.0, LIBRARY_SECONDS)
    monkeypatch.setattr(replica_follower, "_get_loop_time", lambda: next(seconds))
    monkeypatch.setattr(replica_follower, "MAX_UNUSED_STORES", 2)
    database = Telling(read_clock)
    names = ["a", "b", "c", "d"]
    async with standing_by(tmp_path, database) as standing:
        for name in names[:3]:
            await database.create(name, "")
        await standing.library.list_projects()
        await standing.followed()

        async def told() -> list[str]:
            """Those of which the copy has everything after one more look."""
            database.tell()
            await standing.followed()
            stores = {name: (await standing.replica.open(name))[1] for name in names}
            return [name for name, store in stores.items() if await store.get(["Ada"])]

        await database.create("d", "")
        for name in names:
            await (await standing.stored(name)).commit(batch(entity("Ada")))
        # What was never looked at is first, and with two that are no projects there are six.
        looks = [await told() for _ in range(3)]
        assert "d" in looks[0] != names
        assert looks[2] == names


async def test_who_never_ceases_to_tell_keeps_nothing_from_being_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = count(0.0, 3600.0)
    monkeypatch.setattr(replica_follower, "_get_loop_time", lambda: next(hours))
    database = Telling(read_clock)
    async with standing_by(tmp_path, database) as standing:
        await standing.library.list_projects()
        await standing.followed()
        await database.create("made elsewhere", "")
        await (await standing.stored("made elsewhere")).commit(batch(entity("Ada")))
        for _ in range(2):
            database.tell()
            await standing.followed()
        _, here = await standing.replica.open("made elsewhere")
        assert len(await here.get(["Ada"])) == 1


async def test_vectors_of_the_model_in_use_are_copied(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await store.commit(batch(entity("Ada", text="red"), entity("Bob", text="blue")))
    await store.put_vectors("one", [RecordVector("Ada", 1, axis(1))])
    await standing.followed()
    _, here = await standing.replica.open("project")
    assert await here.get_vectors("one", ["Ada"]) == {}
    assert len(await store.find_unembedded("one", ("entity",), 10)) == 1
    await standing.time.comes(EVERY)
    await standing.followed()
    assert list(await here.get_vectors("one", ["Ada", "Bob"])) == ["Ada"]
    await store.put_vectors("one", [RecordVector("Bob", 1, axis(2))])
    await standing.time.comes(EVERY)
    await standing.followed()
    assert list(await here.get_vectors("one", ["Ada", "Bob"])) == ["Ada", "Bob"]


async def test_how_far_it_has_come_is_nobody_elses_business(standing: Standing) -> None:
    await standing.library.create("project", "")
    await (await standing.store()).commit(batch(entity("Ada")))
    await standing.library.set_note("mine", "1")
    await standing.followed()
    assert await standing.replica.list_notes(STANDBY_NOTES)
    await standing.goes()
    assert await standing.library.list_notes("") == {"mine": "1"}
    assert (await standing.library.read_catalog_data()).notes == {"mine": "1"}
    await standing.library.set_note("mine", "2")
    await standing.returns()
    await standing.followed()
    left = (await standing.database.read_catalog_data()).notes.keys() - {"mine"}
    assert [key.startswith(IDENTITY_NOTES) for key in left] == [True]
    assert await standing.library.list_notes("") == {"mine": "2"}
    assert await standing.replica.list_notes(STANDBY_NOTES)


async def test_a_project_that_is_gone_is_gone_from_the_copy(standing: Standing) -> None:
    for name in ("stays", "goes"):
        await standing.library.create(name, "")
    await standing.followed()
    await standing.database.delete("goes")
    await standing.library.set_note("a write", "of the library")
    await standing.followed()
    assert [project.name for project in await standing.replica.list_projects()] == ["stays"]


async def test_it_is_known_when_the_copy_was_level_with_the_database(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.library.create("project", "")
        assert standing.library.condition.copy_at is None
        await standing.followed()
        seen = standing.library.condition.copy_at
        assert seen is not None
        await standing.goes()
        assert standing.library.condition.copy_at == seen
        database = standing.database
    async with standing_by(tmp_path, database) as standing:
        await standing.goes()
        assert standing.library.condition.copy_at == seen


async def test_when_it_was_level_is_put_down_once_a_minute(tmp_path: Path) -> None:
    at = DAY_ONE
    database = MemoryLibrary(lambda: at)
    async with standing_by(tmp_path, database, clock=lambda: at) as standing:
        await standing.library.create("project", "")
        await standing.followed()
        for waited in (1, NOTE_MICROSECONDS, 1):  # microseconds
            at += waited
            await standing.time.comes(EVERY)
            await standing.followed()
            assert standing.library.condition.copy_at == at
        noted = DAY_ONE + 1 + NOTE_MICROSECONDS
        assert await standing.replica.get_note(LEVEL_NOTE) == str(noted)


async def test_it_is_known_when_the_copy_was_last_told_of_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with standing_by(tmp_path) as standing:
        await standing.library.create("project", "")
        assert standing.library.condition.accounts_at is None
        await standing.followed()
        level, noted = standing.library.condition.copy_at, standing.library.condition.accounts_at
        assert level is not None
        assert noted is not None
        _, here = await standing.replica.open("project")

        async def fails(_stock: StorePage) -> None:
            raise StorageFull("There is no room.")

        monkeypatch.setattr(here, "replicate", fails)
        await (await standing.store()).commit(batch(entity("Ada")))
        await standing.library.set_note("a write", "of the library")
        await standing.followed()
        told = standing.library.condition
        assert (told.copy_at, (told.accounts_at or 0) > noted) == (level, True)
        database = standing.database
    async with standing_by(tmp_path, database) as standing:
        await standing.goes()
        assert standing.library.condition.accounts_at == noted


async def test_what_was_heard_and_not_looked_at_yet_is_looked_at_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0
    monkeypatch.setattr(replica_follower, "_get_loop_time", lambda: 3600 + seconds)
    database = Telling(read_clock)
    async with standing_by(tmp_path, database) as standing:
        await standing.library.list_projects()
        await standing.followed()
        await database.create("made elsewhere", "")
        database.tell()  # so soon after the last look that this one is left for later
        await standing.time.comes(DELAY_SECONDS)
        await standing.time.sees(LIBRARY_SECONDS)
        assert (standing.time.asleep(EVERY), await standing.replica.list_projects()) == (0, [])
        seconds = LIBRARY_SECONDS
        await standing.time.comes(LIBRARY_SECONDS)
        await standing.followed()
        assert [each.name for each in await standing.replica.list_projects()] == ["made elsewhere"]


async def test_a_copy_that_cannot_be_kept_up_is_told_once(
    standing: Standing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await standing.followed()
    seen = standing.library.condition.copy_at
    _, here = await standing.replica.open("project")

    async def fails(_stock: StorePage) -> None:
        raise StorageFull("There is no room.")

    monkeypatch.setattr(here, "replicate", fails)
    for name in ("Ada", "Bob"):
        await store.commit(batch(entity(name)))
        await standing.followed()
    [said] = [record.getMessage() for record in caplog.records if record.levelno >= WARNING]
    assert "There is no room." in said
    assert standing.library.condition.copy_at == seen


async def test_a_database_that_is_found_to_be_away_is_away_for_all(standing: Standing) -> None:
    await standing.library.create("project", "")
    await standing.store()
    await standing.followed()
    standing.line.cut()
    await standing.time.comes(EVERY)
    await standing.time.comes(DELAY_SECONDS)
    await standing.becomes("reconnecting")


async def test_a_copy_that_was_interrupted_goes_on(standing: Standing) -> None:
    await standing.library.create("project", "")
    store = await standing.store()
    await store.commit(batch(entity("Ada")))
    standing.line.breaks_in("ScanLinks")
    await standing.time.comes(DELAY_SECONDS)
    await standing.becomes("reconnecting")
    await standing.returns()
    await standing.followed()
    _, here = await standing.replica.open("project")
    assert await here.read_changes() == await (await standing.stored()).read_changes()


async def test_what_one_store_cannot_do_keeps_no_other_waiting(standing: Standing) -> None:
    for name in ("first", "second"):
        await standing.library.create(name, "")
        await (await standing.store(name)).commit(batch(entity(name)))
    await standing.database.archive("first")
    await standing.followed()
    assert len(await (await standing.replica.open("second"))[1].get(["second"])) == 1
