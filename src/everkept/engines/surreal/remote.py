"""SurrealDB that listens somewhere: statements over a websocket, opened anew when it was lost."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.engines.surreal.connection import (
    LONGER,
    Attempt,
    Credentials,
    Values,
    Work,
    parsed,
    quoted,
    retried,
    within,
    writes,
)
from everkept.engines.surreal.failures import no_room_there, no_turn, outcomes, too_slow, unknown
from everkept.errors import EverkeptError, StorageFull, StoreAway, StoreBusy

if TYPE_CHECKING:
    from everkept.engines.surreal.websocket import Link

TIME_LIMIT = 10.0  # seconds for the statements of one text
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
