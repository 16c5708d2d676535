"""The first file of a gateway: ready-made, or drafted from the tools a server lists."""

import json
from collections.abc import Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, cast

from everkept.core.text import forbidden_in_text
from everkept.errors import NotFound
from everkept.families.gateway.file_schemas import can_be_written
from everkept.families.gateway.file_tools import HINTS
from everkept.families.gateway.file_values import joined_path
from everkept.families.gateway.listings import named
from everkept.families.gateway.model import JSON, REST
from everkept.families.gateway.schema_facts import (
    Root,
    Steps,
    TooIntricate,
    by_name,
    names,
    required,
    takes_others,
)
from everkept.families.gateway.tool_names import mended

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
    schema = _schema(tool.get("inputSchema"), steps)
    title, description = _text(tool.get("title")), _text(tool.get("description"))
    entry: JSON = {"name": ours} | ({"title": title} if title else {})
    entry["description"] = description or title or f"The tool {tool['name']}."
    entry["inputSchema"] = schema
    if annotations := _annotations(tool.get("annotations")):
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


def _annotations(given: Any) -> JSON:
    """What clients know of them."""
    known = by_name(given)
    hints = {key: known[key] for key in HINTS if isinstance(known.get(key), bool)}
    title = _text(known.get("title"))
    return {"title": title, **hints} if title else hints


def _schema(given: Any, steps: Steps) -> JSON:
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
