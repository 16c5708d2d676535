"""A program that we have started: its pipes, what it logs, and its end."""

import asyncio
import logging
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress

from everkept.core.lines import Lines, Overlong
from everkept.errors import UpstreamUnavailable, visible
from everkept.upstreams.link import Hide
from everkept.upstreams.process_group import Pack, Process, fresh_pack
from everkept.upstreams.program import Program

LOGGED = 500  # characters of one line
MOST_LINES = 50  # in the log, within PERIOD
PERIOD = 1.0  # seconds

_LOOKED_AT = LOGGED * 8  # bytes of one line
_LAST_LINES = 3  # for the reason why it ended, or was not ready

log = logging.getLogger(__name__)


class Remarks:
    """Takes the bytes that one program writes to its standard error, and lines of its output."""

    def __init__(self, name: str, hide: Hide) -> None:
        self._name = name
        self._hide = hide
        self._lines = Lines(_LOOKED_AT)
        self._last: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._has_strayed = False
        self._logged = 0  # within the period that runs
        self._left_out = 0
        self._period: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._add(line.head if isinstance(line, Overlong) else line)

    def finish(self) -> None:
        """There is no more to come."""
        self.feed(b"\n")
        if self._period is not None:
            self._period.cancel()
            self._next_period()

    def stray(self, line: bytes) -> None:
        """A line of its output, where nothing but messages belongs."""
        self._last.append(line)
        if not self._has_strayed:  # once: a server that logs to its output would fill our log
            self._has_strayed = True
            shown = self._shown(line)
            log.warning("%s writes what is no message, and it is ignored: %s", self._name, shown)

    def last(self, output: bytes = b"") -> str:
        """What it wrote at last, lines without an end too: that of its output is given."""
        begun = (line for line in (self._lines.rest(), output) if line.strip())
        return " / ".join(map(self._shown, [*self._last, *begun][-_LAST_LINES:]))

    def _add(self, line: bytes) -> None:
        if not line.strip():
            return
        self._last.append(line)
        if self._period is None:
            self._period = asyncio.get_running_loop().call_later(PERIOD, self._next_period)
        if self._logged < MOST_LINES:
            self._logged += 1
            log.info("%s: %s", self._name, self._shown(line))
        else:
            self._left_out += 1

    def _next_period(self) -> None:
        if self._left_out:
            log.info("%s: %d more lines within a second are left out", self._name, self._left_out)
        self._logged = self._left_out = 0
        self._period = None

    def _shown(self, line: bytes) -> str:
        # Masked before it is cut: half a secret looks like none.
        return visible(self._hide(line[:_LOOKED_AT].decode("utf-8", "replace").rstrip())[:LOGGED])


# Seconds for a program to end: once its input has ended, once it was asked to, once it was killed.
GOODBYE, ASKED, KILLED = 1.0, 0.5, 1.0
LAST_NEWS = 0.5  # seconds for what a program has written before it ended

_OUTPUT, _ERRORS = 1, 2
_FULL = 1024 * 1024  # bytes that a program has not read yet
_POLL = 0.02  # seconds

OnLine = Callable[[bytes | Overlong], None]


class Child(Process):
    """One program. `ended` tells why it is of no use any more, as the end of a sentence."""

    def __init__(self, name: str, limit: int, remarks: Remarks) -> None:
        super().__init__()
        self.name = name
        self.on_line: OnLine = lambda line: None
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.stirred = asyncio.Event()  # by anything that it writes
        self._output = Lines(limit)
        self._remarks = remarks
        self._open_pipes = {_OUTPUT, _ERRORS}
        self._may_write = asyncio.Event()
        self._may_write.set()

    def write(self, line: bytes) -> None:
        """Sends a line, without waiting for the program to read it."""
        if self._input is not None and not self._input.is_closing():
            self._input.write(line)

    async def drained(self) -> None:
        """Waits until the program has read most of what it was sent, or is of no use."""
        while not self._may_write.is_set():
            await self._may_write.wait()

    @property
    def deafness(self) -> str | None:
        """Why what is sent now will have no answer; None where it may. Its end takes longer to be
        known: it may have left a last word."""
        can_hear = self._input is not None and not self._input.is_closing()
        is_there = can_hear and _OUTPUT in self._open_pipes and not self.exited.is_set()
        return None if is_there else self._reason()

    @property
    def is_full(self) -> bool:
        """Whether so much waits for it that it had better get nothing it can do without."""
        return self._input is not None and self._input.get_write_buffer_size() > _FULL

    def close_input(self) -> None:
        if self._input is not None:
            self._input.close()

    @property
    def last_words(self) -> str:
        """What it wrote last that is no message, also where the line has no end: a question that
        nobody will answer."""
        begun = self._output.rest().lstrip()
        is_message = begun.startswith((b"{", b"["))  # half of one is nobody's to read
        return self._remarks.last(b"" if is_message else begun)

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
            self._finish_if_all_is_said()
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
        # What it has started itself may hold its pipes for ever.
        if not self._finish_if_all_is_said():
            asyncio.get_running_loop().call_later(LAST_NEWS, self._finish)

    def _finish_if_all_is_said(self) -> bool:
        is_over = self.exited.is_set() and not self._open_pipes
        if is_over:
            self._finish()
        return is_over

    def _finish(self) -> None:
        if not self.ended.done():
            self.ended.set_result(self._reason())
            self._may_write.set()

    def _reason(self) -> str:
        if self._status is None:
            how = "closed its input or output"
        elif self._status < 0:
            how = f"was ended by {_signal_name(-self._status)}"
        else:
            how = f"ended with status {self._status}"
        said = self.last_words
        return f"{how}: {said}" if said else how


@asynccontextmanager
async def running(child: Child, program: Program) -> AsyncGenerator[None, None]:
    """The program runs for as long as the block lasts, and what it starts itself ends with it.

    Its end takes a few seconds at most, whatever it does.
    """
    async with fresh_pack() as pack:
        try:
            await _start(child, program, pack)
            yield
        finally:
            if child.pid:
                try:
                    await _end(child, pack)
                finally:  # also where its end was cut short
                    pack.kill()
                    child.let_go()


async def _start(child: Child, program: Program, pack: Pack) -> None:
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
    except (OSError, ValueError) as error:  # ValueError: a NUL somewhere
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UpstreamUnavailable(
            child.name,
            f"cannot be started: {program.command[0]}: {reason}.",
            hint="Check `command` and `args`.",
            retry_possible=False,
        ) from error
    finally:
        if child.pid:
            pack.add(child.pid)


async def _end(child: Child, pack: Pack) -> None:
    child.close_input()
    # Whoever outlived the program itself does not read its input.
    if not await _is_gone(child, pack, 0.0 if child.exited.is_set() else GOODBYE):
        pack.terminate()
        if not await _is_gone(child, pack, ASKED):
            pack.kill()
            with suppress(TimeoutError):
                async with asyncio.timeout(KILLED):
                    await child.exited.wait()


async def _is_gone(child: Child, pack: Pack, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await child.exited.wait()
            while not pack.is_empty():  # noqa: ASYNC110 - the system tells of our own child alone
                await asyncio.sleep(_POLL)
    except TimeoutError:
        return False
    return True


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
