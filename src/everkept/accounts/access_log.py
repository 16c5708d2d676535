"""Access log: one entry for each call of an account, and for each command of the owner that changes access.

The log never contains texts or search queries, because they may be private. Each account has its own files, so it can
push out only its own lines, and never those of the owner's commands. Calls of an account beyond FLOOD_LINES a minute
are summed up in one line. It is still written before each call is answered.
"""

import errno
import json
import logging
import os
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, cast

from everkept.core.disk import make_folder, open_private
from everkept.core.locks import FileLock
from everkept.core.projects import Project
from everkept.core.sessions import OWNER
from everkept.core.times import Clock, format_iso, parse_time
from everkept.errors import EverkeptError, StorageFull, Unavailable
from everkept.values import Value, replace

LOG_FOLDER = "access"  # inside the data folder
MAX_FILE_BYTES = 4 * 1024 * 1024  # size of a file after which it is rotated
MAX_FILES = 4  # of one account, and of the owner
FLOOD_LINES = 120  # of one account in a minute; each call beyond them is added to a sum
MAX_IDS = 500  # ids that one line lists; `count` has the total
MAX_NAME_CHARACTERS = 100  # of a name that the caller gave
MAX_ID_CHARACTERS = 81  # the longest is of a session: its account, and its own id
LOCK_SECONDS = 5.0  # wait for another process that holds the lock
BEGUN_OUTCOME = "begun"  # logged before a call that may change something
LISTENING_OUTCOME = "listening"  # an open event stream, which returns no records

_CURRENT_FILE = "access.jsonl"
_ROTATED_FILES = "access-*.jsonl"
_LOCK_FILE = "access.lock"
_ACCOUNTS_FOLDER = "accounts"
_MINUTE = 60_000_000
_TAIL_BYTES = 128 * 1024  # no line is longer
MAX_SUM_NAMES = 10  # of tools, projects or outcomes in the line of a sum
MORE_NAMES = "…"

log = logging.getLogger(__name__)


class LoggedCall(Value):
    """One tool call or resource read by an account, or one command of the owner that changes access."""

    call: str  # id shared by its lines: a call that may change something has two
    at: int
    user: str
    is_peer: bool
    client: str
    address: str
    what: str  # name of the tool, or URI of the resource
    project: str | None  # the name that the caller used or sees
    length: int = 0  # characters in the arguments
    outcome: str = BEGUN_OUTCOME
    count: int = 0  # different ids in the result and in the changes
    ids: tuple[str, ...] = ()  # changed records first
    project_id: str | None = None  # if known: another project may get the name later
    about: str | None = None  # account that the owner's command concerns
    more: int | None = None  # further calls that this line sums up, None for a line of one call
    begun: tuple[str, ...] = ()  # calls of a sum that have not ended

    @property
    def is_incomplete(self) -> bool:
        """Return whether the call may have touched records that this line does not name."""
        return self.outcome == BEGUN_OUTCOME or bool(self.begun) or 0 < len(self.ids) < self.count

    def is_in_project(self, project: str) -> bool:
        """Return whether the line concerns a project, by name or id. The line of a sum may list several."""
        names = (self.project or "").split(", ") if self.more else [self.project]
        return project == self.project_id or project in names or MORE_NAMES in names

    def as_json(self) -> dict[str, Any]:
        summed = {} if self.more is None else {"more": self.more, "begun": list(self.begun)}
        return summed | {
            "at": format_iso(self.at),
            "call": self.call,
            "user": self.user,
            "peer": self.is_peer,
            "client": self.client,
            "address": self.address,
            "what": self.what,
            "project": self.project,
            "project_id": self.project_id,
            "about": self.about,
            "length": self.length,
            "outcome": self.outcome,
            "count": self.count,
            "ids": list(self.ids),
        }


class AccessLog:
    """Log files in one folder, shared by several processes: those of the owner, and those of each account."""

    def __init__(self, folder: Path, *, most_bytes: int = MAX_FILE_BYTES, most_files: int = MAX_FILES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._here = threading.Lock()
        self._minutes: dict[str, tuple[int, int]] = {}  # by account: the current minute, and its lines
        self._begun: set[str] = set()  # calls whose first line is not part of a sum

    def write(self, access: LoggedCall) -> None:
        """Append a line, or raise an error that hides the file's path: a call that cannot be logged is refused."""
        folder = self.get_folder(access.user)
        try:
            with self._hold_lock():
                make_folder(folder)
                size = self._add_to_sum(folder, access) if self._is_flood(access) else _append(folder, access)
                if size >= self._most_bytes:
                    self._rotate(folder, access.at)
        except OSError as error:
            log.warning("cannot write the access log in %s: %s", self._folder, error)
            raise _build_log_error(error) from error

    def read(self, user: str | None = None) -> Iterator[LoggedCall | None]:
        """Yield every line, with None for an unreadable one: first the owner's, then those of each account.

        The lines of one account are in order, oldest first. With `user`, yield only the owner's and theirs.
        """
        return chain.from_iterable(self.read_folders(user))

    def read_folders(self, user: str | None = None) -> Iterator[Iterator[LoggedCall | None]]:
        """Yield the calls of each folder. Both lines of a call are in one folder."""
        return map(_read_folder, self._list_folders(user))

    def find_cutoff(self, user: str | None = None) -> int | None:
        """Return since when the log is complete if earlier lines were deleted, otherwise None."""
        found: list[int] = []
        for folder in self._list_folders(user):
            if len(_list_rotated(folder)) >= self._most_files - 1:
                found += islice((access.at for access in _read_folder(folder) if access is not None), 1)
        return max(found, default=None)

    def get_folder(self, user: str) -> Path:
        """Return the folder of an account's files. A dot at the end of a name would be lost on Windows."""
        return self._folder if user == OWNER else self._folder / _ACCOUNTS_FOLDER / f"user-{user.replace('.', '+')}"

    def _list_folders(self, user: str | None) -> list[Path]:
        if user is not None:
            return list(dict.fromkeys((self._folder, self.get_folder(user))))
        return [self._folder, *sorted((self._folder / _ACCOUNTS_FOLDER).glob("user-*"))]

    def _is_flood(self, access: LoggedCall) -> bool:
        """Return whether this line exceeds its account's limit. Both lines of a call get the same answer."""
        if access.user == OWNER:
            return False
        if access.outcome != BEGUN_OUTCOME and access.call in self._begun:
            self._begun.remove(access.call)
            return False
        minute, lines = self._minutes.get(access.user, (0, 0))
        now = access.at // _MINUTE
        lines = lines + 1 if minute == now else 1
        self._minutes[access.user] = now, lines
        is_flood = lines > FLOOD_LINES
        if access.outcome == BEGUN_OUTCOME and not is_flood:
            self._begun.add(access.call)
        return is_flood

    def _add_to_sum(self, folder: Path, access: LoggedCall) -> int:
        """Add a call to the last line if it is a sum of this minute, otherwise begin one."""
        path = folder / _CURRENT_FILE
        start, last = _read_last_line(path)
        before = None if last is None else _parse_line(last.decode("ascii", "replace"))
        if before is None or last is None or before.more is None or before.at // _MINUTE != access.at // _MINUTE:
            begun = (access.call,) if access.outcome == BEGUN_OUTCOME else ()
            return _append(folder, replace(access, more=0, begun=begun))
        line = _encode_line(_sum_calls(before, access))
        # Never shorter than before, so that one write replaces the line.
        line = line[:-1].ljust(len(last) - 1) + b"\n"
        file = open_private(path, os.O_RDWR)
        try:
            os.lseek(file, start, os.SEEK_SET)
            _write_whole(file, line)
        finally:
            os.close(file)
        return start + len(line)

    @contextmanager
    def _hold_lock(self) -> Generator[None, None, None]:
        """Hold the lock: not every system appends atomically, or renames an open file."""
        make_folder(self._folder)
        if not self._here.acquire(timeout=LOCK_SECONDS):
            raise TimeoutError(errno.ETIMEDOUT, "another call is writing")
        try:
            lock = FileLock(self._folder / _LOCK_FILE)
            if not lock.wait(LOCK_SECONDS):
                raise TimeoutError(errno.ETIMEDOUT, "another process is writing")
            try:
                yield
            finally:
                lock.release()
        finally:
            self._here.release()

    def _rotate(self, folder: Path, at: int) -> None:
        earlier = folder / f"access-{at:017d}-{uuid.uuid4().hex[:8]}.jsonl"
        try:
            (folder / _CURRENT_FILE).rename(earlier)
            for path in _list_rotated(folder)[: 1 - self._most_files or None]:
                path.unlink(missing_ok=True)
        except OSError as error:
            # On Windows a file cannot be renamed while another process reads it. The next write tries again.
            log.info("access log in %s not rotated: %s", folder, error)


def _list_rotated(folder: Path) -> list[Path]:
    return sorted(folder.glob(_ROTATED_FILES))


def _read_folder(folder: Path) -> Iterator[LoggedCall | None]:
    for path in (*_list_rotated(folder), folder / _CURRENT_FILE):
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from (_parse_line(line) for line in file if not line.isspace())
        except FileNotFoundError:
            continue  # not created yet, or rotated or removed since it was listed


def _encode_line(access: LoggedCall) -> bytes:
    # An address may contain unpaired surrogates, so the line is escaped ASCII.
    return json.dumps(access.as_json(), separators=(",", ":")).encode("ascii") + b"\n"


def _append(folder: Path, access: LoggedCall) -> int:
    line = _encode_line(access)
    file = open_private(folder / _CURRENT_FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    try:
        size = os.lseek(file, 0, os.SEEK_END)
        if size and not _has_line_end(file, size):
            line = b"\n" + line
        _write_whole(file, line)
    finally:
        os.close(file)
    return size + len(line)


def _write_whole(file: int, line: bytes) -> None:
    if os.write(file, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_last_line(path: Path) -> tuple[int, bytes | None]:
    """Return where the last line begins, and the line if it is complete."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return 0, None
    if not tail.endswith(b"\n"):
        return size, None
    start = tail.rfind(b"\n", 0, -1) + 1
    return begin + start, tail[start:]


def _sum_calls(total: LoggedCall, access: LoggedCall) -> LoggedCall:
    """Return the line of a sum with one more line of a call added."""
    is_end = access.call in total.begun
    begun = [call for call in total.begun if call != access.call]
    if access.outcome == BEGUN_OUTCOME:
        begun.append(access.call)
    known = total.count <= len(total.ids) and access.count <= len(access.ids)
    ids = list(dict.fromkeys((*total.ids, *access.ids)))
    return replace(
        total,
        at=access.at,
        client=access.client,
        address=access.address,
        what=_join_names(total.what, access.what) or "",
        project=_join_names(total.project, access.project),
        project_id=total.project_id if total.project_id == access.project_id else None,
        length=total.length + access.length,
        outcome=_join_names(total.outcome, access.outcome) or "",
        count=len(ids) if known else total.count + access.count,
        ids=tuple(ids[:MAX_IDS]),
        more=(total.more or 0) + (not is_end),
        begun=tuple(begun[-MAX_IDS:]),
    )


def _join_names(listed: str | None, name: str | None) -> str | None:
    names = listed.split(", ") if listed else []
    if not name or name in names or MORE_NAMES in names:
        return listed
    return ", ".join([*names, name if len(names) < MAX_SUM_NAMES else MORE_NAMES])


class LoggedCalls(NamedTuple):
    calls: list[LoggedCall]  # each once, oldest first
    broken: int  # unreadable lines
    unsure: int  # calls that may have touched the record: their lines do not name all ids


def find_calls(
    written: AccessLog,
    *,
    user: str | None = None,
    project: str | None = None,
    record: str | None = None,
    since: int | None = None,
    most: int,
) -> LoggedCalls:
    """Return the newest matching calls. `user` is the caller or account concerned, `record` a touched record's id."""
    found: list[LoggedCall] = []
    unsure: set[str] = set()
    broken = 0
    for lines in written.read_folders(user):
        latest: dict[str, LoggedCall] = {}
        for access in lines:
            if access is None:
                broken += 1
                continue
            if not (
                (user is None or user in (access.user, access.about))
                and (project is None or access.is_in_project(project))
                and (since is None or access.at >= since)
            ):
                continue
            unsure.discard(access.call)  # the last line of a call counts
            if record is None or record in access.ids:
                latest[access.call] = access
                if len(latest) > most:
                    del latest[next(iter(latest))]
            elif access.is_incomplete:
                unsure.add(access.call)
        found = _keep_newest([*found, *latest.values()], most)
    return LoggedCalls(found, broken, len(unsure))


def _keep_newest(calls: list[LoggedCall], most: int) -> list[LoggedCall]:
    return sorted(calls, key=lambda access: access.at)[-most:]


@contextmanager
def log_owner_command(
    written: AccessLog,
    clock: Clock,
    what: str,
    about: str | None,
    *,
    project: Project | None = None,
    ids: Iterable[str] = (),
) -> Generator[list[str], None, None]:
    """Log a command of the owner that changes access, before and after it runs. Yield the touched ids, to be extended.

    If the log cannot be written, the command runs anyway, and the server's own log has a warning.
    """
    touched = list(ids)
    access = LoggedCall(
        call=uuid.uuid4().hex,
        at=clock(),
        user=OWNER,
        is_peer=False,
        client="",
        address="",
        what=what,
        project=None if project is None else project.name,
        project_id=None if project is None else project.id,
        about=about,
    )

    def note(outcome: str) -> None:
        named = clip_ids(touched)
        line = replace(access, at=clock(), outcome=outcome, count=len(touched), ids=named)
        with suppress(Unavailable):
            written.write(line)

    note(BEGUN_OUTCOME)
    try:
        yield touched
    except EverkeptError as error:
        note(error.code)
        raise
    note("ok")


def clip_name(value: object) -> str | None:
    """Return a name that a caller gave, shortened, or None if it is not a non-empty string."""
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) and value else None


def clip_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return at most MAX_IDS ids, each in ASCII and at most MAX_ID_CHARACTERS long."""
    some = islice(ids, MAX_IDS)
    return tuple((each if each.isascii() else ascii(each)[1:-1])[:MAX_ID_CHARACTERS] for each in some)


def _has_line_end(file: int, size: int) -> bool:
    """Return whether the file ends with a complete line: a crash or a full disk may leave part of one."""
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _build_log_error(error: OSError) -> Unavailable:
    kind = StorageFull if error.errno == errno.ENOSPC else Unavailable
    return kind(
        "Cannot write the access log, so calls of accounts are refused.",
        hint="Ask the server's owner; the server's log has the details.",
    )


def _parse_line(line: str) -> LoggedCall | None:
    try:
        fields = cast(Mapping[str, Any], json.loads(line))
        return LoggedCall(
            call=str(fields["call"]),
            at=parse_time(str(fields["at"])),
            user=str(fields["user"]),
            is_peer=bool(fields["peer"]),
            client=str(fields["client"]),
            address=str(fields["address"]),
            what=str(fields["what"]),
            project=cast("str | None", fields["project"]) if fields.get("more") else clip_name(fields["project"]),
            length=int(fields["length"]),
            outcome=str(fields["outcome"]),
            count=int(fields["count"]),
            ids=tuple(map(str, fields["ids"])),
            project_id=clip_name(fields.get("project_id")),
            about=clip_name(fields.get("about")),
            more=int(fields["more"]) if "more" in fields else None,
            begun=tuple(map(str, fields.get("begun", ()))),
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
