"""Who read and changed what: a line for each call of an account, in files that stay small; and
for whatever the owner did about who comes in and sees what.

Never a text, and never a question: those may be private.
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
MAX_FILE_BYTES = 16 * 1024 * 1024  # of one file, from which the next line begins another
MAX_FILES = 8
MAX_IDS = 500  # that one line names; how many there were is said anyway
MAX_NAME_CHARACTERS = 100  # characters of what a caller named
MAX_ID_CHARACTERS = 40
LOCK_SECONDS = 5.0  # seconds that another process may keep the file
BEGUN_OUTCOME = "begun"  # the outcome of a call that may change something, before it is made
LISTENING_OUTCOME = "listening"  # of a stream that is open, which gives out no record

_CURRENT_FILE = "access.jsonl"
_ROTATED_FILES = "access-*.jsonl"
_LOCK_FILE = "access.lock"

log = logging.getLogger(__name__)


class LoggedCall(Value):
    """One call of a tool, or one reading of a resource, by an account; or a command of the owner's
    that lets somebody in or out."""

    call: str  # what its lines have in common: a call that changes something has two
    at: int
    user: str
    is_peer: bool
    client: str
    address: str
    what: str  # the name of the tool, or the address of the resource
    project: str | None  # as the caller named it, or sees it
    length: int = 0  # characters in the arguments
    outcome: str = BEGUN_OUTCOME
    count: int = 0  # of different ids in the answer, and of what was changed
    ids: tuple[str, ...] = ()  # what was changed comes first
    project_id: str | None = None  # where it is known: a name may pass to another
    about: str | None = None  # whom the owner let in or out

    @property
    def is_incomplete(self) -> bool:
        """Whether it may have touched records that this line does not name."""
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
    """Files in one folder, to which several processes may write at once."""

    def __init__(self, folder: Path, *, most_bytes: int = MAX_FILE_BYTES, most_files: int = MAX_FILES) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._most_files = most_files
        self._here = threading.Lock()

    def write(self, access: LoggedCall) -> None:
        """The line is in the file afterwards, or it is an error: what cannot be noted is not done.

        Who calls does not learn where the file is: that is for the server's own log.
        """
        # Half of a character, which an address may hold, only an escape can say.
        line = json.dumps(access.as_json(), separators=(",", ":")).encode("ascii") + b"\n"
        try:
            with self._hold_lock():
                if self._append(line) >= self._most_bytes:
                    self._rotate(access.at)
        except OSError as error:
            log.warning("the access log in %s cannot be written: %s", self._folder, error)
            raise _build_log_error(error) from error

    def read(self) -> Iterator[LoggedCall | None]:
        """Every line, the oldest first; None stands for one that cannot be read."""
        for path in (*self._list_rotated(), self._folder / _CURRENT_FILE):
            try:
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield from (_parse_line(line) for line in file if not line.isspace())
            except FileNotFoundError:
                continue  # none yet, or one that was turned over or removed meanwhile

    def find_cutoff(self) -> int | None:
        """The moment of the oldest line where earlier ones had to go; None: all are there."""
        if len(self._list_rotated()) < self._most_files - 1:
            return None
        return next((access.at for access in self.read() if access is not None), None)

    @contextmanager
    def _hold_lock(self) -> Generator[None, None, None]:
        """Not every system adds to the end of a file in one step, nor renames an open one."""
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
            # Windows, while another process reads: the next line tries again.
            log.info("the access log is not turned over: %s", error)

    def _list_rotated(self) -> list[Path]:
        return sorted(self._folder.glob(_ROTATED_FILES))


class LoggedCalls(NamedTuple):
    """What the log has of the calls that somebody asks for."""

    calls: list[LoggedCall]  # each once, the oldest first
    broken: int  # lines that cannot be read
    unsure: int  # calls that may have touched the record too: their lines do not name all


def find_calls(
    written: AccessLog,
    *,
    user: str | None = None,
    project: str | None = None,
    record: str | None = None,
    since: int | None = None,
    most: int,
) -> LoggedCalls:
    """The newest calls of that kind.

    A `user` is who called, or who it was about; a `record` is the id of one that was touched.
    """
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
        unsure.discard(access.call)  # the last of its lines counts
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
    """Within it the owner lets somebody in or out, or lets them see something; what it touches
    besides `ids` is added to the list that this gives.

    It is noted before and, under the same call, after. Where it cannot be, it is done all the
    same, and the log of the program says so.
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
    """What a caller named, as far as it is a name."""
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) and value else None


def clip_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """As many as a line may hold, each no longer than one of ours when it is written."""
    some = islice(ids, MAX_IDS)
    return tuple((each if each.isascii() else ascii(each)[1:-1])[:MAX_ID_CHARACTERS] for each in some)


def _has_line_end(file: int, size: int) -> bool:
    """A process that died, or a disk that was full, may have left half of one."""
    os.lseek(file, size - 1, os.SEEK_SET)
    return os.read(file, 1) == b"\n"


def _build_log_error(error: OSError) -> Unavailable:
    kind = StorageFull if error.errno == errno.ENOSPC else Unavailable
    return kind(
        "The access log of this server cannot be written, so the calls of accounts are refused.",
        hint="Whoever runs the server finds the reason in its log.",
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
