"""Client that searches peer servers over HTTPS and identifies each by its certificate.

A peer's answer is untrusted: every field is checked, masked and shortened.
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

from everkept.core.answers import SearchFinding, SearchType
from everkept.core.context_text import sanitize_text
from everkept.core.peers import (
    HISTORY_TYPES,
    INFO_PATH,
    MAX_QUESTION_CHARACTERS,
    MAX_RESULTS,
    PROTOCOL_VERSION,
    RESULT_TYPES,
    SEARCH_PATH,
    Peer,
    PeerAnswer,
    PeerAnswers,
    PeerFault,
    PeerQuestion,
    format_fingerprint,
)
from everkept.core.secrets import mask_text
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_iso, parse_time
from everkept.errors import InvalidInput
from everkept.peers.peer_file import PeerFile
from everkept.values import Value

MAX_CONTENT_CHARACTERS = 4_000
MAX_ANSWER_CHARACTERS = 100_000  # total of the contents in one answer
MAX_LABEL_CHARACTERS = 200
MAX_NOTICES = 5
MAX_SCORE = 1e9  # larger values could break calculations

JSON = Mapping[str, Any]


class InvalidAnswer(Exception):
    """The answer does not follow the protocol; the message says why."""


def parse_answer(peer: Peer, body: bytes, limit: int) -> PeerAnswer:
    """Return the valid results of an answer, shortened, with secrets masked and invisible characters removed."""
    told = _parse_object(body)
    if told.get("version") != PROTOCOL_VERSION:
        shown = clip_text(str(told.get("version")), 20)
        raise InvalidAnswer(f"it has protocol version {shown} instead of {PROTOCOL_VERSION}")
    results = told.get("results")
    if not isinstance(results, list):
        raise InvalidAnswer("it has no list of results")
    given = cast("list[object]", results)[: min(limit, MAX_RESULTS)]
    findings, looked_at = _parse_findings(peer, given)
    if given and not findings:
        raise InvalidAnswer("none of its results can be read")
    findings.sort(key=lambda finding: -finding.score)
    unreadable, unread = looked_at - len(findings), len(given) - looked_at
    warnings = told.get("warnings")
    listed = cast("list[object]", warnings)[:MAX_NOTICES] if isinstance(warnings, list) else []
    notices = [label for each in listed if (label := _parse_label(each))]
    if unreadable:
        notices.append(f"Skipped {unreadable} of {format_count(len(given), 'result')} because they cannot be read.")
    if unread:
        notices.append(f"Skipped {unread} of {format_count(len(given), 'result')} because the answer is too long.")
    return PeerAnswer(peer.name, tuple(findings), tuple(notices))


def parse_program(body: bytes) -> tuple[str, str]:
    told = _parse_object(body)
    name, version = _parse_label(told.get("name")), _parse_label(told.get("version"))
    if not name or not version:
        raise InvalidAnswer("it names no program and version")
    return name, version


def _parse_object(body: bytes) -> JSON:
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise InvalidAnswer("it is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidAnswer("it is not a JSON object")
    return cast(JSON, value)


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


def _parse_findings(peer: Peer, given: Sequence[object]) -> tuple[list[SearchFinding], int]:
    """Return the readable results, and how many were examined before the limit was reached."""
    found: list[SearchFinding] = []
    length = 0
    for number, each in enumerate(given):
        if length >= MAX_ANSWER_CHARACTERS:
            return found, number
        finding = _parse_finding(peer, each)
        if finding is not None:
            found.append(finding)
            length += len(finding.content)
    return found, len(given)


def _parse_finding(peer: Peer, given: object) -> SearchFinding | None:
    """Return a result, or None if it does not follow the protocol."""
    if not isinstance(given, dict):
        return None
    result = cast(JSON, given)
    kind, content, score = result.get("type"), result.get("content"), result.get("score")
    name, at = _parse_label(result.get("id")), _parse_moment(result.get("at"))
    if kind not in RESULT_TYPES or not isinstance(content, str) or not name:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not abs(score) < MAX_SCORE:
        return None
    text = _clean_text(content)
    if not text or (kind in HISTORY_TYPES and at is None):
        return None
    way: SearchType = "graph" if kind in ("entity", "relation") else "semantic"
    return SearchFinding(
        # With the peer's name, because a local record may have the same id.
        id=f"{peer.name}:{name}",
        type=kind,
        content=text,
        score=min(max(float(score), 0.0), 1.0),
        search_type=way,
        title=_parse_label(result.get("title")),
        project=_parse_label(result.get("project")),
        at=at,
    )


def _clean_text(given: str) -> str:
    """Sanitize, mask and shorten a text. Only its first characters are examined."""
    text, _ = mask_text(sanitize_text(given[: 2 * MAX_CONTENT_CHARACTERS]).strip())
    return text if len(text) <= MAX_CONTENT_CHARACTERS else text[: MAX_CONTENT_CHARACTERS - 1] + "…"


def _parse_label(given: object) -> str | None:
    if not isinstance(given, str):
        return None
    text, _ = mask_text(clip_text(sanitize_text(given[: 2 * MAX_LABEL_CHARACTERS]), MAX_LABEL_CHARACTERS))
    return text or None


def _parse_moment(given: object) -> int | None:
    if not isinstance(given, str) or len(given) > 40:
        return None
    try:
        at = parse_time(given)
        format_iso(at)
    except (ValueError, OverflowError):
        return None
    return at


MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 2 * 1024 * 1024
RESOLVER_THREADS = 4  # concurrent name lookups
_CHUNK_BYTES = 64 * 1024


class UnknownCertificate(Exception):
    """The server has another certificate than the known one. `seen` is its fingerprint in hexadecimal."""

    def __init__(self, seen: str) -> None:
        super().__init__(seen)
        self.seen = seen


class InvalidReply(Exception):
    """The reply is not readable HTTP; the message says why."""


class PeerReply(Value):
    status: int
    headers: dict[str, str]  # by names in lower case
    body: bytes


async def send_request(peer: Peer, method: str, path: str, body: bytes = b"") -> PeerReply:
    """Send one request and return the reply. The caller limits the time.

    Raise UnknownCertificate before anything is sent, InvalidReply, or OSError if there is no connection.
    """
    async with _open_connection(peer) as (reader, writer):
        writer.write(_build_request(peer, method, path, body))
        await writer.drain()
        return await _read_reply(reader)


@asynccontextmanager
async def _open_connection(peer: Peer) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    reader, writer = await _connect(peer, await _resolve_addresses(peer))
    try:
        _check_certificate(peer, writer)
        yield reader, writer
    finally:
        # A regular close would wait for the other side.
        writer.transport.abort()


async def _resolve_addresses(peer: Peer) -> list[str]:
    """Look up the host in separate threads, so that a slow lookup delays only other peers."""
    loop = asyncio.get_running_loop()
    look_up = partial(socket.getaddrinfo, peer.host, peer.port, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(_get_resolvers(), look_up)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _connect(peer: Peer, addresses: list[str]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers."""
    for number, address in enumerate(addresses, start=1):
        try:
            return await asyncio.open_connection(
                address, peer.port, ssl=_get_ssl_context(), server_hostname=peer.host, limit=MAX_HEAD_BYTES
            )
        except ssl.SSLError:
            raise
        except OSError:
            if number == len(addresses):
                raise
    raise OSError(f"{peer.host} has no address")


@cache
def _get_resolvers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="peer-resolver")


@cache
def _get_ssl_context() -> ssl.SSLContext:
    """Return a context that accepts every certificate: `_check_certificate` compares the fingerprint instead."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.options |= ssl.OP_NO_RENEGOTIATION  # the checked certificate cannot change later
    return context


def _check_certificate(peer: Peer, writer: asyncio.StreamWriter) -> None:
    connection: ssl.SSLObject = writer.get_extra_info("ssl_object")
    certificate = connection.getpeercert(binary_form=True) or b""
    seen = hashlib.sha256(certificate).hexdigest()
    if not certificate or not hmac.compare_digest(seen, peer.fingerprint):
        raise UnknownCertificate(seen)


def _build_request(peer: Peer, method: str, path: str, body: bytes) -> bytes:
    # In HTTP/1.0 a reply is not chunked and ends with the connection.
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


async def _read_reply(reader: asyncio.StreamReader) -> PeerReply:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise InvalidReply("its headers are too long") from None
    except asyncio.IncompleteReadError as error:
        raise InvalidReply("it is incomplete" if error.partial else "it is empty") from None
    status, headers = _parse_head(head)
    if "transfer-encoding" in headers:
        raise InvalidReply("it is chunked, which HTTP/1.0 does not allow")
    return PeerReply(status, headers, await _read_body(reader, headers.get("content-length")))


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    version, _, rest = first.partition(" ")
    digits = rest[:3]
    if not version.startswith("HTTP/1.") or len(digits) != 3 or not digits.isdecimal():
        raise InvalidReply("it is not HTTP")
    parts = [line.partition(":") for line in lines]
    return int(digits), {name.strip().lower(): value.strip() for name, _, value in parts}


async def _read_body(reader: asyncio.StreamReader, announced: str | None) -> bytes:
    """Return the complete body. Raise InvalidReply if it is cut off or too long."""
    body = bytearray()
    while chunk := await reader.read(_CHUNK_BYTES):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise InvalidReply(f"it has more than {MAX_BODY_BYTES:,} bytes")
    if announced is not None and announced != str(len(body)):
        raise InvalidReply(f"it has {format_count(len(body), 'byte')} instead of {announced[:20]}")
    return bytes(body)


T = TypeVar("T")

MAX_RETRY_SECONDS = 86_400  # longest wait that a warning repeats from a peer


class ReachedPeer(Value):
    peer: str
    program: str
    version: str
    milliseconds: float


class HttpPeers:
    """The listed peers, asked over HTTPS. Nothing is kept between two questions."""

    def __init__(self, book: PeerFile) -> None:
        self._book = book

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        try:
            listed = self._book.read_peers()
        except InvalidInput as error:
            return PeerAnswers(faults=[PeerFault("", "peers_unreadable", str(error))])
        if not listed.peers:
            return PeerAnswers(is_anybody=False)
        body = _encode_question(question)
        limit = min(question.limit, MAX_RESULTS)

        async def asked(peer: Peer) -> PeerAnswer | PeerFault:
            try:
                read = partial(parse_answer, peer, limit=limit)
                return await _request_in_time(peer, "POST", SEARCH_PATH, read, body)
            except _PeerFailure as failed:
                return failed.fault

        outcomes = await asyncio.gather(*map(asked, listed.peers))
        about_file = [PeerFault("", "peers_file_open", said) for said in listed.warnings]
        return PeerAnswers(
            [each for each in outcomes if isinstance(each, PeerAnswer)],
            [*(each for each in outcomes if isinstance(each, PeerFault)), *about_file],
        )


async def greet_peer(peer: Peer) -> ReachedPeer | PeerFault:
    """Check whether a peer answers, has the known certificate and accepts our token."""
    started = perf_counter()
    try:
        program, version = await _request_in_time(peer, "GET", INFO_PATH, parse_program)
    except _PeerFailure as failed:
        return failed.fault
    return ReachedPeer(peer.name, program, version, round((perf_counter() - started) * 1000, 1))


def _encode_question(question: PeerQuestion) -> bytes:
    """Encode a question, with secrets masked: none leaves this machine."""
    query, _ = mask_text(question.query)
    asked: dict[str, object] = {
        "version": PROTOCOL_VERSION,
        "query": query[:MAX_QUESTION_CHARACTERS],
        "limit": min(question.limit, MAX_RESULTS),
    }
    if question.types:
        asked["types"] = list(question.types)
    return json.dumps(asked).encode("ascii")


class _PeerFailure(Exception):
    def __init__(self, peer: Peer, code: str, reason: str) -> None:
        super().__init__(reason)
        message = f'No results from peer "{peer.name}": {reason}'
        self.fault = PeerFault(peer.name, f"peer_{code}", message, reason)


async def _request_in_time(peer: Peer, method: str, path: str, read: Callable[[bytes], T], body: bytes = b"") -> T:
    """Return the parsed answer with status 200. Raise _PeerFailure in all other cases."""
    limit = asyncio.timeout(peer.time_limit)
    try:
        async with limit:
            reply = await send_request(peer, method, path, body)
            if reply.status != 200:
                raise _build_refusal(peer, reply)
            # In a thread: a large answer takes a moment to parse.
            return await asyncio.to_thread(read, reply.body)
    except UnknownCertificate as stranger:
        reason = (
            f"{peer.address} has another certificate, {format_fingerprint(stranger.seen)}. Nothing was sent. "
            "Ask the peer's owner. If they confirm this fingerprint, remove the peer and add it again."
        )
        raise _PeerFailure(peer, "wrong_certificate", reason) from None
    except (InvalidReply, InvalidAnswer) as error:
        raise _PeerFailure(peer, "wrong_answer", f"its answer is invalid: {error}.") from None
    except ssl.SSLError as error:
        reason = clip_text(error.reason or type(error).__name__)
        raise _PeerFailure(peer, "unreachable", f"{peer.address} does not use TLS: {reason}.") from None
    except (OSError, UnicodeError) as error:  # includes TimeoutError, also our own
        if limit.expired():
            late = f"no answer within {peer.time_limit:g} seconds."
            raise _PeerFailure(peer, "timed_out", late) from None
        reason = clip_text(_describe_error(error))
        raise _PeerFailure(peer, "unreachable", f"cannot reach {peer.address}: {reason}.") from None


def _describe_error(error: OSError | UnicodeError) -> str:
    """Describe the error with the system's text, because asyncio words failed connections differently."""
    if isinstance(error, OSError):
        is_of_names = isinstance(error, socket.gaierror)  # has error numbers with another meaning
        if error.errno is not None and os.name == "posix" and not is_of_names:
            return os.strerror(error.errno)
        return error.strerror or str(error) or type(error).__name__
    return str(error)


def _build_refusal(peer: Peer, reply: PeerReply) -> _PeerFailure:
    match reply.status:
        case 401:
            return _PeerFailure(peer, "refused", "its server does not know our token, or revoked it.")
        case 403:
            return _PeerFailure(peer, "refused", "our token is not a peer token.")
        case 404 | 405:
            return _PeerFailure(peer, "wrong_answer", "the server at this address does not answer peers.")
        case 429:
            return _PeerFailure(peer, "rate_limited", f"too many requests{_format_retry(reply)}.")
        case status:
            return _PeerFailure(peer, "failed", f"its server failed with HTTP status {status}.")


def _format_retry(reply: PeerReply) -> str:
    seconds = reply.headers.get("retry-after", "")
    if not seconds.isascii() or not seconds.isdecimal() or len(seconds) > 9:
        return ""
    return f"; try again in {format_count(min(int(seconds), MAX_RETRY_SECONDS), 'second')}"
