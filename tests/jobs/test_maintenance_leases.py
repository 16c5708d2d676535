from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.engines.sqlite.library import SqliteLibrary
from everkept.jobs.claims import LEASE_MICROSECONDS, TurnLease


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1_000_000

    def __call__(self) -> int:
        return self.at


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
async def leases(tmp_path: Path, clock: Hands) -> AsyncIterator[tuple[TurnLease, TurnLease]]:
    libraries = [SqliteLibrary(tmp_path), SqliteLibrary(tmp_path)]
    yield TurnLease(libraries[0], "work", clock), TurnLease(libraries[1], "work", clock)
    for library in libraries:
        await library.close()


async def test_of_two_processes_one_has_its_turn(leases: tuple[TurnLease, TurnLease]) -> None:
    ours, theirs = leases
    assert await ours.take()
    assert not await theirs.take()
    assert await ours.take()


async def test_whoever_ends_lets_the_other_begin(leases: tuple[TurnLease, TurnLease]) -> None:
    ours, theirs = leases
    await ours.take()
    await ours.end()
    assert await theirs.take()
    assert not await ours.take()


async def test_the_turn_of_one_that_died_ends(leases: tuple[TurnLease, TurnLease], clock: Hands) -> None:
    ours, theirs = leases
    await ours.take()
    clock.at += LEASE_MICROSECONDS + 1
    assert await theirs.take()
    assert not await ours.take()


async def test_one_that_goes_on_keeps_its_turn(leases: tuple[TurnLease, TurnLease], clock: Hands) -> None:
    ours, theirs = leases
    for _ in range(10):
        assert await ours.take()
        clock.at += LEASE_MICROSECONDS // 3
        assert not await theirs.take()


async def test_ending_a_turn_that_is_not_ours_changes_nothing(leases: tuple[TurnLease, TurnLease]) -> None:
    ours, theirs = leases
    await ours.take()
    await theirs.end()
    assert not await theirs.take()


async def test_a_note_that_nobody_can_read_is_no_turn(tmp_path: Path, clock: Hands) -> None:
    library = SqliteLibrary(tmp_path)
    await library.set_note("lease.work", "what is this")
    assert await TurnLease(library, "work", clock).take()
    await library.close()
