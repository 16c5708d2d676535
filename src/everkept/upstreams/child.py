"""The program of a server: how it is found, its pipes, its log and its end."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from everkept.core.mcp import LineBuffer, OverlongLine, UpstreamProgram
from everkept.core.text import format_count
from everkept.errors import escape_name
from everkept.upstreams.link import Mask, build_setup_error, fill_variables
from everkept.upstreams.process_group import ChildProcess, ProcessGroup, open_process_group
from everkept.values import Value

# The variables that the official clients pass on: enough to run, and no secrets.
INHERITED_VARIABLES = (
    {"APPDATA", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "PROCESSOR_ARCHITECTURE"}
    | {"SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "USERNAME", "USERPROFILE"}
    if sys.platform == "win32"
    else {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
)

_ROOT_FOLDER = Path(sys.executable).anchor
_COMMAND_LINE_HINT = "Set `command` to the program only, and write each of its arguments as an item of `args`."
_PATHEXT = ".COM;.EXE;.BAT;.CMD"


class ProgramStart(Value):
    """Everything that the system needs to start a program."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str


def resolve_program(upstream: str, launch: UpstreamProgram, environment: Mapping[str, str]) -> ProgramStart:
    """Find the program. Raise UpstreamUnavailable if the program, its folder or a variable is missing."""
    given = _build_environment(upstream, launch, environment)
    folder = Path(launch.cwd or _find_home(environment))
    if not (folder.is_absolute() and folder.is_dir()):
        reason = f"cannot be started: folder {folder} does not exist."
        raise build_setup_error(upstream, reason, "Create it, or correct `cwd`.")
    executable = _resolve_executable(upstream, launch.command, folder, given)
    return ProgramStart((executable, *launch.args), given, str(folder))


def _find_home(environment: Mapping[str, str]) -> str:
    home = Path(environment.get("USERPROFILE" if sys.platform == "win32" else "HOME", ""))
    return str(home) if home.is_absolute() and home.is_dir() else _ROOT_FOLDER


def _build_environment(upstream: str, launch: UpstreamProgram, environment: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: environment[name]
        for name in INHERITED_VARIABLES
        # A shell function in a variable is code that the next shell would run.
        if name in environment and not environment[name].startswith("()")
    }
    named = fill_variables(launch.env, environment, upstream)
    if sys.platform == "win32":  # `Path` and `PATH` are the same variable
        named = {name.upper(): value for name, value in named.items()}
    return inherited | named


def _resolve_executable(upstream: str, wanted: str, folder: Path, environment: Mapping[str, str]) -> str:
    has_folder = Path(wanted).name != wanted
    # A relative path is relative to the program's folder, not to ours.
    places = [folder] if has_folder else _list_path_folders(environment)
    if found := _find_runnable(places, wanted, environment):
        return found
    if has_folder and (folder / wanted).is_file():
        hint = f"Set `command` to the program that runs it, and pass {wanted} in `args`."
        raise build_setup_error(upstream, f"cannot be started: {wanted} is not executable.", hint)
    looked = "" if has_folder else " in the folders of PATH"
    reason = f"cannot be started: program {_format_program(wanted)} not found{looked}."
    hint = _COMMAND_LINE_HINT if " " in wanted else "Install it, or set `command` to its full path."
    raise build_setup_error(upstream, reason, hint)


def _format_program(wanted: str) -> str:
    """Quote a whole command line, with secrets masked."""
    from everkept.core.secrets import mask_text

    return f'"{mask_text(wanted)[0]}"' if " " in wanted else wanted


def _list_path_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return the absolute folders of PATH. Others depend on the current folder, which may be a stranger's."""
    entries = environment.get("PATH", os.defpath).split(os.pathsep)
    return [Path(entry) for entry in entries if Path(entry).is_absolute()]


def _find_runnable(places: list[Path], name: str, environment: Mapping[str, str]) -> str | None:
    for place in places:
        for ending in _list_endings(name, environment):
            path = place / (name + ending)
            if path.is_file() and os.access(path, os.X_OK):
                return str(path)
    return None


def _list_endings(name: str, environment: Mapping[str, str]) -> list[str]:
    """Return the endings to try after a name: on Windows, the ending marks a file as a program."""
    if sys.platform != "win32":
        return [""]
    known = [e for e in environment.get("PATHEXT", _PATHEXT).split(";") if e.startswith(".")]
    return [""] if name.lower().endswith(tuple(e.lower() for e in known)) else known


LOGGED_CHARACTERS = 500  # of one line
MAX_LOGGED_LINES = 50  # per period
LOG_PERIOD_SECONDS = 1.0

_LINE_BYTES = LOGGED_CHARACTERS * 8
_LAST_LINES = 3  # shown as the reason why a program ended or was not ready
_KEPT_LINES = 40  # a stack trace or npm's advice can follow the reason
_MIN_WORD_CHARACTERS = 4  # of an argument that a line can name
_FAULT = re.compile(
    r"not found|(?:not|n't) be found|no such|no module|no solution|does(?: not|n't) exist|not installed|cannot|can't"
    r"|could(?: not|n't)|unable|failed|denied|refused|missing|required|invalid|unknown|unrecognized|unsupported"
    r"|already in use|Error: ",
    re.IGNORECASE,
)

log = logging.getLogger(__name__)


class StderrLog:
    """Logs the standard error of one program, and stray lines of its standard output.

    `words` are the arguments of the program. A line that names one of them explains more.
    """

    def __init__(self, name: str, hide: Mask, words: Iterable[str] = ()) -> None:
        self._name = name
        self._hide = hide
        self._words = [word for word in words if len(word) >= _MIN_WORD_CHARACTERS and not word.startswith("-")]
        self._lines = LineBuffer(_LINE_BYTES)
        self._last: deque[bytes] = deque(maxlen=_KEPT_LINES)
        self._has_strayed = False
        self._logged = 0  # in the current period
        self._left_out = 0
        self._period: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._add(line.head if isinstance(line, OverlongLine) else line)

    def finish(self) -> None:
        """Log the last line and the number of omitted ones."""
        self.feed(b"\n")
        if self._period is not None:
            self._period.cancel()
            self._start_period()

    def add_stray_line(self, line: bytes) -> None:
        """Handle a line of its standard output that is not a message."""
        self._last.append(line)
        if not self._has_strayed:  # only once, because a server that logs to its output would fill our log
            self._has_strayed = True
            shown = self._mask_line(line)
            log.warning("%s wrote a line that is not a message, ignored: %s", self._name, shown)

    def format_last_lines(self, output: bytes = b"") -> str:
        """Return the last lines, including unfinished ones; `output` is the unfinished line of standard output.

        The line that explains a failure best is the first one, if it is earlier than these.
        """
        begun = (line for line in (self._lines.get_rest(), output) if line.strip())
        lines = [self._mask_line(line) for line in (*self._last, *begun)]
        earlier, last = lines[:-_LAST_LINES], lines[-_LAST_LINES:]
        if earlier:
            best = max(reversed(earlier), key=self._rate)
            if self._rate(best) > max(map(self._rate, last)):
                last[0] = best
        return " / ".join(last)

    def _rate(self, line: str) -> int:
        """Return how well a line explains a failure: by naming a fault, and more so with an argument of the program."""
        return 0 if _FAULT.search(line) is None else 1 + any(word in line for word in self._words)

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self._last.append(line)
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(LOG_PERIOD_SECONDS, self._start_period)
        if self._logged < MAX_LOGGED_LINES:
            self._logged += 1
            log.info("%s: %s", self._name, self._mask_line(line))
        else:
            self._left_out += 1

    def _start_period(self) -> None:
        if self._left_out:
            log.info("%s: omitted %s within a second", self._name, format_count(self._left_out, "more line"))
        self._logged = self._left_out = 0
        self._period = None

    def _mask_line(self, line: bytes) -> str:
        # Masked before it is cut, because half a secret would not be recognized.
        return escape_name(self._hide(line[:_LINE_BYTES].decode("utf-8", "replace").rstrip())[:LOGGED_CHARACTERS])


# How long a program may take to end after its input was closed, after SIGTERM, and after SIGKILL.
INPUT_END_SECONDS, TERMINATE_SECONDS, KILL_SECONDS = 1.0, 0.5, 1.0
LAST_OUTPUT_SECONDS = 0.5  # for output written before the end

_OUTPUT, _ERRORS = 1, 2
_MAX_UNREAD_BYTES = 1024 * 1024  # sent, but not read by the program yet
_POLL_SECONDS = 0.02

OnLine = Callable[[bytes | OverlongLine], None]


class ChildProgram(ChildProcess):
    """One program. `ended` resolves to the reason why it is unusable, as the end of a sentence."""

    def __init__(self, name: str, limit: int, remarks: StderrLog) -> None:
        super().__init__()
        self.name = name
        self.on_line: OnLine = lambda line: None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stirred = asyncio.Event()  # set by any output
        self._output = LineBuffer(limit)
        self._remarks = remarks
        self._open_pipes = {_OUTPUT, _ERRORS}
        self._may_write = asyncio.Event()
        self._may_write.set()

    def write(self, line: bytes) -> None:
        """Send a line without waiting for the program to read it."""
        if self._input_pipe is not None and not self._input_pipe.is_closing():
            self._input_pipe.write(line)

    async def wait_drained(self) -> None:
        """Wait until the program has read most of its input, or is unusable."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    @property
    def closed_reason(self) -> str | None:
        """Why a message sent now will get no answer, or None. `ended` comes later, after the last output."""
        can_hear = self._input_pipe is not None and not self._input_pipe.is_closing()
        is_there = can_hear and _OUTPUT in self._open_pipes and not self.exited.is_set()
        return None if is_there else self._format_reason()

    @property
    def is_full(self) -> bool:
        """Whether so much input is pending that optional messages should be dropped."""
        return self._input_pipe is not None and self._input_pipe.get_write_buffer_size() > _MAX_UNREAD_BYTES

    def close_input(self) -> None:
        if self._input_pipe is not None:
            self._input_pipe.close()

    @property
    def last_output(self) -> str:
        """Last output that is not a message, including an unfinished line such as a prompt for input."""
        begun = self._output.get_rest().lstrip()
        is_message = begun.startswith((b"{", b"["))  # half a message helps no one
        return self._remarks.format_last_lines(b"" if is_message else begun)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.stirred.set()
        if fd == _ERRORS:
            self._remarks.feed(data)
            return
        for line in self._output.feed(data):
            self.on_line(line)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open_pipes.discard(fd)
        if fd == _ERRORS:
            self._remarks.finish()
            self._finish_if_complete()
        else:
            self._finish_soon()

    def process_exited(self) -> None:
        super().process_exited()
        self._finish_soon()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def _finish_soon(self) -> None:
        # Processes that the program started may keep its pipes open forever.
        if not self._finish_if_complete():
            asyncio.get_running_loop().call_later(LAST_OUTPUT_SECONDS, self._finish)

    def _finish_if_complete(self) -> bool:
        is_over = self.exited.is_set() and not self._open_pipes
        if is_over:
            self._finish()
        return is_over

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._format_reason())
            self._may_write.set()

    def _format_reason(self) -> str:
        if self._exit_status is None:
            how = "closed its input or output"
        elif self._exit_status < 0:
            how = f"was ended by {_format_signal(-self._exit_status)}"
        else:
            how = f"ended with status {self._exit_status}"
        said = self.last_output
        return f"{how}: {said}" if said else how


@asynccontextmanager
async def run_program(child: ChildProgram, program: ProgramStart) -> AsyncGenerator[None, None]:
    """Run the program while the block lasts, then end it and all its processes within a few seconds."""
    async with open_process_group() as pack:
        try:
            await _start(child, program, pack)
            yield
        finally:
            if child.pid:
                try:
                    await _end(child, pack)
                finally:  # even if the end was canceled
                    pack.kill()
                    child.release()


async def _start(child: ChildProgram, program: ProgramStart, pack: ProcessGroup) -> None:
    try:
        await child.start(
            *program.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.folder,
            env=dict(program.environment),
            **pack.options,
        )
    except (OSError, ValueError) as error:  # ValueError for a NUL character
        said = error.strerror if isinstance(error, OSError) else str(error)
        reason = f"cannot be started: {program.command[0]}: {said}."
        raise build_setup_error(child.name, reason, "Check `command` and `args`.") from error
    finally:
        if child.pid:
            pack.add(child.pid)


async def _end(child: ChildProgram, pack: ProcessGroup) -> None:
    child.close_input()
    # Processes that outlived the program do not read its input.
    if not await _wait_gone(child, pack, 0.0 if child.exited.is_set() else INPUT_END_SECONDS):
        pack.terminate()
        if not await _wait_gone(child, pack, TERMINATE_SECONDS):
            pack.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(KILL_SECONDS):
                    await child.exited.wait()


async def _wait_gone(child: ChildProgram, pack: ProcessGroup, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await child.exited.wait()
            while not pack.is_empty():  # noqa: ASYNC110 - the system tells of our own child alone  # the system reports only the end of our own child
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


def _format_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
