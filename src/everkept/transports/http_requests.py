"""Requests of both eras of the protocol: stateless ones, and those with a session."""

import asyncio
from typing import Any, cast

from everkept.core.mcp import HANDSHAKE_VERSIONS, encode_small
from everkept.core.parameter_headers import ParameterHeader, find_declared_headers
from everkept.core.sessions import Account, Session
from everkept.core.text import format_count
from everkept.errors import QuotaExceeded
from everkept.transports.connection import JSON, ClientConnection
from everkept.transports.dispatch import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Dispatcher,
    ProtocolError,
    RequestResult,
    build_failure,
    is_stateless,
)
from everkept.transports.http_exchange import (
    EVENT_STREAM,
    HEADER_MISMATCH,
    PING_EVENT,
    VERSION_HEADER,
    DisconnectWatch,
    Exchange,
    KeepAlive,
    Refusal,
    RequestRejected,
    check_accept,
    check_envelope,
    check_parameters,
    check_version,
    get_account,
    get_client_address,
    get_credential,
)
from everkept.transports.http_sessions import (
    SESSION_ID_HEADER,
    ClientAnswer,
    ClientNotification,
    ClientRequest,
    EventStream,
    HttpSession,
    HttpSessions,
    Incoming,
    RunningCall,
    encode_event,
    encode_notification,
    parse_message,
)

MAX_ANSWER_BYTES = 16 * 1024 * 1024  # of one answer to an account
MISSING_CAPABILITY = -32021

# HTTP status by error code.
_HTTP_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


def encode_answer(answer: RequestResult, call: ClientRequest, account: Account | None, limit: int) -> bytes:
    """Return the JSON-RPC message. An account gets an error instead of an answer that is too large."""
    text = answer.respond(call.id)
    if account is None or len(text) <= limit:
        return text
    error = build_size_error(limit)
    if call.method == "tools/call":
        return RequestResult(build_failure(error, account)).respond(call.id)
    return ProtocolError(INVALID_PARAMS, str(error), error.to_envelope()).respond(call.id)


def build_size_error(limit: int) -> QuotaExceeded:
    return QuotaExceeded(
        f"The answer is larger than {format_count(limit, 'byte')}, the limit for accounts. "
        "What the call changed is stored.",
        hint="Request less, for example with a smaller `limit`, or ask the owner for a larger quota_answer_bytes.",
        quota="quota_answer_bytes",
        limit=limit,
    )


class StatelessEra:
    """Answers requests that carry all data about their client."""

    def __init__(self, dispatcher: Dispatcher, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._dispatcher = dispatcher
        self._max_answer_bytes = max_answer_bytes
        self._declared: dict[str, tuple[JSON, tuple[ParameterHeader, ...]]] = {}

    async def answer(self, exchange: Exchange, body: Any) -> None:
        try:
            call = _parse_call(exchange, body)
        except ProtocolError as error:
            await exchange.send_document(error.respond(None), 400)
            return
        if call is None:
            await exchange.send_document(b"", 202)
            return
        # A client cancels its request by closing the stream, and then expects no answer.
        with DisconnectWatch(exchange):
            text, status = await self._respond(exchange, call)
            if exchange.is_stream:
                await exchange.send_events(encode_event(text), is_last=True)
            else:
                await exchange.send_document(text, status)

    async def _respond(self, exchange: Exchange, call: ClientRequest) -> tuple[bytes, int]:
        async def notify(method: str, params: JSON) -> None:
            await exchange.send_events(encode_event(encode_notification(method, params)))

        try:
            check_envelope(exchange.scope, exchange.headers, call.method, call.params)
            self._check_parameters(exchange, call)
            answer = await self._dispatcher.handle(
                ClientConnection(Session(account=get_account(exchange.scope))),
                *call,
                notify=notify,
                announce=_announce_nothing,
                address=get_client_address(exchange.scope),
            )
            return encode_answer(answer, call, get_account(exchange.scope), self._max_answer_bytes), 200
        except ProtocolError as error:
            return error.respond(call.id), _HTTP_STATUS.get(error.code, 200)

    def _check_parameters(self, exchange: Exchange, call: ClientRequest) -> None:
        name, arguments = call.params.get("name"), call.params.get("arguments")
        tools = self._dispatcher.tools
        if call.method != "tools/call" or not isinstance(name, str) or name not in tools:
            return
        schema = tools.get(name).input_schema
        known = self._declared.get(name)
        if known is None or known[0] is not schema:
            known = self._declared[name] = (schema, find_declared_headers(schema))
        if known[1] and isinstance(arguments, dict | None):
            given = cast(JSON, arguments or {})
            check_parameters(exchange.scope, exchange.headers, known[1], given)


def _parse_call(exchange: Exchange, body: Any) -> ClientRequest | None:
    """Return the request in a body, or None for a notification, which has no effect here."""
    message = parse_message(body)
    if isinstance(message, ClientRequest):
        return message
    if isinstance(message, ClientAnswer):
        raise ProtocolError(INVALID_REQUEST, "Clients cannot send answers in this revision.")
    check_version(exchange.headers.get(VERSION_HEADER, ""))
    return None


async def _announce_nothing(_method: str, _params: JSON) -> None:
    """Announce nothing. Only a listening request hears of changes."""


REQUEST_CANCELED = -32800
BATCH_VERSION = "2025-03-26"  # the only revision with batches
LAST_EVENT_ID_HEADER = "last-event-id"


class HandshakeEra:
    """Answers requests within sessions, which begin with a handshake."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        sessions: HttpSessions,
        stateless: StatelessEra,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._dispatcher = dispatcher
        self._max_answer_bytes = max_answer_bytes
        self._sessions = sessions
        self._stateless = stateless

    async def post(self, exchange: Exchange) -> None:
        session = self._find_session(exchange) if SESSION_ID_HEADER in exchange.headers else None
        body = await exchange.read_json()
        if isinstance(body, list):
            session = session or self._find_session(exchange)
            with self._sessions.hold(session):
                await self._answer_batch(session, exchange, cast(list[Any], body))
            return
        try:
            message = parse_message(body)
        except ProtocolError as error:
            raise RequestRejected(Refusal(400, error.message, code=error.code)) from error
        if session is not None:
            with self._sessions.hold(session):
                await self._answer(session, exchange, message)
        elif isinstance(message, ClientRequest) and message.method == "initialize":
            await self._begin(exchange, message)
        elif isinstance(message, ClientRequest) and is_stateless(message.params):
            await self._stateless.answer(exchange, body)  # which rejects the missing header
        else:
            self._find_session(exchange)

    async def get(self, exchange: Exchange) -> None:
        """Send messages outside of requests, or the rest of a broken stream."""
        check_accept(exchange.headers, EVENT_STREAM)
        session = self._find_session(exchange)
        event_id = exchange.headers.get(LAST_EVENT_ID_HEADER)
        if event_id is not None:
            stream = session.resume_stream(event_id)
        elif session.standing.attached.is_set():
            raise RequestRejected(Refusal(409, "This session already has an open stream."))
        else:
            stream = session.standing
        stream.attach(exchange)
        try:
            with self._sessions.hold(session), DisconnectWatch(exchange):
                opening = stream.encode_opening() if session.has_opening_events else b""
                await exchange.send_events(opening)
                while events := await stream.wait_events(exchange):
                    await exchange.send_events(events)
                await exchange.send_events(b"", is_last=True)
        finally:
            stream.detach(exchange)

    async def delete(self, exchange: Exchange) -> None:
        self._sessions.close(self._find_session(exchange))
        await exchange.send_document(b"")

    def _find_session(self, exchange: Exchange) -> HttpSession:
        session_id = exchange.headers.get(SESSION_ID_HEADER)
        if session_id is None:
            raise RequestRejected(Refusal(400, "The header Mcp-Session-Id is missing."))
        session = self._sessions.find(session_id, get_credential(exchange.scope))
        exchange.answer_headers = session.headers
        return session

    async def _begin(self, exchange: Exchange, call: ClientRequest) -> None:
        scope = exchange.scope
        session = self._sessions.open(get_account(scope), get_credential(scope))
        asked = call.params.get("protocolVersion")
        session.version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        is_open = False
        try:
            with self._sessions.hold(session):
                answer = SessionAnswer(self._dispatcher, session, exchange, self._max_answer_bytes)
                text, is_open = await answer.respond(call)
                if is_open:
                    exchange.answer_headers = session.headers
                await answer.finish([text])
        finally:
            if not is_open:
                self._sessions.close(session)

    async def _answer(self, session: HttpSession, exchange: Exchange, message: Incoming) -> None:
        if not isinstance(message, ClientRequest):
            _accept_message(session, message)
            await exchange.send_document(b"", 202)
            return
        answer = SessionAnswer(self._dispatcher, session, exchange, self._max_answer_bytes)
        # These revisions let a request continue when its client disconnects.
        with KeepAlive(exchange, answer.ping):
            text, _ = await answer.respond(message)
        await answer.finish([text])

    async def _answer_batch(self, session: HttpSession, exchange: Exchange, members: list[Any]) -> None:
        version = exchange.headers.get(VERSION_HEADER, session.version)
        if version != BATCH_VERSION:
            raise RequestRejected(Refusal(400, f"Revision {version} has no batches."))
        if not members:
            raise RequestRejected(Refusal(400, "The batch is empty."))
        answer = SessionAnswer(self._dispatcher, session, exchange, self._max_answer_bytes)
        texts: list[bytes] = []
        with KeepAlive(exchange, answer.ping):
            for member in members:
                try:
                    message = parse_message(member)
                except ProtocolError as error:
                    texts.append(error.respond(None))
                    continue
                if not isinstance(message, ClientRequest):
                    _accept_message(session, message)
                elif message.method == "initialize":
                    error = ProtocolError(INVALID_REQUEST, "A batch cannot hold `initialize`.")
                    texts.append(error.respond(message.id))
                else:
                    text, _ = await answer.respond(message)
                    texts.append(text)
        if texts:
            await answer.finish(texts, is_batch=True)
        else:
            await exchange.send_document(b"", 202)


class SessionAnswer:
    """Answer to one POST in a session. Once it is a stream, the client can resume it."""

    def __init__(self, dispatcher: Dispatcher, session: HttpSession, exchange: Exchange, max_answer_bytes: int) -> None:
        self._dispatcher = dispatcher
        self._max_answer_bytes = max_answer_bytes
        self._session = session
        self._exchange = exchange
        self._stream: EventStream | None = None

    async def respond(self, call: ClientRequest) -> tuple[bytes, bool]:
        """Return the answer to a request, and whether it is a result."""
        session = self._session
        running = RunningCall(cast("asyncio.Task[Any]", asyncio.current_task()))
        session.running[call.id] = running
        try:
            answer = await self._dispatcher.handle(
                session.connection,
                *call,
                notify=self._notify,
                announce=session.announce,
                ask=self._ask,
                address=get_client_address(self._exchange.scope),
            )
            account = session.connection.session.account
            return encode_answer(answer, call, account, self._max_answer_bytes), True
        except ProtocolError as error:
            return error.respond(call.id), False
        except asyncio.CancelledError:
            if not running.absorb_cancel():
                raise
            # These revisions end every request with an answer, even a canceled one.
            return ProtocolError(REQUEST_CANCELED, "Request cancelled").respond(call.id), False
        finally:
            if session.running.get(call.id) is running:
                del session.running[call.id]

    async def finish(self, texts: list[bytes], *, is_batch: bool = False) -> None:
        if self._stream is None:
            await self._exchange.send_document(b"[%b]" % b",".join(texts) if is_batch else texts[0])
            return
        events = b"".join(map(self._stream.add, texts))
        self._stream.end()
        await self._exchange.send_events(events if self._stream.is_read_by(self._exchange) else b"", is_last=True)
        self._stream.detach(self._exchange)

    async def ping(self) -> None:
        stream, opening = self._begin()
        if stream.is_read_by(self._exchange):
            await self._exchange.send_events(opening + PING_EVENT)

    async def _notify(self, method: str, params: JSON) -> None:
        await self._emit(encode_notification(method, params))

    async def _ask(self, method: str, params: JSON) -> JSON:
        with self._session.open_question() as (number, answered):
            question = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            await self._emit(encode_small(question))
            return await answered

    async def _emit(self, text: bytes) -> None:
        stream, opening = self._begin()
        event = stream.add(text)
        if stream.is_read_by(self._exchange):  # otherwise the client reads the rest elsewhere
            await self._exchange.send_events(opening + event)

    def _begin(self) -> tuple[EventStream, bytes]:
        """Return the stream and, if it is new, its first event."""
        if self._stream is not None:
            return self._stream, b""
        self._stream = self._session.open_stream()
        self._stream.attach(self._exchange)
        has_opening = self._session.has_opening_events
        return self._stream, self._stream.encode_opening() if has_opening else b""


def _accept_message(session: HttpSession, message: ClientNotification | ClientAnswer) -> None:
    if isinstance(message, ClientAnswer):
        session.take_answer(message)
    elif message.method == "notifications/cancelled":
        session.cancel(message.params.get("requestId"))
