"""Faults of a selftest: a full disk, and a PostgreSQL server that is killed."""

import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from everkept.errors import Unavailable

_FULL_SIZES = (1 << 12, 1 << 16, 1 << 20)  # in bytes, at which files stop to grow

CAN_FILL_DISK = sys.platform == "linux"

_START_SECONDS = 60.0
_DATABASE_USER = "selftest"
# A Ctrl-C in a terminal ends the selftest, which ends the database: signals go to the whole group.
_OWN_GROUP: Mapping[str, Any] = (
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if sys.platform == "win32" else {"process_group": 0}
)
_ROOTLESS_USERS = ("postgres", "nobody")  # PostgreSQL refuses to run as root


if sys.platform == "linux":
    import resource

    def fill_disk(processes: Iterable[int]) -> None:
        """Let no file of these processes grow, as on a full disk."""
        _limit_files(processes, random.choice(_FULL_SIZES))

    def free_disk(processes: Iterable[int]) -> None:
        _limit_files(processes, resource.RLIM_INFINITY)

    def _limit_files(processes: Iterable[int], size: int) -> None:
        for pid in processes:
            try:
                _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
                limit = most if size == resource.RLIM_INFINITY else size
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, most))
            except (ProcessLookupError, PermissionError):
                continue  # it was killed

else:

    def fill_disk(processes: Iterable[int]) -> None:
        """Do nothing: only Linux limits the files of a running process."""

    def free_disk(processes: Iterable[int]) -> None:
        """Do nothing."""


class SelftestDatabase:
    """PostgreSQL server with a temporary folder, which can be killed and started again."""

    def __init__(self, parent: str | None) -> None:
        self._programs = _find_programs()
        self._owner = _find_owner()
        self._folder = Path(tempfile.mkdtemp(prefix="everkept-selftest-postgres-", dir=parent))
        self._data = self._folder / "data"
        self._password = secrets.token_urlsafe(18)
        self._port = _find_free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0
        try:
            self._create()
            self.start()
        except BaseException:
            self.remove()
            raise

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings of a client, without the password."""
        return {
            "engine": "postgres",
            "database_url": f"postgresql://127.0.0.1:{self._port}/postgres",
            "database_user": _DATABASE_USER,
        }

    @property
    def environment(self) -> Mapping[str, str]:
        return {"EVERKEPT_DATABASE_PASSWORD": self._password}

    def start(self) -> None:
        """Start the server, and return when it accepts connections.

        Processes of a killed server may still end, so the first attempts can fail.
        """
        deadline = time.monotonic() + _START_SECONDS
        self._process = self._launch()
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise Unavailable("PostgreSQL did not start.", hint=self._read_log())
            time.sleep(0.1)
            if self._process.poll() is not None:
                self._process = self._launch()

    def kill(self) -> None:
        """Kill all processes of the server without cleanup."""
        if self._process is not None:
            self.kills += 1
            self._end()

    def ensure_running(self) -> None:
        """Start the server again if a fault ended it."""
        if not self._is_ready():
            self._end()
            self.start()

    def list_processes(self) -> Sequence[int]:
        """Return the server's processes: the first one, and those it has started."""
        if self._process is None:
            return ()
        first = self._process.pid
        try:
            threads = Path(f"/proc/{first}/task/{first}/children").read_text("ascii")
        except OSError:
            return (first,)
        return (first, *map(int, threads.split()))

    def stop(self) -> Path:
        """Stop the server and return its folder."""
        self._end()
        return self._folder

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _create(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password, encoding="utf-8")
        self._data.mkdir(mode=0o700)
        if self._owner:
            for path in (self._folder, self._data, secret):
                os.chown(path, self._owner["user"], self._owner["group"])
        done = subprocess.run(
            [
                *(self._programs / _name("initdb"), "-D", self._data, "-U", _DATABASE_USER, "-A", "scram-sha-256"),
                *(f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--no-sync"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            check=False,
            encoding="utf-8",
            errors="replace",
            **self._owner,
        )
        if done.returncode:
            raise Unavailable("Cannot create a PostgreSQL database.", hint=done.stdout[-1_000:])

    def _launch(self) -> "subprocess.Popen[bytes]":
        settings = (
            *(f"port={self._port}", "listen_addresses=127.0.0.1", "unix_socket_directories="),
            "max_connections=400",
        )
        options = [part for setting in settings for part in ("-c", setting)]
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen[bytes](
                [self._programs / _name("postgres"), "-D", self._data, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **_OWN_GROUP,
                **self._owner,
            )

    def _is_ready(self) -> bool:
        import psycopg

        address = f"host=127.0.0.1 port={self._port} dbname=postgres user={_DATABASE_USER} connect_timeout=5"
        try:
            psycopg.connect(address, password=self._password).close()
        except psycopg.OperationalError:
            return False
        return True

    def _end(self) -> None:
        process, processes = self._process, self.list_processes()
        self._process = None
        if process is None:
            return
        process.kill()
        for pid in processes[1:]:
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
        process.wait()

    def _read_log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace").strip()[-1_000:]


def _find_programs() -> Path:
    """Return the folder of PostgreSQL's programs."""
    found = shutil.which("initdb")
    if found is None:
        raise Unavailable(
            "PostgreSQL's program initdb was not found.",
            hint="Install PostgreSQL with pgvector, and add the folder of its programs to PATH.",
        )
    return Path(found).resolve().parent


def _find_owner() -> dict[str, Any]:
    """Return who runs PostgreSQL, for a subprocess: this user, but not root."""
    if sys.platform == "win32" or os.geteuid() != 0:
        return {}
    import pwd

    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _ROOTLESS_USERS:
        if entry := known.get(name):
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": ()}
    raise Unavailable("PostgreSQL refuses to run as root.", hint="Run the selftest as another user.")


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _name(program: str) -> str:
    return f"{program}.exe" if sys.platform == "win32" else program
