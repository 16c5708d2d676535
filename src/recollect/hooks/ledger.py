"""What a session was given already: a file of lines, to which hooks only ever add."""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

FOLDER = "sessions"  # inside the folder of the hooks
KEPT_DAYS = 14  # after its last claim; nobody takes a session up later than that

_RESET = "reset"
_PLAIN = re.compile(r"[0-9a-f-]{1,64}")


def prune(folder: Path, now: int) -> int:
    """Removes what sessions of long ago were given; says how many. `folder` is the hooks' own."""
    removed = 0
    for path in (folder / FOLDER).glob("*.txt"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < now / 1e6 - KEPT_DAYS * 86_400:
                path.unlink()
                removed += 1
    return removed


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
        self._add(self._path, [f"{each} {self._nonce}" for each in sorted(wanted)])
        owners = self._owners()
        return {each for each in wanted if owners.get(each) == self._nonce}

    def reset(self) -> None:
        """The session has lost its context: everything may be given again."""
        if self._path is not None and self._path.exists():
            self._add(self._path, [_RESET])

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

    def _add(self, path: Path, lines: Iterable[str]) -> None:
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, exist_ok=True)
        # One write of whole lines to the end: what others write at the same time stays whole too.
        # It begins with a new line, should somebody have died in the middle of one.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        file = os.open(path, flags, 0o600)
        try:
            os.write(file, "".join(f"\n{line}" for line in (*lines, "")).encode())
        finally:
            os.close(file)


def _file_name(session: str) -> str:
    if _PLAIN.fullmatch(session):
        return session
    # Imported here: the ids of the clients we know are plain.
    from hashlib import blake2b

    return blake2b(session.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
