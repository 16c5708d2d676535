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

from everkept.core.disk import make_folder, translate_os_errors
from everkept.core.locks import FileLock
from everkept.engines.surreal.connection import (
    DISK_FULL_PATTERN,
    WRITE_TIME_FACTOR,
    BackgroundWork,
    Credentials,
    DiskFailure,
    SharedTask,
    Values,
    build_queue_timeout_error,
    build_server_storage_full,
    build_storage_full,
    build_timeout_error,
    build_unknown_outcome_error,
    extract_reason,
    has_writes,
    parse_address,
    parse_results,
    prepend_use,
    quote_name,
    retry,
    translate_error,
)
from everkept.errors import (
    EverkeptError,
    StorageFull,
    StoreBusy,
    StoreDamaged,
    StoreTooNew,
    StoreUnreachable,
    Unavailable,
)

if TYPE_CHECKING:
    from surrealdb._surrealdb_ext import AsyncEmbeddedDB

    from everkept.engines.surreal.websocket import SurrealSocket

LOCK_FILE = "everkept.lock"
VERSION_2_FOLDER = "clog"  # what a version 2 keeps everything in
VERSION_3_FOLDERS = ("sstables", "wal")


class DatabaseFolder:
    """Taken by one opening at a time: the engine itself would let two destroy it."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._lock = FileLock(self._path / LOCK_FILE)

    @property
    def url(self) -> str:
        return f"surrealkv://{self._path}"

    def take(self) -> None:
        with translate_os_errors(self._path):
            make_folder(self._path)
            is_ours = self._lock.take()
        if not is_ours:
            raise StoreBusy(
                f"The SurrealDB in {self._path} is in use by another process.",
                hint="Embedded, it belongs to one process at a time. End that one, or let several "
                "share a server with deployment_mode local-server.",
                path=str(self._path),
            )
        if self._is_version_3():
            self.release()
            raise StoreTooNew(
                f"The SurrealDB in {self._path} was written by version 3, and here is version 2.",
                hint="Serve it with `surreal start` and use deployment_mode local-server, or choose another folder.",
                path=str(self._path),
            )

    def release(self) -> None:
        self._lock.release()

    def build_open_error(self, message: str) -> EverkeptError:
        """Why the engine would not open it."""
        if DISK_FULL_PATTERN.search(message):
            return self.build_storage_full()
        if "permission denied" in message.lower() or "read-only" in message.lower():
            return Unavailable(
                f"{self._path} cannot be written ({extract_reason(message)}).",
                hint="Check the permissions of the data folder, or choose one with --data-dir.",
                path=str(self._path),
            )
        return StoreDamaged(
            f"The SurrealDB in {self._path} is damaged, or of another version.",
            hint="Restore a backup of the folder, or choose another one.",
            path=str(self._path),
        )

    def build_storage_full(self) -> StorageFull:
        return build_storage_full(f"The disk of {self._path}", path=str(self._path), **self._measure_sizes())

    def _measure_sizes(self) -> dict[str, int]:
        from shutil import disk_usage

        try:
            files = [entry for entry in self._path.rglob("*") if entry.is_file()]
            size = sum(entry.stat().st_size for entry in files)
            return {"current_size": size, "free": disk_usage(self._path).free}
        except OSError:  # they are a help, and no reason to hide why it failed
            return {}

    def _is_version_3(self) -> bool:
        return not (self._path / VERSION_2_FOLDER).exists() and any(
            (self._path / name).exists() for name in VERSION_3_FOLDERS
        )


QUERY_SECONDS = 10.0  # seconds for the statements of one text
CLOSE_SECONDS = 0.5  # seconds that work under way has when the connection closes
RELEASE_SECONDS = 0.05


class EmbeddedConnection:
    """A Connection to an engine of our own; `place` is the folder of its files."""

    def __init__(self, place: Path | None, namespace: str, *, time_limit: float = QUERY_SECONDS) -> None:
        quote_name(namespace)
        self._folder = None if place is None else DatabaseFolder(place)
        self._namespace = namespace
        self._time_limit = time_limit
        self._engine: AsyncEmbeddedDB | None = None
        self._opening = SharedTask(self._start_engine)
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
        await self._ensure_engine()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        text = prepend_use(self._namespace, database, statements)
        engine = await self._ensure_engine()
        try:
            answer = await self._ask(engine, [text, dict(values or {})], has_writes(statements))
            return parse_results(answer)[1:]
        except (StorageFull, DiskFailure) as error:
            # The engine refuses every write from then on; opened anew, it repairs its files.
            self._is_broken = True
            if self._folder is None or isinstance(error, DiskFailure):
                raise
            raise self._folder.build_storage_full() from error

    async def close(self) -> None:
        """Work under way has a moment to end, then it is given up."""
        self._is_closed = True
        await self._opening.settle(CLOSE_SECONDS)
        if self._working:
            await asyncio.wait(self._working, timeout=CLOSE_SECONDS)
        for work in self._working:
            work.cancel()
        was_open = self._engine is not None
        await self._stop_engine()
        if was_open:
            # A thread of the engine that has answered lets go of what it answered with a moment
            # later; where the program ends before that, it is aborted.
            await asyncio.sleep(RELEASE_SECONDS)

    async def _ensure_engine(self) -> "AsyncEmbeddedDB":
        if self._is_closed:
            raise _build_closed_error()
        if self._engine is None or self._is_broken:
            return await self._opening.join()
        return self._engine

    async def _start_engine(self) -> "AsyncEmbeddedDB":
        # It takes half a second: others are served meanwhile.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.protocol")
        await self._stop_engine()
        if self._folder is not None:
            self._folder.take()
        try:
            self._engine = await self._connect_engine()
        except BaseException:
            if self._folder is not None:
                self._folder.release()
            raise
        self._is_broken = False
        self._openings += 1
        return self._engine

    async def _stop_engine(self) -> None:
        """Nothing may be at work in the folder once another may take it."""
        if self._working:
            await asyncio.wait(self._working)
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()
        if self._folder is not None:
            self._folder.release()

    async def _connect_engine(self) -> "AsyncEmbeddedDB":
        from surrealdb._surrealdb_ext import AsyncEmbeddedDB

        from everkept.engines.surreal import protocol

        url = "mem://" if self._folder is None else self._folder.url
        try:
            engine = await asyncio.to_thread(AsyncEmbeddedDB, url)  # it reads its files
            await engine.connect()
        except RuntimeError as error:
            if self._folder is None:
                raise
            raise self._folder.build_open_error(str(error)) from error
        self._is_modern = protocol.is_modern(await self._execute(engine, [protocol.DIALECT_PROBE, {}]))
        return engine

    async def _ask(self, engine: "AsyncEmbeddedDB", query: Sequence[Any], in_turn: bool) -> Mapping[str, Any]:
        """What was begun goes on without its asker: nothing stops the engine in the middle."""
        limit = self._time_limit * (WRITE_TIME_FACTOR if in_turn else 1)

        async def ask(work: BackgroundWork[Mapping[str, Any]]) -> Mapping[str, Any]:
            # Of two that write in the same moment the engine may lose one, and say nothing.
            async with self._writing if in_turn else nullcontext():
                work.has_begun = True
                return await self._execute(engine, query)

        work = BackgroundWork(ask)
        self._working.add(work.task)
        work.task.add_done_callback(self._working.discard)
        if not await work.wait(limit):
            if not work.has_begun:
                raise build_queue_timeout_error(limit)
            if not in_turn:
                raise build_timeout_error(limit)
            if not await work.wait(self._time_limit):
                raise build_unknown_outcome_error(limit + self._time_limit)
        if work.task.cancelled():
            raise _build_closed_error()
        return work.task.result()

    async def _execute(self, engine: "AsyncEmbeddedDB", query: Sequence[Any]) -> Mapping[str, Any]:
        from everkept.engines.surreal import protocol

        self._number += 1
        request = protocol.encode_request(self._number, "query", query)
        try:
            return protocol.decode_answer(await engine.execute(request))
        except (RuntimeError, ValueError) as error:  # where a server would answer with it
            raise translate_error(str(error)) from None
        except protocol.UnreadableMessage as error:
            raise StoreDamaged("SurrealDB gave what cannot be read.") from error


def _build_closed_error() -> StoreUnreachable:
    return StoreUnreachable("SurrealDB was closed.")


CONNECT_SECONDS = 5.0  # seconds until a server is reached, and has let us in
PING_SECONDS = 1.0  # seconds for a sign of life

TurnSource = Callable[[], AbstractAsyncContextManager[None]]


class SocketConnection:
    """A Connection to a server. Each call that finds it lost makes one attempt to reach it."""

    def __init__(
        self,
        url: str,
        namespace: str,
        credentials: Credentials,
        *,
        time_limit: float = QUERY_SECONDS,
        connect_limit: float = CONNECT_SECONDS,
        ca: Path | None = None,
        turns: TurnSource | None = None,
    ) -> None:
        """`turns` is what all programs on this machine share that write to the server."""
        quote_name(namespace)
        self._address = parse_address(url)
        self._at = f" at {self._address.shown}"
        self._namespace = namespace
        self._credentials = credentials
        self._time_limit = time_limit
        self._connect_limit = connect_limit
        self._ca = ca
        self._turns = turns
        self._writing = asyncio.Lock()
        self._link: SurrealSocket | None = None
        self._opening = SharedTask(self._open_link)
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
        await self._ensure_link()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        query = [prepend_use(self._namespace, database, statements), dict(values or {})]
        link = await self._ensure_link()  # who cannot reach it need not wait for a turn
        if database not in link.chosen:
            await self._choose(link, database)
        return await (self._write(query) if has_writes(statements) else self._read(link, query))

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

    async def _choose(self, link: "SurrealSocket", database: str) -> None:
        """Version 3 makes a database when it is chosen first. Two that do so at once may be in each
        other's way, and a text whose choice failed would go on in the database before it."""
        query = [prepend_use(self._namespace, database, "RETURN NONE"), dict[str, Any]()]
        await retry(lambda: self._read(link, query))
        link.chosen.add(database)

    async def _read(self, link: "SurrealSocket", query: Sequence[Any]) -> list[Any]:
        try:
            async with asyncio.timeout(self._time_limit):
                return await self._query(link, query)
        except TimeoutError:
            pass
        if await _is_alive(link):
            raise build_timeout_error(self._time_limit, self._at)
        await link.close()
        raise StoreUnreachable(f"SurrealDB{self._at} does not answer.")

    async def _write(self, query: Sequence[Any]) -> list[Any]:
        """One deadline for the turn and the work; a while longer for what was sent by then."""
        limit = self._time_limit * WRITE_TIME_FACTOR
        asked_at = asyncio.get_running_loop().time()

        async def write(work: BackgroundWork[list[Any]]) -> list[Any]:
            async with self._take_turn(asked_at):
                link = await self._ensure_link()
                work.has_begun = True
                return await self._query(link, query, alters=True)

        work = BackgroundWork(write)
        self._working.add(work.task)
        work.task.add_done_callback(self._working.discard)
        if not await work.wait(limit):
            if not work.has_begun:
                raise build_queue_timeout_error(limit, self._at)
            if self._link is not None and not await _is_alive(self._link):
                await self._link.close()
            if not await work.wait(self._time_limit):
                raise build_unknown_outcome_error(limit + self._time_limit, self._at)
        if work.task.cancelled():
            raise self._build_closed_error()
        return work.task.result()

    async def _query(self, link: "SurrealSocket", query: Sequence[Any], *, alters: bool = False) -> list[Any]:
        answer = await link.ask("query", query, alters=alters)
        try:
            return parse_results(answer)[1:]
        except StoreUnreachable:  # our session there is over
            await link.close()
            raise
        except StorageFull as error:
            raise build_server_storage_full(self._address.shown) from error

    @asynccontextmanager
    async def _take_turn(self, asked_at: float) -> AsyncGenerator[None, None]:
        """Of two that write in the same moment a server may lose one and say nothing, where its
        storage does not keep them apart: what we can keep apart, we do. Version 3 on a disk does.

        It lasts until the server has answered, or nobody can hear it any more.
        """
        async with self._writing, AsyncExitStack() as shared:
            if self._turns is not None and not self.is_modern:
                await self._take_shared_turn(self._turns, shared, asked_at)
            yield

    async def _take_shared_turn(self, turns: TurnSource, shared: AsyncExitStack, asked_at: float) -> None:
        # Who stood behind one that waited in vain has waited as well.
        if asked_at >= self._refused_at:
            try:
                await shared.enter_async_context(turns())
                return
            except StoreBusy:
                self._refused_at = asyncio.get_running_loop().time()
        raise StoreUnreachable(
            f"Another program on this machine holds its turn to write to SurrealDB{self._at}. "
            "Nothing of this call was sent.",
            hint="It may be stopped, or at work for long.",
        )

    async def _ensure_link(self) -> "SurrealSocket":
        if self._is_closed:
            raise self._build_closed_error()
        if self._link is None or self._link.is_lost:
            return await self._opening.join()
        return self._link

    async def _open_link(self) -> "SurrealSocket":
        # It takes half a second: others are served meanwhile.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.websocket")
        try:
            async with asyncio.timeout(self._connect_limit):
                self._link = await self._connect()
                self._openings += 1
                return self._link
        except TimeoutError:
            raise StoreUnreachable(
                f"SurrealDB at {self._address.shown} did not answer within {self._connect_limit:g} s.",
                hint="Is it running, and the way to it open?",
            ) from None

    async def _connect(self) -> "SurrealSocket":
        from everkept.engines.surreal.websocket import build_tls_context, detect_dialect, open_socket, sign_in

        context = await asyncio.to_thread(build_tls_context, self._address, self._ca)
        link = await open_socket(self._address, context)
        try:
            await sign_in(link, self._address, self._namespace, self._credentials)
            self._is_modern, self._version = await detect_dialect(link)
        except BaseException:
            await link.close()
            raise
        return link

    def _build_closed_error(self) -> StoreUnreachable:
        return StoreUnreachable(f"The connection to SurrealDB{self._at} is closed.")


async def _is_alive(link: "SurrealSocket") -> bool:
    try:
        async with asyncio.timeout(PING_SECONDS):
            await link.ask("ping", [])
    except (TimeoutError, EverkeptError):
        return False
    return True
