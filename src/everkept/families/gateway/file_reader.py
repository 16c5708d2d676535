"""The reader of a gateway's file: returns its servers and tools, or everything that is wrong with it."""

from collections.abc import Collection, Mapping
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from everkept.core.json_text import JsonDocument, NotJson
from everkept.families.gateway.file_servers import NAME_RULE, check_clashes, parse_server
from everkept.families.gateway.file_values import (
    ArgumentPath,
    FileNotes,
    FilePlace,
    TakenPaths,
    check_keys,
    check_root,
    format_value,
    is_list,
    is_object,
    is_text,
    join_path,
    list_parameters,
    parse_text,
    split_path,
)
from everkept.families.gateway.model import (
    JSON,
    REST,
    SINGLE_UPSTREAM,
    FileProblem,
    GatewayConfig,
    LinesByKeys,
    ToolConfig,
    is_name,
)
from everkept.tools.schema import find_nearest

TARGET_KEYS = ("server", "tool", "paramMapping", "constants", "defaults")


class TargetEntry(NamedTuple):
    """The tool behind one of ours. `place` is its entry in the file."""

    place: FilePlace
    server: str
    tool: str
    mapping: dict[str, ArgumentPath]
    rest: ArgumentPath | None
    constants: dict[ArgumentPath, Any]
    defaults: JSON
    taken: TakenPaths


def parse_target(place: FilePlace | None, servers: Collection[str]) -> TargetEntry | None:
    """Parse the server's tool of an entry, and note every fault. Return None if too much is missing."""
    if place is None or not is_object(place):
        return None
    check_keys(place, TARGET_KEYS)
    server = _parse_server(place, servers)
    tool = parse_text(place.require("tool", "the name of the tool at the server"))
    mapping_at = place.require("paramMapping", "a map from our parameters to the server's, or {} for none")
    taken = TakenPaths()
    mapping = _parse_mapping(mapping_at, taken)
    constants = _parse_constants(place.get("constants"), taken)
    rest = _parse_rest(mapping_at, taken)
    defaults = _parse_defaults(place.get("defaults"), mapping)
    if server is None or tool is None or mapping_at is None:
        return None
    return TargetEntry(place, server, tool, mapping, rest, constants, defaults, taken)


def _parse_server(place: FilePlace, servers: Collection[str]) -> str | None:
    named = place.get("server")
    if named is None:
        if len(servers) > 1:
            place.refuse(f"{place.name} does not name a server.", f"Add `server`: one of {', '.join(servers)}.")
        return next(iter(servers)) if len(servers) == 1 else None
    server = parse_text(named)
    if server is None or server in servers:
        return server
    close = find_nearest(server, list(servers))
    known = f"Known: {', '.join(servers)}." if servers else "Add a server to the file."
    named.refuse(f"The file has no server {format_value(server)}.", f"Did you mean `{close}`?" if close else known)
    return None


def _parse_mapping(place: FilePlace | None, taken: TakenPaths) -> dict[str, ArgumentPath]:
    if place is None or not is_object(place):
        return {}
    mapping: dict[str, ArgumentPath] = {}
    for parameter, member in place.iterate_members():
        text = None if parameter == REST else parse_text(member)
        if text is not None and (path := _claim_path(text, member, taken)):
            mapping[parameter] = path
    return mapping


def _parse_rest(mapping: FilePlace | None, taken: TakenPaths) -> ArgumentPath | None:
    """Return the path for parameters without an entry. It must not be inside the path of another one."""
    place = mapping.get(REST) if mapping is not None and isinstance(mapping.value, dict) else None
    text = parse_text(place)
    if place is None or text is None or text == REST:
        return None if text is None else ()
    path = _parse_path(text, place)
    if path is not None and (other := taken.find_filled(path)):
        _refuse_conflict(text, other, place, taken)
        return None
    return path


def _parse_constants(place: FilePlace | None, taken: TakenPaths) -> dict[ArgumentPath, Any]:
    if place is None or not is_object(place):
        return {}
    constants: dict[ArgumentPath, Any] = {}
    for text, member in place.iterate_members():
        if path := _claim_path(text, member, taken):
            constants[path] = member.value
    return constants


def _claim_path(text: str, place: FilePlace, taken: TakenPaths) -> ArgumentPath | None:
    """Return the keys of a path and mark it as taken, unless it conflicts with another."""
    path = _parse_path(text, place)
    if path is None:
        return None
    if other := taken.find_conflict(path):
        _refuse_conflict(text, other, place, taken)
        return None
    taken.add(path, place.line)
    return path


def _parse_path(text: str, place: FilePlace) -> ArgumentPath | None:
    path = split_path(text)
    if path is None:
        place.refuse(
            f"The path {format_value(text)} has an empty part, or a backslash before another character.",
            "Write a path like `search.text`, and a dot in a name as `\\\\.`.",
        )
    return path


def _refuse_conflict(text: str, other: ArgumentPath, place: FilePlace, taken: TakenPaths) -> None:
    place.refuse(
        f"The path {format_value(text)} conflicts with {format_value(join_path(other))} in line "
        f"{taken.lines[other]}: both fill the same place.",
        "Change or remove one of them.",
    )


def _parse_defaults(place: FilePlace | None, mapping: Mapping[str, ArgumentPath]) -> JSON:
    if place is None or not is_object(place):
        return {}
    for parameter, member in place.iterate_members():
        if parameter not in mapping:
            close = find_nearest(parameter, list(mapping))
            fix = "Add the parameter to `paramMapping`, or move a fixed value to `constants`."
            member.refuse(
                f"{member.name} is for a parameter that `paramMapping` does not have.",
                f"Did you mean `{close}`?" if close else fix,
            )
    return place.value


def check_parameters(schema: FilePlace, target: TargetEntry) -> None:
    """Warn about parameters that no call has, and about parameters that are never sent."""
    mapping = cast(FilePlace, target.place.get("paramMapping"))
    known, required = list_parameters(schema)
    listed = schema.value.get("properties", {})
    free = [name for name in dict.fromkeys((*required, *listed)) if name not in target.mapping]
    unknown = [name for name in target.mapping if known is not None and name not in known]
    needed = [name for name in free if name in required and target.rest is None]
    for parameter in unknown:
        _warn_unknown(cast(FilePlace, mapping.get(parameter)), parameter, needed, free)
    if target.rest is not None:
        _refuse_filled(schema, target, target.rest, free)
        return
    for parameter in free:
        if parameter in needed:
            if not unknown:
                mapping.warn(
                    f"`inputSchema` requires {format_value(parameter)}, which is never sent.",
                    "Map it to a parameter of the server, or remove it from `required`.",
                )
        elif listed[parameter] is not False:
            _get_property(schema, parameter).warn(
                f"{format_value(parameter)} is never sent: `paramMapping` has no entry for it.",
                "Map it to a parameter of the server, or remove it here.",
            )
    _warn_unnamed(schema)


def _warn_unknown(place: FilePlace, parameter: str, needed: list[str], free: list[str]) -> None:
    close = find_nearest(parameter, free)
    unknown = f"`inputSchema` has no parameter {format_value(parameter)}"
    if needed:
        lacking = ", ".join(format_value(name) for name in needed)
        place.warn(
            f"{unknown}, but requires {lacking}, which is never sent.",
            f"Did you mean `{close}`?" if close else f"Write {lacking} here.",
            fails_calls=True,
        )
    else:
        fix = "Add it to `properties`, or remove it here."
        place.warn(f"{unknown}, so no call has it.", f"Did you mean `{close}`?" if close else fix)


def _refuse_filled(schema: FilePlace, target: TargetEntry, rest: tuple[str, ...], free: list[str]) -> None:
    for parameter in free:
        if target.taken.find_conflict((*rest, parameter)) and parameter in schema.value.get("properties", {}):
            _get_property(schema, parameter).refuse(
                f"{format_value(parameter)} has no entry in `paramMapping`, but another value "
                f"fills the place where `{REST}` sends it.",
                "Add an entry for it.",
            )


def _warn_unnamed(schema: FilePlace) -> None:
    more = schema.get("additionalProperties")
    if more is not None and more.value is not False:
        more.warn(
            "Parameters without a name here are allowed, but never sent.",
            f'Add `"{REST}": "{REST}"` to `paramMapping` to send them unchanged, or write `false` here.',
        )


def _get_property(schema: FilePlace, name: str) -> FilePlace:
    return cast(FilePlace, cast(FilePlace, schema.get("properties")).get(name))


TOOL_KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "upstream")
HINT_KEYS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_TOOL_KEY_FIXES = {
    "parameters": "Did you mean `inputSchema`?",
    "input_schema": "Did you mean `inputSchema`?",
    "output_schema": "Did you mean `outputSchema`?",
    **dict.fromkeys(TARGET_KEYS, "Move it into `upstream`."),
}


def parse_tool(place: FilePlace, servers: Collection[str]) -> ToolConfig | None:
    """Parse one tool, and note every fault. Return None if there is one."""
    if not is_object(place):
        return None
    check_keys(place, TOOL_KEYS, _TOOL_KEY_FIXES)
    name = _parse_name(place.require("name", "the name of the tool for the assistant"))
    title = parse_text(place.get("title"))
    description = parse_text(place.require("description", "a sentence that says what the tool does"), can_be_empty=True)
    schema = place.require("inputSchema", "the JSON Schema of its parameters")
    is_schema = schema is not None and check_root(schema)
    annotations = _parse_annotations(place.get("annotations"))
    output = place.get("outputSchema")
    is_output = output is None or check_root(output)
    target = parse_target(place.require("upstream", "the server's tool"), servers)
    if schema is not None and is_schema and target is not None:
        check_parameters(schema, target)
    if name is None or description is None or target is None or not (is_schema and is_output):
        return None
    return ToolConfig(
        name=name,
        description=description,
        input_schema=cast(FilePlace, schema).value,
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
        lines=_collect_lines(place),
    )


def _collect_lines(place: FilePlace) -> LinesByKeys:
    """Collect the lines of the parts that may differ from the server's tool."""
    schema, target = (cast(FilePlace, place.get("inputSchema")), cast(FilePlace, place.get("upstream")))
    lines = {("tool",): cast(FilePlace, target.get("tool")).line}
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
            lines |= {(key, name): member.line for name, member in held.iterate_members()}
    return lines


def _parse_name(place: FilePlace | None) -> str | None:
    if place is None:
        return None
    if not is_name(place.value):
        place.refuse_kind(f"a text in quotes: {NAME_RULE}")
        return None
    return place.value


def _parse_annotations(place: FilePlace | None) -> JSON | None:
    if place is None or not is_object(place):
        return None
    for key, member in place.iterate_members():
        if key in HINT_KEYS and not isinstance(member.value, bool):
            member.refuse_kind("true or false")
        elif key == "title":
            parse_text(member)
        elif key not in HINT_KEYS:
            close = find_nearest(key, HINT_KEYS)
            fix = f"Did you mean `{close}`?" if close else f"Known: title, {', '.join(HINT_KEYS)}."
            member.warn(f"{member.name} is a hint that clients do not know.", fix)
    return place.value


FILE_KEYS = ("$schema", "upstream", "upstreams", "instructions", "tools")

_JSON_FIX = "The file must be JSON. Comments and trailing commas are allowed."
_COMMENT_FIX = "Begin a comment with `//`, or write it between `/*` and `*/`."
_KEY_FIXES = {"mcpServers": "Write the servers under `upstreams`.", "servers": "Write the servers under `upstreams`."}


class ParsedFile(NamedTuple):
    """Problems and warnings in the order of their lines, and the config if there are no problems."""

    config: GatewayConfig | None
    problems: list[FileProblem]
    warnings: list[FileProblem]


def parse_file(text: str, folder: PurePath) -> ParsedFile:
    """Parse the text of a file in this folder."""
    try:
        document = JsonDocument(text)
    except NotJson as error:
        return ParsedFile(None, [_build_json_problem(text, error)], [])
    notes = FileNotes(document, [], [])
    config = _parse_config(FilePlace(notes, (), document.value), folder)
    for again in document.repeated:
        place = FilePlace(notes, again.path, None)
        problem = f"{place.name} is already in line {again.first_line}."
        notes.problems.append(FileProblem(again.line, problem, "Keep one of them."))
    problems, warnings = (sorted(n, key=lambda n: n.line) for n in (notes.problems, notes.warnings))
    return ParsedFile(None if problems else config, problems, warnings)


def _build_json_problem(text: str, error: NotJson) -> FileProblem:
    """Build the problem of a file that is not JSON, with a hint about comments."""
    lines = text.removeprefix("\ufeff").split("\n")
    rest = lines[error.line - 1][error.column - 1 :]
    if rest.startswith("/*"):
        return FileProblem(error.line, "The comment that begins here has no end.", "Close it with `*/`.")
    reason = f"column {error.column}: {error.reason}."
    return FileProblem(error.line, reason, _COMMENT_FIX if rest.startswith("#") else _JSON_FIX)


def _parse_config(root: FilePlace, folder: PurePath) -> GatewayConfig | None:
    if not is_object(root) or not _is_whole(root):
        return None
    check_keys(root, FILE_KEYS, _KEY_FIXES)
    if schema := root.get("$schema"):
        is_text(schema, can_be_empty=True)
    places = _find_server_places(root)
    servers = {name: parse_server(name, place, folder) for name, place in places.items()}
    upstreams = {name: server for name, server in servers.items() if server}
    listed = root.get("tools")
    items = listed.iterate_items() if listed is not None and is_list(listed) else ()
    tools = [tool for item in items if (tool := parse_tool(item, places))]
    instructions = parse_text(root.get("instructions"))
    check_clashes(root, tools, places, upstreams)
    is_empty = not root.value.get("tools") and not any(server.pass_through for server in upstreams.values())
    if is_empty and not root.notes.problems:  # otherwise these may be the reason
        root.refuse("The file offers no tool.", 'Add entries to `tools`, or set `"passThrough": true` for a server.')
    return GatewayConfig(upstreams, tuple(tools), instructions)


def _is_whole(place: FilePlace) -> bool:
    """Return whether no text contains an unpaired surrogate, which cannot be sent."""
    below: list[FilePlace] = []
    cut = isinstance(place.value, str) and _is_cut(place.value)
    if isinstance(place.value, dict):
        below = [member for _, member in place.iterate_members()]
        cut = any(_is_cut(key) for key, _ in place.iterate_members())
    elif isinstance(place.value, list):
        below = list(place.iterate_items())
    if cut:
        place.refuse(f"{place.name} contains an unpaired surrogate (invalid Unicode).", "Write the whole pair.")
    return not cut and all(_is_whole(member) for member in below)


def _is_cut(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


def _find_server_places(root: FilePlace) -> dict[str, FilePlace]:
    """Map the name of each server to its place. The server in `upstream` has a fixed name."""
    alone, several = root.get("upstream"), root.get("upstreams")
    if alone is not None and several is not None:
        first, second = sorted((alone, several), key=lambda place: place.line)
        second.refuse(
            f"The file has both {first.name} (line {first.line}) and {second.name}.",
            "Move every server into `upstreams`, or keep `upstream` for a single one.",
        )
    if alone is not None:
        return {SINGLE_UPSTREAM: alone}
    if several is None:
        root.refuse(
            "The file names no server.",
            "Add `upstream` with the `command` or the `url` of one, or `upstreams` with several.",
        )
        return {}
    if not is_object(several):
        return {}
    places = dict(several.iterate_members())
    if not places:
        several.refuse("`upstreams` is empty.", "Name at least one server.")
    for name, place in places.items():
        if not is_name(name):
            place.refuse(f"The server name {format_value(name)} is invalid.", f"It must be {NAME_RULE}.")
    return places
