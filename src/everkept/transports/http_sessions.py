"""The sessions of clients that begin with a handshake: found by id, bounded, closed when idle."""

import asyncio
import secrets
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from everkept.core.accounts import Account
from everkept.core.protocol import HANDSHAKE_VERSIONS
from everkept.core.sessions import Session
from everkept.transports.asgi import Headers, Refusal, Rejected
from everkept.transports.connection import JSON, Connection
from everkept.transports.dispatch import INTERNAL_ERROR, ProtocolError
from everkept.transports.http_events import EventLog, EventStream
from everkept.transports.http_messages import ClientAnswer, encode_notification
from everkept.transports.limits import Seconds
from everkept.transports.metrics import Metrics

IDLE_SECONDS = 8 * 60 * 60.0  # not every client can begin again, so a working day
SWEEP_SECONDS = 60.0
MAX_SESSIONS = 10_000

SESSION_ID = "mcp-session-id"
STANDING = 0  # number of the stream that a GET opens
OPENING_VERSION = "2025-11-25"  # the first revision whose clients expect an event without data


class RunningCall:
    """A request under way, in the task that answers it."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self._is_canceled = False

    def cancel(self) -> None:
        self._is_canceled = True
        self._task.cancel()

    def absorb_cancel(self) -> bool:
        """Let the task continue if the client canceled it; return whether it did."""
        if self._is_canceled:
            self._task.uncancel()
        return self._is_canceled


class HttpSession:
    """One client from its handshake to the end of its session."""

    def __init__(self, account: Account | None, credential: str | None, log: EventLog) -> None:
        self.id = secrets.token_hex(16)
        self.headers: Headers = ((SESSION_ID.encode(), self.id.encode()),)
        self.credential = credential
        self.connection = Connection(Session(account=account))
        self.version = HANDSHAKE_VERSIONS[-1]
        self.running: dict[str | int, RunningCall] = {}
        self.open_requests = 0
        self.idle_since = 0.0
        self.on_close = ExitStack()
        self._log = log
        self._streams: dict[int, EventStream] = {}
        self._last_stream = STANDING
        self._questions: dict[int, asyncio.Future[JSON]] = {}
        self._last_question = 0
        self.standing = self._new_stream(STANDING)

    @property
    def has_opening_events(self) -> bool:
        """Return whether a stream begins with an event that only carries an id."""
        return self.version >= OPENING_VERSION

    def open_stream(self) -> EventStream:
        """Return a stream for the answer to one request."""
        self._last_stream += 1
        return self._new_stream(self._last_stream)

    def resume_stream(self, event_id: str) -> EventStream:
        """Return the stream of an event that the client got last, set to what follows it."""
        number, _, event = event_id.partition("-")
        is_ours = number.isdecimal() and event.isdecimal()
        stream = self._streams.get(int(number)) if is_ours else None
        if stream is None or not stream.has_all_after(int(event)):
            raise Rejected(Refusal(400, "The stream of this Last-Event-ID is no longer kept."))
        stream.resume_after(int(event))
        return stream

    def cancel(self, request_id: object) -> None:
        running = self.running.get(request_id) if isinstance(request_id, str | int) else None
        if running is not None:
            running.cancel()

    async def announce(self, method: str, params: JSON) -> None:
        """Notify on the standing stream, as soon as the client reads it."""
        await self.standing.attached.wait()
        await self.standing.settled.wait()
        self.standing.add(encode_notification(method, params))

    @contextmanager
    def open_question(self) -> Generator[tuple[int, asyncio.Future[JSON]], None, None]:
        """Yield the id of a question to the client, and where its answer arrives."""
        self._last_question += 1
        number = self._last_question
        answer: asyncio.Future[JSON] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        try:
            yield number, answer
        finally:
            del self._questions[number]

    def take_answer(self, message: ClientAnswer) -> None:
        """Pass on what the client answered to a question of ours."""
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

    def _new_stream(self, number: int) -> EventStream:
        def forget() -> None:
            self._streams.pop(number, None)

        self._streams[number] = stream = EventStream(self._log, number, forget)
        return stream


class HttpSessions:
    """All open sessions. A session is only found with the credential that opened it."""

    def __init__(
        self,
        metrics: Metrics | None = None,
        *,
        log: EventLog | None = None,
        clock: Seconds = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._log = EventLog(clock=clock) if log is None else log
        self._clock = clock
        self._open: dict[str, HttpSession] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def open(self, account: Account | None, credential: str | None) -> HttpSession:
        if len(self._open) >= MAX_SESSIONS:
            raise Rejected(Refusal(503, "Too many sessions are open.", code=INTERNAL_ERROR))
        session = HttpSession(account, credential, self._log)
        session.idle_since = self._clock()
        if self._metrics is not None:
            session.on_close.enter_context(self._metrics.open_session())
        self._open[session.id] = session
        if self._timer is None:
            self._start_timer()
        return session

    def find(self, session_id: str, credential: str | None) -> HttpSession:
        session = self._open.get(session_id)
        if session is None or session.credential != credential:
            raise Rejected(Refusal(404, "This session does not exist or has expired."))
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
        """Return whether expired sessions and events are looked for from time to time."""
        return self._timer is not None

    def sweep(self) -> None:
        """Close the sessions that were idle too long, and forget the events that are too old."""
        oldest = self._clock() - IDLE_SECONDS
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
