"""The start of a gateway's file: a ready-made or drafted one, and the JSON Schema for editors."""

import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, cast

from everkept.core.mcp import CALL_TIMEOUT, CONNECT_TIMEOUT
from everkept.core.text import forbidden_in_text
from everkept.errors import NotFound
from everkept.families.gateway.file_reader import HINTS
from everkept.families.gateway.file_servers import LONGEST_WAIT, STARTS
from everkept.families.gateway.file_values import TYPES, can_be_written, joined_path
from everkept.families.gateway.model import JSON, LONGEST, REST, mended, named
from everkept.families.gateway.schema_facts import (
    Root,
    Steps,
    TooIntricate,
    by_name,
    names,
    required,
    takes_others,
)

_NAME = rf"^[A-Za-z0-9_.-]{{1,{LONGEST}}}$"
_SOMETHING = r"\S"  # a text that is not blank
# On one line, and each `${` the beginning of a variable.
_VALUE = r"^(?:[^\r\n$]|\$(?!\{)|\$\{[A-Za-z_][A-Za-z0-9_]*\})*$"
_PART = r"(?:[^.\\]|\\[.\\])+"
_PATH = rf"^{_PART}(?:\.{_PART})*$"
_URL = r"^https?://[^\s/?#@]+([/?#]\S*)?$"


def file_schema() -> JSON:
    """Whatever it refuses is refused when the file is read, which knows a few more rules."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Everkept gateway",
        "description": "Stable tool names in front of other MCP servers.",
        **_object(
            {
                "$schema": {"type": "string", "description": "Where this schema is, for editors."},
                "upstream": {
                    "$ref": "#/$defs/server",
                    "description": "The one server behind the tools.",
                },
                "upstreams": {
                    "type": "object",
                    "description": "Several servers behind the tools, by names of your choice.",
                    "minProperties": 1,
                    "propertyNames": {"pattern": _NAME},
                    "additionalProperties": {"$ref": "#/$defs/server"},
                },
                "instructions": {
                    "type": "string",
                    "description": "What the assistant should know about these tools.",
                    "pattern": _SOMETHING,
                },
                "tools": {
                    "type": "array",
                    "description": "The tools that are offered, beside those passed through.",
                    "items": {"$ref": "#/$defs/tool"},
                },
            }
        ),
        "oneOf": [{"required": ["upstream"]}, {"required": ["upstreams"]}],
        "$defs": {
            "server": {"oneOf": [{"$ref": "#/$defs/program"}, {"$ref": "#/$defs/address"}]},
            "program": _program(),
            "address": _address(),
            "passThrough": _pass_through(),
            "tool": _tool(),
            "target": _target(),
            "annotations": _annotations(),
            "toolSchema": _tool_schema(),
            "schema": _schema(),
        },
    }


def _program() -> JSON:
    properties: JSON = {
        "command": {
            "type": "string",
            "description": "Program to start; it speaks MCP on its input and output.",
            "pattern": _SOMETHING,
        },
        "args": {
            "type": "array",
            "description": "Its arguments.",
            "items": {"type": "string"},
        },
        "env": {
            "type": "object",
            "description": "Variables for it, beside the few that every program needs. "
            "${NAME} in a value is filled in from your environment.",
            "propertyNames": {"pattern": "^[^=]+$"},
            "additionalProperties": {"type": "string", "pattern": _VALUE},
        },
        "cwd": {
            "type": "string",
            "description": "Folder to start it in, from the folder of this file on; ~ is yours. "
            "Without it, the folder of this file.",
            "pattern": _SOMETHING,
        },
    }
    return {
        "description": "A server that is started here.",
        **_object(properties | _shared(), required=["command"]),
    }


def _address() -> JSON:
    properties: JSON = {
        "url": {
            "type": "string",
            "description": "Address of a server that speaks MCP over HTTP.",
            "pattern": _URL,
        },
        "headers": {
            "type": "object",
            "description": "Sent with every request. "
            "${NAME} in a value is filled in from your environment.",
            "additionalProperties": {"type": "string", "pattern": _VALUE},
        },
    }
    return {
        "description": "A server that runs already.",
        **_object(properties | _shared(), required=["url"]),
    }


def _shared() -> JSON:
    return {
        "connectTimeout": _seconds("to start it or to reach it", CONNECT_TIMEOUT),
        "callTimeout": _seconds("for one call", CALL_TIMEOUT),
        "start": {
            "enum": list(STARTS),
            "description": "When it is started or reached.",
            "default": next(iter(STARTS)),
        },
        "passThrough": {
            "description": "Offer its tools as they are: all of them, or a choice.",
            "oneOf": [{"type": "boolean"}, {"$ref": "#/$defs/passThrough"}],
        },
    }


def _seconds(what_for: str, default: float) -> JSON:
    return {
        "type": "number",
        "description": f"Seconds {what_for}.",
        "exclusiveMinimum": 0,
        "maximum": LONGEST_WAIT,
        "default": default,
    }


def _pass_through() -> JSON:
    names: JSON = {
        "type": "array",
        "items": {"type": "string", "pattern": _SOMETHING},
        "uniqueItems": True,
    }
    return _object(
        {
            "prefix": {
                "type": "string",
                "description": "Put before the names of its tools.",
                "pattern": rf"^[A-Za-z0-9_.-]{{0,{LONGEST}}}$",
            },
            "only": {"description": "The tools to offer, by its own names; all if left out."}
            | names,
            "hide": {"description": "Tools not to offer, by its own names."} | names,
            "rename": {
                "type": "object",
                "description": "New names for its tools, without the prefix: theirs, then ours.",
                "additionalProperties": {"type": "string", "pattern": _NAME},
            },
            "trustReadOnlyHint": {
                "type": "boolean",
                "description": "Whether its tools that say so count as only reading.",
                "default": False,
            },
        }
    )


def _tool() -> JSON:
    return _object(
        {
            "name": {
                "type": "string",
                "description": "What the assistant calls the tool.",
                "pattern": _NAME,
            },
            "title": {
                "type": "string",
                "description": "What people see as its name.",
                "pattern": _SOMETHING,
            },
            "description": {"type": "string", "description": "What the tool does."},
            "inputSchema": {
                "$ref": "#/$defs/toolSchema",
                "description": "JSON Schema of its parameters.",
            },
            "outputSchema": {
                "$ref": "#/$defs/toolSchema",
                "description": "JSON Schema of its structured result.",
            },
            "annotations": {"$ref": "#/$defs/annotations"},
            "upstream": {"$ref": "#/$defs/target"},
        },
        required=["name", "description", "inputSchema", "upstream"],
    )


def _target() -> JSON:
    properties: JSON = {
        "server": {
            "type": "string",
            "description": "The server it is at; needed where there are several.",
            "pattern": _SOMETHING,
        },
        "tool": {
            "type": "string",
            "description": "What the tool is called there.",
            "pattern": _SOMETHING,
        },
        "paramMapping": {
            "type": "object",
            "description": "For each parameter of ours the place of its value there; a dot goes "
            "one level down. What is not in here is not sent.",
            "properties": {
                REST: {
                    "type": "string",
                    "description": f"Where everything goes that has no entry, under its own name: "
                    f'"{REST}" for the arguments themselves, or the place of an object.',
                    "pattern": _PATH,
                }
            },
            "additionalProperties": {"type": "string", "pattern": _PATH},
        },
        "constants": {
            "type": "object",
            "description": "Values that are always sent, by their places there.",
            "propertyNames": {"pattern": _PATH},
        },
        "defaults": {
            "type": "object",
            "description": "Values for parameters of ours that a call leaves out.",
        },
    }
    return {
        "description": "The tool behind it.",
        **_object(properties, required=["tool", "paramMapping"]),
    }


def _annotations() -> JSON:
    hints = {hint: {"type": "boolean"} for hint in HINTS}
    return {
        "type": "object",
        "description": "Hints for the client, such as that the tool only reads.",
        "properties": {"title": {"type": "string", "pattern": _SOMETHING}, **hints},
    }


def _tool_schema() -> JSON:
    return {
        "allOf": [{"$ref": "#/$defs/schema"}],
        "type": "object",
        "properties": {"type": {"const": "object"}},
        "required": ["type"],
    }


def _schema() -> JSON:
    """Of the keywords that people get wrong."""
    one: JSON = {"$ref": "#/$defs/schema"}
    some: JSON = {"type": "array", "items": one}
    named: JSON = {"type": "object", "additionalProperties": one}
    kind: JSON = {"enum": list(TYPES)}
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


def _object(properties: JSON, *, required: list[str] | None = None) -> JSON:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


_ENDING = ".json"


def ready_names() -> list[str]:
    """What they are called, in order."""
    found = (file.name for file in _folder().iterdir())
    return sorted(name.removesuffix(_ENDING) for name in found if name.endswith(_ENDING))


def text(name: str) -> str:
    """The file of that name, comments and all. NotFound where there is none."""
    if name not in (known := ready_names()):
        raise NotFound("ready-made file", name, hint=f"There are {', '.join(known)}.")
    return (_folder() / f"{name}{_ENDING}").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return files("everkept.families.gateway") / "ready"


def drafted(
    server: JSON, tools: Sequence[Any], *, prefix: str = "", name: str | None = None
) -> str:
    """Every tool under its own name behind the prefix, with all its parameters as they are.

    A server with a name leaves room for others.
    """
    entries: dict[str, JSON] = {}
    theirs: set[str] = set()
    steps = Steps()
    for tool in named(tools):
        if _can_be_written(tool["name"]) and tool["name"] not in theirs:
            theirs.add(tool["name"])
            ours = mended(prefix + tool["name"], entries)
            entries[ours] = _entry(ours, tool, steps)
    servers: JSON = {"upstream": server} if name is None else {"upstreams": {name: server}}
    text = _written({**servers, "tools": list(entries.values())})
    return f"{text}\n"


def _entry(ours: str, tool: JSON, steps: Steps) -> JSON:
    schema = _drafted_schema(tool.get("inputSchema"), steps)
    title, description = _text(tool.get("title")), _text(tool.get("description"))
    entry: JSON = {"name": ours} | ({"title": title} if title else {})
    entry["description"] = description or title or f"The tool {tool['name']}."
    entry["inputSchema"] = schema
    if annotations := _drafted_annotations(tool.get("annotations")):
        entry["annotations"] = annotations
    entry["upstream"] = {"tool": tool["name"], "paramMapping": _mapping(schema, steps)}
    return entry


def _can_be_written(name: str) -> bool:
    return bool(name.strip()) and forbidden_in_text(name) is None


def _text(given: Any) -> str:
    """A text without what no text may hold."""
    kept = given if isinstance(given, str) else ""
    while (forbidden := forbidden_in_text(kept)) is not None:
        kept = kept.replace(forbidden, "")
    return kept if kept.strip() else ""


def _drafted_annotations(given: Any) -> JSON:
    """What clients know of them."""
    known = by_name(given)
    hints = {key: known[key] for key in HINTS if isinstance(known.get(key), bool)}
    title = _text(known.get("title"))
    return {"title": title, **hints} if title else hints


def _drafted_schema(given: Any, steps: Steps) -> JSON:
    """The schema as it is, or what can be used of one that is none."""
    if not isinstance(given, dict):
        return {"type": "object"}
    schema = cast(JSON, given) | {"type": "object"}
    if can_be_written(schema):
        return schema
    root = Root(schema, steps)
    try:
        known, needed = names(schema, root), required(schema, root)
    except TooIntricate:
        return {"type": "object"}
    return {
        "type": "object",
        "properties": {name: {} for name in known if name},
        "required": [name for name in needed if name],
    }


def _mapping(schema: JSON, steps: Steps) -> dict[str, str]:
    """Whatever has no name, or is too intricate to be told, goes as it comes."""
    root = Root(schema, steps)
    try:
        known = [name for name in names(schema, root) if _can_be_written(name)]
        has_others = takes_others(schema, root)
    except TooIntricate:
        known, has_others = [], True
    mapping = {name: joined_path([name]) for name in known if name != REST}
    return mapping | {REST: REST} if has_others or REST in known else mapping


def _written(value: JSON) -> str:
    text = json.dumps(value, indent=2, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half a character, which only an escape can say
        return json.dumps(value, indent=2)
    return text
