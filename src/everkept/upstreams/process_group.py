"""A program and all processes that it starts: they end together, and at the latest with us."""

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
        self.pid = 0  # 0 until it is started
        self.exited = asyncio.Event()
        self._transport: SubprocessTransport | None = None
        self._is_let_go = False

    async def start(self, *command: str, **options: Any) -> None:
        """Start the process. Raise OSError or ValueError if that fails.

        If the caller is canceled, the process may still have started; `release` must then close it, not asyncio.
        """
        loop = asyncio.get_running_loop()
        starting = asyncio.create_task(loop.subprocess_exec(lambda: self, *command, **options))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait({starting})
            raise

    def release(self) -> None:
        """Close its pipes now, and the transport once the process has ended.

        Closing the transport earlier would fetch the exit status, which the watcher waits for.
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
    """Processes that end together."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options to start its first program with."""
        ...

    def add(self, pid: int) -> None:
        """Add the first program, right after its start."""
        ...

    def terminate(self) -> None:
        """Ask all processes to end."""
        ...

    def kill(self) -> None: ...

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

    _ACCOUNTING, _EXTENDED_LIMITS = 1, 9  # information classes of a job
    _KILL_ON_CLOSE = 0x2000
    _SUSPENDED = 0x4
    _RIGHTS = 0x0100 | 0x0001 | 0x0800  # to assign it to a job, to end it, to resume it

    class _Job:
        """A job object: the system ends its processes once no handle is open, so at the latest when we end."""

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
            # It starts suspended, because a process that it starts before it is in the job would escape.
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
            """Do nothing: Windows has no such request, and its input has already ended."""

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

    # Gets the group of the program as an argument and reads the program's id, because a program may create its own
    # group. A second word means that the program has ended. If the input ends instead, we are gone. Then the program
    # has lost its input too, and gets a moment to end.
    _WATCH_SCRIPT = """
    read -r program
    read -r gone && exit 0
    for signal in TERM KILL; do
        sleep 1
        for group in "$1" $program; do kill -s $signal -- "-$group"; done
    done
    """
    # The first process of the group ends when it is told to, or when we are gone.
    _HOLD_SCRIPT = "read -r gone"
    _SHELL_PATH = "/bin/sh"
    _MAX_WORDS, _EMPTY_WORD = 2, "-"  # words that the watchdog reads at most
    _DISMISS_SECONDS = 1.0  # for a shell to read one word

    @asynccontextmanager
    async def open_process_group() -> AsyncGenerator[ProcessGroup, None]:
        # Group and watchdog exist before the program: otherwise we could be killed before the watchdog knows the
        # program.
        async with _open_shell(_HOLD_SCRIPT, process_group=0) as holder:
            if holder is None:
                yield _PosixGroup(None, [])
                return
            # A signal to our own group must not end the watchdog.
            async with _open_shell(_WATCH_SCRIPT, str(holder.pid), start_new_session=True) as watchdog:
                yield _PosixGroup(holder.pid, [holder, *([watchdog] if watchdog else [])])

    @asynccontextmanager
    async def _open_shell(script: str, *arguments: str, **options: Any) -> "AsyncGenerator[_WatchShell | None, None]":
        """Run a shell script until it is dismissed or we are gone. Yield None without a shell."""
        heard, told = os.pipe()  # only we hold `told`: no program inherits it
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
                "%s cannot be run (%s): if Everkept is killed, servers that ignore the end of their input keep running",
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
            with suppress(BrokenPipeError):  # it has already ended
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
                log.warning("the watchdog of a server did not end in time")
            finally:
                self.release()

    class _PosixGroup:
        """The process group that the program is started in, and the one that it may create."""

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
            """Return whether any process got the signal."""
            is_heard = False
            for group in self._ids:
                with suppress(ProcessLookupError, PermissionError):  # no process, or only ended ones
                    os.killpg(group, number)
                    is_heard = True
            return is_heard
