"""Streams of events in sessions, and the log from which a client resumes a broken one."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from everkept.transports.http_messages import make_event
from everkept.transports.limits import Seconds

MAX_LOG_BYTES = 16 * 1024 * 1024  # of all sessions together
KEEP_SECONDS = 300.0
EVENT_OVERHEAD_BYTES = 200  # of Python, beside the event itself
RETRY_MILLISECONDS = 1000  # after which a client whose stream broke reconnects


class EventLog:
    """The events that may be sent again, bounded in size and age over all streams."""

    def __init__(
        self,
        *,
        limit: int = MAX_LOG_BYTES,
        keep: float = KEEP_SECONDS,
        clock: Seconds = time.monotonic,
    ) -> None:
        self.size = 0
        self._limit = limit
        self._keep = keep
        self._clock = clock
        self._order: deque[tuple[float, EventStream]] = deque()

    def note(self, stream: "EventStream", size: int) -> None:
        """Count an event that a stream has added, and forget the oldest ones beyond the limits."""
        self._order.append((self._clock(), stream))
        self.size += size
        self.expire()

    def expire(self) -> None:
        """Forget the events that are too old or too many."""
        oldest = self._clock() - self._keep
        while self._order and (self.size > self._limit or self._order[0][0] < oldest):
            self.size -= self._order.popleft()[1].forget_first()


class EventStream:
    """Numbered events, and at most one reader that sends them to the client."""

    def __init__(self, log: EventLog, number: int, on_forgotten: Callable[[], None]) -> None:
        """`on_forgotten` is called when the stream has ended and no event of it is left."""
        self.is_ended = False
        self.attached = asyncio.Event()
        self.settled = asyncio.Event()  # while no event waits for the reader
        self.settled.set()
        self._log = log
        self._number = number
        self._on_forgotten = on_forgotten
        self._events: deque[bytes] = deque()
        self._last = 0  # number of the newest event
        self._sent = 0  # number of the newest event that a reader has sent
        self._reader: object | None = None
        self._news = asyncio.Event()

    @property
    def is_forgotten(self) -> bool:
        return self.is_ended and not self._events

    def make_opening(self) -> bytes:
        """Return an event without data, whose id lets the client resume from here."""
        return b"id: %b\r\nretry: %d\r\ndata:\r\n\r\n" % (
            self._make_id(self._sent),
            RETRY_MILLISECONDS,
        )

    def add(self, text: bytes) -> bytes:
        """Return a message as the next event of the stream."""
        self._last += 1
        event = make_event(text, self._make_id(self._last))
        self._events.append(event)
        self.settled.clear()
        self._news.set()
        self._log.note(self, len(event) + EVENT_OVERHEAD_BYTES)
        return event

    def end(self) -> None:
        self.is_ended = True
        self._news.set()
        if self.is_forgotten:
            self._on_forgotten()

    def forget_first(self) -> int:
        """Return the bytes that are free now, 0 if there is no event to forget."""
        if not self._events:
            return 0
        size = len(self._events.popleft()) + EVENT_OVERHEAD_BYTES
        if self.is_forgotten:
            self._on_forgotten()
        return size

    def attach(self, reader: object) -> None:
        """Make `reader` the only one; the reader before it stops."""
        self._reader = reader
        self.attached.set()
        self._news.set()

    def detach(self, reader: object) -> None:
        if self._reader is reader:
            self._reader = None
            self.attached.clear()

    def is_read_by(self, reader: object) -> bool:
        return self._reader is reader

    def has_all_after(self, number: int) -> bool:
        """Return whether every event after this one is still kept."""
        return number >= self._last - len(self._events)

    def resume_after(self, number: int) -> None:
        """Send again everything after this event."""
        self._sent = min(number, self._last)

    async def next_events(self, reader: object) -> bytes:
        """Wait for events to send; empty bytes mean that `reader` has nothing more to do."""
        while self._reader is reader:
            first = self._last - len(self._events)  # the number before the oldest event
            waiting = list(self._events)[max(0, self._sent - first) :]
            self._sent = self._last
            if waiting:
                return b"".join(waiting)
            self.settled.set()
            if self.is_ended:
                break
            self._news.clear()
            await self._news.wait()
        return b""

    def _make_id(self, event: int) -> bytes:
        return b"%d-%d" % (self._number, event)
