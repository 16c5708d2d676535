"""Who holds a lock of a folder on a server when a process has died before any of its requests."""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.files import FileStore
from everkept.errors import StoreBusy
from everkept.files.lease_lock import LockTerms
from everkept.files.local_disk import build_lock_name
from file_stores import REMOTE, Filing, by_lease, filing
from processes import Actor, acting

LOCK = build_lock_name("bank")


@pytest.fixture(params=REMOTE)
async def files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Filing]:
    async with filing(request.param, tmp_path) as made:
        yield made


async def test_a_lock_whose_taker_dies_before_any_request_is_taken_over(files: Filing) -> None:
    with acting("file_actors:crash_when_told", files.way) as mortal:
        lives = await deaths_until_none(files, mortal)
    assert lives > 10


@pytest.mark.thorough
async def test_a_takeover_that_dies_before_any_request_is_taken_over(files: Filing) -> None:
    with acting("file_actors:crash_when_told", files.way) as mortal:
        claim = await left_by_the_dead(files, mortal)
        lives = await deaths_until_none(files, mortal, claim)
    assert lives > 15


async def deaths_until_none(files: Filing, mortal: Actor, claim: bytes | None = None) -> int:
    """Before each one the claim of another that died is laid there."""
    heirs = [files.store, await files.another(by_lease())]
    impatient = await files.another(LockTerms(patience=0))
    for request in itertools.count(1):
        shutil.rmtree(files.folder, ignore_errors=True)
        if claim is not None:
            files.put(LOCK, claim)
        died = await dies(mortal, request)
        await take_over(heirs[request % 2], impatient)
        assert not (files.folder / LOCK).exists()
        if not died:
            return request
    raise AssertionError("unreachable")


async def take_over(heir: FileStore, impatient: FileStore) -> None:
    """Alone: nobody else gets it meanwhile."""
    async with heir.lock("bank"):
        with pytest.raises(StoreBusy):
            async with impatient.lock("bank"):
                pass


async def left_by_the_dead(files: Filing, mortal: Actor) -> bytes:
    for request in itertools.count(1):
        assert await dies(mortal, request)
        if (files.folder / LOCK).exists():
            return (files.folder / LOCK).read_bytes()
    raise AssertionError("unreachable")


async def dies(mortal: Actor, request: int) -> bool:
    """Before this request of those that it takes to look at the folder under the lock."""
    # Beside the test, since the server may be in this process.
    return await asyncio.to_thread(mortal.ask, json.dumps(["info", {}, request]))
