"""Access log: one entry for each call of an account, and for each command of the owner that changes access.

The log never contains texts or search queries, because they may be private.
"""

import errno
import json
import logging
import os
import threading
import uuid
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
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
MAX_FILE_BYTES = 16 * 1024 * 1024  # size of a file after which the log is rotated
MAX_FILES = 8
MAX_IDS = 500  # ids that one line lists; `count` has the total
MAX_NAME_CHARACTERS = 100  # of a name that the caller gave
MAX_ID_CHARACTERS = 40
LOCK_SECONDS = 5.0  # wait for another process that holds the lock
BEGUN_OUTCOME = "begun"  # logged before a call that may change something
LISTENING_OUTCOME = "listening"  # an open event stream, which returns no records

_CURRENT_FILE = "access.jsonl"
_ROTATED_FILES = "access-*.jsonl"
_LOCK_FILE = "access.lock"

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

    @property
    def is_incomplete(self) -> bool:
        """Return whether the call may have touched records that this line does not name."""
        return self.outcome == BEGUN_OUTCOME or 0 < len(self.ids) < self.count

    def as_json(self) -> dict[str, Any]:
        return {
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
    """Log files in one folder, shared by several processes."""

    def __init__(self, folder: Path, *, most_bytes: int = MAX_FILE_BYTES, most_files: int = MAX_FILES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._here = threading.Lock()

    def write(self, access: LoggedCall) -> None:
        """Append a line, or raise an error that hides the file's path: a call that cannot be logged is refused."""
        # An address may contain unpaired surrogates, so the line is escaped ASCII.
        line = json.dumps(access.as_json(), separators=(",", ":")).encode("ascii") + b"\n"
        try:
            with self._hold_lock():
                if self._append(line) >= self._most_bytes:
                    self._rotate(access.at)
        except OSError as error:
            log.warning("cannot write the access log in %s: %s", self._folder, error)
            raise _build_log_error(error) from error

    def read(self) -> Iterator[LoggedCall | None]:
        """Yield every line, oldest first, with None for an unreadable one."""
        for path in (*self._list_rotated(), self._folder / _CURRENT_FILE):
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield from (_parse_line(line) for line in file if not line.isspace())
            except FileNotFoundError:
                continue  # not created yet, or rotated or removed since it was listed

    def find_cutoff(self) -> int | None:
        """Return the time of the oldest line if earlier ones were deleted, otherwise None."""
        if len(self._list_rotated()) < self._most_files - 1:
            return None
        return next((access.at for access in self.read() if access is not None), None)

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

    def _append(self, line: bytes) -> int:
        file = open_private(self._folder / _CURRENT_FILE, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.lseek(file, 0, os.SEEK_END)
            if size and not _has_line_end(file, size):
                line = b"\n" + line
            if os.write(file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)
        return size + len(line)

    def _rotate(self, at: int) -> None:
        earlier = self._folder / f"access-{at:017d}-{uuid.uuid4().hex[:8]}.jsonl"
        try:
            (self._folder / _CURRENT_FILE).rename(earlier)
            for path in self._list_rotated()[: 1 - self._most_files or None]:
                path.unlink(missing_ok=True)
        except OSError as error:
            # On Windows a file cannot be renamed while another process reads it. The next write tries again.
            log.info("access log in %s not rotated: %s", self._folder, error)

    def _list_rotated(self) -> list[Path]:
        return sorted(self._folder.glob(_ROTATED_FILES))


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
    found: dict[str, LoggedCall] = {}
    unsure: set[str] = set()
    broken = 0
    for access in written.read():
        if access is None:
            broken += 1
            continue
        if not (
            (user is None or user in (access.user, access.about))
            and (project is None or project in (access.project, access.project_id))
            and (since is None or access.at >= since)
        ):
            continue
        unsure.discard(access.call)  # the last line of a call counts
        if record is None or record in access.ids:
            found[access.call] = access
            if len(found) > most:
                del found[next(iter(found))]
        elif access.is_incomplete:
            unsure.add(access.call)
    return LoggedCalls(list(found.values()), broken, len(unsure))


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
            project=clip_name(fields["project"]),
            length=int(fields["length"]),
            outcome=str(fields["outcome"]),
            count=int(fields["count"]),
            ids=tuple(map(str, fields["ids"])),
            project_id=clip_name(fields.get("project_id")),
            about=clip_name(fields.get("about")),
        )
    except (ValueError, KeyError, TypeError):
        return None
