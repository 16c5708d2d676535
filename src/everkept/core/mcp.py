"""Shared parts of MCP for server and gateway: constants, JSON, lines, and the port to other servers."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Protocol
from urllib.parse import urlsplit

from everkept.core.sessions import Report
from everkept.patterns import compile_late
from everkept.values import Value, field

# Revisions with a handshake, oldest first, and the one without.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"

META_PREFIX = "io.modelcontextprotocol/"  # prefix of the protocol's keys in `_meta`
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # of one message, on every transport
PROTECTED_RESOURCE_PATH = "/.well-known/oauth-protected-resource"  # where a server shows how to sign in


_STANDARD = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPING = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Return plain values as JSON text. Raise ValueError for NaN and Infinity."""
    return encode_utf8(value).decode()


def encode_utf8(value: Any) -> bytes:
    """Return plain values as JSON in UTF-8."""
    import orjson  # takes milliseconds to load; starts and hooks do not need it

    try:
        data = orjson.dumps(value)
    except TypeError:  # an unpaired surrogate, an integer over 64 bits, or a very deep value
        return encode_small(value)
    if not isinstance(value, str) and _has_null(data):
        _STANDARD.encode(value)  # refuses NaN, which orjson writes as null
    return data


def encode_small(value: Any) -> bytes:
    """Return the same text by the standard library, which is loaded anyway."""
    try:
        return _STANDARD.encode(value).encode()
    except UnicodeEncodeError:  # an unpaired surrogate, which only an escape can express
        return _ESCAPING.encode(value).encode()


MAX_VALUES = 250_000  # in one message. Decoding blocks the process, and many small values take long
_JSON_TEXT = compile_late(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def decode_message(data: bytes) -> Any:
    """Return the value of a JSON text. Raise ValueError if it is not valid or has more than MAX_VALUES."""
    check_value_count(data)
    return json.loads(data)


def check_value_count(data: bytes) -> None:
    """Raise ValueError if a JSON text has more than MAX_VALUES."""
    if _count_separators(data) > MAX_VALUES and _count_separators(_JSON_TEXT.sub(b"", data)) > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")


def _count_separators(data: bytes) -> int:
    return sum(map(data.count, (b",", b"[", b"{")))


def _has_null(data: bytes) -> bool:
    """Return whether a value may be null. A pattern would take 20 ms for each megabyte."""
    place = data.find(b"null")
    while place > 0 and data[place - 1] not in b"[:,":
        place = data.find(b"null", place + 4)
    return place >= 0


_KEPT_BYTES = 4096  # kept from each end of a line that is too long
_TAIL_BYTES = 400  # at the end of a line that may contain the id

# The id of an incomplete message, where common writers put it.
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,200}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_AT_HEAD = compile_late(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_AT_TAIL = compile_late(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")


class OverlongLine(Value):
    """Line that was dropped because it is too long. Its ends may identify it."""

    head: bytes
    tail: bytes


class LineBuffer:
    """Buffer that takes bytes in any pieces and returns whole lines without their ends."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None  # of the line that is being dropped

    def feed(self, data: bytes) -> list[bytes | OverlongLine]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes | OverlongLine] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._take_line())
        self._add(rest)
        return lines

    def get_rest(self) -> bytes:
        """Return what follows the last line end."""
        return b"".join(self._parts)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size <= self._limit:
            return
        whole = b"".join(self._parts)
        if self._head is None:
            self._head = whole[:_KEPT_BYTES]
        self._parts = [whole[-_KEPT_BYTES:]]

    def _take_line(self) -> bytes | OverlongLine:
        whole, head = b"".join(self._parts), self._head
        self._parts, self._size, self._head = [], 0, None
        return whole if head is None else OverlongLine(head, whole)


def find_id(head: bytes, tail: bytes) -> str | int | None:
    """Return the id of a message of which only the ends are known, or None."""
    if not head.lstrip().startswith(b"{"):
        return None
    found = _ID_AT_HEAD.match(head) or _ID_AT_TAIL.search(tail[-_TAIL_BYTES:])
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:  # not valid text
        return None


JSON = dict[str, Any]

SINGLE_UPSTREAM = "upstream"  # name of the only upstream of a file
GATEWAY_CLIENT = "everkept-gateway"  # name that the gateway gives to upstreams
CONNECT_SECONDS = 60.0  # the first start may have to download a package
CALL_SECONDS = 120.0  # clients rarely wait longer
MAX_RENEWALS = 10  # by progress, for each call

_SWITCHES = ("-y", "--yes", "-m")  # may come before the name of the package or module
# A package, script or module. Not an address or an option.
_NAME = compile_late(r"@?[\w.-]+(?:/[\w.-]+)*(?:@[\w.^~-]+)?")

VARIABLE = compile_late(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # a variable of our environment inside a value


class UpstreamProgram(Value):
    """Program that speaks MCP on its standard input and output.

    It gets a short list of variables that every program needs, and `env`. In a value of `env`, `${NAME}` is a variable
    of our environment.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None  # absolute; None: the home folder, never our working folder

    @property
    def label(self) -> str:
        """Return a short name such as `npx @x/y`. Other arguments are omitted, because they may contain a key."""
        from everkept.core.secrets import mask_text

        # The command may be a whole line.
        program = mask_text(PurePath(self.command.partition(" -")[0]).name)[0]
        rest = [argument for argument in self.args if argument not in _SWITCHES][:1]
        names = [PurePath(a).name if PurePath(a).is_absolute() else a for a in rest]
        shown = [n for n in names if n[:1] != "-" and _NAME.fullmatch(n) and not mask_text(n)[1]]
        return " ".join((program, *shown))


class UpstreamEndpoint(Value):
    """Address that speaks MCP over Streamable HTTP. Headers may contain `${NAME}` too."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """Return the host. The rest may contain a key."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:  # not a valid address
            return ""


class UpstreamSettings(Value):
    """One upstream and its time limits.

    Each progress notification restarts the `call_timeout` of a call, up to MAX_RENEWALS times.
    """

    name: str
    way: UpstreamProgram | UpstreamEndpoint
    connect_timeout: float = CONNECT_SECONDS
    call_timeout: float = CALL_SECONDS
    starts_at_once: bool = False  # otherwise at the first use

    @property
    def label(self) -> str:
        """Return its name for errors and the log."""
        return self.name if self.name != SINGLE_UPSTREAM else self.way.label or self.name


class Upstream(Protocol):
    """Server behind the gateway. It starts at the first use, and again after it has ended. Each failure is an
    UpstreamUnavailable or UpstreamError of one call.

    Answers are not cached: each question reaches the server.
    """

    @property
    def name(self) -> str: ...

    def start(self) -> None:
        """Start to connect, without waiting."""
        ...

    async def list_tools(self) -> list[JSON]:
        """Return its tools with its own descriptions, from all pages of tools/list."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], report: Report | None = None) -> JSON:
        """Return the result of a tool unchanged, without protocol fields.

        `report` receives progress; without it, none is requested. Canceling the call cancels it on the server. An
        answer with `isError` is a result like any other.
        """
        ...

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the tools have changed or the server has reconnected."""
        ...

    async def close(self) -> None:
        """Close the connection and end a program that we started, within a few seconds."""
        ...


class ToolUsage(Value):
    """Sum of calls of one tool."""

    tool: str
    calls: int
    errors: int
    total_ms: float
    longest_ms: float
    last_at: int  # microseconds since 1970

    @property
    def mean_ms(self) -> float:
        return self.total_ms / self.calls if self.calls else 0.0


class UsageLog(Protocol):
    """Usage of tools on this machine."""

    async def add_usage(self, rows: Sequence[ToolUsage]) -> None:
        """Add to the stored sums, all or none. Other processes may add at the same time."""
        ...

    async def list_usage(self) -> list[ToolUsage]:
        """Return one sum for each tool that was called, most called first, then by name."""
        ...


def sum_usage(rows: Iterable[ToolUsage]) -> list[ToolUsage]:
    """Return one sum for each tool, most called first, then by name."""
    sums: dict[str, ToolUsage] = {}
    for row in rows:
        known = sums.get(row.tool)
        sums[row.tool] = _add_usage(known, row) if known else row
    return sorted(sums.values(), key=lambda usage: (-usage.calls, usage.tool))


def _add_usage(one: ToolUsage, other: ToolUsage) -> ToolUsage:
    return ToolUsage(
        one.tool,
        one.calls + other.calls,
        one.errors + other.errors,
        one.total_ms + other.total_ms,
        max(one.longest_ms, other.longest_ms),
        max(one.last_at, other.last_at),
    )
