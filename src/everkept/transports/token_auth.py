"""Authentication by token: its account, rate limit, and the end of its streams on revocation."""

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from math import ceil

from everkept.accounts.accounts import Unknown
from everkept.accounts.grants import hashed
from everkept.core.accounts import Account
from everkept.core.peers import PEER_PATHS
from everkept.errors import EverkeptError
from everkept.transports.asgi import (
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
    address_in,
)
from everkept.transports.presentation import plain

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
        secret_hash, network = hashed(secret), _network(address_in(scope))
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


def _network(address: str) -> str:
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
