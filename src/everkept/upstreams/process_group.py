"""A program and all that it starts, as one: they end together, and at the latest with us."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from asyncio import SubprocessTransport, WriteTransport

_PIPES = (0, 1, 2)

log = logging.getLogger(__name__)


class ChildProcess(asyncio.SubprocessProtocol):
    """One process, started once."""

    def __init__(self) -> None:
        self.pid = 0  # before it has begun
        self.exited = asyncio.Event()
        self._transport: SubprocessTransport | None = None
        self._is_let_go = False

    async def start(self, *command: str, **options: Any) -> None:
        """OSError or ValueError where it cannot be. Whoever is cancelled meanwhile may find that
        it has begun: asyncio itself would let it go in its own way, see `release`."""
        loop = asyncio.get_running_loop()
        starting = asyncio.create_task(loop.subprocess_exec(lambda: self, *command, **options))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            raise

    def release(self) -> None:
        """Closes its pipes now, and the rest once its end is known.

        A transport that is closed earlier asks the system for the status of the process, and takes
        it away from the watcher that waits for it.
        """
        self._is_let_go = True
        if self._transport is None:
            return
        if self.exited.is_set():
            self._transport.close()
            return
        for number in _PIPES:
            if pipe := self._transport.get_pipe_transport(number):
                pipe.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def process_exited(self) -> None:
        self.exited.set()
        if self._is_let_go:
            self.release()

    @property
    def _input_pipe(self) -> "WriteTransport | None":
        pipe = None if self._transport is None else self._transport.get_pipe_transport(0)
        return cast("WriteTransport | None", pipe)

    @property
    def _exit_status(self) -> int | None:
        return None if self._transport is None else self._transport.get_returncode()


class ProcessGroup(Protocol):
    """Programs that end together."""

    @property
    def options(self) -> Mapping[str, Any]:
        """What the start of its first program needs."""
        ...

    def add(self, pid: int) -> None:
        """Takes in the first program, as soon as it is started."""
        ...

    def terminate(self) -> None:
        """Asks all of them to end."""
        ...

    def kill(self) -> None:
        """Ends all of them."""
        ...

    def is_empty(self) -> bool: ...


if sys.platform == "win32":
    import ctypes

    @asynccontextmanager
    async def open_process_group() -> AsyncGenerator[ProcessGroup, None]:
        job = _Job()
        try:
            yield job
        finally:
            job.close()

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("per_process_time", ctypes.c_int64),
            ("per_job_time", ctypes.c_int64),
            ("flags", ctypes.c_uint32),
            ("least_working_set", ctypes.c_size_t),
            ("most_working_set", ctypes.c_size_t),
            ("most_processes", ctypes.c_uint32),
            ("affinity", ctypes.c_size_t),
            ("priority", ctypes.c_uint32),
            ("scheduling", ctypes.c_uint32),
        )

    class _Limits(ctypes.Structure):
        _fields_ = (("basic", _BasicLimits), ("transfers", ctypes.c_uint64 * 6), ("memory", ctypes.c_size_t * 4))

    class _Accounting(ctypes.Structure):
        _fields_ = (
            ("times", ctypes.c_int64 * 4),
            ("page_faults", ctypes.c_uint32),
            ("processes", ctypes.c_uint32),
            ("active", ctypes.c_uint32),
            ("terminated", ctypes.c_uint32),
        )

    _ACCOUNTING, _EXTENDED_LIMITS = 1, 9  # classes of information about a job
    _KILL_ON_CLOSE = 0x2000
    _SUSPENDED = 0x4
    _RIGHTS = 0x0100 | 0x0001 | 0x0800  # to put it into a job, to end it, to let it run

    class _Job:
        """A job object: the system ends all that is in it once nobody holds it, and so at our own
        end, whatever that was."""

        def __init__(self) -> None:
            self._kernel = ctypes.WinDLL("kernel32", use_last_error=True)
            self._kernel.CreateJobObjectW.restype = ctypes.c_void_p
            self._kernel.OpenProcess.restype = ctypes.c_void_p
            self._job = ctypes.c_void_p(self._kernel.CreateJobObjectW(None, None))
            limits = _Limits()
            limits.basic.flags = _KILL_ON_CLOSE
            self._check(
                self._kernel.SetInformationJobObject(
                    self._job, _EXTENDED_LIMITS, ctypes.byref(limits), ctypes.sizeof(limits)
                )
            )

        @property
        def options(self) -> Mapping[str, Any]:
            # It waits for us to put it into the job: what it starts before would escape.
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
            return {"creationflags": flags | _SUSPENDED}

        def add(self, pid: int) -> None:
            process = ctypes.c_void_p(self._kernel.OpenProcess(_RIGHTS, False, pid))
            try:
                self._check(self._kernel.AssignProcessToJobObject(self._job, process))
                ctypes.WinDLL("ntdll").NtResumeProcess(process)
            finally:
                self._kernel.CloseHandle(process)

        def terminate(self) -> None:
            """There is no such request here: the end of its input was one."""

        def kill(self) -> None:
            self._kernel.TerminateJobObject(self._job, 1)

        def is_empty(self) -> bool:
            accounting = _Accounting()
            self._check(
                self._kernel.QueryInformationJobObject(
                    self._job, _ACCOUNTING, ctypes.byref(accounting), ctypes.sizeof(accounting), None
                )
            )
            return accounting.active == 0

        def close(self) -> None:
            self._kernel.CloseHandle(self._job)

        @staticmethod
        def _check(done: int) -> None:
            if not done:
                raise ctypes.WinError(ctypes.get_last_error())

else:
    import signal

    # Knows the group of the program, and hears who the program is: it may make a group of its own.
    # A second word says that all is over. Where its input ends instead we are gone: then the
    # program has lost its own input too, and gets a moment.
    _WATCH_SCRIPT = """
    read -r program
    read -r gone && exit 0
    for signal in TERM KILL; do
        sleep 1
        for group in "$1" $program; do kill -s $signal -- "-$group"; done
    done
    """
    # The first of the group leaves as soon as it is told to, or nobody is left to tell it.
    _HOLD_SCRIPT = "read -r gone"
    _SHELL_PATH = "/bin/sh"
    _MAX_WORDS, _EMPTY_WORD = 2, "-"  # how many the watchdog hears at most
    _DISMISS_SECONDS = 1.0  # seconds for a shell to read one word

    @asynccontextmanager
    async def open_process_group() -> AsyncGenerator[ProcessGroup, None]:
        # The group is there and watched before the program is: were the program to be named once
        # it runs, we could be killed before that.
        async with _open_shell(_HOLD_SCRIPT, process_group=0) as holder:
            if holder is None:
                yield _PosixGroup(None, [])
                return
            # What ends our own group must not end the watchdog.
            async with _open_shell(_WATCH_SCRIPT, str(holder.pid), start_new_session=True) as watchdog:
                yield _PosixGroup(holder.pid, [holder, *([watchdog] if watchdog else [])])

    @asynccontextmanager
    async def _open_shell(script: str, *arguments: str, **options: Any) -> "AsyncGenerator[_WatchShell | None, None]":
        """A small program that lives until it is dismissed or we are gone; None without a shell."""
        heard, told = os.pipe()  # the second is ours alone: no program inherits it
        shell = _WatchShell(told)
        try:
            try:
                is_running = await _start_shell(shell, heard, script, *arguments, **options)
            finally:
                os.close(heard)
            yield shell if is_running else None
        finally:
            try:
                await shell.dismiss()
            finally:
                os.close(told)

    async def _start_shell(shell: "_WatchShell", heard: int, script: str, *arguments: str, **options: Any) -> bool:
        try:
            await shell.start(
                *(_SHELL_PATH, "-c", script, _SHELL_PATH, *arguments),
                stdin=heard,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                **options,
            )
        except OSError as error:
            log.warning(
                "%s cannot be run (%s): should we be killed, a server that we have started and "
                "that ignores the end of its input lives on",
                _SHELL_PATH,
                error,
            )
            return False
        return True

    class _WatchShell(ChildProcess):
        def __init__(self, told: int) -> None:
            super().__init__()
            self._told = told

        def send_word(self, word: str) -> None:
            with suppress(BrokenPipeError):  # it has ended
                os.write(self._told, f"{word}\n".encode("ascii"))

        async def dismiss(self) -> None:
            if not self.pid:
                return
            for _ in range(_MAX_WORDS):
                self.send_word(_EMPTY_WORD)
            try:
                async with asyncio.timeout(_DISMISS_SECONDS):
                    await self.exited.wait()
            except TimeoutError:
                log.warning("a watchdog did not end when it was told to")
            finally:
                self.release()

    class _PosixGroup:
        """The process group that the program is started in, and the one that it may make."""

        def __init__(self, group: int | None, shells: "list[_WatchShell]") -> None:
            self._group = group
            self._ids = [] if group is None else [group]
            self._shells = shells

        @property
        def options(self) -> Mapping[str, Any]:
            if self._group is None:
                return {"start_new_session": True}
            return {"process_group": self._group}

        def add(self, pid: int) -> None:
            self._ids.append(pid)
            for shell in self._shells:
                shell.send_word(str(pid))

        def terminate(self) -> None:
            self._send_signal(signal.SIGTERM)

        def kill(self) -> None:
            self._send_signal(signal.SIGKILL)

        def is_empty(self) -> bool:
            return not self._send_signal(0)

        def _send_signal(self, number: int) -> bool:
            """Whether there was anybody to hear it."""
            heard = [_signal_group(group, number) for group in self._ids]
            return any(heard)

    def _signal_group(group: int, number: int) -> bool:
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError):  # nobody, or none that still lives
            return False
        return True
