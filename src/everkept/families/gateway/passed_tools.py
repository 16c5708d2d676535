"""The tools that a gateway's file passes through, and whether all names fit together."""

from collections.abc import Iterator, Mapping, Sequence

from everkept.core.json_text import Key
from everkept.families.gateway.file_values import (
    Place,
    check_keys,
    is_object,
    shown_value,
    text_of,
    texts_of,
)
from everkept.families.gateway.model import PassThrough, Problem, ToolConfig, UpstreamConfig
from everkept.families.gateway.tool_names import LONGEST, is_name, passed_name

KEYS = ("prefix", "only", "hide", "rename", "trustReadOnlyHint")
NAME_RULE = f"1 to {LONGEST} of the characters A-Z, a-z, 0-9, `_`, `.` and `-`"


def pass_through_at(place: Place | None) -> PassThrough | None:
    """None where none are; every fault is noted."""
    if place is None or place.value is False:
        return None
    if place.value is True:
        return PassThrough(lines={"": place.line})
    if not isinstance(place.value, dict):
        place.must_be("true, or an object in { }")
        return None
    check_keys(place, KEYS)
    only, hide = place.get("only"), place.get("hide")
    passed = PassThrough(
        prefix=_prefix(place.get("prefix")),
        only=tuple(_distinct(only)) if only else None,
        hide=tuple(_distinct(hide)),
        rename=_rename(place.get("rename")),
        trusts_read_only_hint=_is_true(place.get("trustReadOnlyHint")),
        lines=_lines(place),
    )
    _check_choices(place, passed)
    return passed


def _prefix(place: Place | None) -> str:
    text = text_of(place, can_be_empty=True) or ""
    if place is not None and text and not is_name(text):
        place.must_be(NAME_RULE)
    return text


def _is_true(place: Place | None) -> bool:
    if place is not None and not isinstance(place.value, bool):
        place.must_be("true or false")
    return place is not None and place.value is True


def _distinct(place: Place | None) -> list[str]:
    names = texts_of(place)
    twice = sorted({name for name in names if names.count(name) > 1})
    if place is not None and twice:
        place.refuse(f"{place.name} has {shown_value(twice[0])} twice.", "Keep one of them.")
    return names


def _rename(place: Place | None) -> dict[str, str]:
    if place is None or not is_object(place):
        return {}
    renamed: dict[str, str] = {}
    for theirs, member in place.members():
        ours = text_of(member)
        if ours is not None and not is_name(ours):
            member.must_be(NAME_RULE)
        elif ours is not None:
            renamed[theirs] = ours
    return renamed


def _lines(place: Place) -> dict[str, int]:
    """A new name says more of a tool than that it is among the others."""
    lines = {"": place.line}
    for key in ("only", "hide"):
        listed = place.get(key)
        items = listed.items() if listed and isinstance(listed.value, list) else ()
        lines |= {item.value: item.line for item in items if isinstance(item.value, str)}
    renamed = place.get("rename")
    if renamed and isinstance(renamed.value, dict):
        lines |= {theirs: member.line for theirs, member in renamed.members()}
    return lines


def _check_choices(place: Place, passed: PassThrough) -> None:
    """Whether what is said of one tool fits together."""
    rename, hide = place.get("rename"), place.get("hide")
    for name in passed.hide:
        if hide is not None and passed.only is not None and name in passed.only:
            hide.refuse(f"{shown_value(name)} is in `hide` and in `only`.", "Keep one of them.")
    for theirs in passed.rename:
        member = rename and rename.get(theirs)
        if member is None:
            continue
        if theirs in passed.hide:
            member.refuse(
                f"{shown_value(theirs)} has a new name, and is in `hide`.", "Keep one of them."
            )
        elif passed.only is not None and theirs not in passed.only:
            member.refuse(
                f"{shown_value(theirs)} has a new name, and is not in `only`.",
                "Add it there, or take the new name out.",
            )


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
