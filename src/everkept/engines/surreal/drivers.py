"""The two ways to SurrealDB: inside this process, and over a websocket to a server.

In this process it is in memory, or in a folder that it has for itself. A commit is on disk once it
was told only where SURREAL_SYNC_DATA is in the environment before the package surrealdb is
imported; the settings see to that.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.core.disk import make_folder, usable
from everkept.core.locks import FileLock
from everkept.engines.surreal.connection import (
    LONGER,
    NO_ROOM,
    Attempt,
    Credentials,
    DiskFailed,
    Values,
    Work,
    failure,
    no_room,
    no_room_there,
    no_turn,
    opening,
    outcomes,
    parsed,
    quoted,
    retried,
    too_slow,
    unknown,
    within,
    writes,
)
from everkept.errors import (
    EverkeptError,
    StorageFull,
    StoreAway,
    StoreBusy,
    StoreDamaged,
    StoreTooNew,
    Unavailable,
)

if TYPE_CHECKING:
    from surrealdb._surrealdb_ext import AsyncEmbeddedDB

    from everkept.engines.surreal.websocket import Link

LOCK = "everkept.lock"
LOG = "clog"  # what a version 2 keeps everything in
OF_VERSION_3 = ("sstables", "wal")


class Folder:
    """Taken by one opening at a time: the engine itself would let two destroy it."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock = FileLock(self._path / LOCK)

    @property
    def url(self) -> str:
        return f"surrealkv://{self._path}"

    def take(self) -> None:
        with usable(self._path):
            make_folder(self._path)
            is_ours = self._lock.take()
        if not is_ours:
            raise StoreBusy(
                f"The SurrealDB in {self._path} is in use by another process.",
                hint="Embedded, it belongs to one process at a time. End that one, or let several "
                "share a server with deployment_mode local-server.",
                path=str(self._path),
            )
        if self._is_of_version_3():
            self.release()
            raise StoreTooNew(
                f"The SurrealDB in {self._path} was written by version 3, and here is version 2.",
                hint="Serve it with `surreal start` and use deployment_mode local-server, or "
                "choose another folder.",
                path=str(self._path),
            )

    def release(self) -> None:
        self._lock.release()

    def why_not(self, message: str) -> EverkeptError:
        """Why the engine would not open it."""
        if NO_ROOM.search(message):
            return self.full()
        if "permission denied" in message.lower() or "read-only" in message.lower():
            return Unavailable(
                f"{self._path} cannot be written ({opening(message)}).",
                hint="Check the permissions of the data folder, or choose one with --data-dir.",
                path=str(self._path),
            )
        return StoreDamaged(
            f"The SurrealDB in {self._path} is damaged, or of another version.",
            hint="Restore a backup of the folder, or choose another one.",
            path=str(self._path),
        )

    def full(self) -> StorageFull:
        return no_room(f"The disk of {self._path}", path=str(self._path), **self._sizes())

    def _sizes(self) -> dict[str, int]:
        from shutil import disk_usage

        try:
            files = [entry for entry in self._path.rglob("*") if entry.is_file()]
            size = sum(entry.stat().st_size for entry in files)
            return {"current_size": size, "free": disk_usage(self._path).free}
        except OSError:  # they are a help, and no reason to hide why it failed
            return {}

    def _is_of_version_3(self) -> bool:
        return not (self._path / LOG).exists() and any(
            (self._path / name).exists() for name in OF_VERSION_3
        )


TIME_LIMIT = 10.0  # seconds for the statements of one text
LAST_WORK = 0.5  # seconds that work under way has when the connection closes
LETTING_GO = 0.05  # seconds


class EmbeddedConnection:
    """A Connection to an engine of our own; `place` is the folder of its files."""

    def __init__(
        self, place: Path | None, namespace: str, *, time_limit: float = TIME_LIMIT
    ) -> None:
        quoted(namespace)
        self._folder = None if place is None else Folder(place)
        self._namespace = namespace
        self._time_limit = time_limit
        self._engine: AsyncEmbeddedDB | None = None
        self._opening = Attempt(self._started)
        self._working: set[asyncio.Future[Mapping[str, Any]]] = set()
        self._writing = asyncio.Lock()
        self._number = 0
        self._openings = 0
        self._is_broken = False
        self._is_closed = False
        self._is_modern: bool | None = None

    @property
    def is_modern(self) -> bool:
        if self._is_modern is None:
            raise RuntimeError("the connection was not opened yet")
        return self._is_modern

    @property
    def version(self) -> str:
        return ""  # the engine tells that of the package around it

    @property
    def openings(self) -> int:
        return self._openings

    async def open(self) -> None:
        await self._opened()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        text = within(self._namespace, database, statements)
        engine = await self._opened()
        try:
            answer = await self._asked(engine, [text, dict(values or {})], writes(statements))
            return outcomes(answer)[1:]
        except (StorageFull, DiskFailed) as error:
            # The engine refuses every write from then on; opened anew, it repairs its files.
            self._is_broken = True
            if self._folder is None or isinstance(error, DiskFailed):
                raise
            raise self._folder.full() from error

    async def close(self) -> None:
        """Work under way has a moment to end, then it is given up."""
        self._is_closed = True
        await self._opening.settle(LAST_WORK)
        if self._working:
            await asyncio.wait(self._working, timeout=LAST_WORK)
        for work in self._working:
            work.cancel()
        was_open = self._engine is not None
        await self._put_down()
        if was_open:
            # A thread of the engine that has answered lets go of what it answered with a moment
            # later; where the program ends before that, it is aborted.
            await asyncio.sleep(LETTING_GO)

    async def _opened(self) -> "AsyncEmbeddedDB":
        if self._is_closed:
            raise _closed()
        if self._engine is None or self._is_broken:
            return await self._opening.join()
        return self._engine

    async def _started(self) -> "AsyncEmbeddedDB":
        # It takes half a second: others are served meanwhile.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.protocol")
        await self._put_down()
        if self._folder is not None:
            self._folder.take()
        try:
            self._engine = await self._connected()
        except BaseException:
            if self._folder is not None:
                self._folder.release()
            raise
        self._is_broken = False
        self._openings += 1
        return self._engine

    async def _put_down(self) -> None:
        """Nothing may be at work in the folder once another may take it."""
        if self._working:
            await asyncio.wait(self._working)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()
        if self._folder is not None:
            self._folder.release()

    async def _connected(self) -> "AsyncEmbeddedDB":
        from surrealdb._surrealdb_ext import AsyncEmbeddedDB

        from everkept.engines.surreal import protocol

        url = "mem://" if self._folder is None else self._folder.url
        try:
            engine = await asyncio.to_thread(AsyncEmbeddedDB, url)  # it reads its files
            await engine.connect()
        except RuntimeError as error:
            if self._folder is None:
                raise
            raise self._folder.why_not(str(error)) from error
        self._is_modern = protocol.is_modern(await self._answered(engine, [protocol.PROBE, {}]))
        return engine

    async def _asked(
        self, engine: "AsyncEmbeddedDB", query: Sequence[Any], in_turn: bool
    ) -> Mapping[str, Any]:
        """What was begun goes on without its asker: nothing stops the engine in the middle."""
        limit = self._time_limit * (LONGER if in_turn else 1)

        async def ask(work: Work[Mapping[str, Any]]) -> Mapping[str, Any]:
            # Of two that write in the same moment the engine may lose one, and say nothing.
            async with self._writing if in_turn else nullcontext():
                work.has_begun = True
                return await self._answered(engine, query)

        work = Work(ask)
        self._working.add(work.task)
        work.task.add_done_callback(self._working.discard)
        if not await work.ended(limit):
            if not work.has_begun:
                raise no_turn(limit)
            if not in_turn:
                raise too_slow(limit)
            if not await work.ended(self._time_limit):
                raise unknown(limit + self._time_limit)
        if work.task.cancelled():
            raise _closed()
        return work.task.result()

    async def _answered(self, engine: "AsyncEmbeddedDB", query: Sequence[Any]) -> Mapping[str, Any]:
        from everkept.engines.surreal import protocol

        self._number += 1
        request = protocol.request(self._number, "query", query)
        try:
            return protocol.answered(await engine.execute(request))
        except (RuntimeError, ValueError) as error:  # where a server would answer with it
            raise failure(str(error)) from None
        except protocol.Unreadable as error:
            raise StoreDamaged("SurrealDB gave what cannot be read.") from error


def _closed() -> StoreAway:
    return StoreAway("SurrealDB was closed.")


CONNECT_LIMIT = 5.0  # seconds until a server is reached, and has let us in
PING_LIMIT = 1.0  # seconds for a sign of life

Turns = Callable[[], AbstractAsyncContextManager[None]]


class SocketConnection:
    """A Connection to a server. Each call that finds it lost makes one attempt to reach it."""

    def __init__(
        self,
        url: str,
        namespace: str,
        credentials: Credentials,
        *,
        time_limit: float = TIME_LIMIT,
        connect_limit: float = CONNECT_LIMIT,
        ca: Path | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`turns` is what all programs on this machine share that write to the server."""
        quoted(namespace)
        self._address = parsed(url)
        self._at = f" at {self._address.shown}"
        self._namespace = namespace
        self._credentials = credentials
        self._time_limit = time_limit
        self._connect_limit = connect_limit
        self._ca = ca
        self._turns = turns
        self._writing = asyncio.Lock()
        self._link: Link | None = None
        self._opening = Attempt(self._opened)
        self._working: set[asyncio.Task[list[Any]]] = set()  # that write
        self._refused_at = 0.0  # when a turn was not to be had
        self._openings = 0
        self._is_closed = False
        self._is_modern: bool | None = None
        self._version = ""

    @property
    def is_modern(self) -> bool:
        if self._is_modern is None:
            raise RuntimeError("the connection was not opened yet")
        return self._is_modern

    @property
    def version(self) -> str:
        return self._version

    @property
    def openings(self) -> int:
        return self._openings

    async def open(self) -> None:
        await self._linked()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        query = [within(self._namespace, database, statements), dict(values or {})]
        link = await self._linked()  # who cannot reach it need not wait for a turn
        if database not in link.chosen:
            await self._choose(link, database)
        return await (self._written(query) if writes(statements) else self._read(link, query))

    async def close(self) -> None:
        """Quick, even where the other side is frozen."""
        self._is_closed = True
        await self._opening.settle(0)
        if self._link is not None:
            await self._link.close()
        for work in self._working:
            work.cancel()
        if self._working:
            await asyncio.wait(self._working)

    async def _choose(self, link: "Link", database: str) -> None:
        """Version 3 makes a database when it is chosen first. Two that do so at once may be in each
        other's way, and a text whose choice failed would go on in the database before it."""
        query = [within(self._namespace, database, "RETURN NONE"), dict[str, Any]()]
        await retried(lambda: self._read(link, query))
        link.chosen.add(database)

    async def _read(self, link: "Link", query: Sequence[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(self._time_limit):
                return await self._answered(link, query)
        except TimeoutError:
            pass
        if await _is_alive(link):
            raise too_slow(self._time_limit, self._at)
        await link.close()
        raise StoreAway(f"SurrealDB{self._at} does not answer.")

    async def _written(self, query: Sequence[Any]) -> list[Any]:
        """One deadline for the turn and the work; a while longer for what was sent by then."""
        limit = self._time_limit * LONGER
        asked_at = asyncio.get_running_loop().time()

        async def write(work: Work[list[Any]]) -> list[Any]:
            async with self._turn(asked_at):
                link = await self._linked()
                work.has_begun = True
                return await self._answered(link, query, alters=True)

        work = Work(write)
        self._working.add(work.task)
        work.task.add_done_callback(self._working.discard)
        if not await work.ended(limit):
            if not work.has_begun:
                raise no_turn(limit, self._at)
            if self._link is not None and not await _is_alive(self._link):
                await self._link.close()
            if not await work.ended(self._time_limit):
                raise unknown(limit + self._time_limit, self._at)
        if work.task.cancelled():
            raise self._closed()
        return work.task.result()

    async def _answered(
        self, link: "Link", query: Sequence[Any], *, alters: bool = False
    ) -> list[Any]:
        answer = await link.ask("query", query, alters=alters)
        try:
            return outcomes(answer)[1:]
        except StoreAway:  # our session there is over
            await link.close()
            raise
        except StorageFull as error:
            raise no_room_there(self._address.shown) from error

    @asynccontextmanager
    async def _turn(self, asked_at: float) -> AsyncGenerator[None, None]:
        """Of two that write in the same moment a server may lose one and say nothing, where its
        storage does not keep them apart: what we can keep apart, we do. Version 3 on a disk does.

        It lasts until the server has answered, or nobody can hear it any more.
        """
        async with self._writing, AsyncExitStack() as shared:
            if self._turns is not None and not self.is_modern:
                await self._share(self._turns, shared, asked_at)
            yield

    async def _share(self, turns: Turns, shared: AsyncExitStack, asked_at: float) -> None:
        # Who stood behind one that waited in vain has waited as well.
        if asked_at >= self._refused_at:
            try:
                await shared.enter_async_context(turns())
                return
            except StoreBusy:
                self._refused_at = asyncio.get_running_loop().time()
        raise StoreAway(
            f"Another program on this machine holds its turn to write to SurrealDB{self._at}. "
            "Nothing of this call was sent.",
            hint="It may be stopped, or at work for long.",
        )

    async def _linked(self) -> "Link":
        if self._is_closed:
            raise self._closed()
        if self._link is None or self._link.is_lost:
            return await self._opening.join()
        return self._link

    async def _opened(self) -> "Link":
        # It takes half a second: others are served meanwhile.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.websocket")
        try:
            async with asyncio.timeout(self._connect_limit):
                self._link = await self._let_in()
                self._openings += 1
                return self._link
        except TimeoutError:
            raise StoreAway(
                f"SurrealDB at {self._address.shown} did not answer within "
                f"{self._connect_limit:g} s.",
                hint="Is it running, and the way to it open?",
            ) from None

    async def _let_in(self) -> "Link":
        from everkept.engines.surreal.websocket import dial, dialect, sign_in, trust

        context = await asyncio.to_thread(trust, self._address, self._ca)
        link = await dial(self._address, context)
        try:
            await sign_in(link, self._address, self._namespace, self._credentials)
            self._is_modern, self._version = await dialect(link)
        except BaseException:
            await link.close()
            raise
        return link

    def _closed(self) -> StoreAway:
        return StoreAway(f"The connection to SurrealDB{self._at} is closed.")


async def _is_alive(link: "Link") -> bool:
    try:
        async with asyncio.timeout(PING_LIMIT):
            await link.ask("ping", [])
    except (TimeoutError, EverkeptError):
        return False
    return True
