"""Config file: Markdown with YAML settings at its top."""

import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

from everkept.errors import InvalidInput
from everkept.patterns import compile_late
from everkept.settings.locations import is_existing
from everkept.settings.setting_values import FLAG_ONLY_SETTINGS, list_choices
from everkept.values import MISSING, Value, list_fields

_PAIR = re.compile(r"(?P<key>[A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(?P<value>.*))?$")
_ITEM = re.compile(r"[ \t]*-(?:[ \t]+(?P<value>.*))?$")
_COMMENT = re.compile(r"(?:^|[ \t])#.*$")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_SINGLE = re.compile(r"'((?:[^']|'')*)'")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/"}
_NULLS = ("", "~", "null", "Null", "NULL")
# A value that begins so is YAML that this parser does not support.
_STRUCTURE = tuple("{}]&*!|>%@`,")

Scalar = str | list[str] | None


class ConfigEntry(Value):
    """Key with its value and its line."""

    key: str
    value: Scalar
    line: int


class ConfigLineError(Exception):
    """Invalid line, with a hint."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


def parse_entries(lines: Sequence[str], first_line: int = 1) -> list[ConfigEntry]:
    """Parse the entries in order. Scalars stay text, because their type depends on the setting."""
    entries: list[ConfigEntry] = []
    for number, line in enumerate(lines, first_line):
        text = line.rstrip()
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        item = _ITEM.match(text)
        if item:
            _extend_last(entries, _parse_scalar(item["value"] or "", number), number)
        elif text[0] in " \t":
            raise ConfigLineError(number, "Begin each setting at the start of its line.")
        else:
            entries.append(_parse_pair(text, number))
    return entries


def _parse_pair(text: str, line: int) -> ConfigEntry:
    found = _PAIR.match(text)
    if found is None:
        raise ConfigLineError(line, "Write a setting as `key: value`.")
    return ConfigEntry(found["key"].replace("-", "_"), _parse_value(found["value"] or "", line), line)


def _extend_last(entries: list[ConfigEntry], item: str | None, line: int) -> None:
    """Add an item in the next line to the key above it."""
    last = entries[-1] if entries else None
    if last is None or isinstance(last.value, str):
        raise ConfigLineError(line, "Add a line with `key:` above this item.")
    entries[-1] = ConfigEntry(last.key, [*(last.value or []), item or ""], last.line)


def _parse_value(text: str, line: int) -> Scalar:
    if not text.startswith("["):
        return _parse_scalar(text, line)
    body = _strip_comment(text)
    if not body.endswith("]"):
        raise ConfigLineError(line, "End the list with `]` on the same line.")
    return [_parse_scalar(item, line) or "" for item in _split_items(body[1:-1], line)]


def _split_items(text: str, line: int) -> Iterator[str]:
    """Split the items of `a, "b, c"`. Commas inside quotes do not count."""
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


def _parse_scalar(text: str, line: int) -> str | None:
    if text.startswith(('"', "'")):
        return _parse_quoted(text, line)
    plain = _strip_comment(text)
    if plain in _NULLS:
        return None
    if plain.startswith(_STRUCTURE):
        raise ConfigLineError(line, f"`{plain[0]}` has a meaning in YAML. Put the value in quotes.")
    return plain


def _parse_quoted(text: str, line: int) -> str:
    double = text.startswith('"')
    found = (_DOUBLE if double else _SINGLE).match(text)
    if found is None:
        raise ConfigLineError(line, "Close the quotes.")
    if _strip_comment(text[found.end() :]):
        raise ConfigLineError(line, "Remove the text after the closing quotes.")
    return _unescape(found[1], line) if double else found[1].replace("''", "'")


def _unescape(text: str, line: int) -> str:
    def plain(escape: re.Match[str]) -> str:
        sign = escape[1]
        if sign.startswith("u") and len(sign) == 5:
            return chr(int(sign[1:], 16))
        if sign not in _ESCAPES:
            raise ConfigLineError(line, f"`\\{sign}` is not an escape. Use single quotes, or `\\\\`.")
        return _ESCAPES[sign]

    return _ESCAPE.sub(plain, text)


def _strip_comment(text: str) -> str:
    return _COMMENT.sub("", text).strip()


_FENCE = re.compile(r"-{3}[ \t]*$")
_END = re.compile(r"(?:-{3}|\.{3})[ \t]*$")
_YAML_BLOCK = re.compile(r"[ \t]*```[ \t]*ya?ml[ \t]*$", re.IGNORECASE)
_BLOCK_END = re.compile(r"[ \t]*```[ \t]*$")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PASSWORDS = ("remote_pass", "database_password")


class ConfigFile(Value):
    """The settings at the top of a file, and those in the `yaml` blocks of its body."""

    path: Path
    settings: list[ConfigEntry]
    body: list[ConfigEntry]


def read_config(path: Path, known: Collection[str]) -> ConfigFile:
    """Read the file. A block of the body counts if it has a `known` key; other blocks are examples."""
    lines = _read_lines(path)
    if not any(line.strip() for line in lines):
        return ConfigFile(path, [], [])
    if not _FENCE.match(lines[0]):
        raise _build_line_error(path, 1, "Put the settings at the top, between two lines of `---`.")
    end = next((i for i, line in enumerate(lines[1:], 1) if _END.match(line)), None)
    if end is None:
        raise _build_line_error(path, len(lines), "Add a line of `---` after the settings.")
    try:
        return ConfigFile(path, parse_entries(lines[1:end], 2), _parse_body(lines, end + 1, known))
    except ConfigLineError as error:
        raise _build_line_error(path, error.line, error.reason) from None


def list_reader_warnings(path: Path) -> list[str]:
    """Return a warning if other users can read a password in the file."""
    if os.name != "posix" or not is_existing(path) or not path.stat().st_mode & _OTHERS:
        return []
    found = read_config(path, _PASSWORDS)
    held = [e.key for e in (*found.settings, *found.body) if e.key in _PASSWORDS and e.value]
    return [f"{path} holds {key}, and others can read it: chmod 600 {path}" for key in held[:1]]


MAX_FILE_BYTES = 1024 * 1024


def _check_file(path: Path) -> None:
    """Raise InvalidInput for a pipe or a device, which may be endless, and for a large file."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_BYTES:
        raise InvalidInput(
            f"The config file {path} must be a regular file of at most {MAX_FILE_BYTES:,} bytes.",
            hint="Choose another file with --config.",
            file=str(path),
        )


def _read_lines(path: Path) -> list[str]:
    try:
        _check_file(path)
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8 at byte {error.start}.", hint="Save it as UTF-8.", file=str(path)
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"Cannot read the config file {path}: {error.strerror}.", hint="Check its permissions.", file=str(path)
        ) from None


def _parse_body(lines: list[str], start: int, known: Collection[str]) -> list[ConfigEntry]:
    """Return the entries of all blocks with a known key, under whichever heading they are."""
    entries: list[ConfigEntry] = []
    at = start
    while at < len(lines):
        if not _YAML_BLOCK.match(lines[at]):
            at += 1
            continue
        end = next((i for i in range(at + 1, len(lines)) if _BLOCK_END.match(lines[i])), len(lines))
        block = lines[at + 1 : end]
        if any((pair := _PAIR.match(line.rstrip())) and pair["key"].replace("-", "_") in known for line in block):
            entries += parse_entries(block, at + 2)
        at = end + 1
    return entries


def _build_line_error(path: Path, line: int, reason: str) -> InvalidInput:
    return InvalidInput(f"Cannot read line {line} of {path}.", hint=reason, file=str(path), line=line)


# Set by a launcher or for one run, and not expected in a file.
_OMITTED = FLAG_ONLY_SETTINGS | {"path", "session_id", "launcher"}

_DESCRIBED = compile_late(r"#: (?P<text>.+)\n\s+(?P<name>\w+):")

_BODY = """
# Everkept

The settings are at the top of this file, between the two lines of `---`. Remove a `# ` to set a value.
Flags override environment variables, and those override this file. To see each value and its source,
run `everkept config`.
"""


def build_template(settings: type[Any]) -> str:
    """Return the text of a new file. The comments of the fields explain the settings."""
    texts = {found["name"]: found["text"] for found in _DESCRIBED.finditer(_read_source(settings))}
    hints = get_type_hints(settings)
    lines = ["---"]
    for field in list_fields(settings):
        if field.name not in _OMITTED:
            lines += _format_comments(texts.get(field.name, ""), hints[field.name])
            lines += [f"# {field.name}: {_format_default(field.default)}".rstrip(), ""]
    return "\n".join([*lines[:-1], "---", _BODY])


def _read_source(settings: type[Any]) -> str:
    import inspect

    try:
        return inspect.getsource(settings)
    except OSError:  # a package without its sources has no comments
        return ""


def _format_comments(text: str, kind: Any) -> list[str]:
    choices = list_choices(kind)
    allowed = f" One of {', '.join(choices)}." if choices else ""
    return [f"# {text}{allowed}"] if text or allowed else []


def _format_default(default: Any) -> str:
    if default is MISSING or default is None:
        return ""
    return str(default).lower() if isinstance(default, bool) else str(default)
