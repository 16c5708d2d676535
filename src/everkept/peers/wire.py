"""One request to a server that is known by its certificate; a stranger is sent nothing."""

import asyncio
import hashlib
import hmac
import socket
import ssl
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial

from everkept.core.peers import Peer
from everkept.values import Value

LARGEST_HEAD = 16 * 1024  # bytes
LARGEST_BODY = 2 * 1024 * 1024
MOST_NAMES = 4  # that are looked up at once
_CHUNK = 64 * 1024


class Stranger(Exception):
    """Another certificate than the one that is known; `seen` are the digits of its fingerprint."""

    def __init__(self, seen: str) -> None:
        super().__init__(seen)
        self.seen = seen


class NotHttp(Exception):
    """What came is no answer that could be read; the message says why."""


class Reply(Value):
    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes


async def exchanged(peer: Peer, method: str, path: str, body: bytes = b"") -> Reply:
    """The answer to one request.

    Raises Stranger before a byte of it is sent, NotHttp, and OSError where there is no
    connection. How long it may take is up to who asks.
    """
    async with _connection(peer) as (reader, writer):
        writer.write(_request(peer, method, path, body))
        await writer.drain()
        return await _reply(reader)


@asynccontextmanager
async def _connection(
    peer: Peer,
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    reader, writer = await _connected(peer, await _addresses(peer))
    try:
        _check_certificate(peer, writer)
        yield reader, writer
    finally:
        # Closing politely would wait for an answer of the other side.
        writer.transport.abort()


async def _addresses(peer: Peer) -> list[str]:
    """A name that is not answered for holds up nobody but other names of peers."""
    loop = asyncio.get_running_loop()
    look_up = partial(socket.getaddrinfo, peer.host, peer.port, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(_resolvers(), look_up)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _connected(
    peer: Peer, addresses: list[str]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first of them that answers."""
    for number, address in enumerate(addresses, start=1):
        try:
            return await asyncio.open_connection(
                address, peer.port, ssl=_context(), server_hostname=peer.host, limit=LARGEST_HEAD
            )
        except ssl.SSLError:
            raise
        except OSError:
            if number == len(addresses):
                raise
    raise OSError(f"{peer.host} has no address")


@cache
def _resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_NAMES, thread_name_prefix="names of peers")


@cache
def _context() -> ssl.SSLContext:
    """Takes any certificate: which one it must be is checked by ourselves, to the last bit, so
    that neither names nor dates nor who signed it matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.options |= ssl.OP_NO_RENEGOTIATION  # a certificate that was checked stays the one
    return context


def _check_certificate(peer: Peer, writer: asyncio.StreamWriter) -> None:
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) or b""
    seen = hashlib.sha256(certificate).hexdigest()
    if not certificate or not hmac.compare_digest(seen, peer.fingerprint):
        raise Stranger(seen)


def _request(peer: Peer, method: str, path: str, body: bytes) -> bytes:
    # Of the version in which an answer comes in one piece and ends with the connection.
    lines = [
        f"{method} {path} HTTP/1.0",
        f"Host: {peer.address.removeprefix('https://')}",
        f"Authorization: Bearer {peer.token}",
        "Accept: application/json",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _reply(reader: asyncio.StreamReader) -> Reply:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise NotHttp("its head is too long") from None
    except asyncio.IncompleteReadError as error:
        raise NotHttp("it ended too soon" if error.partial else "nothing came") from None
    status, headers = _parsed(head)
    if "transfer-encoding" in headers:
        raise NotHttp("it comes in pieces, which was not asked for")
    return Reply(status, headers, await _body(reader, headers.get("content-length")))


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    digits = rest[:3]
    if not version.startswith("HTTP/1.") or len(digits) != 3 or not digits.isdecimal():
        raise NotHttp("it is not HTTP")
    parts = [line.partition(":") for line in lines]
    return int(digits), {name.strip().lower(): value.strip() for name, _, value in parts}


async def _body(reader: asyncio.StreamReader, announced: str | None) -> bytes:
    """All of it, or NotHttp: what is cut off or too long is of no use."""
    body = bytearray()
    while chunk := await reader.read(_CHUNK):
        body += chunk
        if len(body) > LARGEST_BODY:
            raise NotHttp(f"it has more than {LARGEST_BODY:,} bytes")
    if announced is not None and announced != str(len(body)):
        raise NotHttp(f"it has {len(body):,} bytes instead of {announced[:20]}")
    return bytes(body)
