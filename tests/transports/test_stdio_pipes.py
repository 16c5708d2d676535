"""Reading and writing by the event loop and by threads: the same promises for both."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everkept.transports.stdio import PIPE_BYTES, MessageWriter, open_writer, start_reading
from server_processes import HANG

LARGE = 10_000_000  # bytes, far more than any pipe holds


@dataclass
class Client:
    """The other end of a writer."""

    read: int
    written: int
    writer: MessageWriter
    gone: asyncio.Event

    async def receive(self, count: int) -> bytes:
        """Read so many bytes, the way a slow client does."""
        data = bytearray()
        while len(data) < count:
            data += await asyncio.to_thread(os.read, self.read, 1 << 16)
        return bytes(data)

    def close(self) -> None:
        if self.read >= 0:
            os.close(self.read)
            self.read = -1


@asynccontextmanager
async def over_pipe() -> AsyncIterator[Client]:
    read, written = os.pipe()
    gone = asyncio.Event()
    client = Client(read, written, open_writer(written, gone.set), gone)
    try:
        yield client
    finally:
        client.close()
        os.close(written)


def message(number: int, size: int) -> bytes:
    return bytes([number]) * size + b"\n"


async def test_a_slow_client_gets_everything_whole_and_in_order_and_nobody_waits() -> None:
    sent = [message(number, size) for number, size in enumerate((1, LARGE, 5, LARGE // 100, 1))]
    async with over_pipe() as client:
        for data in sent:
            client.writer.put(data)  # returns although nobody has read yet
        assert client.writer.pending_count > 0
        expected = b"".join(sent)
        assert await client.receive(len(expected)) == expected
        assert client.writer.pending_count == 0
        client.writer.put(b"next\n")
        assert await client.receive(5) == b"next\n"
        await client.writer.close(HANG)


async def test_the_end_waits_for_what_a_client_reads_still() -> None:
    data = message(1, LARGE)
    async with over_pipe() as client:
        client.writer.put(data)
        received, _ = await asyncio.gather(client.receive(len(data)), client.writer.close(HANG))
        assert received == data


async def test_the_end_does_not_wait_for_a_client_that_does_not_read() -> None:
    async with over_pipe() as client:
        client.writer.put(message(1, LARGE))
        async with asyncio.timeout(HANG):
            await client.writer.close(0)


@pytest.mark.parametrize("pending", [0, LARGE], ids=["idle", "pending"])
async def test_a_client_that_closed_its_end_is_told_of(pending: int) -> None:
    async with over_pipe() as client:
        if pending:
            client.writer.put(message(1, pending))
        client.close()
        client.writer.put(b"x\n")
        async with asyncio.timeout(HANG):
            await client.gone.wait()
        client.writer.put(b"y\n")
        await client.writer.close(HANG)


async def test_a_file_is_written_too(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        writer = open_writer(file.fileno(), lambda: None)
        for number in range(3):
            writer.put(message(number, 1000))
        await writer.close(HANG)
    assert path.read_bytes() == b"".join(message(number, 1000) for number in range(3))


async def collect(read: int) -> bytes:
    """All that is delivered until the end."""
    data: list[bytes] = []
    ended = asyncio.Event()
    start_reading(read, data.append, ended.set)
    async with asyncio.timeout(HANG):
        await ended.wait()
    return b"".join(data)


async def test_all_of_a_pipe_is_delivered_and_its_end_is_told() -> None:
    read, written = os.pipe()

    def write() -> None:
        with os.fdopen(written, "wb") as pipe:
            pipe.write(message(7, LARGE))

    try:
        delivered, _ = await asyncio.gather(collect(read), asyncio.to_thread(write))
        assert delivered == message(7, LARGE) + b"\n"
    finally:
        os.close(read)


async def test_all_of_a_file_is_delivered(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(message(7, LARGE))
    with path.open("rb") as file:
        assert await collect(file.fileno()) == message(7, LARGE) + b"\n"


async def test_no_input_at_all_is_an_end() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    assert await collect(nothing) == b"\n"
    os.close(nothing)


if sys.platform != "win32":

    async def test_a_terminal_is_read_and_written() -> None:
        ours, theirs = os.openpty()
        writer = open_writer(theirs, lambda: None)
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        start_reading(theirs, lines.put_nowait, lambda: None)
        os.write(ours, b"typed\n")
        async with asyncio.timeout(HANG):
            assert await lines.get() == b"typed\n"
        writer.put(b"shown\n")
        await writer.close(HANG)
        shown = b""
        while b"shown" not in shown:  # behind the echo of what was typed
            shown += os.read(ours, 100)
        os.close(ours)  # ends the thread that reads
        async with asyncio.timeout(HANG):
            assert await lines.get() == b"\n"
        os.close(theirs)

    async def test_a_pipe_is_left_in_the_mode_it_had() -> None:
        async with over_pipe() as client:
            assert not os.get_blocking(client.written)
            await client.writer.close(0)
            assert os.get_blocking(client.written)


async def test_a_pipe_of_linux_holds_a_large_answer_whole() -> None:
    size = PIPE_BYTES - 1
    async with over_pipe() as client:
        client.writer.put(message(1, size))
        assert client.writer.pending_count == (0 if sys.platform == "linux" else 1)
        assert await client.receive(size + 1) == message(1, size)
