"""HTTP server: its certificate, the protocol's endpoint, and the other routes."""

import asyncio
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from everkept.core.mcp import HANDSHAKE_VERSIONS
from everkept.errors import InvalidInput
from everkept.transports.connection import install_signal_handlers
from everkept.transports.dispatch import Dispatcher
from everkept.transports.guard import Guard, OpenRequests, TokenAuth
from everkept.transports.http_exchange import (
    PING_SECONDS,
    VERSION_HEADER,
    ASGIApp,
    Exchange,
    Message,
    Receive,
    Refusal,
    RequestRejected,
    Send,
    route_by_path,
    send_refusal,
)
from everkept.transports.http_listener import ConnectionCounts, HttpListener, derive_connections, derive_per_address
from everkept.transports.http_protocol import ConnectionLimits, HttpProtocol
from everkept.transports.http_requests import MAX_ANSWER_BYTES, HandshakeEra, StatelessEra
from everkept.transports.http_sessions import IDLE_SECONDS, MAX_TOKEN_SESSIONS, HttpSessions
from everkept.transports.metrics import Metrics
from everkept.transports.trusted_proxies import NO_PROXIES, TrustedProxies
from everkept.values import Value, field

# Matches the line before each key, of any kind.
CERTIFICATE_MARKER, KEY_MARKER = b"CERTIFICATE-----", b"PRIVATE KEY-----"
KEY_MISMATCH_REASONS = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
OTHERS_MODE_BITS = 0o077  # rights of group and others

FileStamps = tuple[tuple[int, int, int], ...]

log = logging.getLogger(__name__)


def build_tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return a TLS context for the certificate. Without a `key`, the certificate file contains it.

    Changed files apply from the next connection on. While they are invalid, the earlier certificate applies.
    """
    key = key or certificate
    for path, flag in ((certificate, "--certificate"), (key, "--certificate-key")):
        if not path.is_file():
            raise _build_file_error(flag, path, "which is not a file")
    renewing = _CertificateReloader(certificate, key)
    context = renewing.context
    context.sni_callback = renewing.select_context
    return context


def find_key_warning(certificate: Path, key: Path | None) -> str | None:
    """Return a warning if the key file is not safe."""
    path = key or certificate
    if os.name != "posix" or not stat.S_IMODE(path.stat().st_mode) & OTHERS_MODE_BITS:
        return None
    return f"Other users of this machine can read the key {path}: chmod 600 {path}"


class _CertificateReloader:
    """Checks the files when a connection begins, with two system calls."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._stamp = self._read_stamps()
        self.context = _load_context(certificate, key)

    def select_context(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        try:
            self._reload_if_changed()
        except (OSError, InvalidInput) as error:
            log.warning("the renewed certificate is not used: %s", error)
        connection.context = self.context

    def _reload_if_changed(self) -> None:
        stamp = self._read_stamps()
        if stamp != self._stamp:
            self._stamp = stamp  # warn once about an invalid one
            self.context = _load_context(self._certificate, self._key)

    def _read_stamps(self) -> FileStamps:
        found = [path.stat() for path in (self._certificate, self._key)]
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)


def _load_context(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    asked: list[str] = []

    def no_password() -> str:
        asked.append("")
        return asked[-1]

    try:
        context.load_cert_chain(certificate, key, no_password)
    except OSError as error:  # including errors of ssl
        if asked:
            wrong = _build_file_error("--certificate-key", key, "which has a password. Use a key without one")
        elif not _contains_marker(certificate, CERTIFICATE_MARKER):
            wrong = _build_file_error("--certificate", certificate, "which does not contain a certificate")
        elif key == certificate and not _contains_marker(key, KEY_MARKER):
            what = "which does not contain a key. Pass its file with --certificate-key"
            wrong = _build_file_error("--certificate", certificate, what)
        elif not _contains_marker(key, KEY_MARKER):
            wrong = _build_file_error("--certificate-key", key, "which does not contain a key")
        elif getattr(error, "reason", None) in KEY_MISMATCH_REASONS:
            wrong = _build_file_error("--certificate-key", key, f"which is not the key of {certificate}")
        else:
            what = f"which cannot be used with its key ({error.strerror or error})"
            wrong = _build_file_error("--certificate", certificate, what)
        raise wrong from error
    return context


def _contains_marker(path: Path, what: bytes) -> bool:
    try:
        return what in path.read_bytes()
    except OSError:  # reported elsewhere
        return True


def _build_file_error(flag: str, path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{flag} names {path}, {what}.",
        hint="Use PEM files: the certificate with its chain, and its private key.",
        argument=flag,
        value=str(path),
    )


class McpEndpoint:
    """The dispatch table as an ASGI application on one path, without access checks."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        path: str,
        metrics: Metrics | None = None,
        *,
        sessions: HttpSessions | None = None,
        ping_seconds: float = PING_SECONDS,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._paths = (path, path + "/")
        self._ping_seconds = ping_seconds
        self.sessions = HttpSessions(metrics) if sessions is None else sessions
        self._stateless = StatelessEra(dispatcher, max_answer_bytes)
        self._handshake = HandshakeEra(dispatcher, self.sessions, self._stateless, max_answer_bytes)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        exchange = Exchange(scope, receive, send, self._ping_seconds)
        try:
            await self._serve(exchange, scope["method"])
        except RequestRejected as error:
            await send_refusal(send, error.refusal)

    def close(self) -> None:
        """End all sessions."""
        self.sessions.close_all()

    async def _serve(self, exchange: Exchange, method: str) -> None:
        if exchange.scope["path"] not in self._paths:
            raise RequestRejected(Refusal(404, "There is nothing at this path."))
        version = exchange.headers.get(VERSION_HEADER)
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


def _reject_method(method: str, allowed: str) -> RequestRejected:
    return RequestRejected(Refusal(405, f"{method} does nothing here.", ((b"allow", allowed.encode()),)))


GRACE_SECONDS = 0.3  # for calls in progress after a signal
METRICS_PATH = "/metrics"


class RequestQuotas(Value):
    """Limits of an account: concurrent use, and the size of one answer."""

    sessions: int = MAX_TOKEN_SESSIONS
    session_seconds: float = IDLE_SECONDS
    calls: int = 100
    answer_bytes: int = MAX_ANSWER_BYTES


class HttpOptions(Value):
    """Options of the HTTP server beyond the protocol."""

    #: Applications behind the guard, by path. The scope has the account.
    routes: Mapping[str, ASGIApp] = field(default_factory=dict[str, ASGIApp])
    #: Applications that need no token, by path.
    open_routes: Mapping[str, ASGIApp] = field(default_factory=dict[str, ASGIApp])
    #: Counters, if enabled.
    metrics: Metrics | None = None
    #: Turns HTTPS on.
    tls: ssl.SSLContext | None = None
    #: Proxies whose forwarded addresses are trusted.
    proxies: TrustedProxies = NO_PROXIES

    #: Limits of connections, and their deadlines.
    limits: ConnectionLimits = field(default_factory=lambda: build_limits())
    #: Limits of each account.
    quotas: RequestQuotas = field(default_factory=RequestQuotas)


def build_limits(
    connections: int = 0,
    per_address: int = 0,
    *,
    header_seconds: float = 10.0,
    body_seconds: float = 60.0,
    idle_seconds: float = 75.0,
    send_seconds: float = 30.0,
) -> ConnectionLimits:
    """Return the limits. A number of 0 follows from the limit of descriptors."""
    connections = connections or derive_connections()
    per_address = min(per_address or derive_per_address(connections), connections)
    return ConnectionLimits(connections, per_address, header_seconds, body_seconds, idle_seconds, send_seconds)


DEFAULT_OPTIONS = HttpOptions()


async def serve_http(
    dispatcher: Dispatcher,
    listening: socket.socket,
    *,
    host: str,
    path: str,
    token_auth: TokenAuth | None,
    on_ready: Callable[[], None],
    offer: HttpOptions = DEFAULT_OPTIONS,
) -> None:
    """Serve clients until a signal comes. Without `token_auth`, no token is needed."""
    quotas = offer.quotas
    sessions = HttpSessions(offer.metrics, per_token=quotas.sessions, idle_seconds=quotas.session_seconds)
    endpoint = McpEndpoint(dispatcher, path, sessions=sessions, max_answer_bytes=quotas.answer_bytes)
    app = build_guarded_app(endpoint, host, token_auth, offer)
    server = _Server(
        uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the guard decides which proxies to trust
            timeout_graceful_shutdown=1,
            http=HttpProtocol,
        ),
        offer,
    )
    stop = asyncio.Event()
    install_signal_handlers(asyncio.get_running_loop(), stop.set)
    serving = asyncio.create_task(server.serve([listening]), name="http server")
    stopping = asyncio.create_task(stop.wait(), name="stop signal")
    server.on_ready = on_ready
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    dispatcher.close()
    server.should_exit = True
    await app.stop(GRACE_SECONDS)
    await serving
    endpoint.close()


def build_guarded_app(endpoint: ASGIApp, host: str, token_auth: TokenAuth | None, offer: HttpOptions) -> OpenRequests:
    """Return the whole application behind the guard."""
    metrics = offer.metrics
    routes = {**offer.routes, **offer.open_routes}
    if metrics is not None:
        routes[METRICS_PATH] = metrics.page
    app = route_by_path(endpoint, routes)
    count = None if metrics is None else metrics.count_refusal
    guard = Guard(
        app,
        host,
        token_auth,
        open_paths=offer.open_routes,
        tell=count,
        proxies=offer.proxies,
        per_address=offer.limits.per_address,
        per_account=offer.quotas.calls,
    )
    requests = OpenRequests(guard)
    if metrics is not None:
        metrics.open_requests = lambda: len(requests)
    return requests


class _Server(uvicorn.Server):
    """Server that leaves signals to its caller, accepts connections within limits and reports when it is ready."""

    on_ready: Callable[[], None]

    def __init__(self, config: uvicorn.Config, offer: HttpOptions) -> None:
        super().__init__(config)
        self._offer = offer

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections with our listener. uvicorn's has no limits, and asyncio's fills the log."""
        [listening] = sockets or []
        offer = self._offer
        counts = ConnectionCounts(offer.limits)
        if offer.metrics is not None:
            offer.metrics.connections = counts
        listener = HttpListener(
            listening,
            lambda watch: HttpProtocol(self.config, self.server_state, {}, offer.limits, watch),
            offer.limits,
            tls=offer.tls,
            is_proxy=offer.proxies.is_trusted,
            counts=counts,
        )
        self.servers = [listener]  # pyright: ignore[reportAttributeAccessIssue]
        self.started = True
        self.on_ready()
