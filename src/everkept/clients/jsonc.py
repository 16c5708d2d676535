"""Editor for one value in the text of a JSON file with comments and trailing commas.

Unchanged parts keep every byte: it finds positions and does not rewrite the file.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from everkept.clients.config_files import UnexpectedShape, format_key_path
from everkept.core.json_text import (
    WHITESPACE,
    JsonContainer,
    JsonItem,
    Key,
    NotJson,
    scan_container,
    scan_trivia,
    skip_trivia,
)
from everkept.core.json_text import parse_json as parse_text

__all__ = ["DEFAULT_INDENT", "NotJson", "parse_text", "remove_value", "with_value"]

JsonPath = Sequence[Key]

DEFAULT_INDENT = "  "

_SPACES = re.compile(r"[ \t]*")


def with_value(text: str, path: JsonPath, value: Any) -> str:
    """Return the text with that value in that place, created if it is missing.

    In a list, the number after the last one appends an item. Raise UnexpectedShape if a part of the path is not a
    container, or is repeated.
    """
    parse_text(text)
    if skip_trivia(text, 0) == len(text):
        return _begin_text(text, _nest_value(path, value))
    containers = _find_containers(text, path)
    depth = len(containers) - 1
    item = _find_item(containers[-1], path[depth])
    if item is None:
        return _insert_item(text, containers[-1], path[depth], _nest_value(path[depth + 1 :], value))
    return _replace_item(text, containers[-1], item, value)


def remove_value(text: str, path: JsonPath) -> str:
    """Return the text without the value in that place, unchanged if there is none."""
    parse_text(text)
    if skip_trivia(text, 0) == len(text):
        return text
    containers = _find_containers(text, path)
    item = _find_item(containers[-1], path[-1])
    if len(containers) < len(path) or item is None:
        return text
    return _remove_item(text, containers[-1], item)


def _find_containers(text: str, path: JsonPath) -> list[JsonContainer]:
    """Return the containers from the outermost to the one in which the path ends or breaks off."""
    begin = skip_trivia(text, 0)
    if text[begin] not in "{[":
        raise UnexpectedShape("the file does not contain an object")
    containers = [scan_container(text, begin)]
    for depth, key in enumerate(path):
        container = containers[-1]
        is_list = text[container.start] == "["
        if is_list != isinstance(key, int):
            above = format_key_path(path[:depth]) or "the whole file"
            raise UnexpectedShape(f"{above} is {'a list' if is_list else 'an object'}")
        item = _find_item(container, key)
        if item is None or depth == len(path) - 1:
            break
        if not isinstance(item.value, dict | list):
            raise UnexpectedShape(f"{format_key_path(path[: depth + 1])} is {_get_kind(item.value)}")
        containers.append(scan_container(text, item.value_start))
    return containers


def _find_item(container: JsonContainer, key: Key) -> JsonItem | None:
    found = [item for item in container.items if item.key == key]
    if len(found) > 1:
        raise UnexpectedShape(f'"{key}" occurs more than once')
    return found[0] if found else None


def _get_kind(value: Any) -> str:
    return "empty" if value is None else f"{json.dumps(value, ensure_ascii=False)[:40]}"


def _begin_text(text: str, value: Any) -> str:
    """Return the start of an empty text."""
    newline = _detect_newline(text)
    lead = newline if text and not text.endswith("\n") else ""
    return text + lead + _format_value(value, DEFAULT_INDENT, "", newline) + newline


def _insert_item(text: str, container: JsonContainer, key: Key, value: Any) -> str:
    """Append to the container in the style of its other items."""
    items = container.items
    if isinstance(key, int) and key != len(items):
        raise UnexpectedShape(f"position {key} is outside a list of length {len(items)}")
    unit, newline = _detect_indent(text), _detect_newline(text)
    is_bare = not items and container.last == container.start + 1
    last_start = items[-1].start if items else container.close
    in_lines = is_bare or "\n" in text[container.start : last_start]
    outer = _get_line_indent(text, container.start)
    indent = _get_line_indent(text, last_start) if items and in_lines else outer + unit
    shown = _format_value(value, unit if in_lines else None, indent, newline)
    if isinstance(key, str):
        shown = f"{json.dumps(key, ensure_ascii=False)}: {shown}"
    if is_bare:
        inside = f"{newline}{indent}{shown}{newline}{outer}"
        return text[: container.start + 1] + inside + text[container.close :]
    lead = newline + indent if in_lines or container.ends_in_line_comment else " "
    tail = "," if items and items[-1].comma is not None else ""
    changed = text[: container.last] + lead + shown + tail + text[container.last :]
    if items and items[-1].comma is None:
        changed = changed[: items[-1].end] + "," + changed[items[-1].end :]
    return changed


def _replace_item(text: str, container: JsonContainer, item: JsonItem, value: Any) -> str:
    if json.dumps(item.value) == json.dumps(value):
        return text
    old = text[item.value_start : item.end]
    was_on_a_line = old[0] in "{[" and len(old) > len("{}") and "\n" not in old
    is_on_a_line = was_on_a_line or "\n" not in text[container.start : container.close]
    unit = None if is_on_a_line else _detect_indent(text)
    shown = _format_value(value, unit, _get_line_indent(text, item.start), _detect_newline(text))
    return text[: item.value_start] + shown + text[item.end :]


def _remove_item(text: str, container: JsonContainer, item: JsonItem) -> str:
    """Remove the item, the whitespace before it, and the comma that is too many."""
    position = container.items.index(item)
    before = container.items[position - 1] if position else None
    begin = cast(int, before.comma) + 1 if before else container.start + 1
    _, commented, in_line_comment = scan_trivia(text, begin)
    blanks = len(text[: item.start].rstrip(" \t\r\n"))
    start, end = blanks, item.end
    commas: list[int] = []
    if item.comma is not None:
        commas.append(item.comma)
    elif before:
        commas.append(cast(int, before.comma))
    elif commented == begin and not text[item.end : container.close].strip():
        end = container.close
    behind = item.end + 1 if item.comma == item.end else item.end
    if in_line_comment and "\n" not in _get_whitespace(text, behind):
        start = text.index("\n", blanks) + 1  # otherwise the rest would become part of the comment
    pieces = [(start, end), *((at, _skip_comma(text, at, item)) for at in commas)]
    for start, end in sorted(pieces, reverse=True):
        text = text[:start] + text[end:]
    return text


def _skip_comma(text: str, comma: int, item: JsonItem) -> int:
    """Skip a comma. Its spaces go too if the item begins a line or a bracket, because those before it stay."""
    is_flush = comma == item.comma and text[item.start - 1] in "{["
    return comma + 1 + (len(_get_whitespace(text, comma + 1)) if is_flush else 0)


def _get_whitespace(text: str, at: int) -> str:
    return cast("re.Match[str]", WHITESPACE.match(text, at)).group()


def _nest_value(path: JsonPath, value: Any) -> Any:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _format_value(value: Any, unit: str | None, indent: str, newline: str) -> str:
    """Return the value on one line if `unit` is empty."""
    if unit is None:
        return json.dumps(value, ensure_ascii=False)
    shown = json.dumps(value, ensure_ascii=False, indent=unit)
    return shown.replace("\n", newline + indent)


def _detect_indent(text: str) -> str:
    """Return the indentation of the file: that of its first item."""
    root = scan_container(text, skip_trivia(text, 0))
    if root.items and "\n" in text[root.start : root.items[0].start]:
        return _get_line_indent(text, root.items[0].start) or DEFAULT_INDENT
    return DEFAULT_INDENT


def _get_line_indent(text: str, at: int) -> str:
    line = text.rfind("\n", 0, at) + 1
    return cast("re.Match[str]", _SPACES.match(text, line)).group()


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
