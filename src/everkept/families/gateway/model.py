"""The content of a gateway's file: the servers behind it, and the tools in front of them."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from everkept.core.mcp import SINGLE_UPSTREAM as SINGLE_UPSTREAM
from everkept.core.mcp import UpstreamSettings
from everkept.tools.schema import find_nearest
from everkept.values import Value, field

JSON = dict[str, Any]

REST = "*"  # in a mapping: every parameter without an entry

LinesByKeys = Mapping[tuple[str, ...], int]  # lines of the parts of an entry, by their keys


class PassThrough(Value):
    """Tools of an upstream that are offered unchanged, under its names with a prefix."""

    prefix: str = ""
    only: tuple[str, ...] | None = None  # None: all
    hide: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])  # name at the upstream to ours
    trusts_read_only_hint: bool = False  # whether to trust the upstream about its tools
    # Line of each tool that the file mentions, by its name at the upstream; "" is the whole entry.
    lines: Mapping[str, int] = field(default_factory=dict[str, int], compare=False)


class UpstreamConfig(Value):
    reach: UpstreamSettings
    pass_through: PassThrough | None = None
    line: int = 0

    @property
    def name(self) -> str:
        return self.reach.name

    def get_line(self, tool: str = "") -> int:
        """Return the line that says whether a tool is passed through."""
        if self.pass_through is None:
            return self.line
        return self.pass_through.lines.get(tool, self.pass_through.lines.get("", self.line))


class ToolConfig(Value):
    """A tool of ours, and the tool behind it.

    `mapping` maps our parameters to paths in the upstream's arguments, `constants` maps such paths to values.
    `defaults` are for parameters that a call omits. A path is a tuple of keys.

    Parameters without an entry go, under their own names, into the object at the path `rest`. An empty `rest` means the
    arguments themselves; without `rest` these parameters are not sent.
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
    lines: LinesByKeys = field(default_factory=dict[tuple[str, ...], int], compare=False)

    def get_line(self, *keys: str) -> int:
        """Return the line of a part such as `"paramMapping", "query"`, or the line of the entry."""
        return self.lines.get(keys, self.line)


class GatewayConfig(Value):
    upstreams: Mapping[str, UpstreamConfig]
    tools: tuple[ToolConfig, ...] = ()
    instructions: str | None = None


class FileProblem(Value):
    """A fault in a gateway's file: its line, a message, and a fix."""

    line: int
    message: str
    fix: str = ""
    fails_calls: bool = False  # of a warning: the file is usable, but calls fail

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" + (f" {self.fix}" if self.fix else "")


MAX_NAME_CHARACTERS = 128  # the protocol's limit
PREFIX_SEPARATOR = "__"  # some clients put it between server and tool

_MAX_COMPARED_NAMES = 100  # an upstream may have any number of names, of any length

_NAME_PATTERN = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARACTERS}}}")
_FORBIDDEN_PATTERN = re.compile(r"[^A-Za-z0-9_.-]")


def is_name(text: object) -> bool:
    """Return whether a tool may have this name."""
    return isinstance(text, str) and _NAME_PATTERN.fullmatch(text) is not None


def resolve_name(wanted: str, known: Collection[str]) -> str | None:
    """Return the tool with this name, or with the part of it after a `__`; the longest part wins.

    A client shows `search` of the server `notes` as `notes__search`, and a file may use that name too.
    """
    if wanted in known:
        return wanted
    start = wanted.find(PREFIX_SEPARATOR)
    while start >= 0:
        bare = wanted[start + len(PREFIX_SEPARATOR) :]
        if bare in known:
            return bare
        start = wanted.find(PREFIX_SEPARATOR, start + 1)
    return None


def find_likeliest(wrong: str, known: Iterable[str]) -> str | None:
    """Return the most similar name, compared with only the first names and none that is too long."""
    first = islice(known, _MAX_COMPARED_NAMES)
    return find_nearest(wrong[:MAX_NAME_CHARACTERS], [name for name in first if len(name) <= MAX_NAME_CHARACTERS])


def find_passed_name(theirs: str, through: PassThrough) -> str | None:
    """Return our name of a passed-through tool, or None if it is not offered. A new name gets no prefix."""
    if theirs in through.hide or (through.only is not None and theirs not in through.only):
        return None
    return through.rename.get(theirs, through.prefix + theirs)


def fix_name(name: str, taken: Collection[str] = ()) -> str:
    """Return the most similar valid name that is not taken."""
    name = (_FORBIDDEN_PATTERN.sub("_", name) or "tool")[:MAX_NAME_CHARACTERS]
    fixed, number = name, 2
    while fixed in taken:
        ending = f"_{number}"
        fixed = name[: MAX_NAME_CHARACTERS - len(ending)] + ending
        number += 1
    return fixed


class PassedTool(NamedTuple):
    """A tool that is passed through, with its name here and at the upstream."""

    ours: str
    theirs: str
    listing: JSON


def select_named(tools: Sequence[Any]) -> list[JSON]:
    """Return the tools that have a name; the others cannot be called."""
    return [
        cast(JSON, tool) for tool in tools if isinstance(tool, dict) and isinstance(cast(JSON, tool).get("name"), str)
    ]


def find_mapped(config: GatewayConfig, upstream: str, known: Collection[str]) -> set[str]:
    """Return the tools of an upstream that have an entry in the file, by their names there."""
    known = set(known)
    found = (resolve_name(tool.tool, known) for tool in config.tools if tool.upstream == upstream)
    return {name for name in found if name is not None}


def find_passed(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> Iterator[PassedTool]:
    """Yield the tools of an upstream that are passed through, including those with a fault."""
    through = config.upstreams[upstream].pass_through
    if through is None:
        return
    listed = select_named(tools)
    mapped = find_mapped(config, upstream, [tool["name"] for tool in listed])
    for tool in listed:
        theirs: str = tool["name"]
        ours = find_passed_name(theirs, through)
        if ours is not None and theirs not in mapped:
            yield PassedTool(ours, theirs, {**_drop_page(tool), "name": ours})


def _drop_page(tool: JSON) -> JSON:
    """Return a listed tool without the page that draws its result in a chat.

    Clients would read the page from us, and each server has its own. Who may call the tool stays.
    """
    meta: Any = tool.get("_meta")
    if not isinstance(meta, dict):
        return tool
    kept = {key: value for key, value in cast(JSON, meta).items() if not str(value).startswith("ui://")}
    if isinstance(kept.get("ui"), dict):
        kept["ui"] = {key: value for key, value in cast(JSON, kept["ui"]).items() if key != "resourceUri"}
    kept = {key: value for key, value in kept.items() if key != "ui" or value}
    rest = {key: value for key, value in tool.items() if key != "_meta"}
    return rest | {"_meta": kept} if kept else rest


def find_fault(listing: JSON) -> str | None:
    """Return why a listed tool cannot be offered, or None."""
    if not is_name(listing.get("name")):
        return "its name must be 1 to 128 of A-Z, a-z, 0-9, `_`, `.` and `-`"
    schema = listing.get("inputSchema")
    if not isinstance(schema, dict) or cast(JSON, schema).get("type") != "object":
        return "its inputSchema is not the schema of an object"
    if not isinstance(listing.get("description", ""), str):
        return "its description is not text"
    for key in ("annotations", "outputSchema", "_meta"):
        if key in listing and not isinstance(listing[key], dict):
            return f"its {key} is not an object"
    return None
