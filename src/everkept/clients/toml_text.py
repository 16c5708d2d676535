"""Editor for one table or value in the text of a TOML file. Every other byte stays."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.clients.config_files import UnexpectedShape, format_key_path
from everkept.values import Value

_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^#\r\n]*")
_REST_OF_LINE = re.compile(r"[^\n]*\n?")
# Three quotes and up to two more, which belong to the text before them.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_COMMENT = re.compile(r"#[^\n]*")


class NotToml(ValueError):
    """The text is not valid TOML. The message says where and why."""


class _Statement(Value):
    """Head of a table, or a key with its value."""

    path: tuple[str, ...]  # from the root on
    start: int  # of its line
    end: int  # after its last line
    value: tuple[int, int] | None  # None for a head

    def is_at_or_below(self, path: Sequence[str]) -> bool:
        return self.path[: len(path)] == tuple(path)


def parse_text(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from error
    except RecursionError as error:
        raise NotToml("it is nested too deeply") from error
    except ValueError as error:
        raise NotToml("it has a number with too many digits") from error


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with that value in that place, created if it is missing.

    A table is added at the end of the file with its own head. Raise UnexpectedShape if the form of the place does not
    allow it.
    """
    missing = object()
    old = _look_up(parse_text(text), path, missing)
    if old is not missing and json.dumps(old, default=str) == json.dumps(value):
        return text
    if isinstance(value, Mapping):
        rest = text if old is missing else remove_value(text, path)
        return _with_table(rest, path, cast(Mapping[str, Any], value))
    return _with_leaf(text, path, value, is_new=old is missing)


def remove_value(text: str, path: Sequence[str]) -> str:
    """Return the text without what is in that place, unchanged if nothing is."""
    missing = object()
    if _look_up(parse_text(text), path, missing) is missing:
        return text
    statements = _scan(text)
    if not any(statement.is_at_or_below(path) for statement in statements):
        raise UnexpectedShape(f"{format_key_path(path)} is defined inside {format_key_path(path[:1])}")
    for start, end in reversed(_find_blocks(text, statements, path)):
        text = text[:start] + text[end:]
    return text


def format_value(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        entries = cast(Mapping[str, Any], value).items()
        inside = ", ".join(f"{_format_key(name)} = {format_value(item)}" for name, item in entries)
        return f"{{ {inside} }}" if inside else "{}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(format_value(item) for item in cast(Sequence[Any], value))}]"
    return _quote(str(value))


def format_table(path: Sequence[str], value: Mapping[str, Any], newline: str = "\n") -> str:
    """Return a table with its head, without the end of its last line."""
    head = ".".join(_format_key(name) for name in path)
    lines = [f"[{head}]", *(f"{_format_key(name)} = {format_value(item)}" for name, item in value.items())]
    return newline.join(lines)


def _with_table(text: str, path: Sequence[str], value: Mapping[str, Any]) -> str:
    newline = _detect_newline(text)
    block = format_table(path, value, newline)
    if not text:
        return block + newline
    if text.endswith("\n"):
        return text + newline + block + newline
    return text + newline * 2 + block


def _with_leaf(text: str, path: Sequence[str], value: Any, *, is_new: bool) -> str:
    statements = _scan(text)
    for statement in statements:
        if statement.value is None:
            continue
        start, end = statement.value
        if statement.path == tuple(path):
            return text[:start] + format_value(value) + text[end:]
        if statement.path == tuple(path[:-1]):
            inline = cast(dict[str, Any], _look_up(parse_text(text), path[:-1], {}))
            return text[:start] + format_value({**inline, path[-1]: value}) + text[end:]
    if not is_new:
        raise UnexpectedShape(f"{format_key_path(path)} is defined inside {format_key_path(path[:1])}")
    last = _find_last_statement(statements, path[:-1])
    if last is None:
        raise UnexpectedShape(f"{format_key_path(path[:-1])} does not have its own head")
    newline = _detect_newline(text)
    indent = cast("re.Match[str]", _SPACES.match(text, last.start)).group()
    line = f"{indent}{_format_key(path[-1])} = {format_value(value)}"
    if text[last.start : last.end].endswith("\n"):
        return text[: last.end] + line + newline + text[last.end :]
    return text[: last.end] + newline + line + text[last.end :]


def _find_last_statement(statements: Sequence[_Statement], path: Sequence[str]) -> _Statement | None:
    """Return the last line of exactly this table, or its head if it is empty."""
    last: _Statement | None = None
    for statement in statements:
        if statement.value is None:
            if last is not None:
                return last
            last = statement if statement.path == tuple(path) else None
        elif last is not None:
            last = statement
    return last


def _find_blocks(text: str, statements: Sequence[_Statement], path: Sequence[str]) -> list[tuple[int, int]]:
    """Return what to cut: consecutive tables together, with the empty line before them."""
    blocks: list[tuple[int, int]] = []
    is_in_table = False
    was_cut = False
    for statement in statements:
        if statement.value is None:
            is_in_table = statement.is_at_or_below(path)
        is_cut = statement.is_at_or_below(path)
        if is_cut and was_cut and is_in_table:
            blocks[-1] = (blocks[-1][0], statement.end)
        elif is_cut:
            start = _include_gap(text, statement.start) if is_in_table else statement.start
            blocks.append((start, statement.end))
        was_cut = is_cut
    if blocks and blocks[-1][1] == len(text) and not text.endswith("\n"):
        # The file did not end with a line break before either.
        kept = text[: blocks[-1][0]]
        blocks[-1] = (len(kept) - len(_get_line_end(kept)), len(text))
    return blocks


def _include_gap(text: str, at: int) -> int:
    """Return the start of the empty line before this one, if there is one."""
    above = text[:at]
    gap = above[: len(above) - len(_get_line_end(above))]
    return len(gap) if not gap or gap.endswith("\n") else at


def _get_line_end(text: str) -> str:
    return "\r\n" if text.endswith("\r\n") else "\n" if text.endswith("\n") else ""


def _scan(text: str) -> list[_Statement]:
    """Return the statements of a text that is valid TOML."""
    statements: list[_Statement] = []
    head: tuple[str, ...] = ()
    at = 0
    while at < len(text):
        start = at
        at = _skip(_SPACES, text, at)
        if at >= len(text):
            break
        if text[at] in "#\r\n":
            at = _skip(_REST_OF_LINE, text, at)
            continue
        if text[at] == "[":
            brackets = 2 if text.startswith("[[", at) else 1
            head, at = _scan_keys(text, at + brackets)
            path, value = head, None
        else:
            keys, at = _scan_keys(text, at)
            begin = _skip(_SPACES, text, at + 1)
            at = _find_value_end(text, begin)
            path, value = head + keys, (begin, at)
        at = _skip(_REST_OF_LINE, text, at)
        statements.append(_Statement(path, start, at, value))
    return statements


def _scan_keys(text: str, at: int) -> tuple[tuple[str, ...], int]:
    """Return the names of a dotted key, and its end."""
    names: list[str] = []
    while True:
        at = _skip(_SPACES, text, at)
        quoted = _STRING.match(text, at)
        if quoted is not None:
            names.append(tomllib.loads(f"name = {quoted.group()}")["name"])
            at = quoted.end()
        else:
            end = _skip(_BARE_KEY, text, at)
            names.append(text[at:end])
            at = end
        at = _skip(_SPACES, text, at)
        if not text.startswith(".", at):
            return tuple(names), at
        at += 1


def _find_value_end(text: str, at: int) -> int:
    if quoted := _STRING.match(text, at):
        return quoted.end()
    if text[at] not in "[{":
        return at + len(cast("re.Match[str]", _SCALAR.match(text, at)).group().rstrip())
    depth = 0
    while True:
        if skipped := _STRING.match(text, at) or _COMMENT.match(text, at):
            at = skipped.end()
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(text[at], 0)
        at += 1
        if depth == 0:
            return at


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _look_up(values: Mapping[str, Any], path: Sequence[str], missing: Any) -> Any:
    value: Any = values
    for depth, name in enumerate(path):
        if not isinstance(value, Mapping):
            raise UnexpectedShape(f"{format_key_path(path[:depth])} is not a table")
        value = cast(Mapping[str, Any], value).get(name, missing)
        if value is missing:
            return missing
    return value


def _format_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _quote(name)


def _quote(text: str) -> str:
    """Quote a text, with single quotes if that avoids doubled backslashes, for example in Windows paths."""
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _detect_newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
