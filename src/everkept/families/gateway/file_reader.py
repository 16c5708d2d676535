"""The reader of a gateway's file: its servers and tools, or everything that is wrong with it."""

from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from everkept.core.json_text import Document, NotJson
from everkept.families.gateway.file_servers import NAME_RULE, check_clashes, server_at
from everkept.families.gateway.file_values import (
    Notes,
    Path,
    Place,
    Taken,
    check_keys,
    check_root,
    is_list,
    is_object,
    is_text,
    joined_path,
    parameters_of,
    shown_value,
    split_path,
    text_of,
)
from everkept.families.gateway.model import (
    JSON,
    ONLY,
    REST,
    GatewayConfig,
    Lines,
    Problem,
    ToolConfig,
    is_name,
)
from everkept.tools.schema import nearest

TARGET_KEYS = ("server", "tool", "paramMapping", "constants", "defaults")


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
    check_keys(place, TARGET_KEYS)
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


def check_parameters(schema: Place, target: Target) -> None:
    """Notes what nobody will send, and what is sent nowhere."""
    mapping = cast(Place, target.place.get("paramMapping"))
    known, required = parameters_of(schema)
    listed = schema.value.get("properties", {})
    free = [name for name in dict.fromkeys((*required, *listed)) if name not in target.mapping]
    unknown = [name for name in target.mapping if known is not None and name not in known]
    needed = [name for name in free if name in required and target.rest is None]
    for parameter in unknown:
        _warn_of_unknown(cast(Place, mapping.get(parameter)), parameter, needed, free)
    if target.rest is not None:
        _refuse_filled(schema, target, target.rest, free)
        return
    for parameter in free:
        if parameter in needed:
            if not unknown:
                mapping.warn(
                    f"`inputSchema` requires {shown_value(parameter)}, which is never passed on.",
                    "Map it to a parameter of the server, or take it out of `required`.",
                )
        elif listed[parameter] is not False:
            _property(schema, parameter).warn(
                f"{shown_value(parameter)} goes nowhere: `paramMapping` has no entry for it.",
                "Map it to a parameter of the server, or take it out here.",
            )
    _warn_of_unnamed(schema)


def _warn_of_unknown(place: Place, parameter: str, needed: list[str], free: list[str]) -> None:
    close = nearest(parameter, free)
    unknown = f"`inputSchema` has no parameter {shown_value(parameter)}"
    if needed:
        lacking = ", ".join(shown_value(name) for name in needed)
        place.warn(
            f"{unknown}, and requires {lacking}, which goes nowhere.",
            f"Did you mean `{close}`?" if close else f"Write {lacking} here.",
            fails_calls=True,
        )
    else:
        fix = "Add it to `properties`, or take it out here."
        place.warn(f"{unknown}: nobody will send it.", f"Did you mean `{close}`?" if close else fix)


def _refuse_filled(schema: Place, target: Target, rest: tuple[str, ...], free: list[str]) -> None:
    for parameter in free:
        if target.taken.met((*rest, parameter)) and parameter in schema.value.get("properties", {}):
            _property(schema, parameter).refuse(
                f"{shown_value(parameter)} has no entry in `paramMapping`, and something else "
                f"fills the place where `{REST}` sends it.",
                "Give it an entry of its own.",
            )


def _warn_of_unnamed(schema: Place) -> None:
    more = schema.get("additionalProperties")
    if more is not None and more.value is not False:
        more.warn(
            "Parameters that have no name here are allowed, and go nowhere.",
            f'Add `"{REST}": "{REST}"` to `paramMapping`, which sends them as they come, or write '
            "`false` here.",
        )


def _property(schema: Place, name: str) -> Place:
    return cast(Place, cast(Place, schema.get("properties")).get(name))


TOOL_KEYS = (
    "name",
    "title",
    "description",
    "inputSchema",
    "outputSchema",
    "annotations",
    "upstream",
)
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_NOT_IN_TOOLS = {
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
    check_keys(place, TOOL_KEYS, _NOT_IN_TOOLS)
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


KEYS = ("$schema", "upstream", "upstreams", "instructions", "tools")

_NOT_JSON = "The file must be JSON; comments, and a comma at the end of a list, are allowed."
_COMMENTS = "A comment begins with `//`, or stands between `/*` and `*/`."
_ELSEWHERE = {
    "mcpServers": "Write the servers under `upstreams`.",
    "servers": "Write the servers under `upstreams`.",
}


class Reading(NamedTuple):
    """Problems and warnings are in the order of their lines; without problems there is a config."""

    config: GatewayConfig | None
    problems: list[Problem]
    warnings: list[Problem]


def read(text: str, folder: PurePath) -> Reading:
    """What a file says that lies in that folder."""
    try:
        document = Document(text)
    except NotJson as error:
        return Reading(None, [_no_json(text, error)], [])
    notes = Notes(document, [], [])
    config = _config(Place(notes, (), document.value), folder)
    for again in document.repeated:
        place = Place(notes, again.path, None)
        problem = f"{place.name} stands in line {again.first_line} already."
        notes.problems.append(Problem(again.line, problem, "Keep one of them."))
    problems, warnings = (sorted(n, key=lambda n: n.line) for n in (notes.problems, notes.warnings))
    return Reading(None if problems else config, problems, warnings)


def _no_json(text: str, error: NotJson) -> Problem:
    """With a word about comments that are none here."""
    lines = text.removeprefix("\ufeff").split("\n")
    rest = lines[error.line - 1][error.column - 1 :]
    if rest.startswith("/*"):
        return Problem(error.line, "The comment that begins here has no end.", "Close it: `*/`.")
    reason = f"column {error.column}: {error.reason}."
    return Problem(error.line, reason, _COMMENTS if rest.startswith("#") else _NOT_JSON)


def _config(root: Place, folder: PurePath) -> GatewayConfig | None:
    if not is_object(root) or not _is_whole(root):
        return None
    check_keys(root, KEYS, _ELSEWHERE)
    if schema := root.get("$schema"):
        is_text(schema, can_be_empty=True)
    places = _server_places(root)
    servers = {name: server_at(name, place, folder) for name, place in places.items()}
    upstreams = {name: server for name, server in servers.items() if server}
    tools = _tools(root.get("tools"), places)
    instructions = text_of(root.get("instructions"))
    check_clashes(root, tools, places, upstreams)
    if not root.value.get("tools") and not any(
        server.pass_through for server in upstreams.values()
    ):
        root.warn(
            "The file offers no tool.",
            'Describe some in `tools`, or give a server `"passThrough": true`.',
        )
    return GatewayConfig(upstreams, tuple(tools), instructions)


def _is_whole(place: Place) -> bool:
    """Whether no text is cut inside a character, which could not be sent to anybody."""
    below: list[Place] = []
    cut = isinstance(place.value, str) and _is_cut(place.value)
    if isinstance(place.value, dict):
        below = [member for _, member in place.members()]
        cut = any(_is_cut(key) for key, _ in place.members())
    elif isinstance(place.value, list):
        below = list(place.items())
    if cut:
        place.refuse(
            f"{place.name} has a text that is cut inside a character.", "Write both of its halves."
        )
    return not cut and all(_is_whole(member) for member in below)


def _is_cut(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _server_places(root: Place) -> dict[str, Place]:
    """Where each server is described; one that stands alone has a name too."""
    alone, several = root.get("upstream"), root.get("upstreams")
    if alone is not None and several is not None:
        first, second = sorted((alone, several), key=lambda place: place.line)
        second.refuse(
            f"The file has {first.name} in line {first.line}, and {second.name} too.",
            "Put every server into `upstreams`, or keep `upstream` for a single one.",
        )
    if alone is not None:
        return {ONLY: alone}
    if several is None:
        root.refuse(
            "The file names no server.",
            "Add `upstream` with the `command` or the `url` of one, or `upstreams` with several.",
        )
        return {}
    if not is_object(several):
        return {}
    places = dict(several.members())
    if not places:
        several.refuse("`upstreams` is empty.", "Name at least one server.")
    for name, place in places.items():
        if not is_name(name):
            place.refuse(
                f"A server is called {shown_value(name)}.", f"Its name must be {NAME_RULE}."
            )
    return places


def _tools(place: Place | None, servers: Mapping[str, Place]) -> list[ToolConfig]:
    if place is None or not is_list(place):
        return []
    return [tool for item in place.items() if (tool := tool_at(item, servers))]
