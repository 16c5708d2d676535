"""What was stored a moment before the database went."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.answers import StorePage
from everkept.core.ports import RecordStore, Token
from everkept.core.records import Delete, RecordFilter, Update
from everkept.engines.standby import library, replica
from everkept.engines.standby.replica_follower import DELAY_SECONDS
from records import batch, entity, link, note, record_ref
from standby import BOUND, EVERY, PATIENCE, Standing, standing_by


@pytest.fixture
async def standing(tmp_path: Path) -> AsyncIterator[Standing]:
    async with standing_by(tmp_path) as made:
        await made.library.create("project", "")
        store = await made.store()
        await store.commit(batch(entity("Ada")))
        await made.followed()
        yield made


@pytest.fixture
async def store(standing: Standing) -> RecordStore:
    return await standing.store()


async def test_what_was_acknowledged_is_read_and_changed_without_the_database(
    standing: Standing, store: RecordStore
) -> None:
    await store.commit(batch(entity("Bob"), note("Ada", "old")))
    await store.commit(batch(link("Ada", "knows", "Bob"), Update("Ada", {"text": "new"}, 1)))
    await store.commit(batch(Delete(record_ref("old"))))
    there = await (await standing.stored()).read_changes()
    await standing.goes()
    assert await store.read_changes() == there
    assert [r.version for r in await store.get(["Ada", "Bob", "old"])] == [2, 1]
    assert len(await store.find_links(["Bob"])) == 1
    await store.commit(batch(Update("Ada", {"text": "newer"}, 2)))
    await standing.returns()
    assert [r.text for r in await (await standing.stored()).get(["Ada"])] == ["newer"]
    await standing.followed()
    _, here = await standing.replica.open("project")
    assert await here.read_changes() == await (await standing.stored()).read_changes()


async def test_the_first_thing_may_be_a_write(standing: Standing, store: RecordStore) -> None:
    await store.commit(batch(entity("Bob")))
    standing.line.cut()
    await standing.time.rushes(store.commit(batch(note("Bob", "text"))), PATIENCE)
    assert len(await store.get(["Bob", "text"])) == 2


async def test_it_has_the_number_that_the_database_gave_it(standing: Standing, store: RecordStore) -> None:
    await (await standing.stored()).commit(batch(entity("theirs")))  # never seen here
    mine = await store.commit(batch(entity("mine"), tool="mine"))
    await standing.goes()
    assert [change.seq for change in await store.read_changes()] == [1, mine.seq]
    await store.commit(batch(Delete(record_ref("mine")), undoes=mine.seq))
    await standing.returns()
    [*_, undoing] = await store.read_changes()
    assert (undoing.seq, undoing.undoes) == (4, mine.seq)


async def test_what_builds_on_what_was_never_seen_is_left_to_the_database(
    standing: Standing, store: RecordStore
) -> None:
    await (await standing.stored()).commit(batch(entity("theirs")))
    await store.commit(batch(note("theirs", "unseen"), entity("also unseen")))
    await store.commit(batch(entity("seen")))
    await standing.goes()
    assert {r.id for r in await store.scan(RecordFilter())} == {"Ada", "seen"}
    await standing.returns()
    assert len(await store.get(["unseen", "also unseen", "seen"])) == 3


async def test_what_the_copy_has_already_is_not_brought_to_it_again(standing: Standing, store: RecordStore) -> None:
    """Another process has followed the database meanwhile."""
    await store.commit(batch(entity("Bob")))
    there, (_, here) = await standing.stored(), await standing.replica.open("project")
    await here.replicate(StorePage(await there.get(["Bob"]), changes=await there.read_changes(after=1)))
    await standing.goes()
    assert [each.seq for each in await store.read_changes()] == [1, 2]
    assert len(await store.get(["Bob"])) == 1


async def test_what_was_done_to_the_library_is_so_without_the_database(standing: Standing) -> None:
    held = standing.library
    await held.create("new", "made just now")
    await held.set_note("key", "value")
    await held.add_token(Token("t", "label", 5), "hash")
    await held.archive("project")
    await standing.goes()
    assert {p.name: p.status for p in await held.list_projects()} == {"new": "active", "project": "archived"}
    assert await held.get_note("key") == "value"
    assert await held.has_token("hash")


async def test_a_program_that_ends_leaves_it_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "CLOSE_SECONDS", BOUND)
    async with standing_by(tmp_path) as standing:
        await standing.library.create("project", "")
        await (await standing.store()).commit(batch(entity("Ada")))
        await (await standing.library.open_user_store()).commit(batch(entity("me")))
        database = standing.database
    async with standing_by(tmp_path, database) as standing:
        await standing.goes()
        assert len(await (await standing.store()).get(["Ada"])) == 1
        assert len(await (await standing.library.open_user_store()).get(["me"])) == 1


async def test_who_stores_much_is_followed_sooner(
    standing: Standing, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "MAX_RECENT", 4)
    await standing.time.sees(EVERY)
    for number in range(3):
        await store.commit(batch(entity(f"e{number}")))
    await standing.time.sees(EVERY)  # without anybody having waited for SOON
    assert standing.time.asleep(DELAY_SECONDS) == 0
    _, here = await standing.replica.open("project")
    assert len(await here.get(["e0", "e1", "e2"])) == 3


async def test_of_much_the_newest_is_kept(
    standing: Standing, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit, value in (("MAX_RECENT", 2), ("MAX_RECENT_CHARACTERS", 2_000)):
        monkeypatch.setattr(replica, limit, value)
    standing.line.hangs_in("GetStamp")  # nothing is followed
    for number in range(4):
        await store.commit(batch(entity(f"e{number}", text="x" * 400)))
    await standing.goes()
    assert {r.id for r in await store.scan(RecordFilter())} == {"Ada", "e2", "e3"}
