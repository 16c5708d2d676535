"""Requests of the revision without sessions: each stands on its own."""

from typing import Any, cast

from everkept.core.sessions import Session
from everkept.transports.asgi import account_in, address_in
from everkept.transports.connection import JSON, Connection
from everkept.transports.dispatch import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_VERSION,
    Dispatcher,
    ProtocolError,
)
from everkept.transports.http_exchange import Exchange, WhileConnected
from everkept.transports.http_headers import (
    HEADER_MISMATCH,
    VERSION,
    check_envelope,
    check_parameters,
    check_version,
)
from everkept.transports.http_messages import (
    Call,
    ClientAnswer,
    encode_notification,
    make_event,
    parse_message,
)
from everkept.transports.parameter_headers import ParameterHeader, find_declared_headers

MISSING_CAPABILITY = -32021

# The status of an answer by the code of its error.
_STATUS = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    INVALID_PARAMS: 400,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    METHOD_NOT_FOUND: 404,
}


class StatelessEra:
    """Answers requests that carry everything there is to know about their client."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._declared: dict[str, tuple[JSON, tuple[ParameterHeader, ...]]] = {}

    async def answer(self, exchange: Exchange, body: Any) -> None:
        try:
            call = _take_call(exchange, body)
        except ProtocolError as error:
            await exchange.send_document(error.respond(None), 400)
            return
        if call is None:
            await exchange.send_document(b"", 202)
            return
        # A client cancels its request by closing the stream, and then wants no answer.
        with WhileConnected(exchange):
            text, status = await self._respond(exchange, call)
            if exchange.is_stream:
                await exchange.send_events(make_event(text), is_last=True)
            else:
                await exchange.send_document(text, status)

    async def _respond(self, exchange: Exchange, call: Call) -> tuple[bytes, int]:
        async def notify(method: str, params: JSON) -> None:
            await exchange.send_events(make_event(encode_notification(method, params)))

        try:
            check_envelope(exchange.scope, exchange.headers, call.method, call.params)
            self._check_parameters(exchange, call)
            answer = await self._dispatcher.handle(
                Connection(Session(account=account_in(exchange.scope))),
                *call,
                notify=notify,
                announce=_announce_nothing,
                address=address_in(exchange.scope),
            )
            return answer.respond(call.id), 200
        except ProtocolError as error:
            return error.respond(call.id), _STATUS.get(error.code, 200)

    def _check_parameters(self, exchange: Exchange, call: Call) -> None:
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


def _take_call(exchange: Exchange, body: Any) -> Call | None:
    """Return the request in a body, None if it is a notification, which means nothing here."""
    message = parse_message(body)
    if isinstance(message, Call):
        return message
    if isinstance(message, ClientAnswer):
        raise ProtocolError(INVALID_REQUEST, "This revision has no answers of the client.")
    check_version(exchange.headers.get(VERSION, ""))
    return None


async def _announce_nothing(_method: str, _params: JSON) -> None:
    """Only a listening request hears of changes."""
