"""Counts of accesses, searches and tool calls, collected in memory and stored in batches; and the call log.

The call log has one line for each tool call, in a private file that rotates. A line never contains what was said. A
call only notes its facts. They are written about a second later, in a thread, so that a call never waits for the disk.
Several processes append to one file.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from everkept.core.answers import MAX_SEARCHES, SearchRecord
from everkept.core.commits import note_touched
from everkept.core.disk import append
from everkept.core.mcp import ToolUsage, UsageLog, sum_usage
from everkept.core.ports import AccessCount, Library, RecordStore
from everkept.core.sessions import Account, act_as, format_session_prefix, get_acting_account
from everkept.core.text import clip_text, parse_json_object
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError
from everkept.values import Value, replace

LOG_FOLDER = "calls"  # inside the data folder
MAX_FILE_BYTES = 1024 * 1024  # size of a file after which it is rotated; a line has about 130
MAX_FILES = 4
WRITE_SECONDS = 1.0  # delay of a batch; a process that is killed loses at most its lines of this time
MAX_NAME_CHARACTERS = 100  # of a name that the caller gave

_WORD_SIGNS = str.maketrans("", "", "-_./ ")


class CallNote(Value):
    """Facts of one tool call. `project` is None if it used none, and empty for a tool of another server."""

    at: int
    tool: str
    project: str | None
    client: str
    account: str | None
    milliseconds: float
    outcome: str


class CallLog:
    """Log of the tool calls of this machine."""

    def __init__(self, folder: Path) -> None:
        self._path = _find_file(folder / LOG_FOLDER)
        self._waiting: list[CallNote] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._has_failed = False

    def note(self, call: CallNote) -> None:
        self._waiting.append(call)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_later)

    async def close(self) -> None:
        """Write the rest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._writing is not None:
            await self._writing
        if self._waiting:
            await self._start_writing()

    def _write_later(self) -> None:
        if self._writing is not None and not self._writing.done():  # the disk is slow
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write_later)
            return
        self._timer = None
        self._start_writing()

    def _start_writing(self) -> asyncio.Future[None]:
        waiting, self._waiting = self._waiting, []
        self._writing = asyncio.get_running_loop().run_in_executor(None, self._write, waiting)
        return self._writing

    def _write(self, calls: list[CallNote]) -> None:
        try:
            self._rotate_if_full()
            append(self._path, "".join(map(self._format_line, calls)))
        except OSError as error:
            if not self._has_failed:  # the calls themselves must succeed
                log.info("tool calls are not logged in %s: %s", self._path, error)
            self._has_failed = True

    def _format_line(self, call: CallNote) -> str:
        line: dict[str, Any] = {
            "at": format_iso(call.at),
            "tool": call.tool,
            "project": _clean_name(call.project),
            "client": _clean_name(call.client),
            "ms": round(call.milliseconds, 1),
            "outcome": call.outcome,
        }
        if call.account is not None:
            line["account"] = call.account
        return json.dumps(line, separators=(",", ":")) + "\n"

    def _rotate_if_full(self) -> None:
        if not self._is_full():
            return
        from everkept.core.locks import FileLock

        lock = FileLock(_get_lock(self._path))
        if not lock.wait(0.0):
            return  # another process rotates
        try:
            if self._is_full():
                self._rotate()
        finally:
            lock.release()

    def _rotate(self) -> None:
        folder = self._path.parent
        # On Windows, no file can be renamed while another process reads it. The next write tries again.
        with suppress(OSError):
            for number in reversed(range(1, MAX_FILES)):
                if (newer := _find_file(folder, number - 1)).exists():
                    newer.replace(_find_file(folder, number))

    def _is_full(self) -> bool:
        try:
            return self._path.stat().st_size >= MAX_FILE_BYTES
        except FileNotFoundError:
            return False


def read_calls(folder: Path, limit: int, project: str | None = None) -> list[dict[str, Any]]:
    """Return the newest calls, newest first. Skip lines that cannot be read."""
    return list(islice(_iterate_calls(folder / LOG_FOLDER, project), limit))


def _iterate_calls(folder: Path, project: str | None) -> Iterator[dict[str, Any]]:
    for number in range(MAX_FILES):
        try:
            text = _find_file(folder, number).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            continue
        for line in reversed(text.splitlines()):
            call = parse_json_object(line)  # None: a process may have died in the middle of a line
            if call is not None and project in (None, call.get("project")):
                yield call


def count_matching_calls(folder: Path, is_meant: Callable[[str], object]) -> int:
    """Return the number of lines with matching names."""
    lines = [line for path in _list_files(folder) for line in path.read_bytes().splitlines()]
    return sum(bool(is_meant(_decode_names(line))) for line in lines)


def erase_calls(folder: Path, is_meant: Callable[[str], object]) -> int:
    """Permanently erase the lines with matching names, in place because others append. Return their number."""
    from everkept.core.locks import WaitingLock

    if not (folder / LOG_FOLDER).is_dir():
        return 0
    erased = 0
    with WaitingLock(_get_lock(_find_file(folder / LOG_FOLDER)), "The call log").hold():
        for path in _list_files(folder):
            at = 0
            for line in path.read_bytes().splitlines(keepends=True):
                if line.strip() and is_meant(_decode_names(line)):
                    with path.open("r+b") as file:
                        file.seek(at)
                        file.write(b" " * len(line.rstrip(b"\r\n")))
                    erased += 1
                at += len(line)
    return erased


def _decode_names(line: bytes) -> str:
    """Return the names in a line, or the line if it cannot be read."""
    try:
        call: Any = json.loads(line)
        return "\n".join(str(call[name]) for name in ("project", "client", "account") if call.get(name))
    except (ValueError, RecursionError, AttributeError):
        return line.decode("utf-8", "replace")


def _list_files(folder: Path) -> list[Path]:
    return [path for number in range(MAX_FILES) if (path := _find_file(folder / LOG_FOLDER, number)).exists()]


def _get_lock(path: Path) -> Path:
    return path.with_suffix(".lock")


def _find_file(folder: Path, number: int = 0) -> Path:
    """Return the path of a file; 0 is the newest one."""
    return folder / (f"calls.{number}.jsonl" if number else "calls.jsonl")


@lru_cache(maxsize=64)
def _clean_name(name: str | None) -> str | None:
    """Return a name that the caller gave, without secrets, and not longer than a name."""
    if not name or name.translate(_WORD_SIGNS).isalpha():
        return clip_text(name, MAX_NAME_CHARACTERS) if name else None
    from everkept.core.secrets import mask_text

    return clip_text(mask_text(name)[0], MAX_NAME_CHARACTERS)


ACCESS_SECONDS = 2.0  # delay of a batch

log = logging.getLogger(__name__)


_IS_COUNTED: ContextVar[bool] = ContextVar("is_counted", default=True)


@contextmanager
def stop_counting() -> Generator[None]:
    """Count no access of memories, for example when a person looks at them."""
    before = _IS_COUNTED.set(False)
    try:
        yield
    finally:
        _IS_COUNTED.reset(before)


class BatchedAccesses:
    """Access counts, stored in batches. A crash loses at most the counts of two seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[RecordStore, Counter[str]] = {}
        self._task: asyncio.Task[None] | None = None

    def note(self, store: RecordStore, ids: Sequence[str]) -> None:
        if not ids:
            return
        note_touched(ids)
        if not _IS_COUNTED.get():
            return
        self._counts.setdefault(store, Counter()).update(ids)
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._store_later(), name="accesses")

    async def read_accesses(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, AccessCount]:
        known = dict(await store.get_accesses(ids))
        waiting = self._counts.get(store, Counter())
        for record_id in ids:
            if count := waiting[record_id]:
                stored = known.get(record_id, AccessCount(0, 0))
                known[record_id] = AccessCount(stored.count + count, self._clock())
        return known

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._flush()

    async def _store_later(self) -> None:
        await asyncio.sleep(ACCESS_SECONDS)
        await self._flush()

    async def _flush(self) -> None:
        while self._counts:
            store, counts = self._counts.popitem()
            try:
                await store.note_accesses(counts, self._clock())
            except Exception as error:  # noqa: BLE001 - damaged data may raise any error, also while the server ends
                log.info("access counts not stored: %s", error)  # the read itself must succeed


SEARCH_SECONDS = 2.0  # delay of a batch


class BatchedSearches:
    """Search log, stored in batches. A crash loses at most the searches of two seconds.

    Session ids of an account's searches begin with the account, and an account sees only its own searches.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._waiting: list[SearchRecord] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def note(self, search: SearchRecord) -> None:
        account = get_acting_account()
        if account is not None:
            search = replace(search, session=_build_session_id(account, search.session))
        self._waiting.append(search)
        if self._task is None or self._task.done():
            with act_as(None):
                self._task = asyncio.create_task(self._store_later(), name="searches")

    async def list_newest(self, *, session: str | None = None, limit: int = 100) -> list[SearchRecord]:
        account = get_acting_account()
        if account is None:
            return await self._read_newest(session, limit)
        if session is not None:
            found = await self._read_newest(_build_session_id(account, session), limit)
        else:
            every = await self._read_newest(None, MAX_SEARCHES)
            found = [s for s in every if (s.session or "").startswith(_build_session_id(account, None))]
        prefix = _build_session_id(account, None)
        return [replace(s, session=(s.session or "").removeprefix(prefix) or None) for s in found[:limit]]

    async def _read_newest(self, session: str | None, limit: int) -> list[SearchRecord]:
        waiting = [search for search in reversed(self._waiting) if session is None or search.session == session]
        try:
            stored = await self._library.list_searches(session=session, limit=limit)
        except EverkeptError as error:
            log.info("cannot read earlier searches: %s", error)
            stored = []
        # A batch that is being stored is in both lists.
        once = {(s.at, s.tool, s.query, s.session): s for s in (*waiting, *stored)}
        return sorted(once.values(), key=lambda search: -search.at)[:limit]

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None

    async def _store_later(self) -> None:
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                await self._closing.wait()
        except TimeoutError:
            pass
        while self._waiting:
            batch = list(self._waiting)
            try:
                await self._library.add_searches(batch)
            except Exception as error:  # noqa: BLE001 - see BatchedAccesses
                log.info("searches not stored: %s", error)  # the search itself must succeed
            finally:
                del self._waiting[: len(batch)]


def _build_session_id(account: Account, session: str | None) -> str:
    return format_session_prefix(account.name) + (session or "")


USAGE_SECONDS = 2.0  # delay of a batch


class BatchedUsage:
    """Counts of gateway calls. A crash loses at most those of two seconds. A failed batch is stored later."""

    def __init__(self, stored: Callable[[], UsageLog]) -> None:
        """Keep `stored`, which is called only when there is something to store."""
        self._stored = stored
        self._waiting: list[ToolUsage] = []
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._has_failed = False

    def note(self, tool: str, milliseconds: float, *, failed: bool, at: int) -> None:
        """Count one call. Ignored after close()."""
        if self._closing.is_set():
            return
        self._waiting.append(ToolUsage(tool, 1, int(failed), milliseconds, milliseconds, at))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._store_later(), name="usage")

    async def close(self) -> None:
        self._closing.set()
        if self._task is not None:
            await self._task
            self._task = None
        await self._store_counts()

    async def _store_later(self) -> None:
        is_stored = True
        while self._waiting and is_stored:  # calls may arrive while a batch is stored
            try:
                async with asyncio.timeout(USAGE_SECONDS):
                    await self._closing.wait()
                return  # close() stores the rest
            except TimeoutError:
                is_stored = await self._store_counts()

    async def _store_counts(self) -> bool:
        if not self._waiting:
            return True
        taken, batch = len(self._waiting), sum_usage(self._waiting)
        try:
            await self._stored().add_usage(batch)
        except Exception as error:  # noqa: BLE001 - see BatchedAccesses
            self._waiting[:taken] = batch  # one count per tool, however long the failure lasts
            if not self._has_failed:
                log.warning("gateway call counts not stored: %s", error)
            self._has_failed = True
            return False
        del self._waiting[:taken]
        return True
