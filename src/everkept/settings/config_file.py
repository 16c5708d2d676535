"""The config file: markdown whose settings stand in YAML at its top."""

import os
import re
import stat
from pathlib import Path

from everkept.errors import InvalidInput
from everkept.settings.flat_yaml import Entry, Unreadable, parse
from everkept.settings.locations import is_there
from everkept.values import Value

_FENCE = re.compile(r"-{3}[ \t]*$")
_END = re.compile(r"(?:-{3}|\.{3})[ \t]*$")
_REMOTE_HEADING = re.compile(r"#+[ \t]+remote mode settings", re.IGNORECASE)
_HEADING = re.compile(r"#+[ \t]")
_YAML_BLOCK = re.compile(r"[ \t]*```[ \t]*ya?ml[ \t]*$", re.IGNORECASE)
_BLOCK_END = re.compile(r"[ \t]*```[ \t]*$")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PASSWORDS = ("remote_pass", "database_password")


class ConfigFile(Value):
    """What one file says: the settings at its top, and those of the remote mode in its body."""

    path: Path
    settings: list[Entry]
    remote: list[Entry]


def read(path: Path) -> ConfigFile:
    lines = _lines(path)
    if not any(line.strip() for line in lines):
        return ConfigFile(path, [], [])
    if not _FENCE.match(lines[0]):
        raise _unreadable(path, 1, "The settings come first, between two lines of `---`.")
    end = next((i for i, line in enumerate(lines[1:], 1) if _END.match(line)), None)
    if end is None:
        raise _unreadable(path, len(lines), "The settings are not closed by a line of `---`.")
    try:
        return ConfigFile(path, parse(lines[1:end], 2), _remote(lines, end + 1))
    except Unreadable as error:
        raise _unreadable(path, error.line, error.reason) from None


def reader_warnings(path: Path) -> list[str]:
    """Whether a password in the file can be read by others than its owner."""
    if os.name != "posix" or not is_there(path) or not path.stat().st_mode & _OTHERS:
        return []
    found = read(path)
    held = [e.key for e in (*found.settings, *found.remote) if e.key in _PASSWORDS and e.value]
    return [f"{path} holds {key}, and others can read it: chmod 600 {path}" for key in held[:1]]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{path} is not UTF-8 at byte {error.start}.", hint="Save it as UTF-8.", file=str(path)
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"The config file {path} cannot be read: {error.strerror}.", file=str(path)
        ) from None


def _remote(lines: list[str], start: int) -> list[Entry]:
    """The block under the heading of the remote mode, in the body."""
    under_heading = False
    for i in range(start, len(lines)):
        if _HEADING.match(lines[i]):
            under_heading = bool(_REMOTE_HEADING.match(lines[i]))
        elif under_heading and _YAML_BLOCK.match(lines[i]):
            end = next(
                (j for j in range(i + 1, len(lines)) if _BLOCK_END.match(lines[j])), len(lines)
            )
            return parse(lines[i + 1 : end], i + 2)
    return []


def _unreadable(path: Path, line: int, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{path}, line {line}, cannot be read.", hint=reason, file=str(path), line=line
    )
