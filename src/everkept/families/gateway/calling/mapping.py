"""From the arguments of a call to what the server behind the tool is sent."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from everkept.core.text import clipped
from everkept.errors import InvalidInput
from everkept.families.gateway.model import JSON, ToolConfig

Path = tuple[str, ...]


def mapped(tool: ToolConfig, arguments: Mapping[str, Any]) -> JSON:
    """What is mapped, the defaults of what was left out, and the constants; the rest where the
    file has a place for it, and nothing else.

    The paths of a file that was read do not meet, so none takes the place of another.
    """
    sent: JSON = {}
    for parameter, path in tool.mapping.items():
        if parameter in arguments:
            _put(sent, path, arguments[parameter])
        elif parameter in tool.defaults:
            _put(sent, path, deepcopy(tool.defaults[parameter]))
    for path, value in tool.constants.items():
        _put(sent, path, deepcopy(value))
    if tool.rest is not None:
        _below(sent, tool.rest).update(_others(tool, tool.rest, arguments))
    return sent


def _put(sent: JSON, path: Path, value: Any) -> None:
    _below(sent, path[:-1])[path[-1]] = value


def _below(sent: JSON, path: Path) -> JSON:
    """The object there, which is made where it is missing."""
    for key in path:
        sent = cast(JSON, sent.setdefault(key, {}))
    return sent


def _others(tool: ToolConfig, rest: Path, arguments: Mapping[str, Any]) -> JSON:
    """What has no entry in the mapping. InvalidInput for what would take another's place."""
    others = {name: value for name, value in arguments.items() if name not in tool.mapping}
    constant = dict.fromkeys(tool.constants)
    sources = {path: parameter for parameter, path in tool.mapping.items()} | constant
    for path, source in sources.items():
        if path[: len(rest)] == rest and (name := path[len(rest)]) in others:
            raise InvalidInput(
                f"`{clipped(name)}` cannot be given: the gateway's file fills that place itself.",
                hint=None if source is None else f"Give `{source}`.",
                argument=name,
            )
    return others
