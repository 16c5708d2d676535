import asyncio

from clocks import Clock
from everkept.transports.http_sessions import EVENT_OVERHEAD_BYTES, EventLog, EventStream

KEEP = 60.0


class Streams:
    """A log with little room, and streams that tell when they are forgotten."""

    def __init__(self, events: int) -> None:
        self.clock = Clock()
        self.log = EventLog(limit=events * (EVENT_OVERHEAD_BYTES + 100), keep=KEEP, clock=self.clock)
        self.forgotten: list[int] = []

    def open(self, number: int) -> EventStream:
        return EventStream(self.log, number, lambda: self.forgotten.append(number))


def numbers_in(events: bytes) -> list[str]:
    return [line[4:].decode() for line in events.split(b"\r\n") if line.startswith(b"id: ")]


async def replay(stream: EventStream, after: int = 0) -> list[str]:
    """The ids of everything that a client gets which reconnects now."""
    stream.resume_after(after)
    stream.attach(reader := object())
    stream.end()
    return numbers_in(await stream.wait_events(reader))


async def test_the_log_forgets_the_oldest_events_of_all_streams() -> None:
    streams = Streams(events=10)
    one, two = streams.open(1), streams.open(2)
    for _ in range(1000):
        one.add(b"x" * 60)
        two.add(b"x" * 60)
    assert streams.log.size <= 10 * (EVENT_OVERHEAD_BYTES + 100)
    assert (await replay(one))[-1] == "1-1000"
    assert 4 <= len(await replay(one)) <= 6
    assert 4 <= len(await replay(two)) <= 6


async def test_a_client_can_only_resume_where_nothing_is_missing() -> None:
    streams = Streams(events=3)
    stream = streams.open(1)
    for _ in range(5):
        stream.add(b"x" * 60)
    kept = len(await replay(stream))
    assert [stream.has_all_after(5 - kept - 1), stream.has_all_after(5 - kept)] == [False, True]


async def test_an_event_that_is_larger_than_the_log_is_sent_and_not_kept() -> None:
    streams = Streams(events=1)
    stream = streams.open(1)
    assert b"x" * 10_000 in stream.add(b"x" * 10_000)
    assert streams.log.size == 0


async def test_events_that_are_too_old_are_forgotten_and_their_streams_with_them() -> None:
    streams = Streams(events=10)
    ended, unended = streams.open(1), streams.open(2)
    ended.add(b"x")
    ended.end()
    unended.add(b"x")
    streams.clock.now = KEEP + 1
    streams.log.expire()
    assert streams.log.size == 0
    assert streams.forgotten == [1]
    unended.end()
    assert streams.forgotten == [1, 2]


async def test_a_reader_gets_everything_that_is_kept_after_an_event() -> None:
    streams = Streams(events=10)
    stream = streams.open(7)
    for _ in range(3):
        stream.add(b"x")
    assert await replay(stream, after=1) == ["7-2", "7-3"]
    assert await replay(stream, after=3) == []
    assert await replay(stream, after=99) == []


async def test_a_reader_waits_for_events_until_another_one_comes() -> None:
    stream = Streams(events=10).open(1)
    first, second = object(), object()
    stream.attach(first)
    waiting = asyncio.create_task(stream.wait_events(first))
    await asyncio.sleep(0)
    stream.add(b"x")
    assert numbers_in(await waiting) == ["1-1"]
    waiting = asyncio.create_task(stream.wait_events(first))
    await asyncio.sleep(0)
    stream.attach(second)
    assert await waiting == b""
    stream.detach(first)
    assert stream.attached.is_set()
    stream.detach(second)
    assert not stream.attached.is_set()


async def test_a_stream_is_settled_while_its_reader_has_sent_everything() -> None:
    stream = Streams(events=10).open(1)
    stream.attach(reader := object())
    assert stream.settled.is_set()
    stream.add(b"x")
    assert not stream.settled.is_set()
    await stream.wait_events(reader)
    assert not stream.settled.is_set()  # the reader has it, and may still be sending
    waiting = asyncio.create_task(stream.wait_events(reader))
    await stream.settled.wait()
    stream.end()
    assert await waiting == b""
