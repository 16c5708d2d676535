"""The client that searches other servers over HTTPS, each known by its certificate.

An answer is data from a stranger: each field is checked, masked and shortened.
"""

import asyncio
import hashlib
import hmac
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache, partial
from time import perf_counter
from typing import Any, TypeVar, cast

from everkept.core.answers import Finding, SearchType
from everkept.core.context_text import readable
from everkept.core.peers import (
    INFO_PATH,
    MOST_RESULTS,
    PROTOCOL,
    QUESTION_LIMIT,
    SAID_TYPES,
    SEARCH_PATH,
    TYPES,
    Asked,
    Peer,
    PeerAnswer,
    PeerFault,
    PeerQuestion,
    shown_fingerprint,
)
from everkept.core.secrets import masked
from everkept.core.text import clipped
from everkept.core.times import iso, parsed
from everkept.errors import InvalidInput
from everkept.peers.peer_file import PeerBook
from everkept.values import Value

LONGEST_CONTENT = 4_000  # characters
LONGEST_IN_ALL = 100_000  # of the contents of one answer
LONGEST_LABEL = 200
MOST_NOTICES = 5
LIMITLESS = 1e9  # no score, but a way to break a calculation

JSON = Mapping[str, Any]


class NotUnderstood(Exception):
    """The answer is none of ours; the message says why."""


def answer_of(peer: Peer, body: bytes, limit: int) -> PeerAnswer:
    """What is well-formed of it, cut to length, without secrets and what nobody sees."""
    told = _object(body)
    if told.get("version") != PROTOCOL:
        shown = clipped(str(told.get("version")), 20)
        raise NotUnderstood(f"it speaks version {shown} of this, not {PROTOCOL}")
    results = told.get("results")
    if not isinstance(results, list):
        raise NotUnderstood("it has no list of results")
    given = cast("list[object]", results)[: min(limit, MOST_RESULTS)]
    findings, looked_at = _findings(peer, given)
    if given and not findings:
        raise NotUnderstood("none of its results can be read")
    findings.sort(key=lambda finding: -finding.score)
    unreadable, unread = looked_at - len(findings), len(given) - looked_at
    notices = [*_notices(told.get("warnings"))]
    if unreadable:
        notices.append(f"{unreadable} of its {len(given)} results cannot be read.")
    if unread:
        notices.append(f"{unread} of its {len(given)} results are left out: it is too long.")
    return PeerAnswer(peer.name, tuple(findings), tuple(notices))


def program_of(body: bytes) -> tuple[str, str]:
    """Name and version of the program that answered."""
    told = _object(body)
    name, version = _label(told.get("name")), _label(told.get("version"))
    if not name or not version:
        raise NotUnderstood("it does not say what it is")
    return name, version


def _object(body: bytes) -> JSON:
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise NotUnderstood("it is no JSON") from None
    if not isinstance(value, dict):
        raise NotUnderstood("it is no object")
    return cast(JSON, value)


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def _findings(peer: Peer, given: Sequence[object]) -> tuple[list[Finding], int]:
    """What can be read, and how many were looked at until it was enough."""
    found: list[Finding] = []
    length = 0
    for number, each in enumerate(given):
        if length >= LONGEST_IN_ALL:
            return found, number
        finding = _finding(peer, each)
        if finding is not None:
            found.append(finding)
            length += len(finding.content)
    return found, len(given)


def _finding(peer: Peer, given: object) -> Finding | None:
    """None where it is not as agreed."""
    if not isinstance(given, dict):
        return None
    result = cast(JSON, given)
    kind, content, score = result.get("type"), result.get("content"), result.get("score")
    name, at = _label(result.get("id")), _moment(result.get("at"))
    if kind not in TYPES or not isinstance(content, str) or not name:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < LIMITLESS:
        return None
    text = _text(content)
    if not text or (kind in SAID_TYPES and at is None):
        return None
    way: SearchType = "graph" if kind in ("entity", "relation") else "semantic"
    return Finding(
        # Under which it can be read nowhere here: the same id may be one of ours.
        id=f"{peer.name}:{name}",
        type=kind,
        content=text,
        score=min(max(float(score), 0.0), 1.0),
        search_type=way,
        title=_label(result.get("title")),
        project=_label(result.get("project")),
        at=at,
    )


def _text(given: str) -> str:
    """The first characters alone are looked at: what is longer was never agreed on."""
    text, _ = masked(readable(given[: 2 * LONGEST_CONTENT]).strip())
    return text if len(text) <= LONGEST_CONTENT else text[: LONGEST_CONTENT - 1] + "…"


def _label(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    text, _ = masked(clipped(readable(given[: 2 * LONGEST_LABEL]), LONGEST_LABEL))
    return text or None


def _moment(given: object) -> int | None:
    if not isinstance(given, str) or len(given) > 40:
        return None
    try:
        at = parsed(given)
        iso(at)
    except (ValueError, OverflowError):
        return None
    return at


def _notices(given: object) -> list[str]:
    listed = cast("list[object]", given) if isinstance(given, list) else []
    labels = [_label(each) for each in listed[:MOST_NOTICES]]
    return [label for label in labels if label]


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


T = TypeVar("T")

LONGEST_WAIT = 86_400  # seconds that a server may ask us to wait, as far as we repeat it


class Met(Value):
    """A server that answered: what runs there, and how quick it was."""

    peer: str
    program: str
    version: str
    milliseconds: float


class HttpPeers:
    """Those of the list, over HTTPS. Nothing is kept between two questions."""

    def __init__(self, book: PeerBook) -> None:
        self._book = book

    async def ask(self, question: PeerQuestion) -> Asked:
        try:
            listed = self._book.listed()
        except InvalidInput as error:
            return Asked(faults=[PeerFault("", "peers_unreadable", str(error))])
        if not listed.peers:
            return Asked(is_anybody=False)
        body = _question(question)
        limit = min(question.limit, MOST_RESULTS)

        async def asked(peer: Peer) -> PeerAnswer | PeerFault:
            try:
                read = partial(answer_of, peer, limit=limit)
                return await _within_time(peer, "POST", SEARCH_PATH, read, body)
            except _Failed as failed:
                return failed.fault

        outcomes = await asyncio.gather(*map(asked, listed.peers))
        about_file = [PeerFault("", "peers_file_open", said) for said in listed.warnings]
        return Asked(
            [each for each in outcomes if isinstance(each, PeerAnswer)],
            [*(each for each in outcomes if isinstance(each, PeerFault)), *about_file],
        )


async def greeted(peer: Peer) -> Met | PeerFault:
    """Whether a server is there, is the one that is meant, and knows us."""
    started = perf_counter()
    try:
        program, version = await _within_time(peer, "GET", INFO_PATH, program_of)
    except _Failed as failed:
        return failed.fault
    return Met(peer.name, program, version, round((perf_counter() - started) * 1000, 1))


def _question(question: PeerQuestion) -> bytes:
    """Whatever somebody pasted into it, no secret leaves this machine."""
    query, _ = masked(question.query)
    asked: dict[str, object] = {
        "version": PROTOCOL,
        "query": query[:QUESTION_LIMIT],
        "limit": min(question.limit, MOST_RESULTS),
    }
    if question.types:
        asked["types"] = list(question.types)
    return json.dumps(asked).encode("ascii")


class _Failed(Exception):
    def __init__(self, peer: Peer, code: str, reason: str) -> None:
        super().__init__(reason)
        self.fault = _fault(peer, code, reason)


def _fault(peer: Peer, code: str, reason: str) -> PeerFault:
    message = f'Without the peer "{peer.name}": {reason}'
    return PeerFault(peer.name, f"peer_{code}", message, reason)


async def _within_time(
    peer: Peer, method: str, path: str, read: Callable[[bytes], T], body: bytes = b""
) -> T:
    """What an answer with status 200 says; everything else is _Failed."""
    limit = asyncio.timeout(peer.time_limit)
    try:
        async with limit:
            reply = await exchanged(peer, method, path, body)
            if reply.status != 200:
                raise _refused(peer, reply)
            # Of a stranger's making, it may take a moment to look through.
            return await asyncio.to_thread(read, reply.body)
    except Stranger as stranger:
        raise _Failed(peer, "wrong_certificate", _strange(peer, stranger.seen)) from None
    except (NotHttp, NotUnderstood) as error:
        raise _Failed(peer, "wrong_answer", f"its answer is not understood: {error}.") from None
    except ssl.SSLError as error:
        reason = clipped(error.reason or type(error).__name__)
        raise _Failed(peer, "unreachable", f"{peer.address} speaks no TLS ({reason}).") from None
    except (OSError, UnicodeError) as error:  # TimeoutError, also ours, is one
        if limit.expired():
            late = f"no answer within {peer.time_limit:g} seconds."
            raise _Failed(peer, "timed_out", late) from None
        reason = clipped(_reason(error))
        raise _Failed(
            peer, "unreachable", f"{peer.address} cannot be reached ({reason})."
        ) from None


def _reason(error: OSError | UnicodeError) -> str:
    """asyncio has its own words for a connection that failed, and the number of the reason."""
    if isinstance(error, OSError):
        is_of_names = isinstance(error, socket.gaierror)  # which has numbers of its own
        if error.errno is not None and os.name == "posix" and not is_of_names:
            return os.strerror(error.errno)
        return error.strerror or str(error) or type(error).__name__
    return str(error)


def _strange(peer: Peer, seen: str) -> str:
    return (
        f"{peer.address} has another certificate, {shown_fingerprint(seen)}; nothing was sent "
        "there. Ask its owner: if they made a new one and tell you the same fingerprint, remove "
        "the peer and add it again."
    )


def _refused(peer: Peer, reply: Reply) -> _Failed:
    match reply.status:
        case 401:
            return _Failed(peer, "refused", "it does not know our token (any more).")
        case 403:
            return _Failed(peer, "refused", "it does not answer this token: it is no peer's.")
        case 404 | 405:
            return _Failed(peer, "wrong_answer", "there is no server there that answers peers.")
        case 429:
            return _Failed(peer, "rate_limited", f"it was asked too often{_when(reply)}.")
        case status:
            return _Failed(peer, "failed", f"it could not answer (HTTP status {status}).")


def _when(reply: Reply) -> str:
    seconds = reply.headers.get("retry-after", "")
    if not seconds.isascii() or not seconds.isdecimal() or len(seconds) > 9:
        return ""
    return f"; it may be asked again in {min(int(seconds), LONGEST_WAIT)} seconds"
