"""Servers of a selftest, which have jumping clocks, and on Linux are forked to start in little time."""

import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import IO

from everkept.errors import Unavailable

# Isolated from the working folder and PYTHON* variables, like the servers of `setup`.
_ISOLATED = ("-E", "-P", "-c")
JUMPING_SERVER = (*_ISOLATED, "from everkept.cli.selftest_servers import serve_jumping; serve_jumping()", "serve")
_FORK = (*_ISOLATED, "from everkept.cli.selftest_servers import fork_servers; fork_servers()")

_JUMP_SECONDS = 1.0  # between jumps of a clock, on average
_JUMPS = tuple(sign * seconds for seconds in (90, 7_200, 40 * 86_400) for sign in (-1, 1))
_NANOSECONDS = 1_000_000_000

CAN_FORK = sys.platform == "linux"  # other systems start Python for each server
# What a server loads until its first answer, which takes six times as long as the rest of its start.
_PRELOADED = (
    "everkept.cli.serve",
    "everkept.cli.stdio_start",
    "everkept.transports.stdio",
    "everkept.app.build",
    "everkept.families.graph.toolset",
    "everkept.jobs.usage_log",
    "everkept.core.secret_forms",
    "concurrent.futures.thread",
)
_ENGINE_MODULES = {"sqlite": "everkept.engines.sqlite.library", "postgres": "everkept.engines.postgres.library"}
_PID_BYTES = 8


def serve_jumping() -> None:
    """Serve with a clock that jumps back and forth."""
    _make_clock_jump()
    runpy.run_module("everkept", run_name="__main__", alter_sys=True)


def _make_clock_jump() -> None:
    chance = random.Random()
    read_true = time.time_ns
    offset, jump_at = 0, time.monotonic()

    def read() -> int:
        nonlocal offset, jump_at
        if time.monotonic() >= jump_at:
            jump_at = time.monotonic() + chance.expovariate(1 / _JUMP_SECONDS)
            offset = chance.choice(_JUMPS) * _NANOSECONDS
        return read_true() + offset

    time.time_ns = read
    time.time = lambda: read() / _NANOSECONDS


class ForkedServer:
    """Server process with the methods of `Popen` that the selftest uses. Any thread may call `kill`."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._lock = threading.Lock()
        self._handle: int | None = None
        with suppress(ProcessLookupError):  # it has ended
            self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return 0 if the process has ended."""
        return 0 if self._has_ended(0) else None

    def kill(self) -> None:
        with self._lock, suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> None:
        if not self._has_ended(timeout):
            raise subprocess.TimeoutExpired("server", timeout or 0)
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def _has_ended(self, timeout: float | None) -> bool:
        with self._lock:
            handle = self._handle
            if handle is None:
                return True
            watch = select.poll()
            watch.register(handle, select.POLLIN)
        return bool(watch.poll(None if timeout is None else timeout * 1_000))


class ServerFork:
    """Process that has loaded the program, and forks a server from itself for each `start`. Only if `CAN_FORK`."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes], engine: str):
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen[bytes](
                [sys.executable, *_FORK, engine, "serve", *arguments],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),  # a server's output cannot seek, and Python looks at this one
                stderr=log,
                env=environment,
            )

    def start(self) -> ForkedServer:
        input_end, stdin = os.pipe()
        stdout, output_end = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._requests, [b"+"], [input_end, output_end])
                answer = self._requests.recv(_PID_BYTES)
        except OSError:
            answer = b""
        finally:
            os.close(input_end)
            os.close(output_end)
        streams = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        if len(answer) < _PID_BYTES:
            raise Unavailable("The process that forks servers ended.")
        return ForkedServer(int.from_bytes(answer, "big"), *streams)

    def close(self) -> None:
        """End the process. Servers that it forked continue."""
        self._requests.close()
        self._process.wait()


def fork_servers() -> None:
    """Fork a server for each request, with the input and output that came with it, until the requests end."""
    requests = socket.socket(fileno=sys.stdin.fileno())
    for name in (*_PRELOADED, _ENGINE_MODULES[sys.argv.pop(1)]):
        import_module(name)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the selftest ends this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets servers that have ended
    while True:
        request, pipes, _, _ = socket.recv_fds(requests, 1, 2)
        if not request:
            return
        if pid := os.fork():
            requests.sendall(pid.to_bytes(_PID_BYTES, "big"))
            for pipe in pipes:
                os.close(pipe)
            continue
        requests.detach()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, pipe in enumerate(pipes):
            os.dup2(pipe, number)
            os.close(pipe)
        serve_jumping()
        return
