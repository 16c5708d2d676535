"""A way to a server that breaks when a test wants it to.

async with passing(port) as proxy:
    connect_to(proxy.port)
    proxy.cut_after(100)            # bytes, of both directions together
    proxy.refuse(); proxy.accept()
    proxy.stall(); proxy.flow()     # frozen, not broken
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal, TypeVar

PATIENCE = 60  # seconds; nothing takes that long unless it hangs

Direction = Literal["up", "down", "both"]


class Proxy:
    """Between a client and a server: passes bytes on, until a test wants otherwise."""

    def __init__(self, far_port: int) -> None:
        self._far_port = far_port
        self._listener: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut: tuple[Direction, int] | None = None
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_refusing = False
        self.delay = 0.0  # seconds before each piece is passed on
        self.port = 0
        self.connected = 0  # connections so far
        self.passed = {"up": 0, "down": 0}  # bytes so far
        self.was_cut = asyncio.Event()

    def cut_after(self, count: int, direction: Direction = "both") -> None:
        """So many more bytes go through, then every connection is broken; later ones are not."""
        self.was_cut.clear()
        self._cut = direction, count

    def cut(self) -> None:
        """Breaks every connection now."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """Breaks every connection, and lets none in."""
        self._is_refusing = True
        self.cut()

    def accept(self) -> None:
        self._is_refusing = False

    def stall(self) -> None:
        """Connections stay, and nothing goes through them."""
        self._flowing.clear()

    def flow(self) -> None:
        self._flowing.set()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._join, "127.0.0.1", self.port)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._listener is not None
        self._listener.close()
        self.refuse()
        self._flowing.set()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=PATIENCE)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected += 1
        ours = asyncio.current_task()
        assert ours is not None
        self._tasks.add(ours)
        self._writers.add(writer)
        try:
            if self._is_refusing or not await self._is_let_in(reader, writer):
                return
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far_port)
            self._writers.add(far_writer)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass(reader, far_writer, "up"))
                    both.create_task(self._pass(far_reader, writer, "down"))
            finally:
                far_writer.transport.abort()
                self._writers.discard(far_writer)
        except (OSError, asyncio.CancelledError):
            return
        except BaseExceptionGroup:
            return
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(ours)

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """What is to happen before anything goes through."""
        return True

    def _altered(self, data: bytes, direction: Direction) -> bytes:
        """What goes on instead of a piece."""
        return data

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        while data := await reader.read(65_536):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._flowing.wait()
            data = self._altered(data, direction)
            data = data[: self._allowed(direction, len(data))]
            self.passed[direction] += len(data)
            writer.write(data)
            await writer.drain()
            if self._is_due():
                self._cut = None
                self.was_cut.set()
                await _flushed(writer)
                self.cut()
        raise ConnectionResetError  # an end of one side is the end of both

    def _allowed(self, direction: Direction, count: int) -> int:
        if self._cut is None or self._cut[0] not in (direction, "both"):
            return count
        allowed = min(count, self._cut[1])
        self._cut = self._cut[0], self._cut[1] - allowed
        return allowed

    def _is_due(self) -> bool:
        return self._cut is not None and self._cut[1] == 0


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Waits until the bytes before a cut have left: an abort would throw them away."""
    async with asyncio.timeout(PATIENCE):
        while writer.transport.get_write_buffer_size():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


AnyProxy = TypeVar("AnyProxy", bound=Proxy)


@asynccontextmanager
async def running(proxy: AnyProxy) -> AsyncGenerator[AnyProxy, None]:
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()


def passing(port: int) -> AbstractAsyncContextManager[Proxy]:
    """Between whoever connects to it and that port of this machine."""
    return running(Proxy(port))
