import asyncio
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everkept.core.locks import IS_INHERITED, ExpiringLock, FileLock, WaitingLock
from everkept.errors import StoreBusy

HOLD = """
import sys
from pathlib import Path
from everkept.core.locks import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.take(), flush=True)
sys.stdin.read()
"""
TAKE_OVER = """
import sys
from pathlib import Path
from everkept.core.locks import FileLock
lock = FileLock.from_parent(Path(sys.argv[1]))
print(lock.take(), sys.stdin.read() == "", flush=True)
sys.stdin = None
while not Path(sys.argv[2]).exists():
    pass
lock.release()
print("released", flush=True)
"""


def holder(path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()


def test_a_lock_can_be_taken_again_and_released_twice(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    for _ in range(2):
        assert lock.take()
        lock.release()
        lock.release()


def test_the_lock_of_a_process_that_is_killed_is_free(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    with holder(tmp_path / "lock") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert not lock.take()
        process.kill()
        process.communicate(timeout=30)
    assert lock.take()
    lock.release()


@pytest.mark.parametrize("is_held", [True, False])
def test_a_child_is_born_with_the_lock_that_it_was_handed(tmp_path: Path, is_held: bool) -> None:
    """Where the system hands no lock over, it takes one that is free."""
    path, signal = tmp_path / "lock", tmp_path / "signal"
    lock = FileLock(path)
    handed = is_held and IS_INHERITED
    if handed:
        assert lock.take()
    with subprocess.Popen(
        [sys.executable, "-c", TAKE_OVER, str(path), str(signal)],
        stdin=lock.descriptor if handed else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as child:
        try:
            lock.leave()
            assert child.stdout is not None
            if handed:
                assert not lock.take()
            assert child.stdout.readline() == "True True\n"
            assert not lock.take()
            signal.touch()
            assert child.stdout.readline() == "released\n"
            child.wait(timeout=30)
        finally:
            child.kill()
    assert lock.take()
    lock.release()


def test_nobody_is_handed_a_lock_that_is_not_held(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        _ = FileLock(tmp_path / "lock").descriptor


def test_of_those_who_come_at_once_one_gets_the_turn(tmp_path: Path) -> None:
    turns = [ExpiringLock(tmp_path / "turn", 60.0) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(ExpiringLock.take, turns)) == [False] * 19 + [True]
    turns[0].end()
    turns[0].end()
    assert turns[1].take()


def test_a_turn_ends_with_its_time(tmp_path: Path) -> None:
    assert ExpiringLock(tmp_path / "turn", 60.0).take()
    os.utime(tmp_path / "turn", (0, 0))
    assert ExpiringLock(tmp_path / "turn", 60.0).take()
    assert not ExpiringLock(tmp_path / "turn", 60.0).take()


def test_one_thread_at_a_time_is_past_a_lock_that_it_waits_for(tmp_path: Path) -> None:
    inside: list[int] = []

    def work(number: int) -> None:
        with WaitingLock(tmp_path / "new" / "lock", "The work").hold():
            inside.append(number)
            assert inside == [number]
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))


async def test_one_task_at_a_time_is_past_a_lock_that_it_waits_for(tmp_path: Path) -> None:
    inside: list[int] = []
    locks = [WaitingLock(tmp_path / "lock", "The work") for _ in range(3)]

    async def work(number: int) -> None:
        async with locks[number % 3].hold_async():
            inside.append(number)
            await asyncio.sleep(0)
            assert inside == [number]
            inside.remove(number)

    async with asyncio.TaskGroup() as group:
        for number in range(30):
            group.create_task(work(number))


async def test_who_waits_too_long_for_a_lock_is_refused(tmp_path: Path) -> None:
    lock, other = (WaitingLock(tmp_path / "lock", "The work", 0.01) for _ in "ab")
    with lock.hold():
        for late in (lock, other):
            with pytest.raises(StoreBusy):
                await late.hold_async().__aenter__()
        with pytest.raises(StoreBusy):
            other.hold().__enter__()
    async with lock.hold_async():
        with pytest.raises(StoreBusy):
            await lock.hold_async().__aenter__()
    async with other.hold_async():
        pass


async def test_a_task_that_is_cancelled_while_it_waits_leaves_the_lock_free(tmp_path: Path) -> None:
    lock = WaitingLock(tmp_path / "lock", "The work")
    with lock.hold():
        waiting = asyncio.create_task(lock.hold_async().__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with WaitingLock(tmp_path / "lock", "The work", 0.01).hold_async():
        pass
