"""Whether the names that a gateway's file gives to its tools stand beside each other."""

from collections.abc import Iterator, Mapping, Sequence

from everkept.core.json_text import Key
from everkept.families.gateway.file.places import Place, shown_value
from everkept.families.gateway.model import PassThrough, Problem, ToolConfig, UpstreamConfig
from everkept.families.gateway.naming import is_name, passed_name


def check_clashes(
    root: Place,
    tools: Sequence[ToolConfig],
    places: Mapping[str, Place],
    upstreams: Mapping[str, UpstreamConfig],
) -> None:
    """Notes names that are there twice, and new names for tools that are described as well.

    What else a server passes through is known only when it has been asked.
    """
    described = {(tool.upstream, tool.tool): tool for tool in tools}
    offered = list(_named(root))
    for server, config in upstreams.items():
        if config.pass_through is not None:
            lines = _passed_lines(places[server], config.pass_through)
            for theirs, line in lines.items():
                name = passed_name(theirs, config.pass_through)
                tool = described.get((server, theirs))
                if name is not None and tool is None:
                    offered.append((name, line))
                elif tool is not None and theirs in config.pass_through.rename:
                    root.notes.warnings.append(_unused(theirs, line, tool))
    root.notes.problems.extend(_clashes(offered))


def _named(root: Place) -> Iterator[tuple[str, int]]:
    """The names in `tools` with their lines, also of those that have other faults."""
    tools = root.get("tools")
    for item in tools.items() if tools and isinstance(tools.value, list) else ():
        name = item.get("name") if isinstance(item.value, dict) else None
        if name is not None and is_name(name.value):
            yield name.value, name.line


def _passed_lines(server: Place, through: PassThrough) -> dict[str, int]:
    """The tools of a server that the file itself says are passed through, with their lines."""
    path: tuple[Key, ...] = (*server.path, "passThrough")
    line = server.notes.document.line
    only = {name: line((*path, "only", i)) for i, name in enumerate(through.only or ())}
    return only | {name: line((*path, "rename", name)) for name in through.rename}


def _clashes(offered: Sequence[tuple[str, int]]) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for name, line in sorted(offered, key=lambda offer: offer[1]):
        if name in first:
            yield Problem(
                line,
                f"Two tools are called {shown_value(name)}: here and in line {first[name]}.",
                "Give one of them another name.",
            )
        first.setdefault(name, line)


def _unused(theirs: str, line: int, tool: ToolConfig) -> Problem:
    return Problem(
        line,
        f"The new name of {shown_value(theirs)} is never used: line {tool.line} describes it.",
        "Take one of them out.",
    )
