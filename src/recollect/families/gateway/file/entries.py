"""The tools that a gateway's file describes, and what each becomes behind it."""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

from recollect.families.gateway.file.passing import NAME_RULE
from recollect.families.gateway.file.paths import Path, Taken, joined_path, split_path
from recollect.families.gateway.file.places import (
    Place,
    check_keys,
    is_object,
    shown_value,
    text_of,
)
from recollect.families.gateway.file.schemas import check_root, parameters_of
from recollect.families.gateway.model import JSON, ToolConfig
from recollect.families.gateway.naming import is_name
from recollect.tools.schema import nearest

KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "upstream")
TARGET_KEYS = ("server", "tool", "paramMapping", "constants", "defaults")
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_ELSEWHERE = {
    "parameters": "Did you mean `inputSchema`?",
    "input_schema": "Did you mean `inputSchema`?",
    "output_schema": "Did you mean `outputSchema`?",
    "tool": "It belongs into `upstream`.",
    "server": "It belongs into `upstream`.",
    "paramMapping": "It belongs into `upstream`.",
    "constants": "It belongs into `upstream`.",
    "defaults": "It belongs into `upstream`.",
}


class _Target(NamedTuple):
    server: str
    tool: str
    mapping: dict[str, Path]
    constants: dict[Path, Any]
    defaults: JSON


def tool_at(place: Place, servers: Collection[str]) -> ToolConfig | None:
    """None where something is wrong with it; every fault is noted."""
    if not is_object(place):
        return None
    check_keys(place, KEYS, _ELSEWHERE)
    name = _name(place.needs("name", "what the assistant calls the tool"))
    title = text_of(place.get("title"))
    description = text_of(
        place.needs("description", "a sentence that says what the tool does"), can_be_empty=True
    )
    schema = place.needs("inputSchema", "the JSON Schema of its parameters")
    is_schema = schema is not None and check_root(schema)
    annotations = _annotations(place.get("annotations"))
    output = place.get("outputSchema")
    is_output = output is None or check_root(output)
    target = _target(place.needs("upstream", "the tool behind it"), servers)
    if schema is not None and is_schema and target is not None:
        _warn_of_parameters(schema, place, target)
    if name is None or description is None or target is None or not (is_schema and is_output):
        return None
    return ToolConfig(
        name=name,
        description=description,
        input_schema=cast(Place, schema).value,
        upstream=target.server,
        tool=target.tool,
        mapping=target.mapping,
        constants=target.constants,
        defaults=target.defaults,
        title=title,
        annotations=annotations,
        output_schema=output and output.value,
        line=place.line,
    )


def _name(place: Place | None) -> str | None:
    if place is None:
        return None
    if not is_name(place.value):
        place.must_be(f"a text in quotes: {NAME_RULE}")
        return None
    return place.value


def _annotations(place: Place | None) -> JSON | None:
    if place is None or not is_object(place):
        return None
    for key, member in place.members():
        if key in HINTS and not isinstance(member.value, bool):
            member.must_be("true or false")
        elif key == "title":
            text_of(member)
        elif key not in HINTS:
            close = nearest(key, HINTS)
            fix = f"Did you mean `{close}`?" if close else f"Known: title, {', '.join(HINTS)}."
            member.warn(f"{member.name} is a hint that clients do not know.", fix)
    return place.value


def _target(place: Place | None, servers: Collection[str]) -> _Target | None:
    if place is None or not is_object(place):
        return None
    check_keys(place, TARGET_KEYS)
    server = _server(place, servers)
    tool = text_of(place.needs("tool", "the name that the tool has at the server"))
    mapping_at = place.needs("paramMapping", "our parameters and the server's, or {} for none")
    taken = Taken()
    mapping = _mapping(mapping_at, taken)
    constants = _constants(place.get("constants"), taken)
    defaults = _defaults(place.get("defaults"), mapping)
    if server is None or tool is None or mapping_at is None:
        return None
    return _Target(server, tool, mapping, constants, defaults)


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
        text = text_of(member)
        if text is not None and (path := _path(text, member, taken)):
            mapping[parameter] = path
    return mapping


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
    path = split_path(text)
    if path is None:
        place.refuse(
            f"The path {shown_value(text)} has an empty part, or a backslash before another sign.",
            "Write it like `search.text`; a dot in a name is written `\\\\.`.",
        )
        return None
    other = taken.met(path)
    if other is not None:
        place.refuse(
            f"The path {shown_value(text)} meets {shown_value(joined_path(other))} of line "
            f"{taken.lines[other]}: both would fill the same place.",
            "Send one of them elsewhere, or take it out.",
        )
        return None
    taken.add(path, place.line)
    return path


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


def _warn_of_parameters(schema: Place, tool: Place, target: _Target) -> None:
    mapping = cast(Place, cast(Place, tool.get("upstream")).get("paramMapping"))
    known, required = parameters_of(schema)
    for parameter in target.mapping:
        if known is not None and parameter not in known:
            cast(Place, mapping.get(parameter)).warn(
                f"`inputSchema` has no parameter {shown_value(parameter)}: nobody will send it.",
                "Add it to `properties`, or take it out here.",
            )
    for parameter in required:
        if parameter not in target.mapping:
            mapping.warn(
                f"`inputSchema` requires {shown_value(parameter)}, which is never passed on.",
                "Map it to a parameter of the server, or take it out of `required`.",
            )
