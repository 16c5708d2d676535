"""Who may talk to the HTTP server: its address, trusted proxies, tokens and checks of requests."""

import asyncio
import ipaddress
import logging
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from functools import partial
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from everkept.accounts.accounts import Unknown
from everkept.accounts.grants import hashed
from everkept.core.mcp import MESSAGE_LIMIT
from everkept.core.peers import PEER_PATHS
from everkept.core.sessions import Account, acting_as
from everkept.errors import EverkeptError, InvalidInput, Unavailable, visible
from everkept.transports.connection import plain
from everkept.transports.http_exchange import (
    ACCOUNT,
    CREDENTIAL,
    MOST_KEYS,
    ASGIApp,
    Buckets,
    Message,
    Queues,
    Receive,
    Refusal,
    Seconds,
    Send,
    account_in,
    address_in,
    read_headers,
    refuse,
)

PEER_LIMIT = 60  # requests a minute with the token of another server
WRONG_TOKENS = 20  # a minute from one address
MOST_WAITING = 100  # of an address that brought more; each is looked for in some milliseconds
NETWORK_BITS = 64  # of an address of IPv6: within them one machine may have as many as it likes

TOO_MANY_WRONG = "Too many wrong tokens came from this address."

log = logging.getLogger(__name__)

#: Whose secret it is; None: the owner's.
Admitted = Callable[[str], Awaitable[Account | Unknown | None]]


class Entrance:
    """Asks every request for a token that is known at that moment, so a revoked one is refused.

    The owner comes as often as they like. Many people may share an address: after too many wrong
    tokens from one, those that were right lately are looked for as before, and the others one
    after another, so that a right one comes in and trying them is slow. While MOST_WAITING of
    them wait, no other is looked for: a right one too has to come again.
    """

    def __init__(
        self, admitted: Admitted, *, rate_limit: int, clock: Seconds = time.monotonic
    ) -> None:
        """`rate_limit` is for accounts, in requests a minute of each token; 0: none."""
        self._admitted = admitted
        self._accounts = Buckets(rate_limit, clock) if rate_limit else None
        self._peers = Buckets(min(rate_limit or PEER_LIMIT, PEER_LIMIT), clock)
        self._wrong = Buckets(WRONG_TOKENS, clock)
        self._doubtful = Queues(MOST_WAITING)
        self._right: OrderedDict[str, None] = OrderedDict()

    async def refusal(self, scope: Message, headers: Mapping[str, str]) -> Refusal | None:
        """Why the request may not come in; None: it may, and its scope says whose it is."""
        secret = _secret(headers)
        if not secret:
            return _unauthorized("This server wants a bearer token.", "")
        secret_hash, network = hashed(secret), _client_network(address_in(scope))
        is_new = secret_hash not in self._right
        # Before it is looked for: of many that come at once each counts.
        wait = self._wrong.take(network) if is_new else 0
        is_counted = is_new and not wait
        if wait and self._doubtful.is_full(network):
            return _too_often(TOO_MANY_WRONG, wait)
        try:
            async with self._doubtful.turn(network) if wait else nullcontext():
                account = await self._admitted(secret)
        except EverkeptError as error:
            if is_counted:
                self._wrong.give_back(network)
            log.warning("a token cannot be looked for: %s", error)
            return _not_now(error)
        if isinstance(account, Unknown):
            if not is_new:
                self._wrong.take(network)
            self._right.pop(secret_hash, None)
            if wait:
                return _too_often(TOO_MANY_WRONG, wait)
            return _unauthorized("This bearer token is not known.", ', error="invalid_token"')
        if is_counted:
            self._wrong.give_back(network)
        self._note(secret_hash)
        scope[CREDENTIAL] = secret_hash
        scope[ACCOUNT] = account
        return self._over_limit(account, secret_hash) or _wrong_path(account, scope["path"])

    async def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the token that a request came in with still would do."""
        return not isinstance(await self._admitted(_secret(headers)), Unknown)

    def _note(self, secret_hash: str) -> None:
        self._right[secret_hash] = None
        self._right.move_to_end(secret_hash)
        if len(self._right) > MOST_KEYS:
            self._right.popitem(last=False)

    def _over_limit(self, account: Account | None, secret_hash: str) -> Refusal | None:
        if account is None:
            return None
        buckets = self._peers if account.is_peer else self._accounts
        wait = 0 if buckets is None else buckets.take(secret_hash)
        return _too_often("This token is used too often.", wait) if wait else None


def _secret(headers: Mapping[str, str]) -> str:
    """What a request shows; empty where it shows none."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _wrong_path(account: Account | None, path: str) -> Refusal | None:
    if account is None or not account.is_peer or path.startswith(PEER_PATHS):
        return None
    return Refusal(403, f"The token of another server is for {PEER_PATHS} alone.")


def _client_network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, NETWORK_BITS), strict=False))


def _not_now(error: EverkeptError) -> Refusal:
    """Nobody knows yet who asks: the reason, and nothing of where things are kept."""
    told = plain(error)
    return Refusal(503, f"Tokens cannot be looked for. {told}", data=told.envelope())


def _too_often(message: str, wait: float) -> Refusal:
    seconds = ceil(wait)
    return Refusal(
        429,
        f"{message} Try again in {seconds} s.",
        ((b"retry-after", str(seconds).encode()),),
        {"error": "rate_limited", "retry_possible": True, "retry_after_seconds": seconds},
    )


def _unauthorized(message: str, detail: str) -> Refusal:
    challenge = f'Bearer realm="everkept"{detail}'
    hint = "`everkept token` on the server's machine makes one."
    return Refusal(401, f"{message} {hint}", ((b"www-authenticate", challenge.encode()),))


INTERVAL = 3.0  # seconds after which the token of a stream is asked for again
STREAM = b"text/event-stream"

IsKnown = Callable[[], Awaitable[bool]]


async def while_known(
    app: ASGIApp,
    scope: Message,
    receive: Receive,
    send: Send,
    is_known: IsKnown,
    *,
    interval: float = INTERVAL,
) -> None:
    """Answers a request whose token was known at its beginning.

    A stream may stay open for hours: before each of its parts, and every few seconds, its token
    is asked for again, and the stream ends where that is gone. What answers a request at once,
    as the first part to a POST does, needs no second asking.
    """
    limit = asyncio.timeout(None)
    stream = _Stream(send, is_known, interval, limit)
    stream.is_fresh = scope["method"] == "POST"
    try:
        async with limit:
            await app(scope, receive, stream.send)
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        stream.leave()
    if stream.is_revoked:
        await stream.end()


class _Stream:
    def __init__(
        self, send: Send, is_known: IsKnown, interval: float, limit: asyncio.Timeout
    ) -> None:
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
            if not self.is_fresh and not await self._may_go_on():
                self._revoke()
            if self.is_revoked:
                return
            self.is_fresh = False
            self._is_ended = not message.get("more_body")
        await self._send(message)

    async def end(self) -> None:
        if not self._is_ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def leave(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _may_go_on(self) -> bool:
        try:
            return await self._is_known()
        except EverkeptError:
            return False  # nothing is told to who cannot be known

    async def _watch(self) -> None:
        while not self.is_revoked:
            await asyncio.sleep(self._interval)
            try:
                if not await self._is_known():
                    self._revoke()
            except EverkeptError:
                continue  # it is asked before anything is told

    def _revoke(self) -> None:
        if not self.is_revoked:
            self.is_revoked = True
            self._limit.reschedule(asyncio.get_running_loop().time())


def _is_stream(message: Message) -> bool:
    headers: dict[bytes, bytes] = {name.lower(): value for name, value in message["headers"]}
    return headers.get(b"content-type", b"").startswith(STREAM)


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one."""
    if not 0 <= port <= 65535:
        raise InvalidInput(
            f"There is no port {port}.", hint="0 to 65535.", argument="port", value=port
        )
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise InvalidInput(
            f"Cannot listen on {host!r}, port {port}: {error}.", argument="host", value=host
        ) from None
    try:
        listening = socket.create_server((str(address[0]), int(address[1])), family=family)
        # Accepted connections inherit it. Without, an answer in two pieces waits 40 ms for the
        # client's acknowledgement of the first.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise Unavailable(
            f"Cannot listen on {host}, port {port}: {error.strerror}.",
            hint="--port chooses another port; 0 takes any that is free.",
        ) from error


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

FORWARDED_FOR = "x-forwarded-for"


class Proxies:
    """Those whose word is taken; nobody else can say to be another."""

    def __init__(self, networks: tuple[Network, ...] = ()) -> None:
        self._networks = networks

    @classmethod
    def named(cls, text: str) -> "Proxies":
        """Addresses or networks, with commas; what is neither is an error."""
        parts = [part.strip() for part in text.split(",")]
        return cls(tuple(_network(part) for part in parts if part))

    def settle(self, scope: Message, headers: Mapping[str, str]) -> None:
        """From here on the scope names the machine that the proxy was asked by.

        What stands before the last address came with the request, and so may be made up.
        """
        proxy = _address(address_in(scope)) if self._networks else None
        if proxy is None or not any(proxy in network for network in self._networks):
            return
        told = _address(headers.get(FORWARDED_FOR, "").rpartition(",")[2].strip())
        if told is not None:
            scope["client"] = (str(told), 0)


NOBODY = Proxies()


def _address(text: str) -> Address | None:
    """One of IPv4 in the dress of IPv6 is the same machine."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise InvalidInput(
            f"trusted_proxies names {text!r}, which is no address and no network.",
            hint="As 10.0.0.5 or 10.0.0.0/24, several with commas.",
            argument="trusted_proxies",
            value=text,
        ) from None


LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Checks Host, Origin, token and size, in this order, of every request.

    Host and Origin keep a web page in the user's browser from reaching a server on the same
    machine under a name of its own. Beyond the loopback address any name may be the right one and
    a token is always needed; there, pages that came from the same name pass.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        entrance: Entrance | None,
        *,
        open_paths: Collection[str] = (),
        tell: Callable[[Refusal], None] | None = None,
        proxies: Proxies = NOBODY,
    ) -> None:
        """Without an `entrance`, and on `open_paths`, nobody is asked for a token."""
        self._app = app
        self._entrance = entrance
        self._open_paths = open_paths
        self._tell = tell
        self._proxies = proxies
        self._names = LOOPBACK_NAMES | {host.lower()} if is_loopback(host) else None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = read_headers(scope)
        self._proxies.settle(scope, headers)
        entrance = None if scope["path"] in self._open_paths else self._entrance
        refusal = await self._refusal(scope, headers, entrance)
        if refusal is None:
            with acting_as(account_in(scope)):
                if entrance is None:
                    await self._app(scope, receive, send)
                else:
                    is_known = partial(entrance.knows, headers)
                    await while_known(self._app, scope, receive, send, is_known)
        else:
            asked = visible(f"{scope['method']} {scope['path']}")
            log.info("refused %s: %s", asked, visible(refusal.message))
            if self._tell is not None:
                self._tell(refusal)
            await refuse(send, refusal)

    async def _refusal(
        self, scope: Message, headers: dict[str, str], entrance: Entrance | None
    ) -> Refusal | None:
        wrong = self._wrong_name(headers)
        if wrong is None and entrance is not None:
            wrong = await entrance.refusal(scope, headers)
        return wrong or _wrong_size(headers)

    def _wrong_name(self, headers: dict[str, str]) -> Refusal | None:
        host = headers.get("host", "")
        name = _name("//" + host)
        if not name or (self._names is not None and name not in self._names):
            return Refusal(421, f"This server does not answer to the Host {host!r}.")
        origin = headers.get("origin")
        if origin is not None and _name(origin) not in (self._names or {name}):
            return Refusal(403, f"Pages of the Origin {origin!r} may not use this server.")
        return None


class OpenRequests:
    """The requests under way, so that the server can end them when it stops."""

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
                await refuse(send, Refusal(503, "The server is stopping."))
            elif not is_ended:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            del self._tasks[task]

    async def stop(self, grace: float) -> None:
        """Ends streams that only listen at once, and everything else after a moment."""
        self._is_stopping = True
        for task, method in self._tasks.items():
            if method == "GET":
                task.cancel()
        for _ in range(2):
            if self._tasks:
                await asyncio.wait(set(self._tasks), timeout=grace)
            for task in self._tasks:
                task.cancel()


def _wrong_size(headers: dict[str, str]) -> Refusal | None:
    declared = headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > MESSAGE_LIMIT:
        return Refusal(413, f"A message may have {MESSAGE_LIMIT:,} bytes at most.")
    return None


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
