"""Why a server over HTTP gave no answer, in words for a person."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import cast

import httpx2

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, BUSY = 401, 403, 404, 405, 429

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError)
NOT_KNOWN = "Whether the call took effect is not known, so it was not repeated."


class Kind(Enum):
    UNREACHED = auto()  # nothing was sent
    EXPIRED = auto()  # it was refused unread: the session is over
    BROKEN = auto()  # it was sent, and the connection ended before the answer did
    REFUSED = auto()  # answered, with something else than an answer
    UNREADABLE = auto()  # answered, with what cannot be passed on


@dataclass(frozen=True, slots=True)
class Fault:
    """`reason` is the end of a sentence about the server, without a full stop."""

    kind: Kind
    reason: str
    hint: str | None = None
    status: int | None = None


EXPIRED = Fault(
    Kind.EXPIRED, "no longer knows our session", "It answers other calls: try this one again."
)
SILENT = Fault(Kind.BROKEN, "gave no answer", NOT_KNOWN)


def of_exception(error: Exception, place: str) -> Fault:
    """What a failure of the network means; `place` is where the server should be."""
    if isinstance(error, httpx2.ProxyError):
        return _unreached(place, "the proxy refuses it", "HTTPS_PROXY and NO_PROXY say which.")
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return _unreached(
            place, "it accepts no connection", "Is it running, and the way to it open?"
        )
    if isinstance(error, httpx2.ConnectError):
        return _of_connecting(error, place)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return _unreached(place, "its address or headers cannot be sent", None)
    if isinstance(error, httpx2.TimeoutException):
        return Fault(Kind.BROKEN, f"stopped reading or writing at {place}", NOT_KNOWN)
    if isinstance(error, httpx2.DecodingError):
        return unreadable("its compression is broken")
    reason = f"ended the connection at {place} before its answer was complete"
    return Fault(Kind.BROKEN, reason, NOT_KNOWN)


def of_end(place: str) -> Fault:
    """A stream that has no answer in it."""
    return Fault(Kind.BROKEN, f"ended its answer at {place} before it was complete", NOT_KNOWN)


def unreadable(why: str) -> Fault:
    return Fault(Kind.UNREADABLE, f"gave an answer that cannot be read: {why}")


def overlong(limit: int) -> Fault:
    return Fault(Kind.UNREADABLE, f"gave an answer of more than {limit:,} bytes")


def _of_connecting(error: Exception, place: str) -> Fault:
    for cause in _causes(error):
        match cause:
            case ssl.SSLCertVerificationError():
                why = getattr(cause, "verify_message", None) or "it cannot be verified"
                return _unreached(
                    place,
                    f"its certificate is not trusted ({why})",
                    "SSL_CERT_FILE may name a file with the certificates that you trust.",
                )
            case ssl.SSLError():
                reason = getattr(cause, "reason", None) or "no reason is given"
                return _unreached(place, f"TLS failed ({reason})", "Does it speak https there?")
            case socket.gaierror():
                return _unreached(place, "there is no such host", "Check its `url`.")
            case ConnectionRefusedError():
                return _unreached(place, "the connection is refused", "Is it running?")
            case _:
                continue
    return _unreached(place, "no connection comes about", "Is it running, and the way to it open?")


def _unreached(place: str, why: str, hint: str | None) -> Fault:
    return Fault(Kind.UNREACHED, f"cannot be reached at {place}: {why}", hint)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """All that led to it: causes, contexts and the members of groups."""
    waiting, seen = [error], set[int]()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        if isinstance(current, BaseExceptionGroup):
            waiting.extend(cast(BaseExceptionGroup[BaseException], current).exceptions)
        waiting.extend(
            linked for linked in (current.__cause__, current.__context__) if linked is not None
        )


def of_status(status: int, place: str) -> Fault:
    """An answer that is an HTTP status alone."""
    hints = {
        UNAUTHORIZED: "Check the `headers` of this server: it wants other credentials.",
        FORBIDDEN: "Check the `headers` of this server: these may not do that.",
        NOT_FOUND: "Check its `url`: it must be the address of the MCP endpoint, path included.",
        NOT_ALLOWED: "It speaks no Streamable HTTP there; the older HTTP+SSE is not supported.",
        BUSY: "It wants fewer calls: wait a while.",
    }
    failing = "It is in trouble itself: try again later." if status >= 500 else None
    reason = f"answered with {_named(status)} at {place}"
    return Fault(Kind.REFUSED, reason, hints.get(status, failing), status)


def of_redirect(status: int, location: str, place: str) -> Fault:
    return Fault(
        Kind.REFUSED,
        f"sends us from {place} to {location} ({status}), which is not followed",
        "Give that address as its `url` if it is the right one.",
        status,
    )


def of_content(content_type: str, place: str) -> Fault:
    """An answer of a kind that no MCP server gives."""
    kind = content_type.partition(";")[0].strip() or "nothing"
    return Fault(
        Kind.REFUSED,
        f"answered with {kind} at {place}, which is no MCP",
        "Check its `url`: it must be the address of the MCP endpoint, path included.",
    )


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
