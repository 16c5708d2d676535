"""Tools as another server lists them, which may be anything."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, cast

from everkept.families.gateway.model import JSON, GatewayConfig
from everkept.families.gateway.tool_names import is_name, passed_name, resolved


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
