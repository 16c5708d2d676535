import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from everkept.hooks.files.locks import IS_INHERITED, Lock, Turn

HOLD = """
import sys
from pathlib import Path
from everkept.hooks.files.locks import Lock
lock = Lock(Path(sys.argv[1]))
print(lock.take(), flush=True)
sys.stdin.read()
"""
TAKE_OVER = """
import sys
from pathlib import Path
from everkept.hooks.files.locks import Lock
lock = Lock.handed_over(Path(sys.argv[1]))
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
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    first.release()
    assert second.take()
    assert not first.take()
    second.release()


def test_a_lock_can_be_taken_again_and_released_twice(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    for _ in range(2):
        assert lock.take()
        lock.release()
        lock.release()


def test_the_lock_of_a_process_that_is_killed_is_free(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
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
    lock = Lock(path)
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
        _ = Lock(tmp_path / "lock").descriptor


def test_of_those_who_come_at_once_one_gets_the_turn(tmp_path: Path) -> None:
    turns = [Turn(tmp_path / "turn", 60.0) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        assert sorted(pool.map(Turn.take, turns)) == [False] * 19 + [True]
    turns[0].end()
    turns[0].end()
    assert turns[1].take()


def test_a_turn_ends_with_its_time(tmp_path: Path) -> None:
    assert Turn(tmp_path / "turn", 60.0).take()
    os.utime(tmp_path / "turn", (0, 0))
    assert Turn(tmp_path / "turn", 60.0).take()
    assert not Turn(tmp_path / "turn", 60.0).take()
