"""From the arguments of a call to what the server behind the tool is sent."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, cast

from recollect.families.gateway.model import JSON, ToolConfig


def mapped(tool: ToolConfig, arguments: Mapping[str, Any]) -> JSON:
    """What is mapped, the defaults of what was left out, and the constants; nothing else.

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
    return sent


def _put(sent: JSON, path: tuple[str, ...], value: Any) -> None:
    *above, last = path
    for key in above:
        sent = cast(JSON, sent.setdefault(key, {}))
    sent[last] = value
