"""Asking other servers, all at once, each for as long as it may take and no longer."""

import asyncio
import json
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

from everkept.core.peers import (
    INFO_PATH,
    MOST_RESULTS,
    PROTOCOL,
    QUESTION_LIMIT,
    SEARCH_PATH,
    Asked,
    Peer,
    PeerAnswer,
    PeerFault,
    PeerQuestion,
    shown_fingerprint,
)
from everkept.core.secrets import masked
from everkept.core.text import clipped
from everkept.errors import InvalidInput
from everkept.peers.answers import NotUnderstood, answer_of, program_of
from everkept.peers.book import PeerBook
from everkept.peers.wire import NotHttp, Reply, Stranger, exchanged
from everkept.values import Value

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
