"""Who may talk to the HTTP server: its address, trusted proxies, and checks of requests."""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from everkept.core.accounts import acting_as
from everkept.core.protocol import MESSAGE_LIMIT
from everkept.errors import InvalidInput, Unavailable, visible
from everkept.transports.asgi import (
    ASGIApp,
    Message,
    Receive,
    Refusal,
    Send,
    account_in,
    address_in,
    read_headers,
    refuse,
)
from everkept.transports.token_auth import Entrance, while_known


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

log = logging.getLogger(__name__)


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
