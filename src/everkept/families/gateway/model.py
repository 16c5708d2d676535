"""What a gateway's file says: the servers behind it, and the tools in front of them."""

from collections.abc import Mapping
from typing import Any

from everkept.core.mcp import ONLY as ONLY
from everkept.core.mcp import Reach
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
