"""Whether a database was ever reached from a folder: one with a mistyped address never is."""

from contextlib import suppress
from pathlib import Path

from everkept.core.disk import make_folder

MARK = "reached"  # the file that says so

UNACQUAINTED = "It was never reached from this folder: is the address right?"


class Acquaintance:
    """Known to all programs that use the folder, and beyond their lives."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / MARK
        self._is_made = False

    @property
    def is_made(self) -> bool:
        self._is_made = self._is_made or self._file.exists()
        return self._is_made

    def make(self) -> None:
        """It was reached."""
        if not self.is_made:
            self._is_made = True
            with suppress(OSError):  # a help, and no reason to refuse anything
                make_folder(self._file.parent)
                self._file.touch()
