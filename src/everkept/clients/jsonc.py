"""Changing one value in the text of a JSON file, comments and commas at the end allowed.

What is not changed keeps every byte: only positions are looked for, nothing is written anew.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, cast

from everkept.clients.config_files import Unfitting, shown_path
from everkept.core.json_text import (
    BLANKS,
    Container,
    Item,
    Key,
    NotJson,
    parsed,
    past_trivia,
    scanned,
    trivia,
)

__all__ = ["DEFAULT_UNIT", "NotJson", "parsed", "with_value", "without"]

Path = Sequence[Key]

DEFAULT_UNIT = "  "

_SPACES = re.compile(r"[ \t]*")


def with_value(text: str, path: Path, value: Any) -> str:
    """The text with that value in that place, made where it is missing.

    In a list the number after the last one stands for a new item. Unfitting where something on
    the way is neither an object nor a list, or is there twice.
    """
    parsed(text)
    if past_trivia(text, 0) == len(text):
        return _begun(text, _nested(path, value))
    containers = _way(text, path)
    depth = len(containers) - 1
    item = _item(containers[-1], path[depth])
    if item is None:
        return _inserted(text, containers[-1], path[depth], _nested(path[depth + 1 :], value))
    return _replaced(text, containers[-1], item, value)


def without(text: str, path: Path) -> str:
    """The text without the value in that place; as it is where there is none."""
    parsed(text)
    if past_trivia(text, 0) == len(text):
        return text
    containers = _way(text, path)
    item = _item(containers[-1], path[-1])
    if len(containers) < len(path) or item is None:
        return text
    return _removed(text, containers[-1], item)


def _way(text: str, path: Path) -> list[Container]:
    """The containers from the outermost to the one in which the path ends, or breaks off."""
    begin = past_trivia(text, 0)
    if text[begin] not in "{[":
        raise Unfitting("the file holds no object")
    containers = [scanned(text, begin)]
    for depth, key in enumerate(path):
        container = containers[-1]
        is_list = text[container.start] == "["
        if is_list != isinstance(key, int):
            above = shown_path(path[:depth]) or "the whole file"
            raise Unfitting(f"{above} is {'a list' if is_list else 'an object'}")
        item = _item(container, key)
        if item is None or depth == len(path) - 1:
            break
        if not isinstance(item.value, dict | list):
            raise Unfitting(f"{shown_path(path[: depth + 1])} is {_kind(item.value)}")
        containers.append(scanned(text, item.value_start))
    return containers


def _item(container: Container, key: Key) -> Item | None:
    found = [item for item in container.items if item.key == key]
    if len(found) > 1:
        raise Unfitting(f'"{key}" is there {len(found)} times')
    return found[0] if found else None


def _kind(value: Any) -> str:
    return "empty" if value is None else f"{json.dumps(value, ensure_ascii=False)[:40]}"


def _begun(text: str, value: Any) -> str:
    """Of a text that says nothing yet."""
    newline = _newline(text)
    lead = newline if text and not text.endswith("\n") else ""
    return text + lead + _shown(value, DEFAULT_UNIT, "", newline) + newline


def _inserted(text: str, container: Container, key: Key, value: Any) -> str:
    """At the end of the container, in the way its other items are written."""
    items = container.items
    if isinstance(key, int) and key != len(items):
        raise Unfitting(f"a list of {len(items)} has no place {key}")
    unit, newline = _unit(text), _newline(text)
    is_bare = not items and container.last == container.start + 1
    last_start = items[-1].start if items else container.close
    in_lines = is_bare or "\n" in text[container.start : last_start]
    outer = _indent_at(text, container.start)
    indent = _indent_at(text, last_start) if items and in_lines else outer + unit
    shown = _shown(value, unit if in_lines else None, indent, newline)
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


def _replaced(text: str, container: Container, item: Item, value: Any) -> str:
    if json.dumps(item.value) == json.dumps(value):
        return text
    old = text[item.value_start : item.end]
    was_on_a_line = old[0] in "{[" and len(old) > len("{}") and "\n" not in old
    is_on_a_line = was_on_a_line or "\n" not in text[container.start : container.close]
    unit = None if is_on_a_line else _unit(text)
    shown = _shown(value, unit, _indent_at(text, item.start), _newline(text))
    return text[: item.value_start] + shown + text[item.end :]


def _removed(text: str, container: Container, item: Item) -> str:
    """Without the item, the blanks before it, and the comma that there is too many then."""
    position = container.items.index(item)
    before = container.items[position - 1] if position else None
    begin = cast(int, before.comma) + 1 if before else container.start + 1
    _, commented, in_line_comment = trivia(text, begin)
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
    if in_line_comment and "\n" not in _blanks_at(text, behind):
        start = text.index("\n", blanks) + 1  # or what follows would become part of the comment
    pieces = [(start, end), *((at, _behind_comma(text, at, item)) for at in commas)]
    for start, end in sorted(pieces, reverse=True):
        text = text[:start] + text[end:]
    return text


def _behind_comma(text: str, comma: int, item: Item) -> int:
    """With its spaces where the item begins a line or a bracket: those before it stay then."""
    is_flush = comma == item.comma and text[item.start - 1] in "{["
    return comma + 1 + (len(_blanks_at(text, comma + 1)) if is_flush else 0)


def _blanks_at(text: str, at: int) -> str:
    return cast("re.Match[str]", BLANKS.match(text, at)).group()


def _nested(path: Path, value: Any) -> Any:
    for key in reversed(path):
        value = [value] if isinstance(key, int) else {key: value}
    return value


def _shown(value: Any, unit: str | None, indent: str, newline: str) -> str:
    """On one line where there is no `unit` to indent by."""
    if unit is None:
        return json.dumps(value, ensure_ascii=False)
    shown = json.dumps(value, ensure_ascii=False, indent=unit)
    return shown.replace("\n", newline + indent)


def _unit(text: str) -> str:
    """By how much the file indents: as its first item is."""
    root = scanned(text, past_trivia(text, 0))
    if root.items and "\n" in text[root.start : root.items[0].start]:
        return _indent_at(text, root.items[0].start) or DEFAULT_UNIT
    return DEFAULT_UNIT


def _indent_at(text: str, at: int) -> str:
    line = text.rfind("\n", 0, at) + 1
    return cast("re.Match[str]", _SPACES.match(text, line)).group()


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
