"""How hooks write: for their user alone, and whole for whoever reads or writes at once."""

import os
from collections.abc import Iterable
from pathlib import Path

PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
UNFINISHED = ".tmp"  # how the name of a file ends that is still being written

_AS_IT_IS = getattr(os, "O_BINARY", 0)  # Windows would write other ends of lines


def made(folder: Path) -> None:
    """Makes it with what is missing above it."""
    # Each by itself: what is made on the way to a folder gets no mode of ours.
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def append(path: Path, text: str) -> None:
    """Adds whole lines to a file, which is made where it is missing, as its folder is.

    One write to the end: what others add at the same time stays whole too.
    """
    made(path.parent)
    _write(path, os.O_APPEND, text.encode("utf-8", "replace"))


def lines(each: Iterable[str]) -> str:
    """They begin with a new line, should somebody have died in the middle of one."""
    return "".join(f"\n{line}" for line in (*each, ""))


def replace(path: Path, data: bytes) -> None:
    """Writes a file anew; who reads meanwhile sees the one before, or this one."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    _write(unfinished, os.O_TRUNC, data)
    unfinished.replace(path)


def _write(path: Path, how: int, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | _AS_IT_IS | how, PRIVATE_FILE)
    try:
        os.write(file, data)
    finally:
        os.close(file)
