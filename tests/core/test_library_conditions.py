import asyncio

from everkept.core.library import UnreachableInfo, note_pending_write, note_replica_read, track_replica_use


def test_what_is_noted_outside_of_a_call_is_noted_nowhere() -> None:
    note_replica_read()
    with track_replica_use() as noted:
        assert not noted.is_degraded


async def test_what_a_task_of_the_call_notes_counts_for_the_call() -> None:
    async def read() -> None:
        note_replica_read()

    with track_replica_use() as noted:
        await asyncio.create_task(read())
    assert noted.from_replica
    assert not noted.kept_here


async def test_two_calls_at_once_are_told_apart() -> None:
    async def call(*, writes: bool) -> bool:
        with track_replica_use() as noted:
            await asyncio.sleep(0)
            if writes:
                note_pending_write()
            await asyncio.sleep(0)
            return noted.is_degraded

    assert await asyncio.gather(call(writes=True), call(writes=False)) == [True, False]


def test_why_is_what_was_known_when_the_first_of_it_was_noted() -> None:
    with track_replica_use() as noted:
        note_replica_read(UnreachableInfo(1))
        note_pending_write(UnreachableInfo(2, is_catching_up=True))
    assert noted.absence == UnreachableInfo(1)
