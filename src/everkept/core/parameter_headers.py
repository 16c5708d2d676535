"""Headers that repeat arguments of a tool, as its schema declares them."""

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from everkept.core.mcp import JSON

PARAMETER_HEADER_PREFIX = "mcp-param-"
HEADER_ANNOTATION = "x-mcp-header"  # in the schema of an argument: the name of its header

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110, 5.6.2
_WHOLE_NUMBER = re.compile(r"(-?[0-9]+)(\.0+)?")
_PLAIN = re.compile(r"[\x20-\x7E]*")
_ENCODED = re.compile(r"=\?base64\?(.*)\?=")
# Without "number", because floats can be written in different ways.
_HEADER_TYPES = "string", "integer", "boolean"
_DATA_KEYWORDS = "const", "default", "enum", "examples"  # keywords of a schema whose values are not schemas

ArgumentPath = tuple[str, ...]


class ParameterHeader(NamedTuple):
    """Header that repeats an argument."""

    name: str
    path: ArgumentPath
    type: str


def find_declared_headers(schema: Any) -> tuple[ParameterHeader, ...]:
    """Return the headers that a schema declares, or none if a declaration is invalid."""
    try:
        return parse_declared_headers(schema)
    except ValueError:
        return ()


def parse_declared_headers(schema: Any) -> tuple[ParameterHeader, ...]:
    """Return the headers that a schema declares. Raise ValueError if a declaration is invalid."""
    found: dict[str, ParameterHeader] = {}
    for path, described in _walk_schemas(schema):
        if HEADER_ANNOTATION not in described:
            continue
        token, kind = described[HEADER_ANNOTATION], described.get("type")
        where = ".".join(path or ())
        if not path:
            raise ValueError(f"{HEADER_ANNOTATION} is not on an argument")
        if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            raise ValueError(f"{HEADER_ANNOTATION} of {where!r} is not a valid header name")
        if kind not in _HEADER_TYPES:
            raise ValueError(f"{where!r} has {HEADER_ANNOTATION}, but is not one of {', '.join(_HEADER_TYPES)}")
        header = ParameterHeader(PARAMETER_HEADER_PREFIX + token.lower(), path, kind)
        if header.name in found:
            raise ValueError(f"two arguments have the {HEADER_ANNOTATION} {token!r}")
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


def format_argument(arguments: Any, path: ArgumentPath) -> str | None:
    """Return the argument as a header has it, or None if it is missing or cannot be text."""
    text = _as_text(_get_value(arguments, path))
    return None if text is None else encode_value(text)


def encode_value(value: str) -> str:
    is_plain = _PLAIN.fullmatch(value) and value == value.strip() and not _ENCODED.fullmatch(value)
    return value if is_plain else f"=?base64?{b64encode(value.encode()).decode()}?="


def decode_value(text: str) -> str | None:
    """Return the value of a header, which may be encoded. Return None if the encoding is wrong."""
    encoded = _ENCODED.fullmatch(text)
    if encoded is None:
        return text
    try:
        data = b64decode(encoded[1], validate=True)
        is_canonical = b64encode(data).decode("ascii") == encoded[1]
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
    try:
        return str(value) if isinstance(value, str | int | float) else None
    except ValueError:  # too many digits
        return None


def _get_value(arguments: Any, path: ArgumentPath) -> Any:
    value = arguments
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
        schema = cast(JSON, node)
        yield path, schema
        for keyword, value in schema.items():
            if keyword == "properties" and isinstance(value, dict):
                for name, inner in cast(JSON, value).items():
                    waiting.append((None if path is None else (*path, name), inner))
            elif keyword not in _DATA_KEYWORDS:
                inside = cast(list[Any], value) if isinstance(value, list) else [value]
                waiting.extend((None, inner) for inner in inside)
