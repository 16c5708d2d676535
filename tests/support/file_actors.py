"""What other processes do to a folder of files; each speaks in lines of JSON."""

import asyncio
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

from asyncssh.sftp import SFTPClientHandler

from actors import DIED, _forked, heard, say
from everkept.core import disk as core_disk
from everkept.core.files import FileStore
from everkept.errors import EverkeptError
from everkept.files import lease_lock, local, local_disk
from everkept.files.local import LocalFiles
from everkept.files.resolver import SshConnections, SshOptions
from file_stores import outcome

# The system calls of these modules are where a change can be cut in two.
_CUT = {module.__file__ for module in (core_disk, local_disk, local, lease_lock)}
_CALL = re.compile(r"\b(os|disk|local_disk|shutil)\.\w+\(|self\._files\.")
Change = Callable[[FileStore], Awaitable[None]]
OLD, NEW, LATER = b"old " * 1_000, b"new " * 2_000, b"later"


def add_lines(folder: str, who: str, count: int) -> None:
    """Adds lines to one file by rewriting it, and to another at its end, each under the lock."""

    async def run() -> None:
        store = LocalFiles(Path(folder))
        say("ready")
        heard()
        for number in range(count):
            line = f"{who} {number}\n".encode()
            async with store.lock("bank"):
                before = await store.read("whole.md") if await store.read_info("whole.md") else b""
                await store.write("whole.md", before + line)
                await store.append("log.jsonl", line)
        say("done")

    asyncio.run(run())


def hold_lock(folder: str) -> None:
    async def run() -> None:
        async with LocalFiles(Path(folder)).lock("bank"):
            say("holding")
            await asyncio.to_thread(heard)

    asyncio.run(run())


def try_as_another(folder: str, user: int) -> None:
    """Says how each call goes for a user who may only look."""

    async def run(store: FileStore) -> dict[str, str]:
        async with AsyncExitStack() as locks:
            calls = {
                "read": store.read("secret.md"),
                "write": store.write("new.md", b"new"),
                "append": store.append("open/protected.md", b"new"),
                "replace": store.write("open/protected.md", b"new"),
                "make_folder": store.make_folder("new"),
                "remove": store.remove("secret.md"),
                "rename": store.rename("secret.md", "open/secret.md"),
                "lock": locks.enter_async_context(store.lock("bank")),
            }
            return {name: await outcome(call) for name, call in calls.items()}

    # Loads what is imported late: that user may not be able to read the program.
    with tempfile.TemporaryDirectory() as scratch:
        store = LocalFiles(Path(scratch))
        asyncio.run(store.write("secret.md", b""))
        asyncio.run(store.rename("secret.md", "a.md"))
        asyncio.run(run(store))
    os.setuid(user)
    say(asyncio.run(run(LocalFiles(Path(folder)))))


async def write(store: FileStore) -> None:
    async with store.lock("bank"):
        await store.write("x.md", NEW)


async def edit(store: FileStore) -> None:
    contents = {"x.md": NEW, "deep/y.md": NEW, "z.md": NEW}
    await store.run_locked("bank", lambda: store.write_all(contents))


async def make(store: FileStore) -> None:
    await store.write("deep/er/x.md", NEW)


async def rename(store: FileStore) -> None:
    await store.rename("x.md", "y.md")


async def remove(store: FileStore) -> None:
    await store.remove("folder")


CHANGES: dict[str, Change] = {"write": write, "edit": edit, "make": make, "rename": rename, "remove": remove}


def die_at_every_call(scratch: str, change: str) -> None:
    """Makes a change again and again, dying before one system call more each time.

    Says what the next process finds.
    """
    for call in range(1, 2_000):
        folder = Path(scratch) / str(call)
        (folder / "folder" / "below").mkdir(parents=True)
        (folder / "folder" / "below" / "z.md").write_bytes(OLD)
        (folder / "x.md").write_bytes(OLD)
        died = _forked(lambda folder=folder, call=call: _run_and_die(folder, CHANGES[change], call))
        _forked(lambda folder=folder: asyncio.run(_describe(folder)))
        if died == 0:
            return


def crash_when_told(way: dict[str, Any]) -> None:
    """For each line, makes the change that it names under the lock, and dies on the way there.

    That is before a system call, or before a request to the server. Says whether it came to that.
    """
    for line in sys.stdin:
        name, arguments, at_call = json.loads(line)

        async def change(store: FileStore, name: str = name, given: Any = arguments) -> None:
            values = [value.encode() if key == "data" else value for key, value in given.items()]
            await store.run_locked("bank", lambda: getattr(store, name)(*values))

        def run(change: Change = change, at_call: int = at_call) -> None:
            if "login" in way:
                _run_and_die_far_away(way, change, at_call)
            else:
                _run_and_die(Path(way["folder"]), change, at_call)

        say(_forked(run) != 0)


def _run_and_die(folder: Path, change: Change, at_call: int) -> None:
    calls = 0

    def count(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal calls
        if event == "line" and _CALL.search(getline(frame.f_code.co_filename, frame.f_lineno)):
            calls += 1
            if calls == at_call:
                os._exit(DIED)
        return count

    def trace(frame: FrameType, _event: str, _: Any) -> Any:
        return count if frame.f_code.co_filename in _CUT else None

    async def run() -> None:
        store = LocalFiles(folder)
        threading.settrace(trace)
        sys.settrace(trace)
        with suppress(EverkeptError):
            await change(store)

    asyncio.run(run())


def _run_and_die_far_away(way: dict[str, Any], change: Change, at_request: int) -> None:
    send = SFTPClientHandler._send_request
    requests = 0

    def count(handler: SFTPClientHandler, *request: Any) -> None:
        nonlocal requests
        requests += 1
        if requests == at_request:
            os._exit(DIED)
        send(handler, *request)

    async def run() -> None:
        options = {name: Path(path) for name, path in way["options"].items()}
        connections = SshConnections(SshOptions(**options))
        store = await connections.open_folder(*way["login"])
        with suppress(EverkeptError):
            await change(store)
        await connections.close()

    SFTPClientHandler._send_request = count
    asyncio.run(run())


async def _describe(folder: Path) -> None:
    """As a process finds it that goes on where the other died."""
    store = LocalFiles(folder)
    async with store.lock("bank"):
        found = await _contents(store, "")
        await store.write("later.md", LATER)
    say(found)


async def _contents(store: FileStore, path: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    names = {OLD: "old", NEW: "new"}
    for info in await store.list(path):
        if info.is_folder:
            found[info.path] = None
            found |= await _contents(store, info.path)
        else:
            found[info.path] = names.get(await store.read(info.path), "broken")
    return found
