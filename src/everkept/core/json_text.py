"""Parser for JSON as people write it, with comments, trailing commas and positions."""

import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

Key = str | int

MAX_DEPTH = 100  # nested brackets; no one writes so many on purpose

WHITESPACE = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BAD_STRING = "the quotes are not closed, or a character between them needs a backslash"
_BYTE_ORDER_MARK = "\ufeff"


class NotJson(ValueError):
    """The text is not valid JSON. The message says where and why."""

    def __init__(self, reason: str, text: str, at: int) -> None:
        self.reason = reason
        self.line = text.count("\n", 0, at) + 1
        self.column = at - (text.rfind("\n", 0, at) + 1) + 1
        super().__init__(f"line {self.line}, column {self.column}: {reason}")


class JsonItem(NamedTuple):
    key: Key
    start: int  # of its key, or of its value in a list
    value_start: int
    end: int  # after its value
    value: Any
    comma: int | None = None  # position of the comma after it


class JsonContainer(NamedTuple):
    start: int
    close: int  # position of its closing bracket
    items: list[JsonItem]
    last: int  # after the last character in it that is not whitespace
    ends_in_line_comment: bool


# The value that begins at a position, and its end.
_ReadValue = Callable[[str, int], tuple[Any, int]]


def parse_json(text: str) -> Any:
    """Return the value of the text. An empty text is an empty object. Raise NotJson."""
    begin = skip_trivia(text, 0)
    if begin == len(text):
        return {}
    try:
        value, end = _parse_value(text, begin)
    except RecursionError as error:
        raise NotJson("it is nested too deeply", text, begin) from error
    _check_end(text, end)
    return value


class RepeatedKey(NamedTuple):
    """Key that an object has twice, with both positions."""

    path: tuple[Key, ...]
    line: int
    first_line: int


class _Node(NamedTuple):
    value: Any
    start: int  # of its key, or of itself
    children: "Mapping[Key, _Node]" = MappingProxyType({})
    again: Sequence[tuple[str, int, int]] = ()  # repeated keys with the start of both


class JsonDocument:
    """Value of a text with the line of everything in it. Raise NotJson if the text is not valid.

    Unlike `parse_json`, it refuses an empty text, infinite numbers and too many nested brackets. The last one of
    repeated keys counts, as everywhere; `repeated` lists them.
    """

    def __init__(self, text: str) -> None:
        self._text = text = text.removeprefix(_BYTE_ORDER_MARK)
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        begin = skip_trivia(text, 0)
        if begin == len(text):
            raise NotJson("it is empty", text, 0)
        self._root, end = self._parse_node(text, begin, 1)
        _check_end(text, end)
        self.value: Any = self._root.value
        self.repeated = self._list_repeated(self._root, ())

    def find_line(self, path: Sequence[Key]) -> int:
        """Return the line of a key or list item. If it does not exist, return the line of its nearest parent."""
        node = self._root
        for key in path:
            if key not in node.children:
                break
            node = node.children[key]
        return self._compute_line(node.start)

    def _compute_line(self, position: int) -> int:
        return bisect_right(self._line_starts, position)

    def _parse_node(self, text: str, at: int, depth: int) -> tuple[_Node, int]:
        if text[at : at + 1] not in {"{", "["}:
            value, end = _parse_value(text, at)
            if isinstance(value, float) and not math.isfinite(value):
                raise NotJson("the number is too large", text, at)
            return _Node(value, at), end
        if depth > MAX_DEPTH:
            raise NotJson(f"more than {MAX_DEPTH} brackets are nested", text, at)
        container = scan_container(text, at, lambda text, at: self._parse_node(text, at, depth + 1))
        children: dict[Key, _Node] = {}
        again: list[tuple[str, int, int]] = []
        for item in container.items:
            if item.key in children:
                again.append((str(item.key), item.start, children[item.key].start))
            children[item.key] = cast(_Node, item.value)._replace(start=item.start)
        values = {key: child.value for key, child in children.items()}
        value = list(values.values()) if text[at] == "[" else values
        return _Node(value, at, children, again), container.close + 1

    def _list_repeated(self, node: _Node, path: tuple[Key, ...]) -> list[RepeatedKey]:
        own = [
            RepeatedKey((*path, key), self._compute_line(start), self._compute_line(first))
            for key, start, first in node.again
        ]
        below = (self._list_repeated(child, (*path, key)) for key, child in node.children.items())
        return sum(below, own)


def scan_container(text: str, start: int, read: _ReadValue | None = None) -> JsonContainer:
    """Return the object or list that begins there, with the positions of its items."""
    read = read or _parse_value
    is_list = text[start] == "["
    closing = "]" if is_list else "}"
    items: list[JsonItem] = []
    at, last, in_line_comment = scan_trivia(text, start + 1)
    while at < len(text) and text[at] != closing:
        if items and items[-1].comma is None:
            raise NotJson("a comma is missing", text, at)
        item = _parse_item(text, at, len(items) if is_list else None, read)
        at, last, in_line_comment = scan_trivia(text, item.end)
        if text.startswith(",", at):
            item = item._replace(comma=at)
            at, last, in_line_comment = scan_trivia(text, at + 1)
        items.append(item)
    if at >= len(text):
        raise NotJson("a bracket is not closed", text, start)
    return JsonContainer(start, at, items, last, in_line_comment)


def scan_trivia(text: str, at: int) -> tuple[int, int, bool]:
    """Skip whitespace and comments. Return the position after them, the end of the last comment, and whether it ends
    its line.

    Without a comment, the second is the start.
    """
    last, in_line_comment = at, False
    while True:
        at = cast("re.Match[str]", WHITESPACE.match(text, at)).end()
        comment = _COMMENT.match(text, at)
        if comment is None:
            return at, last, in_line_comment
        at = last = comment.end()
        in_line_comment = comment.group().startswith("//")


def skip_trivia(text: str, at: int) -> int:
    return scan_trivia(text, at)[0]


def _check_end(text: str, end: int) -> None:
    rest = skip_trivia(text, end)
    if rest < len(text):
        raise NotJson("more text follows the end", text, rest)


def _parse_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins here, and its end."""
    if at >= len(text):
        raise NotJson("something is missing", text, at)
    try:
        return _DECODER.raw_decode(text, at)
    except ValueError as error:  # possibly only because of a comment or a trailing comma
        if text[at] not in "{[":
            reason = _BAD_STRING if text[at] == '"' else "a value cannot begin here"
            raise NotJson(reason, text, at) from error
    container = scan_container(text, at)
    if text[at] == "[":
        return [item.value for item in container.items], container.close + 1
    return {item.key: item.value for item in container.items}, container.close + 1


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _parse_item(text: str, at: int, number: int | None, read: _ReadValue) -> JsonItem:
    if number is not None:
        value, end = read(text, at)
        return JsonItem(number, at, at, end, value)
    name = _STRING.match(text, at)
    if name is None:
        raise NotJson("a name in quotes is missing", text, at)
    try:
        key = cast(str, json.loads(name.group()))
    except ValueError as error:
        raise NotJson("the name cannot be read", text, at) from error
    colon = skip_trivia(text, name.end())
    if not text.startswith(":", colon):
        raise NotJson("a colon is missing", text, colon)
    begin = skip_trivia(text, colon + 1)
    value, end = read(text, begin)
    return JsonItem(key, at, begin, end, value)
