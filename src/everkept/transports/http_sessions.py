"""Sessions of clients with a handshake: their messages, and streams of events to resume."""

import asyncio
import re
import secrets
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, cast

from everkept.core.mcp import HANDSHAKE_VERSIONS, encode_small
from everkept.core.sessions import Account, Session
from everkept.core.text import format_count
from everkept.transports.connection import JSON, ClientConnection
from everkept.transports.dispatch import INTERNAL_ERROR, INVALID_REQUEST, ProtocolError
from everkept.transports.http_exchange import Headers, Refusal, RequestRejected, build_rate_limited
from everkept.transports.metrics import Metrics
from everkept.transports.rate_limits import SecondsClock


class ClientRequest(NamedTuple):
    """Request of the client."""

    id: str | int
    method: str
    params: JSON


class ClientNotification(NamedTuple):
    """Message of the client without an answer."""

    method: str
    params: JSON


class ClientAnswer(NamedTuple):
    """Answer of the client to a question; None for an error."""

    id: object
    result: JSON | None


Incoming = ClientRequest | ClientNotification | ClientAnswer


def parse_message(message: Any) -> Incoming:
    """Return one message. Raise ProtocolError if it is invalid."""
    if not isinstance(message, dict):
        raise ProtocolError(INVALID_REQUEST, "The body must be a JSON-RPC message.")
    message = cast(JSON, message)
    if message.get("jsonrpc") != "2.0":
        raise ProtocolError(INVALID_REQUEST, '`jsonrpc` must be "2.0".')
    method, request_id = message.get("method"), message.get("id")
    if method is None and ("result" in message or "error" in message):
        result: Any = message.get("result")
        return ClientAnswer(request_id, cast(JSON, result) if isinstance(result, dict) else None)
    if not isinstance(method, str):
        raise ProtocolError(INVALID_REQUEST, "A request needs a `method`.")
    params: Any = message.get("params")
    if not isinstance(params, dict | None):
        raise ProtocolError(INVALID_REQUEST, "`params` must be an object.")
    params = cast(JSON, params or {})
    if "id" not in message:
        return ClientNotification(method, params)
    if isinstance(request_id, bool) or not isinstance(request_id, str | int):
        raise ProtocolError(INVALID_REQUEST, "`id` must be a string or an integer.")
    return ClientRequest(request_id, method, params)


def encode_notification(method: str, params: JSON) -> bytes:
    return encode_small({"jsonrpc": "2.0", "method": method, "params": params})


def encode_event(text: bytes, event_id: bytes = b"") -> bytes:
    """Return a message as an event of a stream. Without an id, it cannot be resumed from."""
    numbered = b"id: %b\r\n" % event_id if event_id else b""
    return b"event: message\r\n%bdata: %b\r\n\r\n" % (numbered, text)


MAX_LOG_BYTES = 16 * 1024 * 1024  # of all sessions together
KEEP_EVENTS_SECONDS = 300.0
EVENT_OVERHEAD_BYTES = 200  # of Python, besides the event itself
RETRY_MILLISECONDS = 1000  # before a client with a broken stream reconnects


class EventLog:
    """Events that may be sent again, limited in size and age over all streams."""

    def __init__(
        self, *, limit: int = MAX_LOG_BYTES, keep: float = KEEP_EVENTS_SECONDS, clock: SecondsClock = time.monotonic
    ) -> None:
        self.size = 0
        self._limit = limit
        self._keep = keep
        self._clock = clock
        self._order: deque[tuple[float, EventStream]] = deque()

    def note(self, stream: "EventStream", size: int) -> None:
        """Count a new event, and drop the oldest ones beyond the limits."""
        self._order.append((self._clock(), stream))
        self.size += size
        self.expire()

    def expire(self) -> None:
        """Drop the events that are too old or too many."""
        oldest = self._clock() - self._keep
        while self._order and (self.size > self._limit or self._order[0][0] < oldest):
            self.size -= self._order.popleft()[1].forget_first()


class EventStream:
    """Numbered events, with at most one reader that sends them to the client."""

    def __init__(self, log: EventLog, number: int, on_forgotten: Callable[[], None]) -> None:
        """`on_forgotten` is called when the stream has ended and has no events left."""
        self.is_ended = False
        self.attached = asyncio.Event()
        self.settled = asyncio.Event()  # while no event waits for the reader
        self.settled.set()
        self._log = log
        self._number = number
        self._on_forgotten = on_forgotten
        self._events: deque[bytes] = deque()
        self._last = 0  # number of the newest event
        self._sent = 0  # number of the newest event that was sent
        self._reader: object | None = None
        self._news = asyncio.Event()

    @property
    def is_forgotten(self) -> bool:
        return self.is_ended and not self._events

    def encode_opening(self) -> bytes:
        """Return an event without data, whose id lets the client resume from here."""
        return b"id: %b\r\nretry: %d\r\ndata:\r\n\r\n" % (self._make_id(self._sent), RETRY_MILLISECONDS)

    def add(self, text: bytes) -> bytes:
        """Return a message as the next event of the stream."""
        self._last += 1
        event = encode_event(text, self._make_id(self._last))
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
        """Return the freed bytes, or 0 if there is no event to drop."""
        if not self._events:
            return 0
        size = len(self._events.popleft()) + EVENT_OVERHEAD_BYTES
        if self.is_forgotten:
            self._on_forgotten()
        return size

    def attach(self, reader: object) -> None:
        """Make `reader` the only one. The earlier reader stops."""
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
        """Return whether every event after this one still exists."""
        return number >= self._last - len(self._events)

    def resume_after(self, number: int) -> None:
        """Send all events after this one again."""
        self._sent = min(number, self._last)

    async def wait_events(self, reader: object) -> bytes:
        """Wait for events to send. Empty bytes mean that `reader` is finished."""
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


IDLE_SECONDS = 8 * 60 * 60.0  # a working day, because not every client can start a new session
MAX_TOKEN_SESSIONS = 100
SWEEP_SECONDS = 60.0
MAX_SESSIONS = 10_000

SESSION_ID_HEADER = "mcp-session-id"
STANDING_STREAM = 0  # number of the stream that a GET opens
OPENING_VERSION = "2025-11-25"  # the first revision whose clients expect an event without data


# One of our ids. A longer number is never one, and is slow to read.
_EVENT_ID = re.compile(r"([0-9]{1,15})-([0-9]{1,15})")


class RunningCall:
    """Request in progress, in the task that answers it."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._is_canceled = False

    def cancel(self) -> None:
        self._is_canceled = True
        self._task.cancel()

    def absorb_cancel(self) -> bool:
        """Let the task continue if the client canceled it. Return whether it did."""
        if self._is_canceled:
            self._task.uncancel()
        return self._is_canceled


class HttpSession:
    """One client from its handshake to the end of its session."""

    def __init__(self, account: Account | None, credential: str | None, log: EventLog) -> None:
        self.id = secrets.token_hex(16)
        self.headers: Headers = ((SESSION_ID_HEADER.encode(), self.id.encode()),)
        self.credential = credential
        self.connection = ClientConnection(Session(account=account))
        self.version = HANDSHAKE_VERSIONS[-1]
        self.running: dict[str | int, RunningCall] = {}
        self.open_requests = 0
        self.idle_since = 0.0
        self.on_close = ExitStack()
        self._log = log
        self._streams: dict[int, EventStream] = {}
        self._last_stream = STANDING_STREAM
        self._questions: dict[int, asyncio.Future[JSON]] = {}
        self._last_question = 0
        self.standing = self._create_stream(STANDING_STREAM)

    @property
    def has_opening_events(self) -> bool:
        """Return whether a stream begins with an event that only has an id."""
        return self.version >= OPENING_VERSION

    def open_stream(self) -> EventStream:
        """Return a stream for the answer to one request."""
        self._last_stream += 1
        return self._create_stream(self._last_stream)

    def resume_stream(self, event_id: str) -> EventStream:
        """Return the stream after the last event that the client received."""
        found = _EVENT_ID.fullmatch(event_id)
        stream = self._streams.get(int(found[1])) if found else None
        if found is None or stream is None or not stream.has_all_after(int(found[2])):
            raise RequestRejected(Refusal(400, "The stream of this Last-Event-ID is no longer kept."))
        stream.resume_after(int(found[2]))
        return stream

    def cancel(self, request_id: object) -> None:
        running = self.running.get(request_id) if isinstance(request_id, str | int) else None
        if running is not None:
            running.cancel()

    async def announce(self, method: str, params: JSON) -> None:
        """Notify on the standing stream, when the client reads it."""
        await self.standing.attached.wait()
        await self.standing.settled.wait()
        self.standing.add(encode_notification(method, params))

    @contextmanager
    def open_question(self) -> Generator[tuple[int, asyncio.Future[JSON]], None, None]:
        """Yield the id of a question to the client, and the future of its answer."""
        self._last_question += 1
        number = self._last_question
        answer: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        try:
            yield number, answer
        finally:
            del self._questions[number]

    def take_answer(self, message: ClientAnswer) -> None:
        """Deliver the client's answer to a question."""
        answer = self._questions.get(message.id) if isinstance(message.id, int) else None
        if answer is None or answer.done():
            return
        if message.result is None:
            answer.set_exception(ProtocolError(INTERNAL_ERROR, "The client did not answer."))
        else:
            answer.set_result(message.result)

    def close(self) -> None:
        self.connection.close()
        for running in list(self.running.values()):
            running.cancel()
        for stream in list(self._streams.values()):
            stream.end()
        self.on_close.close()

    def _create_stream(self, number: int) -> EventStream:
        def forget() -> None:
            self._streams.pop(number, None)

        self._streams[number] = stream = EventStream(self._log, number, forget)
        return stream


class HttpSessions:
    """All open sessions. Only the credential that opened a session finds it."""

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        per_token: int = MAX_TOKEN_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
        log: EventLog | None = None,
        clock: SecondsClock = time.monotonic,
    ) -> None:
        """`per_token` limits the sessions of each token of an account."""
        self._per_token = per_token
        self._idle_seconds = idle_seconds
        self._metrics = metrics
        self._log = EventLog(clock=clock) if log is None else log
        self._clock = clock
        self._open: dict[str, HttpSession] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self, account: Account | None, credential: str | None) -> HttpSession:
        if len(self._open) >= MAX_SESSIONS:
            raise RequestRejected(Refusal(503, "Too many sessions are open.", code=INTERNAL_ERROR))
        if account is not None:
            self._limit_token(credential)
        session = HttpSession(account, credential, self._log)
        session.idle_since = self._clock()
        if self._metrics is not None:
            session.on_close.enter_context(self._metrics.open_session())
        self._open[session.id] = session
        if self._timer is None:
            self._start_timer()
        return session

    def _limit_token(self, credential: str | None) -> None:
        """Close the session of this token that was idle longest, because clients often leave theirs open."""
        sessions = [session for session in self._open.values() if session.credential == credential]
        if len(sessions) < self._per_token:
            return
        idle = [session for session in sessions if not session.open_requests]
        if not idle:
            message = f"This token already has {format_count(len(sessions), 'session')} with requests under way."
            raise RequestRejected(build_rate_limited(message, SWEEP_SECONDS))
        self.close(min(idle, key=lambda session: session.idle_since))

    def find(self, session_id: str, credential: str | None) -> HttpSession:
        session = self._open.get(session_id)
        if session is None or session.credential != credential:
            raise RequestRejected(Refusal(404, "This session does not exist or has expired."))
        return session

    @contextmanager
    def hold(self, session: HttpSession) -> Generator[None, None, None]:
        """Keep the session from expiring."""
        session.open_requests += 1
        try:
            yield
        finally:
            session.open_requests -= 1
            session.idle_since = self._clock()

    def close(self, session: HttpSession) -> None:
        if self._open.pop(session.id, None) is not None:
            session.close()

    def close_all(self) -> None:
        for session in list(self._open.values()):
            self.close(session)
        self._stop_timer()

    @property
    def is_sweeping(self) -> bool:
        """Return whether expired sessions and events are removed regularly."""
        return self._timer is not None

    def sweep(self) -> None:
        """Close idle sessions, and drop old events."""
        oldest = self._clock() - self._idle_seconds
        for session in list(self._open.values()):
            if not session.open_requests and session.idle_since < oldest:
                self.close(session)
        self._log.expire()
        self._stop_timer()
        if self._open or self._log.size:
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self.sweep)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
