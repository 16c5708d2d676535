"""One connection of an HTTP client: strict parsing, deadlines, and an end for clients that stop reading."""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any, Literal, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from everkept.values import Value

MAX_HEAD_BYTES = 64 * 1024  # request line and headers
MIN_READ_BYTES = 16 * 1024  # that a client must take of a waiting answer within the limit
_BLANK_LINE = b"\r\n\r\n"
_BARE_END = re.compile(rb"(?<!\r)\n|\r[^\n]")
_FOLDED_LINE = re.compile(rb"\r\n[ \t]")
_LENGTH_LINE = re.compile(rb"\r\ncontent-length[ \t]*:([^\r]*)", re.IGNORECASE)
_CODING_LINE = re.compile(rb"\r\ntransfer-encoding[ \t]*:", re.IGNORECASE)
_DIGITS = re.compile(rb"[ \t]*[0-9]+[ \t]*")

#: Why a connection was ended by the server.
ClosedReason = Literal["no_request", "slow_headers", "slow_body", "idle", "not_reading", "invalid"]

log = logging.getLogger(__name__)
# uvicorn's warnings about invalid requests: anyone could fill the log with them, and the metrics count them.
uvicorn_log = log.getChild("uvicorn")
uvicorn_log.setLevel(logging.ERROR)


class ConnectionLimits(Value):
    """Limits of the connections to this server. The seconds are of one phase of one connection."""

    connections: int
    per_address: int
    header_seconds: float
    body_seconds: float
    idle_seconds: float
    send_seconds: float


class StrictParser(h11.Connection):
    """Parser that refuses what servers and proxies read in different ways.

    h11 accepts line feeds without a carriage return, folded header lines and `Content-Length: 40, 40`. A proxy in front
    may read these otherwise, and then the two disagree about where a request ends.
    """

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MAX_HEAD_BYTES)
        self.fault = ""
        self._is_chunked = False

    def next_event(self) -> Any:
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
            event = super().next_event()
            if isinstance(event, h11.Request):
                self._is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
            return event
        if not self._is_chunked or self.their_state is not h11.SEND_BODY:
            return super().next_event()
        before = self.trailing_data[0]
        event = super().next_event()
        if isinstance(event, h11.EndOfMessage):
            # An empty line ends the body. h11 also accepts a single line feed, and headers before the line.
            is_clean = before[: len(before) - len(self.trailing_data[0])].endswith(b"\r\n")
            if not is_clean or len(list(event.headers)):
                raise self._refuse("a chunked body ends with anything but an empty line")
        return event

    def _check_head(self, received: bytes) -> None:
        head, end, _ = received.partition(_BLANK_LINE)
        if _BARE_END.search(head + end):
            raise self._refuse("a line of the headers does not end with CR LF")
        if not end:
            return
        if _FOLDED_LINE.search(head):
            raise self._refuse("a header continues on the next line")
        lengths = _LENGTH_LINE.findall(head)
        if len(lengths) > 1 or any(_DIGITS.fullmatch(length) is None for length in lengths):
            raise self._refuse("Content-Length must be one number")
        codings = _CODING_LINE.findall(head)
        if codings and (lengths or b" HTTP/1.0" in head.split(b"\r\n", 1)[0]):
            raise self._refuse("Transfer-Encoding is not allowed with Content-Length or HTTP/1.0")

    def _refuse(self, reason: str) -> h11.RemoteProtocolError:
        self.fault = reason
        return h11.RemoteProtocolError(reason)


class HttpProtocol(H11Protocol):
    """A connection that has a deadline in every phase in which the client has to do something."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        limits: ConnectionLimits,
        watch: "ConnectionWatch",
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.logger = uvicorn_log
        self.conn: Any = StrictParser()
        self._limits = limits
        cast(Any, self).timeout_keep_alive = limits.idle_seconds
        self._watch = watch
        self._phase: ClosedReason | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._enter("no_request")

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_phase()
        self._stop_send_timer()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._watch.on_lost()

    def data_received(self, data: bytes) -> None:
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        self._follow_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._end_soon()
        self._follow_phase()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        self._stop_send_timer()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        self._watch.on_closed("idle")
        self.drop()

    def send_400_response(self, msg: str) -> None:
        self._watch.on_closed("invalid")
        if not self._can_refuse():
            self.drop()
            return
        fault = cast(StrictParser, self.conn).fault
        log.debug("refused an invalid request: %s", fault or msg)
        self._refuse(400, f"{msg} {fault[0].upper()}{fault[1:]}." if fault else msg)

    def end(self) -> bool:
        """End the connection now. Return False if it has not begun."""
        if self.transport is None:  # pyright: ignore[reportUnnecessaryComparison]
            return False
        self.transport.abort()
        return True

    def drop(self) -> None:
        """Close the connection, and end it if the client does not take the rest of its answer."""
        if not self.transport.is_closing():
            self.transport.close()
        self._end_soon()

    def _follow_phase(self) -> None:
        """Set the deadline of the phase that the connection is in now."""
        cycle: Any = self.cycle
        if self.transport.is_closing():
            self._leave_phase()
        elif self.conn.their_state is h11.SEND_BODY:
            self._enter("slow_body")
        elif self.conn.their_state is not h11.IDLE or (cycle is not None and not cycle.response_complete):
            self._leave_phase()
        elif self.conn.trailing_data[0]:
            self._enter("slow_headers")
        elif cycle is not None:
            self._enter("idle")
        is_answering = cycle is not None and not cycle.response_complete
        (self._watch.on_busy if is_answering else self._watch.on_waiting)()

    def _enter(self, phase: ClosedReason) -> None:
        if phase == self._phase:
            return
        # A connection has one deadline from its start to its first complete headers.
        if (self._phase, phase) == ("no_request", "slow_headers"):
            self._phase = phase
            return
        self._leave_phase()
        self._phase = phase
        limits = self._limits
        seconds = {"slow_body": limits.body_seconds, "idle": 0}.get(phase, limits.header_seconds)
        if seconds:  # the timer of idle connections is uvicorn's
            self._deadline = self.loop.call_later(seconds, self._miss_deadline)

    def _leave_phase(self) -> None:
        self._phase = None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _miss_deadline(self) -> None:
        phase = cast(ClosedReason, self._phase)
        self._watch.on_closed(phase)
        if phase == "no_request" or not self._can_refuse():
            self.drop()
        elif phase == "slow_headers":
            self._refuse(408, f"The headers did not arrive within {self._limits.header_seconds:g} seconds.")
        else:
            self._refuse(408, f"The body did not arrive within {self._limits.body_seconds:g} seconds.")

    def _can_refuse(self) -> bool:
        """Return whether no answer has begun. The application then hears that the client left."""
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            return self.conn.their_state is not h11.SEND_BODY
        if cycle.response_started:
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        return True

    def _refuse(self, status: int, message: str) -> None:
        """Answer in plain bytes, because the parser may be unable to, and close the connection."""
        self._leave_phase()
        body = message.encode("ascii", "replace")
        reason = {400: "Bad Request", 408: "Request Timeout"}[status]
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.drop()

    def _start_send_timer(self) -> None:
        self._stop_send_timer()
        self._unsent = self.transport.get_write_buffer_size()
        self._sending = self.loop.call_later(self._limits.send_seconds, self._check_sent)

    def _stop_send_timer(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _check_sent(self) -> None:
        left = self.transport.get_write_buffer_size()
        if left and left > self._unsent - MIN_READ_BYTES:
            self._watch.on_closed("not_reading")
            self.transport.abort()
        elif left:
            self._start_send_timer()

    def _end_soon(self) -> None:
        """End the connection if the client does not take the rest of the answer."""
        if self._sending is None and self.transport.get_write_buffer_size():
            self._start_send_timer()


class ConnectionWatch(Value):
    """View of a connection that the listener needs."""

    on_busy: Callable[[], None]
    on_waiting: Callable[[], None]
    on_lost: Callable[[], None]
    on_closed: Callable[[ClosedReason], None]
