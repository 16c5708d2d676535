"""MCP over Streamable HTTP: the official SDK's transport in front of the dispatch table."""

import asyncio
import json
import logging
import socket
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import uvicorn
from mcp import types
from mcp.server.connection import Connection as SdkConnection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import methods
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS

from recollect import __version__
from recollect.core.accounts import Account
from recollect.core.protocol import MESSAGE_LIMIT
from recollect.core.sessions import Session
from recollect.transports.asgi import ASGIApp, Message, account_in, address_in, by_path
from recollect.transports.connection import JSON, Connection, Notify
from recollect.transports.dispatch import (
    INTERNAL_ERROR,
    Ask,
    Dispatcher,
    ProtocolError,
)
from recollect.transports.entrance import Entrance
from recollect.transports.guard import Guard, OpenRequests
from recollect.transports.metrics import Metrics
from recollect.transports.proxies import NOBODY, Proxies
from recollect.transports.signals import on_signals
from recollect.values import Value, field

GRACE = 0.3  # seconds that calls under way get when we are told to stop
IDLE_SESSION = 8 * 60 * 60  # seconds; not every client can begin anew, so a working day
OURS = "recollect"
METRICS_PATH = "/metrics"

Context = ServerRequestContext[Any, Any]

_ANSWERS: dict[str, type[types.Result]] = {
    "sampling/createMessage": types.CreateMessageResult,
    "elicitation/create": types.ElicitResult,
    "roots/list": types.ListRootsResult,
}

log = logging.getLogger(__name__)


class Offer(Value):
    """What the HTTP server does beside the protocol, and how."""

    #: Applications behind the guard, by their paths: each finds the account in its scope.
    routes: Mapping[str, ASGIApp] = field(default_factory=dict[str, ASGIApp])
    #: The same, for everybody: no token is asked for.
    open_routes: Mapping[str, ASGIApp] = field(default_factory=dict[str, ASGIApp])
    #: Where it is counted what happens, if anywhere.
    metrics: Metrics | None = None
    #: With it HTTPS is spoken.
    tls: ssl.SSLContext | None = None
    #: Whose word is taken for where a request came from.
    proxies: Proxies = NOBODY


NOTHING_MORE = Offer()


async def serve_http(
    dispatcher: Dispatcher,
    listening: socket.socket,
    *,
    host: str,
    path: str,
    entrance: Entrance | None,
    on_ready: Callable[[], None],
    offer: Offer = NOTHING_MORE,
) -> None:
    """Serves clients until a signal comes. Without an `entrance` nobody is asked for a token."""
    app = guarded(dispatcher, host, path, entrance, offer)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="on",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the guard knows whose word to take
            timeout_graceful_shutdown=1,
            ssl_context_factory=None if offer.tls is None else _always(offer.tls),
        )
    )
    stop = asyncio.Event()
    on_signals(asyncio.get_running_loop(), stop.set)
    serving = asyncio.create_task(server.serve([listening]), name="http server")
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    server.on_ready = on_ready
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    dispatcher.close()
    server.should_exit = True
    await app.stop(GRACE)
    await serving


def guarded(
    dispatcher: Dispatcher, host: str, path: str, entrance: Entrance | None, offer: Offer
) -> OpenRequests:
    """Everything that is served, behind the guard."""
    metrics = offer.metrics
    routes = {**offer.routes, **offer.open_routes}
    if metrics is not None:
        routes[METRICS_PATH] = metrics.page
    app = by_path(sdk_app(dispatcher, path, metrics), routes)
    count = None if metrics is None else metrics.count_refusal
    guard = Guard(
        app,
        host,
        entrance,
        open_paths=offer.open_routes,
        tell=count,
        proxies=offer.proxies,
    )
    requests = OpenRequests(guard)
    if metrics is not None:
        metrics.open_requests = lambda: len(requests)
    return requests


def _always(context: ssl.SSLContext) -> Callable[[uvicorn.Config, Any], ssl.SSLContext]:
    return lambda _config, _default: context


class _Server(uvicorn.Server):
    """Leaves the signals to us and tells when it is ready."""

    on_ready: Callable[[], None]

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self.on_ready()


def sdk_app(dispatcher: Dispatcher, path: str, metrics: Metrics | None = None) -> ASGIApp:
    """The dispatch table as an ASGI application, open to everybody."""
    server = Server[Any](
        "recollect", version=__version__, get_tool_input_schema=_input_schemas(dispatcher)
    )
    # The SDK's own handlers would check and trim what ours have made; from here every request,
    # the handshake among them, goes to the same table as on stdio.
    server.middleware[:] = [_Projection(dispatcher, metrics)]
    app = server.streamable_http_app(
        streamable_http_path=path,
        max_request_body_size=MESSAGE_LIMIT,
        session_idle_timeout=IDLE_SESSION,
        # The guard in front has looked at Host and Origin.
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    return cast(ASGIApp, app)


class _Projection:
    """Answers the SDK's requests from the dispatch table."""

    def __init__(self, dispatcher: Dispatcher, metrics: Metrics | None) -> None:
        self._dispatcher = dispatcher
        self._metrics = metrics

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        # The context has no public way to its connection, which alone lives as long as the client.
        sdk = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
        scope: Message = cast(Any, ctx.request).scope
        try:
            answer = await self._dispatcher.handle(
                self._connection(ctx, sdk, account_in(scope)),
                ctx.request_id,
                ctx.method,
                dict(ctx.params or {}),
                notify=_notify(ctx),
                announce=sdk.notify,
                ask=_ask(ctx),
                address=address_in(scope),
            )
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from error
        result = answer.as_json()
        if self._dispatcher.app.gateway is not None and ctx.method == "tools/call":
            _check_writable(result)
        return result

    def _connection(self, ctx: Context, sdk: SdkConnection, account: Account | None) -> Connection:
        """Ours for this client; in the stateless era there is a new one for each request."""
        if OURS not in sdk.state:
            sdk.state[OURS] = connection = Connection(Session(account=account))
            sdk.exit_stack.callback(connection.close)
            if self._metrics is not None and ctx.protocol_version in HANDSHAKE_PROTOCOL_VERSIONS:
                sdk.exit_stack.enter_context(self._metrics.open_session())
        return sdk.state[OURS]


def _check_writable(result: JSON) -> None:
    """Another server's answer may hold what the SDK cannot write; then no word would be sent."""
    try:
        json.dumps(result, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError as error:
        raise MCPError(INTERNAL_ERROR, "The answer cannot be written.") from error


def _notify(ctx: Context) -> Notify:
    async def notify(method: str, params: JSON) -> None:
        notification = types.Notification[JSON, str](method=method, params=params)
        await ctx.session.send_notification(
            cast(types.ServerNotification, notification), ctx.request_id
        )

    return notify


def _ask(ctx: Context) -> Ask | None:
    if ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        return None

    async def ask(method: str, params: JSON) -> JSON:
        request = methods.parse_server_request(method, ctx.protocol_version, params)
        answer = await ctx.session.send_request(
            cast(types.ServerRequest, request),
            _ANSWERS[method],
            metadata=ServerMessageMetadata(related_request_id=ctx.request_id),
        )
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    return ask


def _input_schemas(dispatcher: Dispatcher) -> Callable[[str], JSON | None]:
    def find(name: str) -> JSON | None:
        tools = dispatcher.tools
        return tools.get(name).input_schema if name in tools else None

    return find
