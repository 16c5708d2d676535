"""A program and all that it starts, as one: they end together, and at the latest with us."""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import SubprocessTransport

log = logging.getLogger(__name__)


class Pack(Protocol):
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
    async def fresh_pack() -> AsyncGenerator[Pack, None]:
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
        _fields_ = (
            ("basic", _BasicLimits),
            ("transfers", ctypes.c_uint64 * 6),
            ("memory", ctypes.c_size_t * 4),
        )

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
                    self._job,
                    _ACCOUNTING,
                    ctypes.byref(accounting),
                    ctypes.sizeof(accounting),
                    None,
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

    # Hears which group it is to watch. A second word says that the group is gone; where its input
    # ends instead, we are gone: then the group has lost its own input too, and gets a moment.
    _WATCH = """
    read -r group || exit 0
    read -r gone && exit 0
    sleep 1
    kill -s TERM -- "-$group" 2>/dev/null || exit 0
    sleep 1
    kill -s KILL -- "-$group" 2>/dev/null
    """
    _SHELL = "/bin/sh"
    _DISMISSAL = 1.0  # seconds for a shell to read one word

    @asynccontextmanager
    async def fresh_pack() -> AsyncGenerator[Pack, None]:
        heard, told = os.pipe()  # the second is ours alone: no program inherits it
        group = _Group(told)
        try:
            try:
                watchdog = await _watchdog(heard)
            finally:
                os.close(heard)
            try:
                yield group
            finally:
                await _dismiss(watchdog, group)
        finally:
            os.close(told)

    class _Watchdog(asyncio.SubprocessProtocol):
        def __init__(self) -> None:
            self.exited = asyncio.Event()

        def process_exited(self) -> None:
            self.exited.set()

    async def _watchdog(heard: int) -> "tuple[SubprocessTransport, _Watchdog] | None":
        try:
            return await asyncio.get_running_loop().subprocess_exec(
                _Watchdog,
                _SHELL,
                "-c",
                _WATCH,
                stdin=heard,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,  # what ends our own group must not end it
            )
        except OSError as error:
            log.warning(
                "%s cannot be run (%s): should we be killed, a server that we have started and "
                "that ignores the end of its input lives on",
                _SHELL,
                error,
            )
            return None

    async def _dismiss(
        watchdog: "tuple[SubprocessTransport, _Watchdog] | None", group: "_Group"
    ) -> None:
        if watchdog is None:
            return
        transport, told = watchdog
        group.dismiss()
        try:
            async with asyncio.timeout(_DISMISSAL):
                await told.exited.wait()
        except TimeoutError:
            log.warning("a watchdog did not end when it was told to")
        finally:
            transport.close()

    class _Group:
        """A process group, watched by a small program that ends it when we are gone."""

        def __init__(self, told: int) -> None:
            self._told = told
            self._id: int | None = None

        @property
        def options(self) -> Mapping[str, Any]:
            return {"start_new_session": True}

        def add(self, pid: int) -> None:
            self._id = pid
            self._tell(str(pid))

        def dismiss(self) -> None:
            if self._id is None:
                self._tell("none")
            self._tell("gone")

        def _tell(self, word: str) -> None:
            with suppress(BrokenPipeError):  # there is no watchdog, or somebody has ended it
                os.write(self._told, f"{word}\n".encode("ascii"))

        def terminate(self) -> None:
            self._signal(signal.SIGTERM)

        def kill(self) -> None:
            self._signal(signal.SIGKILL)

        def is_empty(self) -> bool:
            return not self._signal(0)

        def _signal(self, number: int) -> bool:
            if self._id is None:
                return False
            try:
                os.killpg(self._id, number)
            except (ProcessLookupError, PermissionError):  # nobody, or none that still lives
                return False
            return True
