"""What a gateway's file says: the servers behind it, and the tools in front of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recollect.core.upstreams import Reach

JSON = dict[str, Any]

ONLY = "upstream"  # the name of an upstream that stands alone in its file


@dataclass(frozen=True, slots=True)
class PassThrough:
    """Tools of an upstream that are offered as they are, under its names with a prefix."""

    prefix: str = ""
    only: tuple[str, ...] | None = None  # None: all
    hide: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict[str, str])  # theirs -> ours
    trusts_read_only_hint: bool = False  # what the upstream says of its own tools


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    reach: Reach
    pass_through: PassThrough | None = None
    line: int = 0

    @property
    def name(self) -> str:
        return self.reach.name


@dataclass(frozen=True, slots=True)
class ToolConfig:
    """A tool of ours, and the tool behind it.

    `mapping` goes from our parameters to paths in the upstream's arguments, `constants` from
    such paths to values; `defaults` are for parameters of ours that a call leaves out. A path
    is a tuple of keys.
    """

    name: str
    description: str
    input_schema: JSON
    upstream: str
    tool: str
    mapping: Mapping[str, tuple[str, ...]]
    constants: Mapping[tuple[str, ...], Any] = field(default_factory=dict[tuple[str, ...], Any])
    defaults: JSON = field(default_factory=dict[str, Any])
    title: str | None = None
    annotations: JSON | None = None
    output_schema: JSON | None = None
    line: int = 0


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    upstreams: Mapping[str, UpstreamConfig]
    tools: tuple[ToolConfig, ...] = ()
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a gateway's file: where, what, and how to mend it."""

    line: int
    message: str
    fix: str = ""

    def __str__(self) -> str:
        return f"line {self.line}: {self.message}" + (f" {self.fix}" if self.fix else "")
