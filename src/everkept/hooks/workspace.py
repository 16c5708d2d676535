"""Where a hook works: its own small files, its project with the open todos, and the history."""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everkept.core import disk
from everkept.core.projects import DEFAULT_PROJECT, home_of
from everkept.core.records import Record, Weights, Where
from everkept.core.text import blake2b
from everkept.errors import EverkeptError, NotFound
from everkept.language.words import Phrase
from everkept.patterns import compile_late
from everkept.settings import AUTO, Settings

if TYPE_CHECKING:
    from everkept.core.ports import ReadingRoom, RecordStore
    from everkept.core.projects import Project


def hooks_folder(settings: Settings) -> Path:
    """Ledgers, jobs, the lock of the one that works them off, and a log of what went wrong."""
    return settings.data_dir / "hooks"


async def project_of(
    folder: Path | None, settings: Settings, room: "ReadingRoom"
) -> "Project | None":
    """The project that memories of this folder belong to, as servers have it; None before its
    first memory."""
    try:
        if settings.project not in (None, AUTO):
            return await room.project(settings.project)
        home = None if folder is None else home_of(folder)
        if home is not None:
            return await room.project_of_workspace(home.key)
        return await room.project(DEFAULT_PROJECT)
    except NotFound:
        return None


async def past_of(room: "ReadingRoom") -> "RecordStore | None":
    """None where nothing was taken in yet."""
    store = await room.history()
    if store is None:
        return None
    silences = await room.silences()
    if all(silence.until is not None for silence in silences):
        return store
    # Only now: nothing is off nearly always.
    from everkept.core.projects import key_of_workspace
    from everkept.families.history.off_folders import Quiet, folders_of, without

    folders = await folders_of(store)
    return without(store, folders, Quiet(silences, key_of_workspace).hidden(folders))


def mark(text: str) -> str:
    """The same for the same text, and another for any other."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


FILE = "faults.log"  # inside the folder of the hooks
MOST_BYTES = 200_000  # the older half goes then
MOST_CHARACTERS = 400  # of one reason
MOST_LOOKED_AT = 4_000  # characters that secrets are looked for in


class Fault(NamedTuple):
    at: str  # ISO 8601, in UTC
    event: str
    reason: str


def record(
    folder: Path | None, event: str, cause: BaseException | str, *, echo: bool = False
) -> None:
    """Adds a line to the log in the hooks' folder; `echo` says it on standard error too.

    Where the data folder is unknown, missing or cannot be written, there is no log, and nobody
    fails.
    """
    # Imported here: nearly no hook has a fault.
    from everkept.core.times import iso, now

    fault = Fault(iso(now()), _word(event), _reason(cause))
    if echo:
        with suppress(OSError, ValueError):
            print(f"everkept hook {fault.event}: {fault.reason}", file=sys.stderr, flush=True)  # noqa: T201
    with suppress(OSError):
        if folder is not None and folder.parent.is_dir():
            _shorten(folder / FILE)
            disk.append(folder / FILE, f"{fault.at} {fault.event} {fault.reason}\n")


def recent(folder: Path, limit: int = 20) -> list[Fault]:
    """The newest first; none where there is no log, or it cannot be read."""
    try:
        lines = (folder / FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    parts = [line.split(" ", 2) for line in lines]
    return [Fault(*part) for part in reversed(parts) if len(part) == len(Fault._fields)][:limit]


def _shorten(path: Path) -> None:
    try:
        if path.stat().st_size < MOST_BYTES:
            return
    except FileNotFoundError:
        return
    _, _, newer = path.read_bytes()[-MOST_BYTES // 2 :].partition(b"\n")
    disk.replace(path, newer, is_synced=False)


def _reason(cause: BaseException | str) -> str:
    """What is known to hold nothing of what was said: an unexpected error may quote a prompt."""
    from everkept.core.secrets import masked
    from everkept.core.text import clipped

    if isinstance(cause, str):
        told = cause
    elif isinstance(cause, EverkeptError):
        told = f"{cause.code}: {cause}"
    elif isinstance(cause, OSError):
        told = f"{type(cause).__name__}: {cause.strerror} ({cause.filename})"
    else:
        told = f"{type(cause).__name__} in {_place(cause)}"
    return clipped(masked(told[:MOST_LOOKED_AT])[0], MOST_CHARACTERS)


def _place(cause: BaseException) -> str:
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _word(event: str) -> str:
    return event if event.isascii() and event.isalnum() and len(event) < 40 else "?"


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


_FAILED = "failed"  # a command
_WORKED = "worked"  # likewise
_EDITED = "edited"  # a file
_KEPT = "kept"  # a text that is stored
_FULL = "full"  # the session may store no more

# Tags: a command that failed, one that worked, one that works again, a file.
FAILED = "failed"
WORKED = "worked"
FIXED = "fixed"
EDITED = "edited"


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


TODO, DONE = "todo", frozenset({"done", "closed", "completed"})  # tags
LOOKED_AT = 40  # records a question, of which some may not be meant
LOOKED_THROUGH = 200  # the newest, for an empty box: it is no word that could be found

_SAYS_SO = compile_late(r"\s*(?:[-*+]\s+)?(?:\[ ?\](?=\s)|TODO\b|[Tt]o-?do\s*:)")
_TEXT_ALONE = Weights(name=0.0, text=1.0, context=0.0)


def is_todo(record: Record) -> bool:
    return TODO in record.tags or bool(_SAYS_SO.match(record.text))


async def open_todos(store: "RecordStore", session: str) -> list[Record]:
    """Whatever their importance, the newest first."""
    from everkept.families.memories.memory_identity import MEMORY

    where = Where(kinds=(MEMORY,), visible_to=session)
    tagged = Where(kinds=(MEMORY,), visible_to=session, tags=(TODO,))
    matches = await store.match(Phrase((TODO,)), where, _TEXT_ALONE, LOOKED_AT)
    found = [
        *await store.scan(tagged, order="newest", limit=LOOKED_AT),
        *await store.get([match.id for match in matches]),
        *await store.scan(where, order="newest", limit=LOOKED_THROUGH),
    ]
    meant = {r.id: r for r in found if is_todo(r) and DONE.isdisjoint(r.tags)}
    return sorted(meant.values(), key=lambda record: record.at, reverse=True)
