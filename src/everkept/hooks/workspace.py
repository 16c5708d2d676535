"""Files of the hooks, the project and open todos of a folder, and access to the history."""

import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from everkept.core import disk
from everkept.core.folder_project import find_folder_project
from everkept.core.projects import find_checkout, find_workspace_root
from everkept.core.records import Record, RecordFilter, Weights
from everkept.core.text import blake2b
from everkept.errors import EverkeptError, NotFound
from everkept.language.words import WordPhrase
from everkept.patterns import compile_late
from everkept.settings import AUTO, Settings

if TYPE_CHECKING:
    from everkept.core.paths import Parts
    from everkept.core.ports import ReadOnlyLibrary, RecordStore
    from everkept.core.projects import Project


def get_hooks_folder(settings: Settings) -> Path:
    """Return the folder for ledgers, jobs, the worker's lock and the log of faults."""
    return settings.data_dir / "hooks"


async def find_project(folder: Path | None, settings: Settings, room: "ReadOnlyLibrary") -> "Project | None":
    """Return the project of this folder, by the same rule as servers. Return None before its first memory."""
    if settings.project in (None, AUTO):
        return (await find_folder_project(room, folder)).project
    with suppress(NotFound):
        return await room.get_project(settings.project)
    return None


async def open_history(room: "ReadOnlyLibrary") -> "RecordStore | None":
    """Open the history, or return None if nothing was imported yet."""
    store = await room.open_history_store()
    if store is None:
        return None
    silences = await room.list_off_periods()
    if all(silence.until is not None for silence in silences):
        return store
    # Imported only here, because hardly ever is a folder off.
    from everkept.core.projects import find_workspace_key
    from everkept.families.history.off_folders import OffFolders, hide_folders, read_folders

    folders = await read_folders(store)
    return hide_folders(store, folders, OffFolders(silences, find_workspace_key).select_off(folders))


def compute_mark(text: str) -> str:
    """Return a hash that is different for different texts."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


FAULTS_FILE = "faults.log"  # inside the folder of the hooks
MAX_LOG_BYTES = 200_000  # at this size the older half is removed
MAX_REASON_CHARACTERS = 400
MAX_SCANNED_CHARACTERS = 4_000  # read of a reason to mask secrets


class HookFault(NamedTuple):
    at: str  # ISO 8601, in UTC
    event: str
    reason: str


def record_fault(folder: Path | None, event: str, cause: BaseException | str, *, echo: bool = False) -> None:
    """Add a line to the log in the hooks' folder. With `echo`, also print it to standard error.

    If the data folder is unknown, missing or not writable, nothing is logged and no error is raised.
    """
    # Imported here because faults are rare.
    from everkept.core.times import format_iso, read_clock

    name = event if event.isascii() and event.isalnum() and len(event) < 40 else "?"
    fault = HookFault(format_iso(read_clock()), name, _format_reason(cause))
    if echo:
        with suppress(OSError, ValueError):
            print(f"everkept hook {fault.event}: {fault.reason}", file=sys.stderr, flush=True)  # noqa: T201
    with suppress(OSError):
        if folder is not None and folder.parent.is_dir():
            _shorten_log(folder / FAULTS_FILE)
            disk.append(folder / FAULTS_FILE, f"{fault.at} {fault.event} {fault.reason}\n")


def read_recent_faults(folder: Path, limit: int = 20) -> list[HookFault]:
    """Return the newest faults first. Return none if there is no readable log."""
    try:
        lines = (folder / FAULTS_FILE).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    parts = [line.split(" ", 2) for line in lines]
    return [HookFault(*part) for part in reversed(parts) if len(part) == len(HookFault._fields)][:limit]


def _shorten_log(path: Path) -> None:
    try:
        if path.stat().st_size < MAX_LOG_BYTES:
            return
    except FileNotFoundError:
        return
    _, _, newer = path.read_bytes()[-MAX_LOG_BYTES // 2 :].partition(b"\n")
    disk.replace(path, newer, is_synced=False)


def _format_reason(cause: BaseException | str) -> str:
    """Describe the cause without private text. An unexpected error may quote a prompt, so only give its location."""
    from everkept.core.secrets import mask_text
    from everkept.core.text import clip_text

    if isinstance(cause, str):
        told = cause
    elif isinstance(cause, EverkeptError):
        told = f"{cause.code}: {cause}"
    elif isinstance(cause, OSError):
        told = f"{type(cause).__name__}: {cause.strerror} ({cause.filename})"
    else:
        told = f"{type(cause).__name__} in {_format_location(cause)}"
    return clip_text(mask_text(told[:MAX_SCANNED_CHARACTERS])[0], MAX_REASON_CHARACTERS)


def _format_location(cause: BaseException) -> str:
    trace = cause.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "an unknown place"
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


SESSIONS_FOLDER = "sessions"  # inside the folder of the hooks
RETENTION_DAYS = 14  # after the last claim of a session; no session is resumed later than that
DAY_SECONDS = 86_400

_SWEEP_FILE = "swept"  # file whose time shows when old files were last removed
_RESET_LINE = "reset"
_PLAIN_ID = re.compile(r"[0-9a-f-]{1,64}")


def prune_sessions(folder: Path, now: int) -> int:
    """Delete the files of sessions of long ago and return their number. `folder` is the folder of the hooks."""
    removed = 0
    for path in (folder / SESSIONS_FOLDER).glob("*.txt"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < now / 1e6 - RETENTION_DAYS * DAY_SECONDS:
                path.unlink()
                removed += 1
    return removed


def prune_daily(folder: Path, now: int) -> None:
    """Prune at most once a day, because hooks call this often. Create nothing if there are no sessions."""
    stamp = folder / SESSIONS_FOLDER / _SWEEP_FILE
    with suppress(FileNotFoundError):
        if stamp.stat().st_mtime > now / 1e6 - DAY_SECONDS:
            return
    if stamp.parent.is_dir():
        stamp.touch(mode=disk.PRIVATE_FILE)
        prune_sessions(folder, now)


class SessionLedger:
    """Record of what a session was given. The first hook to write an id owns it, so concurrent hooks do not repeat."""

    def __init__(self, folder: Path, session: str) -> None:
        """Use `folder`, the folder of the hooks inside the data folder. The first claim creates it.

        Without a session or a data folder nothing is recorded, and everything counts as not given yet.
        """
        is_kept = session and folder.parent.is_dir()
        name = session if _PLAIN_ID.fullmatch(session) else compute_mark(session)
        self._path = folder / SESSIONS_FOLDER / f"{name}.txt" if is_kept else None
        self._nonce = f"{os.getpid()}-{os.urandom(4).hex()}"

    def read_given(self) -> set[str]:
        """Return the ids of everything that hooks gave to the session."""
        return set(self._read_owners())

    def claim(self, ids: Iterable[str]) -> set[str]:
        """Return the ids that were not given yet, and record them as given."""
        given = self.read_given()
        wanted = {each for each in ids if each not in given}
        if self._path is None or not wanted:
            return wanted
        disk.append_lines(self._path, (f"{each} {self._nonce}" for each in sorted(wanted)))
        owners = self._read_owners()
        return {each for each in wanted if owners.get(each) == self._nonce}

    def reset(self) -> None:
        """Record that the session has lost its context, so that everything may be given again."""
        if self._path is not None and self._path.exists():
            disk.append_lines(self._path, [_RESET_LINE])

    def _read_owners(self) -> dict[str, str]:
        if self._path is None:
            return {}
        try:
            lines = self._path.read_text("utf-8", "replace").split("\n")
        except FileNotFoundError:
            return {}
        owners: dict[str, str] = {}
        for line in lines:
            if line == _RESET_LINE:
                owners.clear()
            elif " " in line:
                each, _, nonce = line.rpartition(" ")
                owners.setdefault(each, nonce)
        return owners


MOMENT_MICROSECONDS = 5_000_000  # within this time, the same facts are the same moment
MAX_READ_BYTES = 16_000  # of the moments, from the end


class SessionMoments:
    """Append-only log of the moments of a session, for clients that run two hooks for one event."""

    def __init__(self, folder: Path, session: str) -> None:
        """Use `folder`, the folder of the hooks inside the data folder. The first claim creates the file.

        Without a session or a data folder every claim succeeds.
        """
        is_kept = session and folder.parent.is_dir()
        self._path = folder / SESSIONS_FOLDER / f"{compute_mark(session)}-moments.txt" if is_kept else None
        self._nonce = f"{os.getpid()}-{os.urandom(4).hex()}"

    def claim(self, mark: str, now: int) -> bool:
        """Return whether this is the first claim of the moment. `now` is in microseconds since 1970."""
        if self._path is None:
            return True
        disk.append_lines(self._path, [f"{now} {mark} {self._nonce}"])
        return self._nonce in self._list_winners(self._path, mark)

    def _list_winners(self, path: Path, mark: str) -> list[str]:
        """Return the first claim of each moment with this mark. A lost claim does not prolong the moment."""
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - MAX_READ_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
        winners: list[str] = []
        ends = 0
        for at, seen, nonce in (line.split(" ") for line in lines if line.count(" ") == 2):
            if seen == mark and at.isdecimal() and int(at) >= ends:
                winners.append(nonce)
                ends = int(at) + MOMENT_MICROSECONDS
        return winners


_FAILED_EVENT = "failed"  # a command
_WORKED_EVENT = "worked"  # a command
_EDITED_EVENT = "edited"  # a file
_STORED_EVENT = "kept"  # a stored text
_FULL_EVENT = "full"  # the session may not store more

# Tags for a command that failed, that worked or that was fixed, and for an edited file.
FAILED_TAG = "failed"
WORKED_TAG = "worked"
FIXED_TAG = "fixed"
EDITED_TAG = "edited"


class SessionEvents:
    """Append-only log of a session's events, so that concurrent hooks do not disturb each other.

    An event that adds nothing new is not logged, because a session may run for days.
    """

    def __init__(self, folder: Path, session: str) -> None:
        """Use `folder`, the folder of the hooks inside the data folder. The first line creates it."""
        self._path = folder / SESSIONS_FOLDER / f"{compute_mark(session)}-trail.txt"
        self._lines = self._read_events()

    @property
    def is_full(self) -> bool:
        return (_FULL_EVENT, "") in self._lines

    def is_stored(self, text: str) -> bool:
        return (_STORED_EVENT, compute_mark(text)) in self._lines

    def is_failing(self, command: str) -> bool:
        """Return whether the command failed and has not worked since."""
        return self._find_failure(command) is not None

    def has_worked(self, command: str) -> bool:
        return (_WORKED_EVENT, compute_mark(command)) in self._lines

    def list_edits_since_failure(self, command: str) -> list[str]:
        """Return the files in the order of their first edit after the command began to fail."""
        start = self._find_failure(command)
        later = [] if start is None else self._lines[start:]
        return list(dict.fromkeys(value for what, value in later if what == _EDITED_EVENT))

    def add_failure(self, command: str) -> None:
        if not self.is_failing(command):
            self._append(_FAILED_EVENT, compute_mark(command))

    def add_success(self, command: str) -> None:
        if self.is_failing(command) or not self.has_worked(command):
            self._append(_WORKED_EVENT, compute_mark(command))

    def add_edit(self, file: str) -> None:
        failures = [place for place, (what, _) in enumerate(self._lines) if what == _FAILED_EVENT]
        if (_EDITED_EVENT, file) not in self._lines[failures[-1] if failures else 0 :]:
            self._append(_EDITED_EVENT, file)

    def add_stored(self, text: str) -> None:
        self._append(_STORED_EVENT, compute_mark(text))

    def mark_full(self) -> None:
        self._append(_FULL_EVENT, "")

    def _append(self, what: str, value: str) -> None:
        disk.append_lines(self._path, [f"{what} {value}"])
        self._lines.append((what, value))

    def _find_failure(self, command: str) -> int | None:
        """Return the position at which the command began to fail, or None."""
        key = compute_mark(command)
        start = None
        for place, line in enumerate(self._lines):
            if line == (_WORKED_EVENT, key):
                start = None
            elif line == (_FAILED_EVENT, key) and start is None:
                start = place
        return start

    def _read_events(self) -> list[tuple[str, str]]:
        try:
            text = self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return []
        lines = (line.partition(" ") for line in text.split("\n"))
        return [(what, value) for what, _, value in lines if what]


TODO_TAG, DONE_TAGS = "todo", frozenset({"done", "closed", "completed"})
MAX_SCANNED_RECORDS = 40  # per query; some of them are filtered out later
MAX_SCANNED_NEWEST = 200  # read for empty check boxes, which are not words and cannot be searched

_TODO_PREFIX = compile_late(r"\s*(?:[-*+]\s+)?(?:\[ ?\](?=\s)|TODO\b|[Tt]o-?do\s*:)")
_TEXT_ONLY = Weights(name=0.0, text=1.0, context=0.0)


def is_todo(record: Record) -> bool:
    return TODO_TAG in record.tags or bool(_TODO_PREFIX.match(record.text))


async def read_open_todos(store: "RecordStore", session: str) -> list[Record]:
    """Return the open todos of any importance, newest first."""
    from everkept.families.memories.memory_identity import MEMORY

    where = RecordFilter(kinds=(MEMORY,), visible_to=session)
    tagged = RecordFilter(kinds=(MEMORY,), visible_to=session, tags=(TODO_TAG,))
    matches = await store.match(WordPhrase((TODO_TAG,)), where, _TEXT_ONLY, MAX_SCANNED_RECORDS)
    found = [
        *await store.scan(tagged, order="newest", limit=MAX_SCANNED_RECORDS),
        *await store.get([match.id for match in matches]),
        *await store.scan(where, order="newest", limit=MAX_SCANNED_NEWEST),
    ]
    meant = {r.id: r for r in found if is_todo(r) and DONE_TAGS.isdisjoint(r.tags)}
    return sorted(meant.values(), key=lambda record: record.effective_at, reverse=True)


class ProjectFolders(NamedTuple):
    """Folders of a project, each as its parts. With `alone`, their subfolders do not belong to it."""

    roots: "tuple[Parts, ...]"
    alone: bool = False

    @classmethod
    def from_folder(cls, folder: Path | None) -> "ProjectFolders":
        """Return the repository of a folder with its main checkout. Without one, return only the folder itself."""
        from everkept.core.paths import split_loose  # only hooks that search the past need it

        if folder is None:
            return cls(())
        workspace = find_workspace_root(folder)
        if workspace is None:
            return cls((split_loose(str(folder)), split_loose(str(folder.resolve()))), alone=True)
        # A conversation names its folder as typed, including symbolic links.
        typed = next((p for p in (folder, *folder.parents) if (p / ".git").exists()), folder)
        places = (workspace, find_checkout(folder) or workspace, typed)
        return cls(tuple(dict.fromkeys(split_loose(str(place)) for place in places)))

    def select_scopes(self, scopes: Iterable[str]) -> tuple[str, ...]:
        """Return the folders of conversations that belong to the project."""
        from everkept.core.paths import split_loose

        return tuple(dict.fromkeys(scope for scope in scopes if self._contains_parts(split_loose(scope))))

    def _contains_parts(self, parts: "Parts") -> bool:
        from everkept.core.paths import starts_with

        if self.alone:
            return bool(parts) and parts in self.roots
        return any(starts_with(parts, root) for root in self.roots)
