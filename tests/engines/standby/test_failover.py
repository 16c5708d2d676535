"""Which of both answers a call: the database, or what stands in for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from everkept.core.answers import SearchRecord
from everkept.core.library import CatalogChange, CatalogQuestion, track_replica_use
from everkept.core.ports import PurgeResult
from everkept.core.records import Batch, Change, Delete, RecordFilter, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.standby.failover import FIRST_READ_SECONDS, READ_WAIT_SECONDS
from everkept.errors import (
    Conflict,
    EverkeptError,
    NotFound,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreDamaged,
    StoreTooNew,
)
from records import batch, entity, record_ref
from standby import PATIENCE, Standing, standing_by

T = TypeVar("T")


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    async with standing_by(tmp_path) as made:
        await made.library.create("project", "")
        await made.followed()
        yield made


async def test_a_write_that_takes_too_long_is_tried_once_and_kept(
    standing: Standing, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, there = await standing.store(), await standing.stored()
    attempts, commit = list[Batch](), there.commit

    async def slow(given: Batch) -> Change:
        attempts.append(given)
        await commit(given)
        raise QueryTimeout("It takes too long.")

    monkeypatch.setattr(there, "commit", slow)
    await store.commit(batch(entity("Ada")))
    assert len(attempts) == 1
    condition = standing.library.condition
    assert (condition.waiting, condition.status) == (1, "reconnecting")
    assert condition.is_catching_up
    monkeypatch.undo()
    await standing.becomes("connected")
    assert await there.get_revision() == 1
    assert standing.library.condition.waiting == 0


async def test_one_call_does_not_mix_the_database_and_what_was_last_seen(standing: Standing) -> None:
    store = await standing.store()

    async def how_many() -> int:
        return await store.count_records(RecordFilter())

    await standing.goes()
    with track_replica_use() as noted:
        assert await how_many() == 0
        await standing.returns()
        await (await standing.stored()).commit(batch(entity("theirs")))
        assert await how_many() == 0
        await store.commit(batch(entity("mine")))  # is there at once, for this call too
        assert await how_many() == 1
        later = asyncio.ensure_future(held_until(release := asyncio.Event(), how_many))
        await asyncio.sleep(0)
    assert noted.from_replica
    assert await how_many() == 2
    release.set()
    assert await later == 2  # what goes on behind the call is none of it


async def test_what_another_process_left_pending_is_sent_before_a_read(standing: Standing, tmp_path: Path) -> None:
    store = await standing.store()
    assert await store.get(["Ada"]) == []
    async with standing_by(tmp_path, standing.database) as other:
        await other.goes()
        await (await other.store()).commit(batch(entity("Ada")))
        with track_replica_use() as noted:
            assert [record.id for record in await store.get(["Ada"])] == ["Ada"]
        assert not noted.from_replica


async def test_a_process_tries_again_when_another_one_has_sent_its_pending_writes(
    standing: Standing, tmp_path: Path
) -> None:
    store = await standing.store()
    async with standing_by(tmp_path, standing.database) as other:
        await standing.goes()
        await store.commit(batch(entity("Ada")))
        await standing.time.sees(1.0)  # the pause before the next attempt, which no one ends here
        standing.line.mend()
        assert len(await (await other.store()).get(["Ada"])) == 1
        await store.get(["Ada"])
        await standing.becomes("connected")


async def test_an_error_that_follows_from_the_local_copy_says_so(standing: Standing) -> None:
    await standing.goes()
    with pytest.raises(NotFound) as caught, track_replica_use():
        await standing.library.get_project("another")
    assert caught.value.degraded
    assert "local copy, which may be older" in str(caught.value)
    await standing.returns()
    with pytest.raises(NotFound) as caught, track_replica_use():
        await standing.library.get_project("another")
    assert not caught.value.degraded


async def test_a_write_that_the_database_refuses_is_planned_again_with_its_data(standing: Standing) -> None:
    store = await standing.store()
    await (await standing.stored()).commit(batch(entity("Ada")))  # the local copy does not have it yet
    await standing.goes()
    with track_replica_use():
        assert await store.get(["Ada"]) == []
        await standing.returns()
        with pytest.raises(Conflict):
            await store.commit(batch(entity("Ada")))
        assert [record.id for record in await store.get(["Ada"])] == ["Ada"]


async def held_until(event: asyncio.Event, ask: Callable[[], Awaitable[int]]) -> int:
    await event.wait()
    return await ask()


async def test_the_first_question_does_not_wait_for_a_host_that_says_nothing(
    tmp_path: Path, standing: Standing
) -> None:
    await standing.library.close()
    async with standing_by(tmp_path, standing.database) as standing:
        standing.line.hangs_in("ListProjects")
        with track_replica_use() as noted:
            asking = standing.time.rushes(standing.library.list_projects(), FIRST_READ_SECONDS)
            assert [project.name for project in await asking] == ["project"]
        assert noted.from_replica
        standing.line.mend()
        await standing.becomes("connected")


async def test_where_nothing_was_ever_seen_the_first_question_waits(tmp_path: Path) -> None:
    async with standing_by(tmp_path) as standing:
        standing.line.hangs_in("ListProjects")
        asking = asyncio.ensure_future(standing.library.list_projects())
        await standing.time.comes(FIRST_READ_SECONDS)
        await standing.line.hangs.wait()
        await standing.library.get_note("another call")
        assert not asking.done()
        asking.cancel()


class Locked(MemoryLibrary):
    """Lets nobody in while it is so."""

    is_locked = False

    async def ask(self, question: CatalogQuestion[T]) -> T:
        self.expect_open()
        return await super().ask(question)

    async def apply(self, change: CatalogChange[T]) -> T:
        self.expect_open()
        return await super().apply(change)

    def expect_open(self) -> None:
        if self.is_locked:
            raise Refused("The password is wrong.")


async def test_who_is_not_let_in_goes_on_with_what_was_last_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = Locked()
    async with standing_by(tmp_path, database) as standing:
        await standing.library.set_note("key", "value")
        await standing.followed()
    database.is_locked = True
    async with standing_by(tmp_path, database) as standing:
        for _ in range(2):
            asked = standing.time.rushes(standing.library.get_note("key"), PATIENCE, READ_WAIT_SECONDS)
            assert await asked == "value"
        await standing.time.rushes(standing.library.set_note("key", "newer"), PATIENCE)
        condition = standing.library.condition
        assert (condition.waiting, condition.reason) == (1, "The password is wrong.")
        assert len(caplog.records) == 1
        database.is_locked = False
        await standing.returns()
        assert await database.get_note("key") == "newer"


async def test_who_is_not_let_in_and_has_seen_nothing_is_told(tmp_path: Path) -> None:
    database = Locked()
    database.is_locked = True
    async with standing_by(tmp_path, database) as standing:
        with pytest.raises(Refused):
            await standing.library.get_note("key")
        with pytest.raises(Refused):
            await standing.library.set_note("key", "value")
        assert standing.library.condition.status == "connected"


async def test_who_may_not_do_one_thing_is_told_so(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(_batch: Batch) -> Change:
        raise Refused("This user may only read.")

    store = await standing.store()
    monkeypatch.setattr(await standing.stored(), "commit", refuses)
    with pytest.raises(Refused):
        await store.commit(batch(entity("Ada")))
    assert standing.library.condition.status == "connected"


@pytest.mark.parametrize("error", [StoreDamaged("It is damaged."), StorageFull("It is full.")])
@pytest.mark.parametrize("name", ["commit", "get_revision"])
async def test_what_the_copy_cannot_take_waits_all_the_same(
    standing: Standing,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: EverkeptError,
    name: str,
) -> None:
    async def fails(*_: object) -> int:
        raise error

    store = await standing.store()
    await standing.goes()
    caplog.clear()
    _, here = await standing.replica.open("project")
    monkeypatch.setattr(here, name, fails)
    for number in range(2):
        with track_replica_use() as noted:
            change = await store.commit(batch(entity(f"e{number}"), tool="made"))
        assert noted.kept_here
        assert (change.seq, change.tool, change.edits[0].id) == (0, "made", f"e{number}")
    assert [record.getMessage().count(error.message) for record in caplog.records] == [1]
    monkeypatch.undo()
    await standing.returns()
    assert len(await (await standing.stored()).get(["e0", "e1"])) == 2


async def test_what_the_library_here_cannot_take_waits_too(standing: Standing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise StorageFull("It is full.")

    await standing.goes()
    for name in ("create", "set_note"):
        monkeypatch.setattr(standing.replica, name, fails)
    project = await standing.library.create("new", "")
    await standing.library.set_note("key", "value")
    monkeypatch.undo()
    await standing.returns()
    assert (await standing.database.get_project("new")).id == project.id
    assert await standing.database.get_note("key") == "value"


async def test_what_does_not_fit_is_refused_though_the_copy_is_sound(standing: Standing) -> None:
    store = await standing.store()
    await standing.goes()
    with pytest.raises(Conflict):
        await store.commit(batch(Update("nobody", {"text": "x"}, 1)))
    assert standing.library.condition.waiting == 0


async def test_what_was_removed_without_an_answer_is_not_said_to_be_nothing(standing: Standing) -> None:
    store = await standing.store()
    await store.commit(batch(entity("secret")))
    standing.line.breaks_in("Purge")
    purging = asyncio.create_task(store.purge([record_ref("secret")]))
    await standing.returns(after=1.0)
    assert await purging == PurgeResult(1, 0, complete=True)
    _, here = await standing.replica.open("project")
    assert await here.scan(RecordFilter(deleted=None)) == []


async def test_searches_forgotten_without_an_answer_are_counted(standing: Standing) -> None:
    await standing.library.add_searches([SearchRecord(5, "recall", "red", 1, 2.0)])
    standing.line.breaks_in("ForgetSearches")
    forgetting = asyncio.create_task(standing.library.forget_searches())
    await standing.returns(after=1.0)
    assert await forgetting == 1


async def test_what_is_removed_for_good_is_not_left_in_what_was_set_aside(standing: Standing, tmp_path: Path) -> None:
    store = await standing.store()
    await store.commit(batch(entity("Ada")))
    await standing.followed()
    await standing.goes()
    await store.commit(batch(Update("Ada", {"text": "TOPSECRET"}, 1)))
    await (await standing.stored()).commit(batch(Delete(record_ref("Ada"))))
    await standing.returns()
    assert standing.library.condition.set_aside == 1
    assert (await store.purge([record_ref("Ada")])).complete
    assert standing.library.condition.set_aside == 0
    assert b"TOPSECRET" not in journal_bytes(tmp_path)


def journal_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("journal.db*"))


class Upgraded(MemoryLibrary):
    """A newer program has changed it, while that is so."""

    is_upgraded = False

    async def ask(self, question: CatalogQuestion[T]) -> T:
        self.expect_old()
        return await super().ask(question)

    async def apply(self, change: CatalogChange[T]) -> T:
        self.expect_old()
        return await super().apply(change)

    def expect_old(self) -> None:
        if self.is_upgraded:
            raise StoreTooNew("It is too new. Nothing of this call was stored.")


async def test_a_database_that_a_newer_program_has_changed_is_not_away(tmp_path: Path) -> None:
    database = Upgraded()
    async with standing_by(tmp_path, database) as standing:
        library = standing.library
        await library.set_note("kept", "yes")
        await standing.followed()
        await standing.goes()
        await library.set_note("kept", "still")  # it is away, and nothing else is known
        await standing.time.sees(1.0)
        database.is_upgraded = True
        standing.line.mend()
        await standing.time.comes(1.0)
        await standing.time.sees(2.0)
        for call in (library.set_note("kept", "no"), library.get_note("kept")):
            with pytest.raises(StoreTooNew):
                await call
        with pytest.raises(StoreTooNew):
            await library.forget_searches()
        assert library.condition.waiting == 1
        database.is_upgraded = False
        await standing.time.comes(2.0)
        await standing.becomes("connected")
        assert await library.get_note("kept") == "still"
        assert await database.get_note("kept") == "still"


async def test_a_write_without_an_answer_is_kept_for_a_newer_program(tmp_path: Path) -> None:
    database = Upgraded()
    async with standing_by(tmp_path, database) as standing:
        library = standing.library
        await library.set_note("kept", "yes")
        await standing.followed()
        standing.line.breaks_in("WriteNote")
        storing = asyncio.ensure_future(library.set_note("kept", "perhaps"))
        await standing.time.sees(1.0)
        database.is_upgraded = True
        standing.line.mend()
        await standing.time.comes(1.0)
        await storing  # it was done there: to say that nothing was stored would be wrong
        assert library.condition.waiting == 1
