"""Reading a gateway's file: what it says, or everything that is wrong with it."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from everkept.core.json_text import Document, NotJson
from everkept.families.gateway.file_servers import server_at
from everkept.families.gateway.file_tools import tool_at
from everkept.families.gateway.file_values import (
    Notes,
    Place,
    check_keys,
    is_list,
    is_object,
    is_text,
    shown_value,
    text_of,
)
from everkept.families.gateway.model import ONLY, GatewayConfig, Problem, ToolConfig
from everkept.families.gateway.passed_tools import NAME_RULE, check_clashes
from everkept.families.gateway.tool_names import is_name

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
