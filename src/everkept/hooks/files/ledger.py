"""What a session was given already: a file of lines, to which hooks only ever add."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from everkept.core import disk
from everkept.hooks.files.marks import mark

FOLDER = "sessions"  # inside the folder of the hooks
KEPT_DAYS = 14  # after its last claim; nobody takes a session up later than that
DAY = 86_400  # seconds

_SWEPT = "swept"  # the file in it that was written when old ones were last looked for
_RESET = "reset"
_PLAIN = re.compile(r"[0-9a-f-]{1,64}")


def prune(folder: Path, now: int) -> int:
    """Removes what sessions of long ago were given; says how many. `folder` is the hooks' own."""
    removed = 0
    for path in (folder / FOLDER).glob("*.txt"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < now / 1e6 - KEPT_DAYS * DAY:
                path.unlink()
                removed += 1
    return removed


def sweep(folder: Path, now: int) -> None:
    """Prunes, but once a day: hooks call it often. Nothing is made where nothing is kept."""
    stamp = folder / FOLDER / _SWEPT
    with suppress(FileNotFoundError):
        if stamp.stat().st_mtime > now / 1e6 - DAY:
            return
    if stamp.parent.is_dir():
        stamp.touch(mode=disk.PRIVATE_FILE)
        prune(folder, now)


class Ledger:
    """Whoever writes an id first has given it, so two hooks at once do not repeat each other."""

    def __init__(self, folder: Path, session: str) -> None:
        """`folder` is the hooks' own, inside the data folder; it is made at the first claim.

        Without a session or a data folder nothing is kept: each time may be the first.
        """
        is_kept = session and folder.parent.is_dir()
        self._path = folder / FOLDER / f"{_file_name(session)}.txt" if is_kept else None
        self._nonce = f"{os.getpid()}-{os.urandom(4).hex()}"

    def given(self) -> set[str]:
        """The ids of what the session has in its context because of us."""
        return set(self._owners())

    def claim(self, ids: Iterable[str]) -> set[str]:
        """Of these, the ones that were not given yet; from now on they count as given."""
        given = self.given()
        wanted = {each for each in ids if each not in given}
        if self._path is None or not wanted:
            return wanted
        disk.append_lines(self._path, (f"{each} {self._nonce}" for each in sorted(wanted)))
        owners = self._owners()
        return {each for each in wanted if owners.get(each) == self._nonce}

    def reset(self) -> None:
        """The session has lost its context: everything may be given again."""
        if self._path is not None and self._path.exists():
            disk.append_lines(self._path, [_RESET])

    def _owners(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            lines = self._path.read_text("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return {}
        owners: dict[str, str] = {}
        for line in lines:
            if line == _RESET:
                owners.clear()
            elif " " in line:
                each, _, nonce = line.rpartition(" ")
                owners.setdefault(each, nonce)
        return owners


def _file_name(session: str) -> str:
    return session if _PLAIN.fullmatch(session) else mark(session)
