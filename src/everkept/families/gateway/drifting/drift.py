"""What has changed behind a gateway's file: found by asking, before a user meets it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from everkept.families.gateway.drifting.comparing import (
    Difference,
    differences,
    listed,
    suggestion,
)
from everkept.families.gateway.drifting.fitting import Level
from everkept.families.gateway.listings import fault_in, mapped_there, named, passed
from everkept.families.gateway.model import JSON, GatewayConfig, PassThrough, ToolConfig
from everkept.families.gateway.naming import resolved
from everkept.families.gateway.schemas.root import Steps, by_name
from everkept.values import Value


class Drift(Value):
    """A difference between the file and a server: an error fails calls, a warning some of them."""

    level: Level
    tool: str | None  # of ours, where it is about one
    message: str
    fix: str = ""
    line: int = 0

    def __str__(self) -> str:
        about = f"{self.tool}: " if self.tool else ""
        return f"line {self.line}: {about}{self.message}" + (f" {self.fix}" if self.fix else "")


def drift(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> list[Drift]:
    """Of one upstream, given its tools as it lists them; in the order of the file."""
    known = {tool["name"]: tool for tool in reversed(named(tools))}
    steps = Steps()
    found = [
        Drift(each.level, tool.name, each.message, each.fix, tool.line_of(*each.where))
        for tool in config.tools
        if tool.upstream == upstream
        for each in _of_tool(tool, known, steps)
    ]
    server = config.upstreams[upstream]
    if server.pass_through is None:
        about = _not_offered(config, upstream, list(reversed(known)))
    else:
        about = (*_chosen(server.pass_through, list(known)), *_passed(config, upstream, tools))
    return found + [
        Drift(each.level, None, each.message, each.fix, server.line_of(*each.where))
        for each in about
    ]


def clashes(config: GatewayConfig, listings: Mapping[str, Sequence[Any]]) -> list[Drift]:
    """Names that tools of two upstreams have here, both passed through."""
    owners: dict[str, str] = {}
    found: list[Drift] = []
    for upstream, tools in listings.items():
        for each in passed(config, upstream, tools):
            owner = owners.setdefault(each.ours, upstream)
            if owner != upstream:
                message = f"{owner} and {upstream} both have a tool `{each.ours}`."
                line = config.upstreams[upstream].line_of(each.theirs)
                found.append(Drift("error", each.ours, message, _TELL_APART, line))
    return found


_TELL_APART = "A `prefix`, or a new name in `rename`, tells them apart."


def _of_tool(tool: ToolConfig, known: Mapping[str, JSON], steps: Steps) -> Iterator[Difference]:
    name = resolved(tool.tool, known)
    if name is None:
        message = f"the server has no tool `{tool.tool}`."
        yield Difference("error", message, suggestion(tool.tool, list(known)), ("tool",))
        return
    if name != tool.tool:
        yield Difference(
            "note",
            f"`{tool.tool}` is called `{name}` there.",
            f"Write `{name}`, which spares a question at the first call.",
            ("tool",),
        )
    listing = known[name]
    yield from _promised(name, by_name(tool.annotations), by_name(listing.get("annotations")))
    schema = listing.get("inputSchema")
    if isinstance(schema, dict):
        yield from differences(tool, cast(JSON, schema), steps)


def _promised(name: str, ours: JSON, theirs: JSON) -> Iterator[Difference]:
    """Where the file says that a tool is milder than it says itself."""
    destroys = theirs.get("destructiveHint") is True and theirs.get("readOnlyHint") is not True
    writes = theirs.get("readOnlyHint") is False or destroys
    if ours.get("readOnlyHint") is True and writes:
        message = f"`{name}` says that it writes, and the file that it only reads."
        fix = "Take `readOnlyHint` out of its annotations."
        yield Difference("warning", message, fix, ("annotations",))
    elif ours.get("destructiveHint") is False and destroys:
        message = f"`{name}` says that it may destroy something, and the file that it does not."
        fix = "Take `destructiveHint` out of its annotations."
        yield Difference("warning", message, fix, ("annotations",))


def _not_offered(
    config: GatewayConfig, upstream: str, known: Sequence[str]
) -> Iterator[Difference]:
    mapped = mapped_there(config, upstream, known)
    free = [name for name in known if name not in mapped]
    if free:
        yield Difference(
            "note",
            f"the server also has {listed(free)}.",
            "An entry in `tools` offers one, `passThrough` all.",
        )


def _chosen(through: PassThrough, known: Sequence[str]) -> Iterator[Difference]:
    """The names that the file chooses of what is passed through."""
    for name in dict.fromkeys((*(through.only or ()), *through.rename)):
        if name not in known:
            message = f"the server has no tool `{name}`, which is to be passed through."
            yield Difference("error", message, suggestion(name, known), (name,))
    for name in through.hide:
        if name not in known:
            message = f"the server has no tool `{name}`, which is hidden."
            yield Difference("note", message, where=(name,))


def _passed(config: GatewayConfig, upstream: str, tools: Sequence[Any]) -> Iterator[Difference]:
    taken = {tool.name for tool in config.tools}
    for each in passed(config, upstream, tools):
        fault = fault_in(each.listing)
        if fault is not None:
            fix = "A new name in `rename` may help, or `hide` it."
            message = f"`{each.theirs}` is not offered: {fault}."
            yield Difference("warning", message, fix, (each.theirs,))
        elif each.ours in taken:
            message = f"`{each.theirs}` is not offered: there is a tool `{each.ours}` already."
            yield Difference("error", message, _TELL_APART, (each.theirs,))
        taken.add(each.ours)
