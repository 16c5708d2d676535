"""Servers empty the trash."""

import asyncio

from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.project_changes import ProjectChanges
from everkept.engines.memory.library import MemoryLibrary
from everkept.jobs.maintenance import Indexer, Maintenance
from everkept.jobs.usage_log import BatchedAccesses
from records import DAY_ONE

PATIENCE = 60  # seconds; only a hang takes longer


async def test_a_server_empties_the_trash_when_its_days_are_over() -> None:
    times = [DAY_ONE]

    def clock() -> int:
        return times[-1]

    library = MemoryLibrary()
    changes = ProjectChanges(library, GuardedLibrary(library, clock), clock, days=30)
    await library.create("shop", "")
    deleted = await changes.delete("shop", "test")
    assert deleted.until is not None
    for now in (deleted.until - 1, deleted.until):
        times.append(now)
        assert [each.name for each in await changes.list_trash()] == ["shop"]
        server = Maintenance(library, Indexer(None, ()), BatchedAccesses(clock), clock, trash_days=30)
        server.start_rest()
        async with asyncio.timeout(PATIENCE):
            await server.wait_until_done()
    assert await library.list_projects() == []
