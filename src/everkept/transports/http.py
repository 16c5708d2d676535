"""The HTTP server: its certificate, the protocol's endpoint, and what is served beside it."""

import asyncio
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from everkept.core.mcp import HANDSHAKE_VERSIONS
from everkept.errors import InvalidInput
from everkept.transports.connection import on_signals
from everkept.transports.dispatch import Dispatcher
from everkept.transports.guard import NOBODY, Entrance, Guard, OpenRequests, Proxies
from everkept.transports.http_exchange import (
    PING_SECONDS,
    VERSION,
    ASGIApp,
    Exchange,
    Message,
    Receive,
    Refusal,
    Rejected,
    Send,
    by_path,
    refuse,
)
from everkept.transports.http_requests import HandshakeEra, StatelessEra
from everkept.transports.http_sessions import HttpSessions
from everkept.transports.metrics import Metrics
from everkept.values import Value, field

# In the line before each, of whatever kind it is.
A_CERTIFICATE, A_KEY = b"CERTIFICATE-----", b"PRIVATE KEY-----"
ANOTHERS = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
OTHERS = 0o077  # what group and others may do

Stamp = tuple[tuple[int, int, int], ...]

log = logging.getLogger(__name__)


def server_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Speaks TLS with that certificate; without a `key` the file of the certificate holds it too.

    A file that was changed counts from the next connection on. While it cannot be used, the
    certificate before it does.
    """
    key = key or certificate
    for path, flag in ((certificate, "--certificate"), (key, "--certificate-key")):
        if not path.is_file():
            raise _wrong(flag, path, "which is no file")
    renewing = _Renewing(certificate, key)
    context = renewing.context
    context.sni_callback = renewing.choose
    return context


def key_warning(certificate: Path, key: Path | None) -> str | None:
    """What is not safe about the key, as far as the files can tell."""
    path = key or certificate
    if os.name != "posix" or not stat.S_IMODE(path.stat().st_mode) & OTHERS:
        return None
    return f"Other users of this machine may read the key {path}: chmod 600 {path}"


class _Renewing:
    """Looks at the files when a connection begins: two calls of the system."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._stamp = self._stamped()
        self.context = _loaded(certificate, key)

    def choose(
        self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext
    ) -> None:
        try:
            self._renew()
        except (OSError, InvalidInput) as error:
            log.warning("the renewed certificate is not used: %s", error)
        connection.context = self.context

    def _renew(self) -> None:
        stamp = self._stamped()
        if stamp != self._stamp:
            self._stamp = stamp  # one that cannot be used is told of once
            self.context = _loaded(self._certificate, self._key)

    def _stamped(self) -> Stamp:
        found = [path.stat() for path in (self._certificate, self._key)]
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)


def _loaded(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    asked: list[str] = []

    def no_password() -> str:
        asked.append("")
        return asked[-1]

    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as error:  # which ssl's own errors are too
        if asked:
            wrong = _wrong("--certificate-key", key, "which has a password; one without it works")
        elif not _holds(certificate, A_CERTIFICATE):
            wrong = _wrong("--certificate", certificate, "which holds no certificate")
        elif key == certificate and not _holds(key, A_KEY):
            what = "which holds no key; --certificate-key names the file that does"
            wrong = _wrong("--certificate", certificate, what)
        elif not _holds(key, A_KEY):
            wrong = _wrong("--certificate-key", key, "which holds no key")
        elif getattr(error, "reason", None) in ANOTHERS:
            wrong = _wrong("--certificate-key", key, f"which is not the key of {certificate}")
        else:
            what = f"which with its key cannot be used ({error.strerror or error})"
            wrong = _wrong("--certificate", certificate, what)
        raise wrong from error
    return context


def _holds(path: Path, what: bytes) -> bool:
    try:
        return what in path.read_bytes()
    except OSError:  # which is another matter
        return True


def _wrong(flag: str, path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{flag} names {path}, {what}.",
        hint="Both are files in PEM: the certificate with those it rests on, and its private key.",
        argument=flag,
        value=str(path),
    )


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
