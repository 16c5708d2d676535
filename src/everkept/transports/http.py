"""The HTTP server: the protocol's endpoint and what is served beside it, behind the guard."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import uvicorn

from everkept.transports.asgi import ASGIApp, by_path
from everkept.transports.dispatch import Dispatcher
from everkept.transports.entrance import Entrance
from everkept.transports.guard import Guard, OpenRequests
from everkept.transports.http_endpoint import Endpoint
from everkept.transports.metrics import Metrics
from everkept.transports.proxies import NOBODY, Proxies
from everkept.transports.signals import on_signals
from everkept.values import Value, field

GRACE = 0.3  # seconds that calls under way get when we are told to stop
METRICS_PATH = "/metrics"


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
    endpoint = Endpoint(dispatcher, path, offer.metrics)
    app = guarded(endpoint, host, entrance, offer)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
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
    endpoint.close()


def guarded(endpoint: ASGIApp, host: str, entrance: Entrance | None, offer: Offer) -> OpenRequests:
    """Everything that is served, behind the guard."""
    metrics = offer.metrics
    routes = {**offer.routes, **offer.open_routes}
    if metrics is not None:
        routes[METRICS_PATH] = metrics.page
    app = by_path(endpoint, routes)
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
