"""The tools that a gateway's file describes."""

from collections.abc import Collection
from typing import cast

from everkept.families.gateway.file.parameters import check_parameters
from everkept.families.gateway.file.passing import NAME_RULE
from everkept.families.gateway.file.places import Place, check_keys, is_object, text_of
from everkept.families.gateway.file.schemas import check_root
from everkept.families.gateway.file.targets import target_at
from everkept.families.gateway.model import JSON, Lines, ToolConfig
from everkept.families.gateway.naming import is_name
from everkept.tools.schema import nearest

KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "upstream")
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
    target = target_at(place.needs("upstream", "the tool behind it"), servers)
    if schema is not None and is_schema and target is not None:
        check_parameters(schema, target)
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
        rest=target.rest,
        title=title,
        annotations=annotations,
        output_schema=output and output.value,
        line=place.line,
        lines=_lines(place),
    )


def _lines(place: Place) -> Lines:
    """Of what a server may not fit any more."""
    schema, target = cast(Place, place.get("inputSchema")), cast(Place, place.get("upstream"))
    lines = {("tool",): cast(Place, target.get("tool")).line}
    if annotations := place.get("annotations"):
        lines["annotations",] = annotations.line
    for key, held in (
        ("properties", schema.get("properties")),
        ("paramMapping", target.get("paramMapping")),
        ("constants", target.get("constants")),
        ("defaults", target.get("defaults")),
    ):
        if held is not None and isinstance(held.value, dict):
            lines[key,] = held.line
            lines |= {(key, name): member.line for name, member in held.members()}
    return lines


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
