"""Headers that repeat arguments of a tool, and whether they agree with them."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from everkept.transports.connection import JSON

PARAMETER_HEADER_PREFIX = "mcp-param-"
HEADER_ANNOTATION = "x-mcp-header"

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_WHOLE_NUMBER = re.compile(r"(-?[0-9]+)(\.0+)?")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
_HEADER_TYPES = ("string", "integer", "boolean")

# Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE_SCHEMA_KEYWORDS = frozenset(
    (
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_SCHEMA_LIST_KEYWORDS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED_SCHEMA_KEYWORDS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties"))

ArgumentPath = tuple[str, ...]


class ParameterHeader(NamedTuple):
    """Header that repeats an argument."""

    name: str
    path: ArgumentPath
    type: str


def find_declared_headers(schema: JSON) -> tuple[ParameterHeader, ...]:
    """Return the headers that a schema declares, or none if a declaration is invalid."""
    found: dict[str, ParameterHeader] = {}
    for path, node in _walk_schemas(schema):
        if HEADER_ANNOTATION not in node:
            continue
        token, kind = node[HEADER_ANNOTATION], node.get("type")
        is_token = isinstance(token, str) and _TOKEN.fullmatch(token) is not None
        if not path or not is_token or kind not in _HEADER_TYPES:
            return ()
        header = ParameterHeader(PARAMETER_HEADER_PREFIX + token.lower(), path, kind)
        if header.name in found:
            return ()
        found[header.name] = header
    return tuple(found.values())


def find_mismatch(
    declared: Collection[ParameterHeader], arguments: JSON, headers: Mapping[str, str], repeated: Collection[str]
) -> str | None:
    """Return a sentence about the first header that differs from its argument."""
    for header in declared:
        text, expected = headers.get(header.name), _get_value(arguments, header.path)
        argument = ".".join(header.path)
        if text is None:
            if _as_text(expected) is not None:
                return f"The header {header.name} of the argument `{argument}` is missing."
        elif header.name in repeated:
            return f"The header {header.name} appears more than once."
        elif not _is_same_value(header, expected, text):
            return f"The header {header.name} does not agree with the argument `{argument}`."
    return None


def decode_value(text: str) -> str | None:
    """Return the value of a header, which may be encoded. Return None if the encoding is wrong."""
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    import base64  # few names need it

    try:
        data = base64.b64decode(encoded[1], validate=True)
        is_canonical = base64.b64encode(data).decode("ascii") == encoded[1]
        return data.decode("utf-8") if is_canonical else None
    except ValueError:
        return None


def _is_same_value(header: ParameterHeader, expected: Any, text: str) -> bool:
    said, wanted = decode_value(text), _as_text(expected)
    if said is None or wanted is None:
        return False
    if header.type == "integer" and not isinstance(expected, str | bool):
        one, other = _WHOLE_NUMBER.fullmatch(said), _WHOLE_NUMBER.fullmatch(wanted)
        if one and other:
            return int(one[1]) == int(other[1])
    return said == wanted


def _as_text(value: Any) -> str | None:
    """Return a value in the form of a header, or None if that is impossible."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _get_value(arguments: JSON, path: ArgumentPath) -> Any:
    value: Any = arguments
    for key in path:
        value = cast(JSON, value).get(key) if isinstance(value, dict) else None
    return value


def _walk_schemas(root: Any) -> Iterator[tuple[ArgumentPath | None, JSON]]:
    """Yield every schema within one, with its path if only `properties` lead to it."""
    waiting: list[tuple[ArgumentPath | None, Any]] = [((), root)]
    while waiting:
        path, node = waiting.pop()
        if not isinstance(node, dict):
            continue
        yield path, cast(JSON, node)
        for key, value in cast(JSON, node).items():
            if key == "properties" and isinstance(value, dict):
                for name, inner in cast(JSON, value).items():
                    waiting.append((None if path is None else (*path, name), inner))
            elif key in _ONE_SCHEMA_KEYWORDS:
                waiting.append((None, value))
            elif key in _SCHEMA_LIST_KEYWORDS and isinstance(value, list):
                waiting += [(None, inner) for inner in cast(list[Any], value)]
            elif key in _NAMED_SCHEMA_KEYWORDS and isinstance(value, dict):
                waiting += [(None, inner) for inner in cast(JSON, value).values()]
