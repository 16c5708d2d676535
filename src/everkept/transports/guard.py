"""Access to the HTTP server: tokens and checks of requests."""

import asyncio
import ipaddress
import logging
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from everkept.accounts.accounts import UnknownAccount
from everkept.accounts.grants import hash_secret
from everkept.accounts.subjects import UnlinkedSubject
from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.core.peers import PEER_PATHS
from everkept.core.sessions import Account, act_as
from everkept.core.text import format_count
from everkept.errors import EverkeptError, InvalidInput, Unavailable, escape_name
from everkept.transports.connection import redact_error
from everkept.transports.http_exchange import (
    ACCOUNT_KEY,
    CREDENTIAL_KEY,
    ASGIApp,
    Message,
    Receive,
    Refusal,
    Send,
    build_rate_limited,
    get_account,
    get_client_address,
    read_headers,
    send_refusal,
)
from everkept.transports.rate_limits import MAX_KEYS, BodyLimits, KeyedQueues, OpenCounts, RateLimiter, SecondsClock
from everkept.transports.trusted_proxies import FORWARDED_KEY, NO_PROXIES, TrustedProxies, parse_ip_address

PEER_REQUESTS_PER_MINUTE = 60  # with a token of another server
WRONG_TOKENS_PER_MINUTE = 20  # from one address
MAX_WAITING_REQUESTS = 100  # from an address with wrong tokens; each takes some milliseconds to check
NETWORK_BITS = 64  # of an IPv6 address; one machine may have many addresses in this network

INVALID_TOKEN = ', error="invalid_token"'
TOO_MANY_WRONG_TOKENS = "Too many wrong tokens came from this address."

log = logging.getLogger(__name__)

#: Account of the token; None: the owner.
FindAccount = Callable[[str], Awaitable[Account | UnknownAccount | None]]


class TokenAuth:
    """Checks the token of every request, so that a revoked one is refused immediately.

    The owner has no limit. Several people may share an address. After too many wrong tokens from it, recently valid
    ones are checked as before, and others one after another. So a valid token still works, and guessing is slow. While
    MAX_WAITING_REQUESTS of them wait, any further one is refused.
    """

    def __init__(
        self,
        admitted: FindAccount,
        *,
        rate_limit: int,
        clock: SecondsClock = time.monotonic,
        metadata_url: str | None = None,
    ) -> None:
        """`rate_limit` is requests per minute for each token of an account; 0: no limit.

        With `metadata_url`, a refusal shows where a client learns how to sign in.
        """
        self._admitted = admitted
        self._metadata = "" if metadata_url is None else f', resource_metadata="{metadata_url}"'
        self._accounts = RateLimiter(rate_limit, clock) if rate_limit else None
        self._peers = RateLimiter(min(rate_limit or PEER_REQUESTS_PER_MINUTE, PEER_REQUESTS_PER_MINUTE), clock)
        self._wrong = RateLimiter(WRONG_TOKENS_PER_MINUTE, clock)
        self._doubtful = KeyedQueues(MAX_WAITING_REQUESTS)
        self._right: OrderedDict[str, None] = OrderedDict()

    async def authenticate(self, scope: Message, headers: Mapping[str, str]) -> Refusal | None:
        """Return why the request is refused, or None. Store its account in the scope."""
        secret = get_bearer_token(headers)
        if secret.startswith("$") or headers.get("authorization", "").strip().lower() == "bearer":
            sent = "the name of a variable instead of a token" if secret else "an empty token"
            what = f"The client sent {sent}. Set the variable that it reads."
            return _build_unauthorized(what, INVALID_TOKEN + self._metadata)
        if not secret:
            return _build_unauthorized("This server needs a bearer token.", self._metadata)
        secret_hash, network = hash_secret(secret), get_network(get_client_address(scope))
        is_new = secret_hash not in self._right
        # Counted before the check, so that simultaneous requests count too.
        wait = self._wrong.take(network) if is_new else 0
        is_counted = is_new and not wait
        if wait and self._doubtful.is_full(network):
            return build_rate_limited(TOO_MANY_WRONG_TOKENS, wait)
        try:
            async with self._doubtful.wait_turn(network) if wait else nullcontext():
                account = await self._admitted(secret)
        except EverkeptError as error:
            if is_counted:
                self._wrong.give_back(network)
            log.warning("cannot check a token: %s", error)
            return _build_unavailable(error)
        if isinstance(account, UnknownAccount):
            if not is_new:
                self._wrong.take(network)
            self._right.pop(secret_hash, None)
            if wait:
                return build_rate_limited(TOO_MANY_WRONG_TOKENS, wait)
            if isinstance(account, UnlinkedSubject):
                return _build_unlinked(account)
            return _build_unauthorized(account.reason, INVALID_TOKEN + self._metadata)
        if is_counted:
            self._wrong.give_back(network)
        self._remember_token(secret_hash)
        scope[CREDENTIAL_KEY] = _identify(secret, secret_hash, account)
        scope[ACCOUNT_KEY] = account
        return self._find_rate_refusal(account, secret_hash) or _find_path_refusal(account, scope["path"])

    async def is_token_known(self, headers: Mapping[str, str]) -> bool:
        """Return whether the token of a request is still valid."""
        return not isinstance(await self._admitted(get_bearer_token(headers)), UnknownAccount)

    def was_right_lately(self, headers: Mapping[str, str]) -> bool:
        return hash_secret(get_bearer_token(headers)) in self._right

    def _remember_token(self, secret_hash: str) -> None:
        self._right[secret_hash] = None
        self._right.move_to_end(secret_hash)
        if len(self._right) > MAX_KEYS:
            self._right.popitem(last=False)

    def _find_rate_refusal(self, account: Account | None, secret_hash: str) -> Refusal | None:
        if account is None:
            return None
        buckets = self._peers if account.is_peer else self._accounts
        wait = 0 if buckets is None else buckets.take(secret_hash)
        return build_rate_limited("Too many requests with this token.", wait) if wait else None


def get_bearer_token(headers: Mapping[str, str]) -> str:
    """Return the token of a request, or an empty text."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def is_signed(secret: str) -> bool:
    """Return whether the token has the form of an OpenID provider's. Ours have no period."""
    return secret.count(".") == 2


def _identify(secret: str, secret_hash: str, account: Account | None) -> str:
    """Return what a session belongs to. A provider replaces its tokens often, so there it is the account."""
    return hash_secret(f"account {account.id}") if account is not None and is_signed(secret) else secret_hash


def _build_unlinked(account: UnlinkedSubject) -> Refusal:
    who = escape_name(account.subject)
    hint = f"Ask the owner to run `everkept account link NAME {who}` on the server's machine."
    return Refusal(403, f'You are signed in as "{who}", which has no account here. {hint}')


def _find_path_refusal(account: Account | None, path: str) -> Refusal | None:
    if account is None or not account.is_peer or path.startswith(PEER_PATHS):
        return None
    return Refusal(403, f"The token of another server is valid only for {PEER_PATHS}.")


def get_network(address: str) -> str:
    """Return what counts as one client: an address of IPv4, or a network of IPv6."""
    parsed = parse_ip_address(address.partition("%")[0])
    if parsed is None or parsed.version == 4:
        return address if parsed is None else str(parsed)
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


def _build_unavailable(error: EverkeptError) -> Refusal:
    """Return the reason why tokens cannot be checked, without locations of data."""
    told = redact_error(error)
    return Refusal(503, f"Tokens cannot be checked. {told}", data=told.to_envelope())


def _build_unauthorized(message: str, detail: str) -> Refusal:
    challenge = f'Bearer realm="everkept"{detail}'
    hint = "To create one, run `everkept token` on the server's machine."
    return Refusal(401, f"{message} {hint}", ((b"www-authenticate", challenge.encode()),))


TOKEN_CHECK_SECONDS = 3.0  # between checks of a stream's token
STREAM_TYPE = b"text/event-stream"

IsTokenKnown = Callable[[], Awaitable[bool]]


async def serve_while_known(
    app: ASGIApp,
    scope: Message,
    receive: Receive,
    send: Send,
    is_known: IsTokenKnown,
    *,
    interval: float = TOKEN_CHECK_SECONDS,
) -> None:
    """Answer a request whose token was valid at its beginning.

    A stream may stay open for hours. Its token is checked again before each part and every few seconds, and the stream
    ends if it is revoked. An immediate answer needs no second check.
    """
    limit = asyncio.timeout(None)
    stream = _GuardedStream(send, is_known, interval, limit)
    stream.is_fresh = scope["method"] == "POST"
    try:
        async with limit:
            await app(scope, receive, stream.send)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        stream.stop_watching()
    if stream.is_revoked:
        await stream.end()


class _GuardedStream:
    def __init__(self, send: Send, is_known: IsTokenKnown, interval: float, limit: asyncio.Timeout) -> None:
        self.is_revoked = False
        self.is_fresh = False
        self._send = send
        self._is_known = is_known
        self._interval = interval
        self._limit = limit
        self._watching: asyncio.Task[None] | None = None
        self._is_ended = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_stream(message):
            self._watching = asyncio.create_task(self._watch(), name="token of a stream")
        elif self._watching is not None:
            if not self.is_fresh and not await self._is_allowed():
                self._revoke()
            if self.is_revoked:
                return
            self.is_fresh = False
            self._is_ended = not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        if not self._is_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _is_allowed(self) -> bool:
        try:
            return await self._is_known()
        except EverkeptError:
            return False  # an unverified client learns nothing

    async def _watch(self) -> None:
        while not self.is_revoked:
            await asyncio.sleep(self._interval)
            try:
                if not await self._is_known():
                    self._revoke()
            except EverkeptError:
                continue  # check it before anything is sent

    def _revoke(self) -> None:
        if not self.is_revoked:
            self.is_revoked = True
            self._limit.reschedule(asyncio.get_running_loop().time())


def _is_stream(message: Message) -> bool:
    headers: dict[bytes, bytes] = {name.lower(): value for name, value in message["headers"]}
    return headers.get(b"content-type", b"").startswith(STREAM_TYPE)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 selects a free one."""
    if not 0 <= port <= 65535:
        raise InvalidInput(f"Invalid port {port}.", hint="Use 0 to 65535.", argument="port", value=port)
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(
            f"Cannot listen on {host!r}, port {port}: {error}.",
            hint="Pass an address of this machine with --host.",
            argument="host",
            value=host,
        ) from None
    try:
        listening = socket.create_server((str(address[0]), int(address[1])), family=family)
        # Accepted connections inherit it. Otherwise an answer in two pieces waits 40 ms for the acknowledgement of the
        # first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}, port {port}: {error.strerror}.",
            hint="Pass another --port, or 0 for any free one.",
        ) from error


UNLIMITED = sys.maxsize
BUSY_SECONDS = 1.0  # after which a client may try again that has too many requests under way
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Checks Host, Origin, token and size of every request, in this order.

    Host and Origin keep web pages in the user's browser from reaching a server on the same machine under another name.
    Beyond the loopback address, any name may be right and a token is always needed. There, pages with the same name as
    the server pass.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        token_auth: TokenAuth | None,
        *,
        open_paths: Collection[str] = (),
        tell: Callable[[Refusal], None] | None = None,
        proxies: TrustedProxies = NO_PROXIES,
        per_address: int = UNLIMITED,
        per_account: int = UNLIMITED,
    ) -> None:
        """Without `token_auth`, and on `open_paths`, no token is needed.

        `per_address` limits the requests in progress that a trusted proxy forwards for one address without a valid
        token, `per_account` those of one account.
        """
        self._app = app
        self._token_auth = token_auth
        self._open_paths = open_paths
        self._tell = tell
        self._proxies = proxies
        self._per_address = per_address
        self._per_account = per_account
        self._open = OpenCounts()
        self._bodies = BodyLimits()
        self._names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = read_headers(scope)
        self._proxies.set_client_address(scope, headers)
        token_auth = None if scope["path"] in self._open_paths else self._token_auth
        with ExitStack() as held:
            refusal = self._hold_address(scope, headers, held) or await self._find_refusal(scope, headers, token_auth)
            if CREDENTIAL_KEY in scope:
                held.close()  # a team may share one address
                refusal = refusal or self._hold_account(scope, held)
            receive = self._bodies.limit(get_account(scope), receive, held)
            if refusal is None:
                await self._pass_on(scope, receive, send, headers, token_auth)
            else:
                asked = escape_name(f"{scope['method']} {scope['path']}")
                log.info("refused %s: %s", asked, escape_name(refusal.message))
                if self._tell is not None:
                    self._tell(refusal)
                await send_refusal(send, refusal)

    async def _pass_on(
        self, scope: Message, receive: Receive, send: Send, headers: dict[str, str], token_auth: TokenAuth | None
    ) -> None:
        with act_as(get_account(scope)):
            if token_auth is None:
                await self._app(scope, receive, send)
            else:
                is_known = partial(token_auth.is_token_known, headers)
                await serve_while_known(self._app, scope, receive, send, is_known)

    def _hold_address(self, scope: Message, headers: dict[str, str], held: ExitStack) -> Refusal | None:
        """Limit what a proxy forwards for one address. The listener limits clients that connect directly."""
        if FORWARDED_KEY not in scope or (self._token_auth and self._token_auth.was_right_lately(headers)):
            return None
        if self._open.hold(get_network(get_client_address(scope)), self._per_address, held):
            return None
        return build_rate_limited("Too many requests of this address are under way.", BUSY_SECONDS)

    def _hold_account(self, scope: Message, held: ExitStack) -> Refusal | None:
        account = get_account(scope)
        if account is None or self._open.hold(f"account {account.name}", self._per_account, held):
            return None
        what = format_count(self._per_account, "request")
        return build_rate_limited(f"This account already has {what} under way.", BUSY_SECONDS)

    async def _find_refusal(
        self, scope: Message, headers: dict[str, str], token_auth: TokenAuth | None
    ) -> Refusal | None:
        wrong = self._find_host_refusal(headers)
        if wrong is None and token_auth is not None:
            wrong = await token_auth.authenticate(scope, headers)
        return wrong or _find_size_refusal(headers)

    def _find_host_refusal(self, headers: dict[str, str]) -> Refusal | None:
        host = headers.get("host", "")
        name = _parse_host("//" + host)
        if not name or (self._names is not None and name not in self._names):
            return Refusal(421, f"This server does not answer to the Host {host!r}.")
        origin = headers.get("origin")
        if origin is not None and _parse_host(origin) not in (self._names or {name}):
            return Refusal(403, f"Pages of the Origin {origin!r} may not use this server.")
        return None


class OpenRequests:
    """Requests in progress, so that the server can end them when it stops."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: dict[asyncio.Task[Any], str] = {}
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        task = asyncio.current_task()
        if scope["type"] != "http" or task is None:
            await self._app(scope, receive, send)
            return
        is_begun = is_ended = False

        async def watched(message: Message) -> None:
            nonlocal is_begun, is_ended
            await send(message)
            is_begun = True
            is_ended = message["type"] == "http.response.body" and not message.get("more_body")

        self._tasks[task] = scope["method"]
        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            if not is_begun:
                await send_refusal(send, Refusal(503, "The server is stopping."))
            elif not is_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            del self._tasks[task]

    async def stop(self, grace: float) -> None:
        """End streams that only listen immediately, and the other requests after a moment."""
        self._is_stopping = True
        for task, method in self._tasks.items():
            if method == "GET":
                task.cancel()
        for _ in range(2):
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=grace)
            for task in self._tasks:
                task.cancel()


def _find_size_refusal(headers: dict[str, str]) -> Refusal | None:
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MAX_MESSAGE_BYTES:
        return Refusal(413, f"A message may have {MAX_MESSAGE_BYTES:,} bytes at most.")
    return None


def _parse_host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
