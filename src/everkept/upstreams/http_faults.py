"""Why a server over HTTP gave no answer, in words for a person."""

import socket
import ssl
from collections.abc import Iterator
from enum import Enum, auto
from http import HTTPStatus
from typing import cast

import httpx2

from everkept.values import Value, replace

BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, BUSY = 400, 401, 403, 404, 405, 429
SEE_OTHER, FAILED, NOT_IMPLEMENTED = 303, 500, 501
PAGE = "text/html"

# UnicodeError: a host whose name cannot be looked up.
FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError)
CHECK_URL = "Check its `url`: it must be the address of the MCP endpoint, path included."
IS_RUNNING = "Is it running, and the way to it open?"


class Kind(Enum):
    UNREACHED = auto()  # nothing was sent
    EXPIRED = auto()  # it was refused unread: the session is over
    BROKEN = auto()  # it was sent, and the connection ended before the answer did
    REFUSED = auto()  # answered: it was not done
    UNCLEAR = auto()  # answered, with what does not tell whether it was done
    UNREADABLE = auto()  # answered, with what cannot be passed on


class Fault(Value):
    """`reason` is the end of a sentence about the server, without a full stop. `hint` and
    `may_pass` hold where the request itself changes nothing there."""

    kind: Kind
    reason: str
    hint: str | None = None
    status: int | None = None
    may_pass: bool = False  # of itself: the same may work later

    @property
    def is_open(self) -> bool:
        """Whether the request may have had its effect."""
        return self.kind in (Kind.BROKEN, Kind.UNCLEAR)


class NoAnswer(Exception):
    """No answer came to a request, or one that cannot be passed on."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


EXPIRED = Fault(
    Kind.EXPIRED,
    "no longer knows our session",
    "It answers other calls: try this one again.",
    may_pass=True,
)


def of_exception(error: Exception, place: str) -> Fault:
    """What a failure of the network means; `place` is where the server should be."""
    if isinstance(error, httpx2.ProxyError):
        return _unreached(place, "the proxy refuses it", "HTTPS_PROXY and NO_PROXY say which.")
    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return _unreached(place, "it accepts no connection", IS_RUNNING, may_pass=True)
    if isinstance(error, httpx2.ConnectError):
        return _of_connecting(error, place)
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError | UnicodeError):
        return _unreached(place, "its address or headers cannot be sent", None)
    if isinstance(error, httpx2.TimeoutException):
        return _broken(f"stopped reading or writing at {place}")
    if isinstance(error, httpx2.DecodingError):
        return unreadable("its compression is broken")
    return _broken(f"ended the connection at {place} before its answer was complete")


def of_end(place: str) -> Fault:
    """A stream that has no answer in it."""
    return _broken(f"ended its answer at {place} before it was complete")


def not_resumed(why: Fault) -> Fault:
    """A stream that broke off, and whose rest cannot be had."""
    said = f"ended its answer before it was complete; asked for the rest, it {why.reason}"
    return replace(_broken(said), status=why.status)


def _broken(reason: str) -> Fault:
    return Fault(Kind.BROKEN, reason, IS_RUNNING, may_pass=True)


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
            case socket.gaierror(errno=socket.EAI_AGAIN):
                why, hint = "its name cannot be looked up now", "Is there a network?"
                return _unreached(place, why, hint, may_pass=True)
            case socket.gaierror():
                return _unreached(place, "there is no such host", "Check its `url`.")
            case ConnectionRefusedError():
                why = "the connection is refused"
                return _unreached(place, why, "Is it running?", may_pass=True)
            case _:
                continue
    return _unreached(place, "no connection comes about", IS_RUNNING, may_pass=True)


def _unreached(place: str, why: str, hint: str | None, *, may_pass: bool = False) -> Fault:
    reason = f"cannot be reached at {place}: {why}"
    return Fault(Kind.UNREACHED, reason, hint, may_pass=may_pass)


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


def of_status(status: int, place: str, content_type: str = "") -> Fault:
    """An answer that is an HTTP status alone, or a page for people."""
    hints = {
        UNAUTHORIZED: "Check the `headers` of this server: it wants other credentials.",
        FORBIDDEN: "Check the `headers` of this server: these may not do that.",
        NOT_FOUND: CHECK_URL,
        NOT_ALLOWED: f"{CHECK_URL} The older HTTP+SSE is not supported.",
        NOT_IMPLEMENTED: CHECK_URL,
        BUSY: "It wants fewer calls: wait a while.",
    }
    reason = f"answered with {_named(status)} at {place}"
    if status >= FAILED and status not in hints:
        later = "It is in trouble itself: try again later."
        return Fault(Kind.UNCLEAR, reason, later, status, may_pass=True)
    hint = hints.get(status, CHECK_URL if content_type.startswith(PAGE) else None)
    return Fault(Kind.REFUSED, reason, hint, status, may_pass=status == BUSY)


def of_redirect(status: int, location: str, place: str) -> Fault:
    return Fault(
        Kind.UNCLEAR if status == SEE_OTHER else Kind.REFUSED,
        f"sends us from {place} to {location} ({status}), which is not followed",
        "Give that address as its `url` if it is the right one.",
        status,
    )


def of_content(content_type: str, place: str) -> Fault:
    """An answer of a kind that no MCP server gives."""
    kind = content_type.partition(";")[0].strip() or "nothing"
    reason = f"answered with {kind} at {place}, which is no MCP"
    return Fault(Kind.UNCLEAR, reason, CHECK_URL)


def _named(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
