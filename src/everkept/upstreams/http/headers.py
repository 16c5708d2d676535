"""The headers that repeat what a request of the stateless era says in its body."""

import logging
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from typing import Any, cast

from everkept.core.protocol import STATELESS_VERSION
from everkept.core.upstreams import JSON
from everkept.errors import InvalidInput

VERSION = "mcp-protocol-version"

_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # by method
_MARK = "x-mcp-header"  # in the schema of an argument: the name of its header
_TYPES = ("string", "integer", "boolean")  # no number: not everyone writes a float in the same way
_PLAIN = re.compile(r"[\x20-\x7E]*")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2

_DATA = ("const", "default", "enum", "examples")  # keywords of a schema whose values are none

Path = tuple[str, ...]

log = logging.getLogger(__name__)


class StatelessHeaders:
    """Knows which arguments of which tools a server wants in headers, once it has listed them."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._wanted: dict[str, dict[Path, str]] = {}  # by tool: the header of each argument

    def of(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Raise InvalidInput for values that JSON has, and no header."""
        headers = {VERSION: STATELESS_VERSION, "mcp-method": method}
        named = params.get(_NAMES.get(method, ""))
        if not isinstance(named, str):
            return headers
        try:
            headers["mcp-name"] = _encoded(named)
            for path, token in (
                self._wanted.get(named, {}).items() if method == "tools/call" else ()
            ):
                if (value := _written(params.get("arguments"), path)) is not None:
                    headers[f"mcp-param-{token}"] = _encoded(value)
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"The arguments cannot be sent: {self._upstream} wants one of them in a header, "
                "and it holds half a character."
            ) from error
        return headers

    def learn(self, listing: JSON) -> JSON:
        """Read a page of tools/list; return it without tools whose headers cannot be written,
        which the protocol forbids to use."""
        listed: Any = listing.get("tools")
        if not isinstance(listed, list):
            return listing
        kept = [tool for tool in cast(list[Any], listed) if self._is_usable(tool)]
        return listing if len(kept) == len(cast(list[Any], listed)) else listing | {"tools": kept}

    def _is_usable(self, tool: Any) -> bool:
        described = cast(JSON, tool) if isinstance(tool, dict) else {}
        name = described.get("name")
        if not isinstance(name, str):
            return True
        self._wanted.pop(name, None)
        try:
            self._wanted[name] = _wanted(described.get("inputSchema"))
        except ValueError as error:
            log.warning("%s: the tool %s is left out: %s", self._upstream, name, error)
            return False
        return True


def _encoded(value: str) -> str:
    is_plain = _PLAIN.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value)
    return value if is_plain else f"=?base64?{b64encode(value.encode()).decode()}?="


def _written(arguments: Any, path: Path) -> str | None:
    """Return the argument as text; None if there is none, or no text for it."""
    value = arguments
    for key in path:
        value = cast(JSON, value).get(key) if isinstance(value, dict) else None
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # too many digits
        return None


def _wanted(schema: Any) -> dict[Path, str]:
    """Return the header of each argument that has one; raise ValueError for what is forbidden."""
    found: dict[Path, str] = {}
    for path, described in _schemas(schema):
        if _MARK not in described:
            continue
        token, kind = described[_MARK], described.get("type")
        where = ".".join(path or ())
        if not path:
            raise ValueError(f"{_MARK} is not on an argument")
        if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            raise ValueError(f"{_MARK} of {where!r} is not the name of a header")
        if kind not in _TYPES:
            raise ValueError(f"{where!r} has {_MARK}, and is not a {', '.join(_TYPES)}")
        if token.lower() in (other.lower() for other in found.values()):
            raise ValueError(f"two arguments have the {_MARK} {token!r}")
        found[path] = token
    return found


def _schemas(root: Any) -> Iterator[tuple[Path | None, JSON]]:
    """Each schema inside a schema, with the path of the argument it describes, if any."""
    waiting: list[tuple[Path | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        schema = cast(JSON, node)
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                for name, inner in cast(JSON, value).items():
                    waiting.append((None if path is None else (*path, name), inner))
            elif keyword not in _DATA:
                inside = cast(list[Any], value) if isinstance(value, list) else [value]
                waiting.extend((None, inner) for inner in inside)
