"""What happened in a session so far, as far as it decides what is noticed next.

A file of lines beside the session's ledger. It has marks of commands, not the commands.
"""

from pathlib import Path

from everkept.core import disk
from everkept.hooks.files.ledger import FOLDER
from everkept.hooks.files.marks import mark

_FAILED = "failed"  # a command
_WORKED = "worked"  # likewise
_EDITED = "edited"  # a file
_KEPT = "kept"  # a text that is stored
_FULL = "full"  # the session may store no more


class Trail:
    """Lines are only ever added, so that hooks at the same time do not disturb each other.

    What says nothing new is not: a session may run for days.
    """

    def __init__(self, folder: Path, session: str) -> None:
        """`folder` is the hooks' own, inside the data folder; it is made at the first line."""
        self._path = folder / FOLDER / f"{mark(session)}-trail.txt"
        self._lines = self._read()

    @property
    def is_full(self) -> bool:
        return (_FULL, "") in self._lines

    def is_kept(self, text: str) -> bool:
        return (_KEPT, mark(text)) in self._lines

    def is_failing(self, command: str) -> bool:
        """Whether it failed and has not worked since."""
        return self._failed_at(command) is not None

    def has_worked(self, command: str) -> bool:
        return (_WORKED, mark(command)) in self._lines

    def edited_since_failure(self, command: str) -> list[str]:
        """Files, in the order of their first edit after the command began to fail."""
        start = self._failed_at(command)
        later = [] if start is None else self._lines[start:]
        return list(dict.fromkeys(value for what, value in later if what == _EDITED))

    def failed(self, command: str) -> None:
        if not self.is_failing(command):
            self._add(_FAILED, mark(command))

    def worked(self, command: str) -> None:
        if self.is_failing(command) or not self.has_worked(command):
            self._add(_WORKED, mark(command))

    def edited(self, file: str) -> None:
        failures = [place for place, (what, _) in enumerate(self._lines) if what == _FAILED]
        if (_EDITED, file) not in self._lines[failures[-1] if failures else 0 :]:
            self._add(_EDITED, file)

    def kept(self, text: str) -> None:
        self._add(_KEPT, mark(text))

    def full(self) -> None:
        self._add(_FULL, "")

    def _add(self, what: str, value: str) -> None:
        disk.append_lines(self._path, [f"{what} {value}"])
        self._lines.append((what, value))

    def _failed_at(self, command: str) -> int | None:
        """Where it began to fail."""
        key = mark(command)
        start = None
        for place, line in enumerate(self._lines):
            if line == (_WORKED, key):
                start = None
            elif line == (_FAILED, key) and start is None:
                start = place
        return start

    def _read(self) -> list[tuple[str, str]]:
        try:
            text = self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        lines = (line.partition(" ") for line in text.split("\n"))
        return [(what, value) for what, _, value in lines if what]
