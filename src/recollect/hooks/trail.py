"""What happened in a session so far, as far as it decides what is noticed next.

A file of lines beside the session's ledger. It has marks of commands, not the commands.
"""

import os
from hashlib import blake2b
from pathlib import Path

from recollect.hooks.ledger import FOLDER
from recollect.hooks.marks import EDITED, FAILED, WORKED

KEPT = "kept"  # a text that is stored
FULL = "full"  # the session may store no more


class Trail:
    """Lines are only ever added, so that hooks at the same time do not disturb each other."""

    def __init__(self, folder: Path, session: str) -> None:
        """`folder` is the hooks' own, inside the data folder; it is made at the first line."""
        self._path = folder / FOLDER / f"{mark(session)}-trail.txt"
        self._lines = self._read()

    @property
    def is_full(self) -> bool:
        return (FULL, "") in self._lines

    def has(self, what: str, value: str) -> bool:
        return (what, value) in self._lines

    def is_failing(self, command: str) -> bool:
        """Whether it failed and has not worked since."""
        return self._failed_at(command) is not None

    def edited_since_failure(self, command: str) -> list[str]:
        """Files, in the order of their first edit after the command began to fail."""
        start = self._failed_at(command)
        later = [] if start is None else self._lines[start:]
        return list(dict.fromkeys(value for what, value in later if what == EDITED))

    def add(self, *lines: tuple[str, str]) -> None:
        for folder in (self._path.parent.parent, self._path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        # It begins with a new line, should somebody have died in the middle of one.
        text = "".join(f"\n{what} {value}" for what, value in (*lines, ("", "")))
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, text.encode("utf-8", "replace"))
        finally:
            os.close(file)
        self._lines += lines

    def _failed_at(self, command: str) -> int | None:
        """Where it began to fail."""
        start = None
        for place, line in enumerate(self._lines):
            if line == (WORKED, command):
                start = None
            elif line == (FAILED, command) and start is None:
                start = place
        return start

    def _read(self) -> list[tuple[str, str]]:
        try:
            text = self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        lines = (line.partition(" ") for line in text.split("\n"))
        return [(what, value) for what, _, value in lines if what]


def mark(text: str) -> str:
    """What tells texts apart without being one."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
