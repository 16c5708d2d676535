"""The part of YAML that a flat list of settings needs: scalars, lists and comments."""

import re
from collections.abc import Iterator, Sequence

from everkept.values import Value

_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(?P<value>.*))?$")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(?P<value>.*))?$")
_COMMENT = re.compile(r"(?:^|[ \t])#.*$")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/"}
_NULLS = ("", "~", "null", "Null", "NULL")
# What begins so is another kind of YAML than is read here.
_STRUCTURE = tuple("{}]&*!|>%@`,")

Scalar = str | list[str] | None


class Entry(Value):
    """A key with its value, and the line where it stands."""

    key: str
    value: Scalar
    line: int


class Unreadable(Exception):
    """A line that is not understood, and what would be."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def parse(lines: Sequence[str], first_line: int = 1) -> list[Entry]:
    """The entries in their order. Scalars stay text: what they mean depends on the setting."""
    entries: list[Entry] = []
    for number, line in enumerate(lines, first_line):
        text = line.rstrip()
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        item = _ITEM.match(text)
        if item:
            _extend(entries, _scalar(item["value"] or "", number), number)
        elif text[0] in " \t":
            raise Unreadable(number, "Settings do not nest: begin each at the start of its line.")
        else:
            entries.append(_pair(text, number))
    return entries


def _pair(text: str, line: int) -> Entry:
    found = _PAIR.match(text)
    if found is None:
        raise Unreadable(line, "A setting is written as `key: value`.")
    return Entry(found["key"].replace("-", "_"), _value(found["value"] or "", line), line)


def _extend(entries: list[Entry], item: str | None, line: int) -> None:
    """An item of a list in lines belongs to the key above it."""
    last = entries[-1] if entries else None
    if last is None or isinstance(last.value, str):
        raise Unreadable(line, "This item belongs to no list: `key:` has to stand above it.")
    entries[-1] = Entry(last.key, [*(last.value or []), item or ""], last.line)


def _value(text: str, line: int) -> Scalar:
    if not text.startswith("["):
        return _scalar(text, line)
    body = _without_comment(text)
    if not body.endswith("]"):
        raise Unreadable(line, "A list ends with `]` on the line where it began.")
    return [_scalar(item, line) or "" for item in _items(body[1:-1], line)]


def _items(text: str, line: int) -> Iterator[str]:
    """The items of `a, "b, c"`: commas inside quotes do not count."""
    at = 0
    while at < len(text):
        if text[at] in " \t,":
            at += 1
            continue
        quoted = (_DOUBLE if text[at] == '"' else _SINGLE).match(text, at)
        end = quoted.end() if quoted else text.find(",", at)
        end = len(text) if end < 0 else end
        yield text[at:end].rstrip()
        at = end


def _scalar(text: str, line: int) -> str | None:
    if text.startswith(('"', "'")):
        return _quoted(text, line)
    plain = _without_comment(text)
    if plain in _NULLS:
        return None
    if plain.startswith(_STRUCTURE):
        raise Unreadable(line, f"`{plain[0]}` has a meaning in YAML: put the value in quotes.")
    return plain


def _quoted(text: str, line: int) -> str:
    double = text.startswith('"')
    found = (_DOUBLE if double else _SINGLE).match(text)
    if found is None:
        raise Unreadable(line, "The quotes are not closed.")
    if _without_comment(text[found.end() :]):
        raise Unreadable(line, "Something stands behind the closing quotes.")
    return _unescaped(found[1], line) if double else found[1].replace("''", "'")


def _unescaped(text: str, line: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        sign = escape[1]
        if sign.startswith("u") and len(sign) == 5:
            return chr(int(sign[1:], 16))
        if sign not in _ESCAPES:
            raise Unreadable(line, f"`\\{sign}` is no escape: use single quotes, or `\\\\`.")
        return _ESCAPES[sign]

    return _ESCAPE.sub(plain, text)


def _without_comment(text: str) -> str:
    return _COMMENT.sub("", text).strip()
