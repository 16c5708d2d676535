"""Call log: one line for each tool call, in a private file that rotates. A line never contains what was said.

A call only notes its facts. They are written about a second later, in a thread, so that a call never waits for the
disk. Several processes append to one file.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from everkept.core.disk import append
from everkept.core.text import clip_text, parse_json_object
from everkept.core.times import format_iso
from everkept.values import Value

LOG_FOLDER = "calls"  # inside the data folder
MAX_FILE_BYTES = 1024 * 1024  # size of a file after which it is rotated; a line has about 130
MAX_FILES = 4
WRITE_SECONDS = 1.0  # delay of a batch; a process that is killed loses at most its lines of this time
MAX_NAME_CHARACTERS = 100  # of a name that the caller gave

_WORD_SIGNS = str.maketrans("", "", "-_./ ")

log = logging.getLogger(__name__)


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
