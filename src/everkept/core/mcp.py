"""MCP as server and gateway share it: constants, JSON, lines of bytes, and other MCP servers."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Protocol
from urllib.parse import urlsplit

from everkept.core.sessions import Report
from everkept.patterns import compile_late
from everkept.values import Value, field

# Revisions that begin with a handshake, the oldest first, and the one that needs none.
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"

META_PREFIX = "io.modelcontextprotocol/"  # how the protocol's own keys in `_meta` begin
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # bytes of one message, on every transport


_STANDARD = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ESCAPING = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def encode(value: Any) -> str:
    """Return the JSON text of plain values; raise ValueError if NaN or Infinity is among them."""
    return encode_utf8(value).decode()


def encode_utf8(value: Any) -> bytes:
    """Return the same text as bytes."""
    import orjson  # takes milliseconds to load, and neither a start nor a hook needs it

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


def _has_null(data: bytes) -> bool:
    """Whether a value is null, or a text seems to have one. A pattern takes 20 ms a megabyte."""
    place = data.find(b"null")
    while place > 0 and data[place - 1] not in b"[:,":
        place = data.find(b"null", place + 4)
    return place >= 0


_KEPT_BYTES = 4096  # bytes of either end of a line that is too long
_TAIL_BYTES = 400  # bytes at the end of a line that an id is looked for in

# The id of a message that cannot be read as a whole, where the usual writers put it.
_ID = rb'"id"\s*:\s*(\d{1,18}|"[^"\\]{0,200}")\s*'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID_AT_HEAD = compile_late(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",")
_ID_AT_TAIL = compile_late(_ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*$")


class OverlongLine(Value):
    """A line that was dropped because it is too long; its ends may tell what it was."""

    head: bytes
    tail: bytes


class LineBuffer:
    """Takes bytes in any pieces, and gives whole lines without their ends."""

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
        """What came after the last end of a line."""
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
    """The id of a message of which only the ends are known; None where they do not tell."""
    if not head.lstrip().startswith(b"{"):
        return None
    found = _ID_AT_HEAD.match(head) or _ID_AT_TAIL.search(tail[-_TAIL_BYTES:])
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:  # a text that is none
        return None


JSON = dict[str, Any]

SINGLE_UPSTREAM = "upstream"  # the name of an upstream that stands alone in its file
GATEWAY_CLIENT = "everkept-gateway"  # the name under which a gateway greets the servers behind it
CONNECT_SECONDS = 60.0  # the first start of a package may have to fetch it
CALL_SECONDS = 120.0  # clients themselves rarely wait longer
MAX_RENEWALS = 10  # how many times its time a call may take that tells of progress

_SWITCHES = ("-y", "--yes", "-m")  # what may stand before the name of what is to be run
# A package, a script or a module: no address, and nothing that is said beside a name.
_NAME = compile_late(r"@?[\w.-]+(?:/[\w.-]+)*(?:@[\w.^~-]+)?")

VARIABLE = compile_late(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # of ours, inside a value


class UpstreamProgram(Value):
    """A program that speaks MCP on its standard input and output.

    Of our environment it gets a short list of what every program needs, and `env` beside; there
    `${NAME}` inside a value stands for a variable of ours.
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None  # absolute; None: the home folder, and never the one we are in

    @property
    def label(self) -> str:
        """What a person calls it: `npx @x/y`. Further arguments are left out: a key may be
        among them."""
        from everkept.core.secrets import mask_text

        # Someone may have given a whole line.
        program = mask_text(PurePath(self.command.partition(" -")[0]).name)[0]
        rest = [argument for argument in self.args if argument not in _SWITCHES][:1]
        names = [PurePath(a).name if PurePath(a).is_absolute() else a for a in rest]
        shown = [n for n in names if n[:1] != "-" and _NAME.fullmatch(n) and not mask_text(n)[1]]
        return " ".join((program, *shown))


class UpstreamEndpoint(Value):
    """An address that speaks MCP over Streamable HTTP; headers may hold `${NAME}` too."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def label(self) -> str:
        """Its host: all else may hold a key."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:  # it is none
            return ""


class UpstreamSettings(Value):
    """One upstream, and how patient we are with it.

    Each word of progress gives a call its `call_timeout` anew, up to MAX_RENEWALS times that in
    all.
    """

    name: str
    way: UpstreamProgram | UpstreamEndpoint
    connect_timeout: float = CONNECT_SECONDS
    call_timeout: float = CALL_SECONDS
    starts_at_once: bool = False  # else at the first use

    @property
    def label(self) -> str:
        """What errors and the log call it: its name where it was given one."""
        return self.name if self.name != SINGLE_UPSTREAM else self.way.label or self.name


class Upstream(Protocol):
    """A server behind the gateway. It is started when it is first needed, and again after it
    ended; every failure is an UpstreamUnavailable or an UpstreamError of one call alone.

    Nothing is kept of what it answers: each question reaches the server.
    """

    @property
    def name(self) -> str: ...

    def start(self) -> None:
        """Begins to connect, without waiting for it."""
        ...

    async def list_tools(self) -> list[JSON]:
        """Its tools, as it describes them: every page of tools/list."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, Any], report: Report | None = None) -> JSON:
        """The result of a tool, as it came but for what belongs to the protocol alone.

        `report` is told of progress; without it none is asked for. A call that is cancelled is
        cancelled there too. An answer with `isError` is a result like any other.
        """
        ...

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        """Has `tell` called whenever it says that its tools have changed, or was connected anew."""
        ...

    async def close(self) -> None:
        """Ends the connection, and with it the program if we started one. Takes a few seconds at
        most, whatever the program does."""
        ...


class ToolUsage(Value):
    """Calls of one tool: a sum that others are added to."""

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
    """What is known of it on this machine."""

    async def add_usage(self, rows: Sequence[ToolUsage]) -> None:
        """Adds to what is stored, all of it or nothing, whatever others add meanwhile."""
        ...

    async def list_usage(self) -> list[ToolUsage]:
        """One for each tool that was called, the most called first and then by name."""
        ...


def sum_usage(rows: Iterable[ToolUsage]) -> list[ToolUsage]:
    """One for each tool, the most called first and then by name."""
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
