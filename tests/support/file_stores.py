"""Every kind of file store, so that one suite holds all of them to the same promises."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from everkept.core.files import FileStore
from everkept.errors import EverkeptError
from everkept.files.lease_lock import LockTerms
from everkept.files.local import LocalFiles
from ssh_servers import SSHD, StoreAt, Stores, openssh_stores, ssh_stores


@asynccontextmanager
async def local_stores(_: Path) -> AsyncIterator[Stores]:
    async def at(folder: Path, terms: LockTerms) -> FileStore:
        return LocalFiles(folder, terms=terms)

    yield Stores(at, lambda folder: {"folder": str(folder)})


# Each is given a scratch folder for what it needs itself, as keys of a server.
STORES: dict[str, Callable[[Path], AbstractAsyncContextManager[Stores]]] = {"local": local_stores, "ssh": ssh_stores}
if SSHD:
    STORES["openssh"] = openssh_stores
REMOTE = [kind for kind in STORES if kind != "local"]


@dataclass(frozen=True, slots=True)
class Filing:
    """A store, and its folder as other programs see it."""

    store: FileStore
    folder: Path
    at: StoreAt
    #: What another process is told to open a store of the folder itself.
    way: dict[str, Any]

    async def another(self, terms: LockTerms = LockTerms()) -> FileStore:  # noqa: B008 (frozen)
        """A second store of the same folder that shares nothing with the first."""
        return await self.at(self.folder, terms)

    def put(self, path: str, data: bytes = b"") -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def files(self) -> dict[str, bytes]:
        """All that is there, working files too."""
        return {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@asynccontextmanager
async def filing(kind: str, scratch: Path, terms: LockTerms = LockTerms()) -> AsyncIterator[Filing]:  # noqa: B008
    """A store of a folder that does not exist yet."""
    folder = scratch / "files"
    async with STORES[kind](scratch / "server") as stores:
        yield Filing(await stores.at(folder, terms), folder, stores.at, stores.way_to(folder))


def by_lease() -> LockTerms:
    """Of a process that only a lease tells of a holder's death, and whose pauses outlast one."""
    elapsed = 0.0

    async def outlast(_: float) -> None:
        nonlocal elapsed
        elapsed += LockTerms().lease
        await asyncio.sleep(0)

    return LockTerms(patience=3600, elapsed=lambda: elapsed, sleep=outlast, is_running=lambda _: True)


def cancel_at_once(task: "asyncio.Task[Any]", loop: asyncio.AbstractEventLoop) -> None:
    """Cancel a task of the loop, from any thread; it has heard of it when this returns there."""

    async def cancel() -> None:
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)

    if threading.current_thread() is threading.main_thread():
        task.cancel()
    else:
        asyncio.run_coroutine_threadsafe(cancel(), loop).result()


class CountingThreads(ThreadPoolExecutor):
    """Counts what is handed to it."""

    calls = 0

    def submit(self, *arguments: Any, **more: Any) -> Any:
        self.calls += 1
        return super().submit(*arguments, **more)


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Count the calls that threads make to the system from now on, each by its name."""
    calls: Counter[str] = Counter()

    def note(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            of_system = getattr(called, "__module__", None) in ("posix", "nt")
            if of_system or isinstance(getattr(called, "__self__", None), os.DirEntry):
                calls[called.__name__] += 1

    threading.setprofile(note)
    # Only threads that begin later are watched.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
    try:
        yield calls
    finally:
        threading.setprofile(None)


async def outcome(call: Awaitable[object]) -> str:
    """How a call went: the code of its error, or `ok`."""
    try:
        await call
    except EverkeptError as error:
        return error.code
    return "ok"
