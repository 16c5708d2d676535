"""The two connections to SurrealDB: embedded in this process, or by a websocket to a server.

The embedded engine is in memory, or in a folder that only it uses. A reported commit is on disk only if
SURREAL_SYNC_DATA is in the environment before the package surrealdb is imported. The settings ensure that.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.core.disk import build_size_facts, find_free_bytes, make_folder, translate_os_errors
from everkept.core.locks import FileLock
from everkept.engines.surreal.connection import (
    DISK_FULL_PATTERN,
    UNREACHABLE_HINT,
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
    Refused,
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
VERSION_2_FOLDER = "clog"  # which holds all files of version 2
VERSION_3_FOLDERS = ("sstables", "wal")


class DatabaseFolder:
    """Folder that one process opens at a time. The engine itself would let two processes destroy it."""

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
                hint="End that process. To share the data, run a server and set `deployment_mode` to local-server.",
                path=str(self._path),
            )
        if self._is_version_3():
            self.release()
            raise StoreTooNew(
                f"The SurrealDB in {self._path} was written by version 3. This program includes version 2.",
                hint="Run `surreal start` and set `deployment_mode` to local-server, or choose another folder.",
                path=str(self._path),
            )

    def release(self) -> None:
        self._lock.release()

    def build_open_error(self, message: str) -> EverkeptError:
        """Return the error for a folder that the engine did not open."""
        if DISK_FULL_PATTERN.search(message):
            return self.build_storage_full()
        if "permission denied" in message.lower() or "read-only" in message.lower():
            return Unavailable(
                f"Cannot write {self._path}: {extract_reason(message)}.",
                hint="Check the folder's permissions, or choose another one with --data-dir.",
                path=str(self._path),
            )
        return StoreDamaged(
            f"The SurrealDB in {self._path} is damaged or has another version.",
            hint="Restore a backup of the folder, or choose another one.",
            path=str(self._path),
        )

    def build_storage_full(self) -> StorageFull:
        sizes = build_size_facts(self.measure_files(), find_free_bytes(self._path))
        return build_storage_full(f"The disk of {self._path}", path=str(self._path), **sizes)

    def measure_files(self) -> int:
        """Return the bytes of all files, without those that the engine removes in between."""
        size = 0
        for entry in self._path.rglob("*"):
            with suppress(OSError):
                size += entry.stat().st_size if entry.is_file() else 0
        return size

    def _is_version_3(self) -> bool:
        return not (self._path / VERSION_2_FOLDER).exists() and any(
            (self._path / name).exists() for name in VERSION_3_FOLDERS
        )


QUERY_SECONDS = 10.0  # for one query
CLOSE_SECONDS = 0.5  # for running work when the connection closes
RELEASE_SECONDS = 0.05


class _ConnectionState:
    """What a connection learns when it opens."""

    _openings = 0
    _is_modern: bool | None = None
    _version = ""

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


class EmbeddedConnection(_ConnectionState):
    """Connection to an engine in this process. `place` is the folder of its files."""

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
        self._is_broken = False
        self._is_closed = False

    async def measure_files(self) -> int | None:
        return None if self._folder is None else await asyncio.to_thread(self._folder.measure_files)

    async def open(self) -> None:
        await self._ensure_engine()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        text = prepend_use(self._namespace, database, statements)
        engine = await self._ensure_engine()
        try:
            answer = await self._ask(engine, [text, dict(values or {})], has_writes(statements))
            return parse_results(answer)[1:]
        except (StorageFull, DiskFailure) as error:
            # The engine refuses all later writes. Opening it again repairs its files.
            self._is_broken = True
            if self._folder is None or isinstance(error, DiskFailure):
                raise
            raise self._folder.build_storage_full() from error

    async def close(self) -> None:
        """Give running work a moment to end, then cancel it."""
        self._is_closed = True
        await self._opening.settle(CLOSE_SECONDS)
        if self._working:
            await asyncio.wait(self._working, timeout=CLOSE_SECONDS)
        for work in self._working:
            work.cancel()
        was_open = self._engine is not None
        await self._stop_engine()
        if was_open:
            # An engine thread frees its answer a moment later. If the program ended before that, it would abort.
            await asyncio.sleep(RELEASE_SECONDS)

    async def _ensure_engine(self) -> "AsyncEmbeddedDB":
        if self._is_closed:
            raise _build_closed_error()
        if self._engine is None or self._is_broken:
            return await self._opening.join()
        return self._engine

    async def _start_engine(self) -> "AsyncEmbeddedDB":
        # The import takes half a second, so it runs in a thread.
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
        """Stop all work in the folder before another process can take it."""
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
        self._version = self._version or await asyncio.to_thread(protocol.read_engine_version)
        return engine

    async def _ask(self, engine: "AsyncEmbeddedDB", query: Sequence[Any], in_turn: bool) -> Mapping[str, Any]:
        """Run the query. It continues if its caller is canceled, because nothing stops the engine."""
        limit = self._time_limit * (WRITE_TIME_FACTOR if in_turn else 1)

        async def ask(work: BackgroundWork[Mapping[str, Any]]) -> Mapping[str, Any]:
            # The engine may silently lose one of two concurrent writes.
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
        except (RuntimeError, ValueError) as error:  # a server would send it as an answer
            raise translate_error(str(error)) from None
        except protocol.UnreadableMessage as error:
            raise StoreDamaged(
                "SurrealDB sent a response that Everkept does not understand.", hint="Restore a backup of the folder."
            ) from error


def _build_closed_error() -> StoreUnreachable:
    return StoreUnreachable("The connection to SurrealDB is closed.")


CONNECT_SECONDS = 5.0  # including the login
PING_SECONDS = 1.0  # for the answer to a ping

TurnSource = Callable[[], AbstractAsyncContextManager[None]]


class SocketConnection(_ConnectionState):
    """Connection to a server. Each call that finds it lost tries once to reach the server."""

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
        """Store the parameters. `turns` coordinates all programs on this machine that write to the server."""
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
        self._working: set[asyncio.Task[list[Any]]] = set()  # writes
        self._refused_at = 0.0  # when a turn was refused last
        self._is_closed = False

    async def measure_files(self) -> int | None:
        return None  # a server does not report it

    async def open(self) -> None:
        await self._ensure_link()

    async def run(self, database: str, statements: str, values: Values | None = None) -> list[Any]:
        query = [prepend_use(self._namespace, database, statements), dict(values or {})]
        link = await self._ensure_link()  # if the server is unreachable, do not wait for a turn
        if database not in link.chosen:
            await self._choose(link, database)
        return await (self._write(query) if has_writes(statements) else self._read(link, query))

    async def has_database(self, database: str) -> bool:
        """Return whether the database exists. Version 3 would create it if a query chose it."""
        link = await self._ensure_link()
        namespace = f"USE NS {quote_name(self._namespace)}; INFO FOR NS"
        for statements, kind, name in (
            ("INFO FOR ROOT", "namespaces", self._namespace),
            (namespace, "databases", database),
        ):
            try:
                found = parse_results(await link.ask("query", [statements, dict[str, Any]()]))[-1]
            except Refused:  # a user of the namespace may not see the root
                continue
            if name not in found[kind]:
                return False
        return True

    async def close(self) -> None:
        """Close the connection quickly, even if the server does not answer."""
        self._is_closed = True
        await self._opening.settle(0)
        if self._link is not None:
            await self._link.close()
        for work in self._working:
            work.cancel()
        if self._working:
            await asyncio.wait(self._working)

    async def _choose(self, link: "SurrealSocket", database: str) -> None:
        """Choose a database for the first time, which creates it in version 3.

        Two concurrent choices may conflict. A query whose choice failed would run in the previous database.
        """
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
        raise StoreUnreachable(f"SurrealDB{self._at} does not answer.", hint=UNREACHABLE_HINT)

    async def _write(self, query: Sequence[Any]) -> list[Any]:
        """Run a write. One deadline covers the turn and the work; a query that was sent by then gets extra time."""
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
        except StoreUnreachable:  # the session on the server is over
            await link.close()
            raise
        except StorageFull as error:
            raise build_server_storage_full(self._address.shown) from error

    @asynccontextmanager
    async def _take_turn(self, asked_at: float) -> AsyncGenerator[None, None]:
        """Hold the turn to write until the server has answered or the connection is lost.

        A server may silently lose one of two concurrent writes. Only version 3 on disk separates them itself.
        """
        async with self._writing, AsyncExitStack() as shared:
            if self._turns is not None and not self.is_modern:
                await self._take_shared_turn(self._turns, shared, asked_at)
            yield

    async def _take_shared_turn(self, turns: TurnSource, shared: AsyncExitStack, asked_at: float) -> None:
        # A call that was waiting behind a refused one has waited as long.
        if asked_at >= self._refused_at:
            try:
                await shared.enter_async_context(turns())
                return
            except StoreBusy:
                self._refused_at = asyncio.get_running_loop().time()
        raise StoreUnreachable(
            f"Another program on this machine is writing to SurrealDB{self._at}. Nothing was stored.",
            hint="Try again in a moment. If this continues, look for a suspended Everkept process.",
        )

    async def _ensure_link(self) -> "SurrealSocket":
        if self._is_closed:
            raise self._build_closed_error()
        if self._link is None or self._link.is_lost:
            return await self._opening.join()
        return self._link

    async def _open_link(self) -> "SurrealSocket":
        # The import takes half a second, so it runs in a thread.
        await asyncio.to_thread(import_module, "everkept.engines.surreal.websocket")
        try:
            async with asyncio.timeout(self._connect_limit):
                self._link = await self._connect()
                self._openings += 1
                return self._link
        except TimeoutError:
            raise StoreUnreachable(
                f"SurrealDB at {self._address.shown} did not answer within {self._connect_limit:g} s.",
                hint=UNREACHABLE_HINT,
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
