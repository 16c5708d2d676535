"""Other people's servers: how they are known, what they are asked, and what they answer."""

import re
from collections.abc import Sequence
from typing import Protocol
from urllib.parse import urlsplit

from everkept.core.answers import SearchFinding
from everkept.core.sessions import MAX_NAME_CHARACTERS, NAME_PATTERN
from everkept.core.text import clip_text
from everkept.errors import InvalidInput, escape_name
from everkept.values import Value, field

PROTOCOL_VERSION = 1  # of questions and answers
PEER_PATHS = "/peers/"  # how all that other servers may ask for begins
SEARCH_PATH, INFO_PATH = PEER_PATHS + "search", PEER_PATHS + "info"
MAX_RESULTS = 50  # of one answer
MAX_QUESTION_CHARACTERS = 10_000
DEFAULT_SECONDS = 5.0  # seconds that an answer may take
MAX_SECONDS = 60.0
MAX_PEERS = 32
PEER_SCORE_FACTOR = 0.9  # what a score of a peer counts beside one of our own
# What can be asked for: how results call themselves.
HISTORY_TYPES = ("conversation", "decision", "code")
MEMORY_TYPES = ("memory", "entity", "relation")
RESULT_TYPES = (*HISTORY_TYPES, *MEMORY_TYPES)

_SOURCE_PREFIX = "peer:"
_TOKEN = re.compile(r"[!-~]{1,500}")
_SHA256 = re.compile(r"(?:sha-?256(?: fingerprint)?[:=])?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)


class Peer(Value):
    """A server that may be asked. It is known by its certificate, whatever name that has.

    `fingerprint` are the 64 hexadecimal digits of the SHA-256 of the certificate.
    """

    name: str
    host: str
    port: int
    fingerprint: str
    token: str = field(repr=False)
    time_limit: float = DEFAULT_SECONDS

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    @property
    def source(self) -> str:
        """What results say of where they come from."""
        return format_source(self.name)


class PeerAnswer(Value):
    """What one server has found, best first; nothing in it is trusted but that it is well-formed.

    `notices` are sentences about what it could not look at.
    """

    peer: str
    findings: tuple[SearchFinding, ...] = ()
    notices: tuple[str, ...] = ()


class PeerFault(Value):
    """Why a server gave no answer, in a sentence that names it; `reason` is the same without."""

    peer: str
    code: str
    message: str
    reason: str = ""


class PeerQuestion(Value):
    """What a server is asked; no `types` are all."""

    query: str
    types: tuple[str, ...] = ()
    limit: int = 10


class PeerAnswers(Value):
    """What asking everybody came to; `faults` are also those of the list of peers itself."""

    answers: Sequence[PeerAnswer] = ()
    faults: Sequence[PeerFault] = ()
    is_anybody: bool = True  # False where no server is known that could be asked


class Peers(Protocol):
    """Everybody who may be asked. Whoever does not answer in time, or well, is a fault."""

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        """All at once, none longer than its own limit."""
        ...


class NoPeers:
    """Nobody: for who may not ask, or where nobody can be."""

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        return PeerAnswers(is_anybody=False)


def format_source(name: str) -> str:
    return f"{_SOURCE_PREFIX}{name}"


def parse_source(source: str) -> str | None:
    """The name of the peer that a source is; None where it is none."""
    return source.removeprefix(_SOURCE_PREFIX) if source.startswith(_SOURCE_PREFIX) else None


def validate_peer_name(name: str) -> str:
    """As answers will name the server."""
    plain = name.strip().lower()
    if not re.fullmatch(NAME_PATTERN, plain):
        shown = escape_name(clip_text(name, MAX_NAME_CHARACTERS))
        raise InvalidInput(
            f'"{shown}" cannot name a peer: 1 to {MAX_NAME_CHARACTERS} of the letters a to z, '
            f"digits, "
            "`.`, `_` and `-` can.",
            argument="name",
            value=shown,
        )
    return plain


def parse_address(address: str) -> tuple[str, int]:
    """Host and port of an address such as https://host:8443."""
    try:
        parts = urlsplit(address.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme == "http":
        raise _build_address_error(address, "is not encrypted, so that others could read the token")
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment)
    if parts.scheme != "https" or not host or not is_bare or port == 0:
        raise _build_address_error(address, "is no address of a server")
    if "@" in parts.netloc:
        raise _build_address_error(f"https://{host}", "has a name or a password in it")
    if not host.isascii() or not host.isprintable() or " " in host:
        raise _build_address_error(address, "has a host that is no name or number")
    return host, 443 if port is None else port


def _build_address_error(address: str, reason: str) -> InvalidInput:
    shown = escape_name(clip_text(address, 200))
    return InvalidInput(
        f"{shown} {reason}.",
        hint="An address is https://HOST:PORT, and nothing behind it.",
        argument="address",
        value=shown,
    )


def parse_fingerprint(text: str) -> str:
    """Its 64 digits, however it was written: with colons, in capitals, after `sha256:`."""
    found = _SHA256.fullmatch(text.strip())
    if found is None:
        shown = escape_name(clip_text(text, 100))
        raise InvalidInput(
            f"{shown} is no fingerprint of a certificate.",
            hint="It is sha256: and 64 hexadecimal digits; `everkept peer identity` on the peer's machine prints it.",
            argument="fingerprint",
            value=shown,
        )
    return found[1].replace(":", "").lower()


def validate_token(text: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        what = "holds characters that no token has" if token else "is empty"
        raise InvalidInput(
            f"The token {what}.", hint="It is one word, which `everkept token --peer` on the peer's machine prints."
        )
    return token


def format_fingerprint(digits: str) -> str:
    return f"sha256:{digits}"
