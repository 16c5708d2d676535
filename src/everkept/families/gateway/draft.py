"""A new gateway file: a ready-made or drafted one, and the JSON Schema for editors."""

import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePath
from typing import Any, cast

from everkept.core.mcp import CALL_SECONDS, CONNECT_SECONDS
from everkept.core.text import find_forbidden
from everkept.errors import NotFound
from everkept.families.gateway.file_reader import HINT_KEYS
from everkept.families.gateway.file_servers import MAX_WAIT_SECONDS, START_VALUES
from everkept.families.gateway.file_values import SCHEMA_TYPES, can_be_written, join_path
from everkept.families.gateway.model import JSON, MAX_NAME_CHARACTERS, REST, fix_name, select_named
from everkept.families.gateway.schema_facts import (
    SchemaRoot,
    SchemaTooComplex,
    StepBudget,
    as_object,
    can_take_others,
    list_names,
    list_required,
)

_NAME_PATTERN = rf"^[A-Za-z0-9_.-]{{1,{MAX_NAME_CHARACTERS}}}$"
_NOT_BLANK_PATTERN = r"\S"  # a text that is not empty
# A single line in which every `${` begins a variable.
_VALUE_PATTERN = r"^(?:[^\r\n$]|\$(?!\{)|\$\{[A-Za-z_][A-Za-z0-9_]*\})*$"
_PART_PATTERN = r"(?:[^.\\]|\\[.\\])+"
_PATH_PATTERN = rf"^{_PART_PATTERN}(?:\.{_PART_PATTERN})*$"
_URL_PATTERN = r"^https?://[^\s/?#@]+([/?#]\S*)?$"


def build_file_schema() -> JSON:
    """Build the JSON Schema of the file. The reader also refuses everything that the schema refuses."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Everkept gateway",
        "description": "Stable tool names in front of other MCP servers.",
        **_build_object_schema(
            {
                "$schema": {"type": "string", "description": "Location of this schema, for editors."},
                "upstream": {"$ref": "#/$defs/server", "description": "The only server behind the tools."},
                "upstreams": {
                    "type": "object",
                    "description": "Several servers behind the tools, by names of your choice.",
                    "minProperties": 1,
                    "propertyNames": {"pattern": _NAME_PATTERN},
                    "additionalProperties": {"$ref": "#/$defs/server"},
                },
                "instructions": {
                    "type": "string",
                    "description": "What the assistant should know about these tools.",
                    "pattern": _NOT_BLANK_PATTERN,
                },
                "tools": {
                    "type": "array",
                    "description": "Tools to offer, in addition to those passed through.",
                    "items": {"$ref": "#/$defs/tool"},
                },
            }
        ),
        "oneOf": [{"required": ["upstream"]}, {"required": ["upstreams"]}],
        "$defs": {
            "server": {"oneOf": [{"$ref": "#/$defs/program"}, {"$ref": "#/$defs/address"}]},
            "program": _build_program_schema(),
            "address": _build_address_schema(),
            "passThrough": _build_pass_through_schema(),
            "tool": _build_tool_entry_schema(),
            "target": _build_target_schema(),
            "annotations": {
                "type": "object",
                "description": "Hints for the client, such as that the tool only reads.",
                "properties": {
                    "title": {"type": "string", "pattern": _NOT_BLANK_PATTERN},
                    **{hint: {"type": "boolean"} for hint in HINT_KEYS},
                },
            },
            "toolSchema": {
                "allOf": [{"$ref": "#/$defs/schema"}],
                "type": "object",
                "properties": {"type": {"const": "object"}},
                "required": ["type"],
            },
            "schema": _build_keyword_schema(),
        },
    }


def _build_program_schema() -> JSON:
    properties: JSON = {
        "command": {
            "type": "string",
            "description": "Program to start. It must speak MCP on standard input and output.",
            "pattern": _NOT_BLANK_PATTERN,
        },
        "args": {"type": "array", "description": "Arguments of the program.", "items": {"type": "string"}},
        "env": {
            "type": "object",
            "description": "Environment variables, in addition to the few that every program needs. "
            "${NAME} in a value is replaced with the variable of your environment.",
            "propertyNames": {"pattern": "^[^=]+$"},
            "additionalProperties": {"type": "string", "pattern": _VALUE_PATTERN},
        },
        "cwd": {
            "type": "string",
            "description": "Folder to start it in, relative to the folder of this file; ~ is your home folder. "
            "Default: the folder of this file.",
            "pattern": _NOT_BLANK_PATTERN,
        },
    }
    return {
        "description": "A server that the gateway starts.",
        **_build_object_schema(properties | _build_shared_properties(), required=["command"]),
    }


def _build_address_schema() -> JSON:
    properties: JSON = {
        "url": {
            "type": "string",
            "description": "Address of a server that speaks MCP over HTTP.",
            "pattern": _URL_PATTERN,
        },
        "headers": {
            "type": "object",
            "description": "Headers of every request. "
            "${NAME} in a value is replaced with the variable of your environment.",
            "additionalProperties": {"type": "string", "pattern": _VALUE_PATTERN},
        },
    }
    return {
        "description": "A server that is already running.",
        **_build_object_schema(properties | _build_shared_properties(), required=["url"]),
    }


def _build_shared_properties() -> JSON:
    return {
        "connectTimeout": _build_seconds_schema("for starting or reaching the server", CONNECT_SECONDS),
        "callTimeout": _build_seconds_schema("for one call", CALL_SECONDS),
        "start": {
            "enum": list(START_VALUES),
            "description": "When to start or reach the server.",
            "default": next(iter(START_VALUES)),
        },
        "passThrough": {
            "description": "Offer its tools unchanged: all of them, or a selection.",
            "oneOf": [{"type": "boolean"}, {"$ref": "#/$defs/passThrough"}],
        },
    }


def _build_seconds_schema(what_for: str, default: float) -> JSON:
    return {
        "type": "number",
        "description": f"Timeout {what_for}, in seconds.",
        "exclusiveMinimum": 0,
        "maximum": MAX_WAIT_SECONDS,
        "default": default,
    }


def _build_pass_through_schema() -> JSON:
    names: JSON = {"type": "array", "items": {"type": "string", "pattern": _NOT_BLANK_PATTERN}, "uniqueItems": True}
    return _build_object_schema(
        {
            "prefix": {
                "type": "string",
                "description": "Prefix for the names of its tools.",
                "pattern": rf"^[A-Za-z0-9_.-]{{0,{MAX_NAME_CHARACTERS}}}$",
            },
            "only": {"description": "Tools to offer, by their names at the server. Default: all."} | names,
            "hide": {"description": "Tools not to offer, by their names at the server."} | names,
            "rename": {
                "type": "object",
                "description": "New name for each name at the server. The prefix is not added.",
                "additionalProperties": {"type": "string", "pattern": _NAME_PATTERN},
            },
            "trustReadOnlyHint": {
                "type": "boolean",
                "description": "Whether to trust the readOnlyHint of its tools.",
                "default": False,
            },
        }
    )


def _build_tool_entry_schema() -> JSON:
    return _build_object_schema(
        {
            "name": {"type": "string", "description": "Name of the tool for the assistant.", "pattern": _NAME_PATTERN},
            "title": {"type": "string", "description": "Name of the tool for people.", "pattern": _NOT_BLANK_PATTERN},
            "description": {"type": "string", "description": "What the tool does."},
            "inputSchema": {"$ref": "#/$defs/toolSchema", "description": "JSON Schema of its parameters."},
            "outputSchema": {"$ref": "#/$defs/toolSchema", "description": "JSON Schema of its structured result."},
            "annotations": {"$ref": "#/$defs/annotations"},
            "upstream": {"$ref": "#/$defs/target"},
        },
        required=["name", "description", "inputSchema", "upstream"],
    )


def _build_target_schema() -> JSON:
    properties: JSON = {
        "server": {
            "type": "string",
            "description": "Server that has the tool; required if there are several.",
            "pattern": _NOT_BLANK_PATTERN,
        },
        "tool": {"type": "string", "description": "Name of the tool at the server.", "pattern": _NOT_BLANK_PATTERN},
        "paramMapping": {
            "type": "object",
            "description": "Maps each parameter to its place in the server's arguments; a dot goes one level down. "
            "Other parameters are not sent.",
            "properties": {
                REST: {
                    "type": "string",
                    "description": "Place of all parameters without an entry, under their own names: "
                    f'"{REST}" for the top level, or the place of an object.',
                    "pattern": _PATH_PATTERN,
                }
            },
            "additionalProperties": {"type": "string", "pattern": _PATH_PATTERN},
        },
        "constants": {
            "type": "object",
            "description": "Values that are always sent, by their place in the server's arguments.",
            "propertyNames": {"pattern": _PATH_PATTERN},
        },
        "defaults": {"type": "object", "description": "Values for parameters that a call omits."},
    }
    return {"description": "The server's tool.", **_build_object_schema(properties, required=["tool", "paramMapping"])}


def _build_keyword_schema() -> JSON:
    """Build a schema for the keywords that people often get wrong."""
    one: JSON = {"$ref": "#/$defs/schema"}
    some: JSON = {"type": "array", "items": one}
    named: JSON = {"type": "object", "additionalProperties": one}
    kind: JSON = {"enum": list(SCHEMA_TYPES)}
    return {
        "type": ["object", "boolean"],
        "properties": {
            "type": {"anyOf": [kind, {"type": "array", "items": kind, "minItems": 1}]},
            "required": {"type": "array", "items": {"type": "string"}},
            "enum": {"type": "array"},
            "description": {"type": "string"},
            **dict.fromkeys(("$defs", "definitions", "properties"), named),
            **dict.fromkeys(("allOf", "anyOf", "oneOf"), some),
            "items": {"anyOf": [one, some]},
            "additionalProperties": one,
        },
    }


def _build_object_schema(properties: JSON, *, required: list[str] | None = None) -> JSON:
    """Build the schema of an object with only these keys."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


_FILE_ENDING = ".json"
_DATA_FOLDER = "DATA_FOLDER"  # in a ready-made file


def list_ready_names() -> list[str]:
    """Return the names of the ready-made files, sorted."""
    found = (file.name for file in _get_ready_folder().iterdir())
    return sorted(name.removesuffix(_FILE_ENDING) for name in found if name.endswith(_FILE_ENDING))


def read_ready_file(name: str, data_folder: PurePath) -> str:
    """Return a ready-made file with its comments, for this data folder. Raise NotFound."""
    if name not in (known := list_ready_names()):
        raise NotFound("ready-made file", name, hint=f"Use one of {', '.join(known)}.")
    text = (_get_ready_folder() / f"{name}{_FILE_ENDING}").read_text(encoding="utf-8")
    return text.replace(_DATA_FOLDER, json.dumps(data_folder.as_posix())[1:-1])


def _get_ready_folder() -> Traversable:
    return files("everkept.families.gateway") / "ready"


def draft_file(server: JSON, tools: Sequence[Any], *, prefix: str = "", name: str | None = None) -> str:
    """Draft a file that offers every tool under its own name with the prefix, and with all its parameters.

    With a `name`, the file uses `upstreams`, so that other servers can be added.
    """
    entries: dict[str, JSON] = {}
    theirs: set[str] = set()
    steps = StepBudget()
    for tool in select_named(tools):
        if _can_be_written(tool["name"]) and tool["name"] not in theirs:
            theirs.add(tool["name"])
            ours = fix_name(prefix + tool["name"], entries)
            entries[ours] = _draft_entry(ours, tool, steps)
    servers: JSON = {"upstream": server} if name is None else {"upstreams": {name: server}}
    text = _encode_json({**servers, "tools": list(entries.values())})
    return f"{text}\n"


def _draft_entry(ours: str, tool: JSON, steps: StepBudget) -> JSON:
    schema = _draft_schema(tool.get("inputSchema"), steps)
    title, description = _clean_text(tool.get("title")), _clean_text(tool.get("description"))
    entry: JSON = {"name": ours} | ({"title": title} if title else {})
    entry["description"] = description or title or f"The tool {tool['name']}."
    entry["inputSchema"] = schema
    if annotations := _draft_annotations(tool.get("annotations")):
        entry["annotations"] = annotations
    entry["upstream"] = {"tool": tool["name"], "paramMapping": _draft_mapping(schema, steps)}
    return entry


def _can_be_written(name: str) -> bool:
    return bool(name.strip()) and find_forbidden(name) is None


def _clean_text(given: Any) -> str:
    """Return the text without forbidden characters, or "" for anything but text."""
    kept = given if isinstance(given, str) else ""
    while (forbidden := find_forbidden(kept)) is not None:
        kept = kept.replace(forbidden, "")
    return kept if kept.strip() else ""


def _draft_annotations(given: Any) -> JSON:
    """Return the annotations that clients know."""
    known = as_object(given)
    hints = {key: known[key] for key in HINT_KEYS if isinstance(known.get(key), bool)}
    title = _clean_text(known.get("title"))
    return {"title": title, **hints} if title else hints


def _draft_schema(given: Any, steps: StepBudget) -> JSON:
    """Return the schema, or a simplified one if the file's reader would refuse it."""
    if not isinstance(given, dict):
        return {"type": "object"}
    schema = cast(JSON, given) | {"type": "object"}
    if can_be_written(schema):
        return schema
    root = SchemaRoot(schema, steps)
    try:
        known, needed = list_names(schema, root), list_required(schema, root)
    except SchemaTooComplex:
        return {"type": "object"}
    return {
        "type": "object",
        "properties": {name: {} for name in known if name},
        "required": [name for name in needed if name],
    }


def _draft_mapping(schema: JSON, steps: StepBudget) -> dict[str, str]:
    """Map each parameter to itself. With `*`, parameters without a name are sent unchanged."""
    root = SchemaRoot(schema, steps)
    try:
        known = [name for name in list_names(schema, root) if _can_be_written(name)]
        has_others = can_take_others(schema, root)
    except SchemaTooComplex:
        known, has_others = [], True
    mapping = {name: join_path([name]) for name in known if name != REST}
    return mapping | {REST: REST} if has_others or REST in known else mapping


def _encode_json(value: JSON) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # an unpaired surrogate can only be written as an escape
        return json.dumps(value, indent=2)
    return text
