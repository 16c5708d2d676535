"""What a tool of a gateway's file becomes at the server behind it."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from everkept.families.gateway.file.paths import Path, Taken, joined_path, split_path
from everkept.families.gateway.file.places import (
    Place,
    check_keys,
    is_object,
    shown_value,
    text_of,
)
from everkept.families.gateway.model import JSON, REST
from everkept.tools.schema import nearest

KEYS = ("server", "tool", "paramMapping", "constants", "defaults")


class Target(NamedTuple):
    """The tool behind one of ours; `place` is where the file says so."""

    place: Place
    server: str
    tool: str
    mapping: dict[str, Path]
    rest: Path | None
    constants: dict[Path, Any]
    defaults: JSON
    taken: Taken


def target_at(place: Place | None, servers: Collection[str]) -> Target | None:
    """None where so much is wrong that there is nothing to make; every fault is noted."""
    if place is None or not is_object(place):
        return None
    check_keys(place, KEYS)
    server = _server(place, servers)
    tool = text_of(place.needs("tool", "the name that the tool has at the server"))
    mapping_at = place.needs("paramMapping", "our parameters and the server's, or {} for none")
    taken = Taken()
    mapping = _mapping(mapping_at, taken)
    constants = _constants(place.get("constants"), taken)
    rest = _rest(mapping_at, taken)
    defaults = _defaults(place.get("defaults"), mapping)
    if server is None or tool is None or mapping_at is None:
        return None
    return Target(place, server, tool, mapping, rest, constants, defaults, taken)


def _server(place: Place, servers: Collection[str]) -> str | None:
    named = place.get("server")
    if named is None:
        if len(servers) > 1:
            place.refuse(
                f"{place.name} does not say which server it means.",
                f"Add `server`: one of {', '.join(servers)}.",
            )
        return next(iter(servers)) if len(servers) == 1 else None
    server = text_of(named)
    if server is None or server in servers:
        return server
    close = nearest(server, list(servers))
    known = f"It can be {', '.join(servers) or 'none: the file names no server'}."
    named.refuse(
        f"There is no server {shown_value(server)} in the file.",
        f"Did you mean `{close}`?" if close else known,
    )
    return None


def _mapping(place: Place | None, taken: Taken) -> dict[str, Path]:
    if place is None or not is_object(place):
        return {}
    mapping: dict[str, Path] = {}
    for parameter, member in place.members():
        text = None if parameter == REST else text_of(member)
        if text is not None and (path := _path(text, member, taken)):
            mapping[parameter] = path
    return mapping


def _rest(mapping: Place | None, taken: Taken) -> Path | None:
    """Where everything goes that has no entry; beside the others, never inside one of them."""
    place = mapping.get(REST) if mapping is not None and isinstance(mapping.value, dict) else None
    text = text_of(place)
    if place is None or text is None or text == REST:
        return None if text is None else ()
    path = _split(text, place)
    if path is not None and (other := taken.filled(path)):
        _refuse_meeting(text, other, place, taken)
        return None
    return path


def _constants(place: Place | None, taken: Taken) -> dict[Path, Any]:
    if place is None or not is_object(place):
        return {}
    constants: dict[Path, Any] = {}
    for text, member in place.members():
        if path := _path(text, member, taken):
            constants[path] = member.value
    return constants


def _path(text: str, place: Place, taken: Taken) -> Path | None:
    """The keys of a path that no other meets; they are taken from then on."""
    path = _split(text, place)
    if path is None:
        return None
    if other := taken.met(path):
        _refuse_meeting(text, other, place, taken)
        return None
    taken.add(path, place.line)
    return path


def _split(text: str, place: Place) -> Path | None:
    path = split_path(text)
    if path is None:
        place.refuse(
            f"The path {shown_value(text)} has an empty part, or a backslash before another sign.",
            "Write it like `search.text`; a dot in a name is written `\\\\.`.",
        )
    return path


def _refuse_meeting(text: str, other: Path, place: Place, taken: Taken) -> None:
    place.refuse(
        f"The path {shown_value(text)} meets {shown_value(joined_path(other))} of line "
        f"{taken.lines[other]}: both would fill the same place.",
        "Send one of them elsewhere, or take it out.",
    )


def _defaults(place: Place | None, mapping: Mapping[str, Path]) -> JSON:
    if place is None or not is_object(place):
        return {}
    for parameter, member in place.members():
        if parameter not in mapping:
            close = nearest(parameter, list(mapping))
            member.refuse(
                f"{member.name} is for a parameter that `paramMapping` does not have.",
                f"Did you mean `{close}`?"
                if close
                else "Map it there; a value that is always the same belongs into `constants`.",
            )
    return place.value
