"""File stores that fail at a chosen change, as a full disk, a lost line or a crash does."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from everkept.core.files import FileInfo, FileStore, FileStores, FileWork, FolderSurvey
from everkept.errors import EverkeptError, ReadOnly, StorageFull

T = TypeVar("T")


def _full() -> EverkeptError:
    return StorageFull("There is no room.")


@dataclass
class Fuse:
    """Lets so many changes through; then one fails, or with `lasting` all that follow.

    What is read from a path that ends with `spoiled` is not what was written. The folder with the
    address `without_lock` is one that nothing can be made in.
    """

    left: int | None = None
    lasting: bool = False
    error: Callable[[], BaseException] = _full
    changed: list[str] = field(default_factory=list[str])
    spoiled: str | None = None
    without_lock: str | None = None

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

    async def write_all(self, contents: Mapping[str, bytes]) -> None:
        for path, data in contents.items():
            await self.write(path, data)

    async def append(self, path: str, data: bytes) -> None:
        self._fuse.change(path)
        await self._inner.append(path, data)

    async def read_info(self, path: str = "") -> FileInfo | None:
        return await self._inner.read_info(path)

    async def list(self, folder: str = "") -> list[FileInfo]:
        return await self._inner.list(folder)

    async def survey(self, folder: str = "", *, with_newest: bool = False) -> FolderSurvey:
        return await self._inner.survey(folder, with_newest=with_newest)

    async def remove(self, path: str) -> None:
        self._fuse.change(path)
        await self._inner.remove(path)

    async def rename(self, path: str, to: str) -> None:
        self._fuse.change(path)
        await self._inner.rename(path, to)

    async def make_folder(self, path: str = "") -> None:
        self._fuse.change(path)
        await self._inner.make_folder(path)

    @asynccontextmanager
    async def lock(self, name: str) -> AsyncGenerator[None, None]:
        if self._fuse.without_lock == self.address:
            raise ReadOnly("Nothing can be made here.")
        async with self._inner.lock(name):
            yield

    async def run_all(self, works: Sequence[FileWork[T]]) -> Sequence[T]:
        return await self._inner.run_all(works)

    async def run_locked(self, name: str, work: FileWork[T], undo: FileWork[None] | None = None) -> T:
        if self._fuse.without_lock == self.address:
            raise ReadOnly("Nothing can be made here.")
        return await self._inner.run_locked(name, work, undo)


class BreakingStores:
    """Implements FileStores; all its folders hang on one fuse."""

    def __init__(self, inner: FileStores, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def open_folder(self, address: str) -> FileStore:
        return BreakingFiles(await self._inner.open_folder(address), self._fuse)

    async def close(self) -> None:
        await self._inner.close()
