"""File stores that fail at a chosen change, as a full disk, a lost line or a crash does."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from recollect.core.files import FileInfo, FileStore, FileStores
from recollect.errors import RecollectError, StorageFull


def _full() -> RecollectError:
    return StorageFull("There is no room.")


@dataclass
class Fuse:
    """Lets so many changes through; then one fails, or with `lasting` all that follow.

    What is read from a path that ends with `spoiled` is not what was written.
    """

    left: int | None = None
    lasting: bool = False
    error: Callable[[], BaseException] = _full
    changed: list[str] = field(default_factory=list[str])
    spoiled: str | None = None

    def change(self, path: str) -> None:
        if self.left is not None and self.left <= 0:
            self.left = 0 if self.lasting else None
            raise self.error()
        if self.left is not None:
            self.left -= 1
        self.changed.append(path)


class BreakingFiles:
    """Implements FileStore over another one."""

    def __init__(self, inner: FileStore, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    @property
    def address(self) -> str:
        return self._inner.address

    @property
    def is_remote(self) -> bool:
        return self._inner.is_remote

    async def read(self, path: str, *, start: int = 0) -> bytes:
        data = await self._inner.read(path, start=start)
        spoiled = self._fuse.spoiled is not None and path.endswith(self._fuse.spoiled)
        return b"rust" + data if spoiled else data

    async def write(self, path: str, data: bytes) -> None:
        self._fuse.change(path)
        await self._inner.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        self._fuse.change(path)
        await self._inner.append(path, data)

    async def info(self, path: str = "") -> FileInfo | None:
        return await self._inner.info(path)

    async def list(self, folder: str = "") -> list[FileInfo]:
        return await self._inner.list(folder)

    async def remove(self, path: str) -> None:
        self._fuse.change(path)
        await self._inner.remove(path)

    async def rename(self, path: str, to: str) -> None:
        self._fuse.change(path)
        await self._inner.rename(path, to)

    async def make_folder(self, path: str = "") -> None:
        self._fuse.change(path)
        await self._inner.make_folder(path)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._inner.lock(name)


class BreakingStores:
    """Implements FileStores; all its folders hang on one fuse."""

    def __init__(self, inner: FileStores, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def at(self, address: str) -> FileStore:
        return BreakingFiles(await self._inner.at(address), self._fuse)

    async def close(self) -> None:
        await self._inner.close()
