"""A lock on an open file."""

import os
from pathlib import Path

from everkept.core.locking import locked, unlock


def test_a_file_is_locked_by_one_opening_at_a_time(tmp_path: Path) -> None:
    first, second = (os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT) for _ in "ab")
    assert locked(first)
    assert not locked(second)
    unlock(first)
    assert locked(second)
    os.close(second)
    assert locked(first)
    os.close(first)
