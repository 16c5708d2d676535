"""Commits of several processes, of connections that are lost, and of many steps."""

import asyncio
from pathlib import Path

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Delete, Record, RecordFilter, Restore, Update
from everkept.engines.surreal import connection as trying
from everkept.engines.surreal import drivers
from everkept.engines.surreal.connection import DiskFailure
from everkept.engines.surreal.drivers import EmbeddedConnection
from everkept.errors import Conflict, StoreBusy, StoreUnreachable, Unavailable
from everkept.values import replace
from records import batch, entity, link, memory, note, record_ref
from surreal_libraries import LosingConnection, Shelf
from surreal_server import PATIENCE
from surreal_stores import DATABASE, FailingConnection, SlowConnection, WatchedConnection, store_over

WRITERS, EACH = 3, 8


async def test_what_several_processes_write_at_once_is_all_there_and_numbered(namespace: Shelf) -> None:
    async def write(store: RecordStore, writer: int) -> list[int]:
        return [(await store.commit(batch(memory(f"{writer} said {n}", session=str(writer))))).seq for n in range(EACH)]

    stores = [store_over(namespace.connection()) for _ in range(WRITERS)]
    numbers = await asyncio.gather(*(write(store, n) for n, store in enumerate(stores)))
    every = [number for some in numbers for number in some]
    assert sorted(every) == list(range(1, WRITERS * EACH + 1))
    assert [change.seq for change in await stores[0].read_changes()] == sorted(every)
    found = await stores[1].scan(RecordFilter())
    assert {r.id for r in found} == {f"{w} said {n}" for w in range(WRITERS) for n in range(EACH)}
    assert await stores[2].find_faults() == []


async def test_of_two_who_want_the_same_name_one_gets_it(namespace: Shelf) -> None:
    stores = [store_over(namespace.connection()) for _ in range(2)]
    wishes = [s.commit(batch(entity("Ada", id=str(n)))) for n, s in enumerate(stores)]
    outcomes = await asyncio.gather(*wishes, return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Change", "Conflict"]
    assert len(await stores[0].scan(RecordFilter())) == 1


async def test_who_was_overtaken_plans_again(namespace: Shelf) -> None:
    other, watched = store_over(namespace.connection()), WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(entity("Ada")))
    watched.disturb = lambda: other.commit(batch(note("Ada", "came in between")))
    change = await store.commit(batch(Delete(record_ref("Ada"))))
    assert change.seq == 3
    assert {edit.id for edit in change.edits} == {"Ada", "came in between"}
    assert await store.find_faults() == []


async def test_who_was_overtaken_may_find_that_it_no_longer_fits(namespace: Shelf) -> None:
    other, watched = store_over(namespace.connection()), WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(entity("Ada")))
    watched.disturb = lambda: other.commit(batch(Update("Ada", {"text": "theirs"}, 1)))
    with pytest.raises(Conflict):
        await store.commit(batch(Update("Ada", {"text": "ours"}, 1)))
    assert [r.text for r in await store.get(["Ada"])] == ["theirs"]


async def test_who_is_overtaken_again_and_again_is_told(namespace: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "MAX_PAUSE_SECONDS", 0)
    watched = WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(entity("Ada")))
    watched.is_contended = True
    with pytest.raises(StoreBusy):
        await store.commit(batch(entity("Bob")))
    watched.is_contended = False
    assert [r.id for r in await store.scan(RecordFilter())] == ["Ada"]


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_batch_with_a_key_happens_once_wherever_the_connection_is_lost(
    namespace: Shelf, *, arrives: bool
) -> None:
    store = store_over(namespace.connection())
    await store.commit(batch(entity("Ada"), entity("Bob"), link("Ada", "knows", "Bob")))
    step, is_lost = 0, True
    while is_lost:
        steps = [note("Ada", f"told {step}"), note("Bob", f"heard {step}")]
        wanted = batch(*steps, key=f"key {step}")
        losing = LosingConnection(namespace.connection(), step, arrives=arrives)
        try:
            await store_over(losing).commit(wanted)
        except StoreUnreachable:
            is_lost = True
        else:
            is_lost = False
        again = await store.commit(wanted)
        assert [edit.id for edit in again.edits] == [record.id for record in steps]
        assert await store.commit(wanted) == again
        assert await store.get_revision() == step + 2
        step += 1
    assert step > 3  # it was lost before, at and behind the transaction
    assert await store.find_faults() == []


def many(count: int) -> list[Record]:
    return [
        memory(f"turn {n}", name=f"n{n}", name_key=f"n{n}", parent="Ada", session="s", position=n) for n in range(count)
    ]


async def test_many_steps_take_no_more_texts_than_few(namespace: Shelf) -> None:
    watched = WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(entity("Ada"), entity("Bob")))
    texts: list[list[int]] = []
    for count in (2, 40):
        texts.append([])
        records = many(count)
        renamed = [Update(r.id, {"name": f"{r.name} new"}, 1) for r in records]
        joined = [link(r.id, "by", "Bob") for r in records]
        gone = [Delete(r.ref) for r in records]
        back = [Restore(r.ref) for r in records]
        for steps in (records, renamed, joined, gone, back):
            before = watched.texts
            await store.commit(batch(*steps))
            texts[-1].append(watched.texts - before)
        await store.purge([r.ref for r in records])
    assert texts[0] == texts[1]
    assert await store.find_faults() == []


@pytest.mark.parametrize("key", [None, "once"])
async def test_a_commit_whose_disk_failed_is_looked_up(namespace: Shelf, key: str | None) -> None:
    wanted = replace(batch(entity("Ada")), key=key)
    failing = FailingConnection(namespace.connection(), DiskFailure("It failed."), arrives=True)
    change = await store_over(failing).commit(wanted)
    assert failing.has_failed
    assert [change] == await store_over(namespace.connection()).read_changes()


async def test_a_commit_that_was_not_made_is_told_so(namespace: Shelf) -> None:
    failing = FailingConnection(namespace.connection(), DiskFailure("It failed."), arrives=False)
    store = store_over(failing)
    with pytest.raises(Unavailable, match="Nothing was stored") as raised:
        await store.commit(batch(entity("Ada")))
    assert not isinstance(raised.value, StoreUnreachable)
    assert await store.scan(RecordFilter()) == []


async def test_a_commit_of_which_nothing_can_be_learned_is_told_so(namespace: Shelf) -> None:
    failing = FailingConnection(namespace.connection(), DiskFailure("It failed."), arrives=True)
    failing.error_then = DiskFailure("It fails.")
    with pytest.raises(StoreUnreachable, match="The outcome is unknown"):
        await store_over(failing).commit(batch(entity("Ada")))


async def test_a_commit_that_ends_late_is_told_as_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowConnection(EmbeddedConnection(tmp_path, "memory", time_limit=PATIENCE))
    store = store_over(slow)
    await store.commit(batch(entity("Ada")))
    monkeypatch.setattr(drivers, "WRITE_TIME_FACTOR", 1 / PATIENCE)  # after a second it is late
    slow.pause = "2s"
    change = await store.commit(batch(entity("Bob")))
    assert [edit.id for edit in change.edits] == ["Bob"]
    assert change in await store.read_changes()
    await slow.close()


async def test_a_commit_that_does_not_end_is_not_to_be_tried_again_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = EmbeddedConnection(tmp_path, "memory", time_limit=PATIENCE)
    slow = SlowConnection(connection)
    store = store_over(slow)
    await store.commit(batch(entity("Ada")))
    slow.pause = "6s"
    with monkeypatch.context() as hurried:
        hurried.setattr(drivers, "WRITE_TIME_FACTOR", 0.1)
        hurried.setattr(connection, "_time_limit", 2.0)  # for the reads before the write too
        with pytest.raises(StoreUnreachable, match="unknown") as raised:
            await store.commit(batch(entity("Bob")))
    assert "Check before you repeat" in str(raised.value)
    await slow.run(DATABASE, "UPSERT turn:1")  # behind it
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada", "Bob"]
    await slow.close()
