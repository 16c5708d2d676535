"""The protocol over Streamable HTTP: one path for the revisions with sessions and without."""

from everkept.core.protocol import HANDSHAKE_VERSIONS
from everkept.transports.asgi import Message, Receive, Refusal, Rejected, Send, refuse
from everkept.transports.dispatch import Dispatcher
from everkept.transports.http_exchange import PING_SECONDS, Exchange
from everkept.transports.http_handshake_era import HandshakeEra
from everkept.transports.http_headers import VERSION
from everkept.transports.http_sessions import HttpSessions
from everkept.transports.http_stateless_era import StatelessEra
from everkept.transports.metrics import Metrics


class Endpoint:
    """The dispatch table as an ASGI application on one path, open to everyone."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        path: str,
        metrics: Metrics | None = None,
        *,
        sessions: HttpSessions | None = None,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self._paths = (path, path + "/")
        self._ping_seconds = ping_seconds
        self.sessions = HttpSessions(metrics) if sessions is None else sessions
        self._stateless = StatelessEra(dispatcher)
        self._handshake = HandshakeEra(dispatcher, self.sessions, self._stateless)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._ping_seconds)
        try:
            await self._serve(exchange, scope["method"])
        except Rejected as error:
            await refuse(send, error.refusal)

    def close(self) -> None:
        """End all sessions."""
        self.sessions.close_all()

    async def _serve(self, exchange: Exchange, method: str) -> None:
        if exchange.scope["path"] not in self._paths:
            raise Rejected(Refusal(404, "There is nothing at this path."))
        version = exchange.headers.get(VERSION)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            if method != "POST":
                raise _reject_method(method, "POST")
            await self._stateless.answer(exchange, await exchange.read_json())
        elif method == "POST":
            await self._handshake.post(exchange)
        elif method == "GET":
            await self._handshake.get(exchange)
        elif method == "DELETE":
            await self._handshake.delete(exchange)
        else:
            raise _reject_method(method, "GET, POST, DELETE")


def _reject_method(method: str, allowed: str) -> Rejected:
    return Rejected(Refusal(405, f"{method} does nothing here.", ((b"allow", allowed.encode()),)))
