"""What a gateway's file says: the servers behind it, and the tools in front of them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from everkept.core.mcp import ONLY as ONLY
from everkept.core.mcp import Reach
from everkept.tools.schema import nearest
from everkept.values import Value, field

JSON = dict[str, Any]

REST = "*"  # in a mapping: every parameter that has no entry of its own

Lines = Mapping[tuple[str, ...], int]  # where things stand in an entry, by the keys to them


class PassThrough(Value):
    """Tools of an upstream that are offered as they are, under its names with a prefix."""

    prefix: str = ""
    only: tuple[str, ...] | None = None  # None: all
    hide: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])  # theirs -> ours
    trusts_read_only_hint: bool = False  # what the upstream says of its own tools
    # Of each tool that is spoken of, by its name there; under "" of the whole.
    lines: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)


class UpstreamConfig(Value):
    reach: Reach
    pass_through: PassThrough | None = None
    line: int = 0

    @property
    def name(self) -> str:
        return self.reach.name

    def line_of(self, tool: str = "") -> int:
        """Where it is said that a tool of its is passed through."""
        if self.pass_through is None:
            return self.line
        return self.pass_through.lines.get(tool, self.pass_through.lines.get("", self.line))


class ToolConfig(Value):
    """A tool of ours, and the tool behind it.

    `mapping` goes from our parameters to paths in the upstream's arguments, `constants` from
    such paths to values; `defaults` are for parameters of ours that a call leaves out. A path
    is a tuple of keys. Parameters without an entry go, under their own names, into the object at
    the path `rest`, which is empty for the arguments themselves; without `rest` they go nowhere.
    """

    name: str
    description: str
    input_schema: JSON
    upstream: str
    tool: str
    mapping: Mapping[str, tuple[str, ...]]
    constants: Mapping[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])
    defaults: JSON = field(default_factory=dict[str, Any])
    rest: tuple[str, ...] | None = None
    title: str | None = None
    annotations: JSON | None = None
    output_schema: JSON | None = None
    line: int = 0
    lines: Lines = field(default_factory=dict[tuple[str, ...], int], compare=False)

    def line_of(self, *keys: str) -> int:
        """Of something in the entry, as `"paramMapping", "query"`; else of the entry."""
        return self.lines.get(keys, self.line)


class GatewayConfig(Value):
    upstreams: Mapping[str, UpstreamConfig]
    tools: tuple[ToolConfig, ...] = ()
    instructions: str | None = None


class Problem(Value):
    """Something wrong in a gateway's file: where, what, and how to mend it."""

    line: int
    message: str
    fix: str = ""
    fails_calls: bool = False  # of a warning: the file can be used, and this in it cannot

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" + (f" {self.fix}" if self.fix else "")


LONGEST = 128  # characters; the protocol's limit
PREFIXED = "__"  # between a server and its tool, as some clients show them

_MOST_COMPARED = 100  # names; another server may have any number of them, and of any length

_NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{LONGEST}}}")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_.-]")


def is_name(text: object) -> bool:
    """Whether a tool may be called so."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def resolved(wanted: str, known: Collection[str]) -> str | None:
    """The tool that is meant: of that name, else of what follows a `__` in it, the longest first.

    A client shows `search` of the server `notes` as `notes__search`; a file may have it so too.
    """
    if wanted in known:
        return wanted
    start = wanted.find(PREFIXED)
    while start >= 0:
        bare = wanted[start + len(PREFIXED) :]
        if bare in known:
            return bare
        start = wanted.find(PREFIXED, start + 1)
    return None


def likeliest(wrong: str, known: Iterable[str]) -> str | None:
    """The name that was meant, if it is among the first and they are no longer than names are."""
    first = islice(known, _MOST_COMPARED)
    return nearest(wrong[:LONGEST], [name for name in first if len(name) <= LONGEST])


def passed_name(theirs: str, through: PassThrough) -> str | None:
    """What a tool that is passed through is called here; None where it is not offered.

    A new name from `rename` stands as it is, without the prefix.
    """
    if theirs in through.hide or (through.only is not None and theirs not in through.only):
        return None
    return through.rename.get(theirs, through.prefix + theirs)


def mended(name: str, taken: Collection[str] = ()) -> str:
    """The nearest name that a tool may have, and that none has yet."""
    name = (_FORBIDDEN.sub("_", name) or "tool")[:LONGEST]
    mended, number = name, 2
    while mended in taken:
        ending = f"_{number}"
        mended = name[: LONGEST - len(ending)] + ending
        number += 1
    return mended


class Passed(NamedTuple):
    """A tool that is passed through: what it is called here, and there."""

    ours: str
    theirs: str
    listing: JSON


def named(tools: Sequence[Any]) -> list[JSON]:
    """Those that have a name: nothing else can be called."""
    return [
        cast(JSON, tool)
        for tool in tools
        if isinstance(tool, dict) and isinstance(cast(JSON, tool).get("name"), str)
    ]


def mapped_there(config: GatewayConfig, upstream: str, known: Collection[str]) -> set[str]:
    """The tools of an upstream that have an entry in the file, by their names there."""
    known = set(known)
    found = (resolved(tool.tool, known) for tool in config.tools if tool.upstream == upstream)
    return {name for name in found if name is not None}


def passed(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> Iterator[Passed]:
    """The tools of an upstream that are passed through, fit to be offered or not."""
    through = config.upstreams[upstream].pass_through
    if through is None:
        return
    listed = named(tools)
    mapped = mapped_there(config, upstream, [tool["name"] for tool in listed])
    for tool in listed:
        theirs: str = tool["name"]
        ours = passed_name(theirs, through)
        if ours is not None and theirs not in mapped:
            yield Passed(ours, theirs, {**tool, "name": ours})


def fault_in(listing: JSON) -> str | None:
    """Why a tool cannot be offered as it is listed; None where it can."""
    if not is_name(listing.get("name")):
        return "its name is not 1 to 128 of A-Z, a-z, 0-9, `_`, `.` and `-`"
    schema = listing.get("inputSchema")
    if not isinstance(schema, dict) or cast(JSON, schema).get("type") != "object":
        return "its inputSchema is not that of an object"
    if not isinstance(listing.get("description", ""), str):
        return "its description is no text"
    for key in ("annotations", "outputSchema", "_meta"):
        if key in listing and not isinstance(listing[key], dict):
            return f"its {key} is no object"
    return None
