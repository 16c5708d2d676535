"""One project's records in a database that may be away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.answers import StorePage
from everkept.core.library import track_replica_use
from everkept.core.ports import RecordStore, RecordVector
from everkept.core.records import Delete, Record, RecordFilter, Update
from everkept.core.store import StoreQuestion
from everkept.engines.standby.failover import ADD_WAIT_SECONDS
from everkept.errors import Conflict, NotFound, QueryTimeout, StoreUnreachable
from records import batch, entity, link, note, record_ref
from standby import PATIENCE, Standing, standing_by
from store_copies import axis


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


async def texts(store: RecordStore) -> list[str]:
    return [record.text for record in await store.scan(RecordFilter(kinds=("observation",)))]


async def test_an_answer_that_never_came_is_asked_for_again(standing: Standing, store: RecordStore) -> None:
    standing.line.breaks_in("commit")
    committing = asyncio.create_task(store.commit(batch(note("Ada", "once"))))
    await standing.time.sees(1.0)
    await standing.returns(after=1.0)
    assert (await committing).seq == 2
    assert await (await standing.stored()).get_revision() == 2
    assert standing.line.asked["commit"] == 3  # that of the fixture, and the same one twice
    assert standing.journal.count_writes().waiting == 0


async def test_an_answer_that_never_came_waits_and_is_not_done_twice(standing: Standing, store: RecordStore) -> None:
    standing.line.breaks_in("commit")
    committing = asyncio.create_task(store.commit(batch(note("Ada", "once"))))
    await standing.time.comes(PATIENCE)
    await committing
    assert standing.journal.count_writes().waiting == 1
    assert await texts(store) == ["once"]
    await standing.returns(after=1.0)
    assert await (await standing.stored()).get_revision() == 2
    assert await texts(store) == ["once"]


async def test_what_was_done_there_and_is_copied_already_is_known_to_be_done(
    standing: Standing, store: RecordStore
) -> None:
    """Another process has followed the database meanwhile."""
    standing.line.breaks_in("commit")
    committing = asyncio.create_task(store.commit(batch(note("Ada", "once"), at=7)))
    await standing.time.sees(1.0)
    there, (_, here) = await standing.stored(), await standing.replica.open("project")
    [_, change] = await there.read_changes()
    await here.replicate(StorePage(await there.scan(RecordFilter(deleted=None)), changes=[change]))
    await standing.time.comes(PATIENCE)
    assert await committing == change
    assert standing.journal.count_writes().waiting == 0


async def test_what_may_be_done_is_not_refused_for_what_the_copy_has_not_seen(
    standing: Standing, store: RecordStore
) -> None:
    """Whoever is refused plans anew: then it would be there twice."""
    await (await standing.stored()).commit(batch(Update("Ada", {"text": "newer"}, 1)))
    standing.line.breaks_in("commit")
    steps = batch(Update("Ada", {"text": "newest"}, 2), note("Ada", "once"))
    committing = asyncio.create_task(store.commit(steps))
    await standing.time.comes(PATIENCE)
    await committing
    assert [r.text for r in await store.get(["Ada"])] == ["newest"]
    await standing.returns(after=1.0)
    assert await texts(store) == ["once"]
    assert [r.version for r in await store.get(["Ada"])] == [3]


async def test_what_may_be_done_and_cannot_wait_is_said_to_be_unknown(standing: Standing, store: RecordStore) -> None:
    await (await standing.stored()).commit(batch(entity("Bob")))  # of which nothing is seen here
    standing.line.breaks_in("commit")
    committing = asyncio.create_task(store.commit(batch(note("Bob", "once"))))
    await standing.time.comes(PATIENCE)
    with pytest.raises(StoreUnreachable) as caught:
        await committing
    assert "outcome is unknown" in caught.value.message
    assert standing.journal.count_writes().waiting == 0


async def test_what_does_not_fit_the_copy_is_refused_and_waits_for_nothing(
    standing: Standing, store: RecordStore
) -> None:
    await standing.goes()
    with track_replica_use() as noted, pytest.raises(Conflict):
        await store.commit(batch(Update("Ada", {"text": "x"}, 9)))
    with pytest.raises(ValueError):
        await store.commit(batch(Update("Ada", {"id": "x"}, 1)))
    assert standing.journal.count_writes().waiting == 0
    assert not noted.kept_here


async def test_order_is_kept_over_the_return(standing: Standing, store: RecordStore) -> None:
    await standing.goes()
    await store.commit(batch(entity("Bob"), note("Ada", "first")))
    await store.commit(batch(note("Bob", "second"), link("Ada", "knows", "Bob")))
    await store.commit(batch(Delete(record_ref("first"))))
    await standing.returns()
    there = await standing.stored()
    assert [len(change.edits) for change in await there.read_changes(after=1)] == [2, 2, 1]
    assert await texts(store) == ["second"]


async def test_while_it_is_brought_over_what_is_written_waits_its_turn(standing: Standing, store: RecordStore) -> None:
    await standing.goes()
    await store.commit(batch(note("Ada", "first")))
    standing.line.hangs_in("commit")
    standing.line.is_cut = False
    await standing.time.comes(1.0)
    await standing.line.hangs.wait()
    with track_replica_use() as noted:
        await standing.time.rushes(store.commit(batch(note("Ada", "second"))), ADD_WAIT_SECONDS)
        assert await texts(store) == ["first", "second"]
    assert noted.kept_here
    assert noted.from_replica
    assert standing.library.condition.waiting == 2


async def test_what_cannot_wait_is_refused_while_it_is_away(standing: Standing, store: RecordStore) -> None:
    await standing.goes()
    for refused in (
        store.purge([record_ref("Ada")]),
        store.redact([record_ref("Ada")], lambda _, values: values),
        store.replicate(StorePage()),
    ):
        with pytest.raises(StoreUnreachable) as caught:
            await refused
        assert "Nothing was changed." in caught.value.message
        assert caught.value.degraded
    assert len(await store.get(["Ada"])) == 1


async def test_what_is_removed_for_good_is_gone_from_the_copy_at_once(standing: Standing, store: RecordStore) -> None:
    _, here = await standing.replica.open("project")
    assert len(await here.get(["Ada"])) == 1
    assert (await store.purge([record_ref("Ada")])).records == 1
    assert await here.get(["Ada"], include_deleted=True) == []
    assert await (await standing.stored()).get(["Ada"]) == []


async def test_what_is_rewritten_for_good_is_so_in_the_copy_at_once(standing: Standing, store: RecordStore) -> None:
    await store.commit(batch(note("Ada", "a secret")))
    await standing.followed()
    await store.redact([record_ref("a secret")], lambda _, values: {**values, "text": "***"})
    _, here = await standing.replica.open("project")
    assert await texts(here) == ["***"]


async def test_vectors_and_accesses_are_nothing_that_waits(standing: Standing, store: RecordStore) -> None:
    await standing.goes()
    with track_replica_use() as noted:
        await store.note_accesses({"Ada": 1}, 5)
        assert await store.put_vectors("one", [RecordVector("Ada", 1, axis(1))]) == 1
    assert not noted.is_degraded
    assert (await store.get_accesses(["Ada"]))["Ada"].count == 1
    assert list(await store.get_vectors("one", ["Ada"])) == ["Ada"]
    assert standing.journal.count_writes().waiting == 0


async def test_a_slow_answer_is_no_absence(
    standing: Standing, store: RecordStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(_question: StoreQuestion[int]) -> int:
        raise QueryTimeout("It takes too long.")

    monkeypatch.setattr(await standing.stored(), "ask", slow)
    with pytest.raises(QueryTimeout):
        await store.count_records(RecordFilter())
    assert standing.library.condition.status == "connected"


async def test_the_stamp_says_that_another_side_answers(standing: Standing, store: RecordStore) -> None:
    seen = [await store.get_stamp()]
    await standing.goes()
    seen.append(await store.get_stamp())
    await standing.returns()
    seen.append(await store.get_stamp())
    assert len(set(seen)) == 3
    assert await store.get_stamp() == seen[-1]


async def test_a_project_of_which_nothing_was_copied_can_be_written_to(standing: Standing) -> None:
    await standing.library.create("new", "")
    store = await standing.store("new")
    await standing.goes()
    await store.commit(batch(entity("Bob")))
    assert len(await store.get(["Bob"])) == 1
    await standing.returns()
    assert len(await (await standing.stored("new")).get(["Bob"])) == 1


async def test_a_project_that_was_deleted_is_not_brought_back(standing: Standing) -> None:
    store = await standing.store()
    await standing.goes()
    with pytest.raises(StoreUnreachable, match="Cannot delete project"):
        await standing.library.delete("project")
    await standing.returns()
    await standing.library.delete("project")
    with pytest.raises(NotFound):
        await store.commit(batch(entity("Bob")))
    with pytest.raises(NotFound):
        await store.get(["Ada"])
    assert await standing.database.list_projects() == []


async def test_what_was_undone_while_it_was_away_is_undone_there(standing: Standing, store: RecordStore) -> None:
    await (await standing.stored()).commit(batch(entity("Bob")))  # somebody else
    await standing.goes()
    made = await store.commit(batch(entity("Cy")))
    await store.commit(batch(Delete(record_ref("Cy")), undoes=made.seq))
    await standing.returns()
    [*_, first, second] = await store.read_changes()
    assert second.undoes == first.seq


async def test_what_two_have_named_alike_stays_both(standing: Standing, store: RecordStore) -> None:
    await standing.goes()
    await store.commit(batch(Record("one", "entity", 5, 5, name="Zoë", name_key="zoe", text="another")))
    theirs = Record("two", "entity", 5, 5, name="Zoë", name_key="zoe")
    await (await standing.stored()).commit(batch(theirs))
    await standing.returns()
    assert len(await store.get(["one", "two"])) == 2
    assert standing.library.condition.set_aside == 0


async def test_a_write_that_is_repeated_in_an_outage_is_stored_once(standing: Standing, store: RecordStore) -> None:
    await (await standing.stored()).commit(batch(entity("Zoe")))  # by a server that was killed before it answered
    await standing.goes()
    await store.commit(batch(entity("Zoe", id="again")))
    await store.commit(batch(note("again", "counts")))
    await standing.returns()
    assert [each.id for each in await store.scan(RecordFilter())] == ["Ada", "Zoe", "counts"]
    assert standing.library.condition.set_aside == 0
