"""Other people's servers: their identity, questions to them, and their answers."""

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
PEER_PATHS = "/peers/"  # prefix of everything that other servers may request
SEARCH_PATH, INFO_PATH = PEER_PATHS + "search", PEER_PATHS + "info"
MAX_RESULTS = 50  # of one answer
MAX_QUESTION_CHARACTERS = 10_000
DEFAULT_SECONDS = 5.0  # for an answer
MAX_SECONDS = 60.0
MAX_PEERS = 32
PEER_SCORE_FACTOR = 0.9  # weight of a peer's score compared with ours
# Result types that can be requested.
HISTORY_TYPES = ("conversation", "decision", "code")
MEMORY_TYPES = ("memory", "entity", "relation")
RESULT_TYPES = (*HISTORY_TYPES, *MEMORY_TYPES)

_SOURCE_PREFIX = "peer:"
_TOKEN = re.compile(r"[!-~]{1,500}")
_SHA256 = re.compile(r"(?:sha-?256(?: fingerprint)?[:=])?((?:[0-9a-f]{2}:?){31}[0-9a-f]{2})", re.IGNORECASE)


class Peer(Value):
    """Server that searches may ask. Its certificate identifies it, not its name.

    `fingerprint` is the SHA-256 of the certificate in 64 hexadecimal digits.
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
        """Return the source that results name."""
        return format_source(self.name)


class PeerAnswer(Value):
    """Findings of one server, best first. They are well-formed but not trusted.

    `notices` are sentences about what it could not search.
    """

    peer: str
    findings: tuple[SearchFinding, ...] = ()
    notices: tuple[str, ...] = ()


class PeerFault(Value):
    """Why a server gave no answer, in a sentence that names it. `reason` is the same without the name."""

    peer: str
    code: str
    message: str
    reason: str = ""


class PeerQuestion(Value):
    """Question to a server. Empty `types` means all."""

    query: str
    types: tuple[str, ...] = ()
    limit: int = 10


class PeerAnswers(Value):
    """Answers of all peers. `faults` includes those of the peer list itself."""

    answers: Sequence[PeerAnswer] = ()
    faults: Sequence[PeerFault] = ()
    is_anybody: bool = True  # False if no server is known


class Peers(Protocol):
    """All peers that searches may ask. A late or invalid answer is a fault."""

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        """Ask all at the same time, each within its own limit."""
        ...


class NoPeers:
    """No peers: for callers that may not ask, and for servers without peers."""

    async def ask(self, question: PeerQuestion) -> PeerAnswers:
        return PeerAnswers(is_anybody=False)


def format_source(name: str) -> str:
    return f"{_SOURCE_PREFIX}{name}"


def parse_source(source: str) -> str | None:
    """Return the peer's name from a source, or None if the source is not a peer."""
    return source.removeprefix(_SOURCE_PREFIX) if source.startswith(_SOURCE_PREFIX) else None


def validate_peer_name(name: str) -> str:
    """Return the name as answers show it."""
    plain = name.strip().lower()
    if not re.fullmatch(NAME_PATTERN, plain):
        shown = escape_name(clip_text(name, MAX_NAME_CHARACTERS))
        raise InvalidInput(
            f'"{shown}" is not a valid name for a peer.',
            hint=f"Use 1 to {MAX_NAME_CHARACTERS} characters of a-z, 0-9, `.`, `_` and `-`.",
            argument="name",
            value=shown,
        )
    return plain


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of an address such as https://host:8443."""
    try:
        parts = urlsplit(address.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme == "http":
        raise _build_address_error(address, "is not encrypted, so others could read the token")
    is_bare = parts.path in ("", "/") and not (parts.query or parts.fragment)
    if parts.scheme != "https" or not host or not is_bare or port == 0:
        raise _build_address_error(address, "is not the address of a server")
    if "@" in parts.netloc:
        raise _build_address_error(f"https://{host}", "contains a user name or password")
    if not host.isascii() or not host.isprintable() or " " in host:
        raise _build_address_error(address, "has an invalid host")
    return host, 443 if port is None else port


def _build_address_error(address: str, reason: str) -> InvalidInput:
    shown = escape_name(clip_text(address, 200))
    return InvalidInput(
        f"{shown} {reason}.", hint="Use https://HOST:PORT with nothing after it.", argument="address", value=shown
    )


def parse_fingerprint(text: str) -> str:
    """Return the 64 digits of a fingerprint with colons, capitals or the prefix `sha256:`."""
    found = _SHA256.fullmatch(text.strip())
    if found is None:
        shown = escape_name(clip_text(text, 100))
        raise InvalidInput(
            f"{shown} is not the fingerprint of a certificate.",
            hint="Use sha256: and 64 hexadecimal digits. `everkept peer identity` prints it on the peer's machine.",
            argument="fingerprint",
            value=shown,
        )
    return found[1].replace(":", "").lower()


def validate_token(text: str) -> str:
    token = text.strip()
    if not _TOKEN.fullmatch(token):
        what = "contains characters that a token cannot have" if token else "is empty"
        raise InvalidInput(
            f"The token {what}.", hint="Use the word that `everkept token --peer` prints on the peer's machine."
        )
    return token


def format_fingerprint(digits: str) -> str:
    return f"sha256:{digits}"
