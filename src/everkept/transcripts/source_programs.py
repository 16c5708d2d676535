"""The programs whose transcripts are read: their folders, limits, and fields of their records."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from everkept.values import Value

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (
    (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for year in (1, 9999)
)
# Numbers below this are seconds, which is until the year 5138; from there on milliseconds.
_MILLISECONDS_FROM = 10**11


def mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one in place of anything else."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def listed(value: Any) -> list[Any]:
    """The list, or an empty one in place of anything else."""
    return cast(list[Any], value) if isinstance(value, list) else []


def string(value: Any) -> str:
    """The text, or an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def strings(value: Any) -> tuple[str, ...]:
    """The texts in a list, each once, or the one text that stands in place of it."""
    return unique([value] if isinstance(value, str) else listed(value))


def unique(values: Iterable[Any]) -> tuple[str, ...]:
    """Those that are texts and say something, each once, in their order."""
    return tuple(dict.fromkeys(v for v in values if isinstance(v, str) and v.strip()))


def decoded(raw: Any) -> Mapping[str, Any]:
    """The object that a text or bytes are as JSON; an empty one where they are none."""
    if not isinstance(raw, str | bytes):
        return {}
    try:
        return record_of(raw.encode("utf-8", "replace") if isinstance(raw, str) else raw) or {}
    except NoRecord:
        return {}


def moment(value: Any) -> int | None:
    """Microseconds since 1970 of an ISO time, or of a number of seconds or milliseconds.

    A time without a zone is that of this machine. None where it is no time.
    """
    if isinstance(value, str):
        return _written(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _counted(value)


def fingerprint(*parts: str) -> str:
    """Short, and the same for the same texts only."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _written(text: str) -> int | None:
    try:
        read = datetime.fromisoformat(text).astimezone(UTC)
        return (read - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return _counted(float(text))
    except ValueError:
        return None


def _counted(number: float) -> int | None:
    scale = 1_000_000 if abs(number) < _MILLISECONDS_FROM else 1_000
    # A comparison also holds for what is no number and for what no float can hold.
    if not _FIRST / scale <= number <= _LAST / scale:
        return None
    return round(number * scale)


BROKEN = "broken line"
WRONG_SHAPE = "wrong shape"
TOO_LONG = "line too long"

_BLANK = b" \t\r\n\0"  # zeros are what a crash leaves where nothing was written yet
_BOM = b"\xef\xbb\xbf"
# An object for every three bytes would take a hundred times the line's size.
_LONG = 256 * 1024
_MOST_PARTS = 500_000
# Half characters, and control characters: escapes that may mean them.
_UNCLEAN = re.compile(rb"\\u00[01]|\\u[dD][89a-fA-F]|\\[bf]|\x7f")
_COLOURS = re.compile("\x1b\\[[0-?]{0,40}[ -/]?[@-~]")  # of terminals
_CONTROL = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class NoRecord(Exception):
    """A line that holds no record; `reason` is what it is counted as."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def record_of(line: bytes | None) -> Mapping[str, Any] | None:
    """The object; None for a blank line. Texts in it can be stored anywhere.

    A line that is None was too long to be held. Raises NoRecord.
    """
    if line is None:
        raise NoRecord(TOO_LONG)
    data = line.strip(_BLANK).removeprefix(_BOM)
    if not data:
        return None
    if len(data) > _LONG and data.count(b",") + data.count(b"{") + data.count(b"[") > _MOST_PARTS:
        raise NoRecord(TOO_LONG)
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
        if _UNCLEAN.search(data):
            value = _cleaned(value)
    except (ValueError, RecursionError):
        raise NoRecord(BROKEN) from None
    if not isinstance(value, dict):
        raise NoRecord(WRONG_SHAPE)
    return cast(Mapping[str, Any], value)


def value_in(text: str) -> Any:
    """What a text inside a record means, where it is JSON itself; else None."""
    try:
        return _cleaned(json.loads(text))
    except (ValueError, RecursionError):
        return None


def storable(raw: bytes) -> str:
    """The text of a file, without what no text should hold."""
    return _visible(raw.decode("utf-8-sig", "replace"))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return _visible(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_cleaned(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        parts = cast(dict[str, Any], value)
        return {_cleaned(name): _cleaned(part) for name, part in parts.items()}
    return value


def _visible(text: str) -> str:
    return (_COLOURS.sub("", text) if "\x1b" in text else text).translate(_CONTROL)


CLAUDE_CODE = "claude-code"
CODEX = "codex"
GEMINI = "gemini"
CURSOR = "cursor"
PLAIN = "jsonl"  # plain lines, which are where somebody put them

SOURCES = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, PLAIN)


_KIBIBYTE = 1024
_MEBIBYTE = 1024 * _KIBIBYTE

# Bytes.
LARGEST_DOCUMENT = 32 * _MEBIBYTE  # that is held in memory as a whole
LARGEST_VALUE = 8 * _MEBIBYTE  # of a database; a larger one holds pictures
LONGEST_LINE = 8 * _MEBIBYTE  # a longer one holds a picture, or is none
LONGEST_EXPANDED_LINE = 64 * _MEBIBYTE  # of a compressed file; no program writes such a one
MOST_EXPANDED = 500  # times the size of a compressed file, on top of such a line
LARGEST_LIST = 4 * _MEBIBYTE  # of projects, that a program keeps for itself

# A portion ends with what brings it to one of these.
PORTION_EVENTS = 64
PORTION_TEXT = _MEBIBYTE  # characters
PORTION_READ = 4 * _MEBIBYTE  # bytes, so that what holds no turns comes to an end too

# Characters and things of a turn.
MOST_TEXT = 1_000_000
MOST_CODE = 2_000_000
MOST_REPLACED = 20_000  # of what stood in place of one snippet
MOST_THINGS = 200  # of a sort: files, tools, snippets
MOST_FAILURES = 20
LONGEST_FAILURE = 2_000  # whoever keeps it masks it first, and then shortens it
LONGEST_TITLE = 1_000  # as with failures
LONGEST_PATH = 1_000
LONGEST_NAME = 200  # of a session, a branch, a model, a tool

MOST_KINDS = 20  # of what is skipped, by the names a transcript has; our own come on top


class ClientFolders(Value):
    """The folder of each program; nobody says that it is there."""

    claude: Path
    codex: Path
    gemini: Path
    cursor: Path
    cursor_user: Path  # the editor's own folder, in which its database is


def client_folders(environment: Mapping[str, str], home: Path, platform: str) -> ClientFolders:
    """`platform` as in `sys.platform`."""
    return ClientFolders(
        claude=_named(environment, "CLAUDE_CONFIG_DIR") or home / ".claude",
        codex=_named(environment, "CODEX_HOME") or home / ".codex",
        gemini=(_named(environment, "GEMINI_CLI_HOME") or home) / ".gemini",
        cursor=home / ".cursor",
        cursor_user=_applications(environment, home, platform) / "Cursor" / "User",
    )


def _applications(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """The folder in which editors of this kind keep theirs."""
    if platform == "win32":
        return _named(environment, "APPDATA") or home / "AppData" / "Roaming"
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return _named(environment, "XDG_CONFIG_HOME") or home / ".config"


def _named(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    path = Path(value)
    try:
        return path.expanduser()
    except RuntimeError:  # of a user whose home is not known
        return path


_BEGINNING = 256 * 1024  # bytes that are looked at
_ENDINGS = {".vscdb": CURSOR, ".txt": CURSOR, ".zst": CODEX}


def guessed(path: Path) -> str | None:
    """The source; None where nothing tells, or the file cannot be read."""
    if by_ending := _ENDINGS.get(path.suffix):
        return by_ending
    if path.suffix == ".json":
        return GEMINI if b'"messages"' in _beginning(path) else None
    records = map(decoded, _beginning(path).split(b"\n"))
    return next((source for record in records if (source := _writer(record))), None)


def _writer(record: Mapping[str, Any]) -> str | None:
    names = record.keys()
    if {"session", "author", "text"} <= names:
        return PLAIN
    if {"type", "payload"} <= names:
        return CODEX
    if {"sessionId", "projectHash"} <= names or names & {"$set", "$rewindTo"}:
        return GEMINI
    if {"type", "uuid"} <= names or {"type", "sessionId"} <= names or "leafUuid" in names:
        return CLAUDE_CODE
    if {"role", "message"} <= names:
        return CURSOR
    return None


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING)
    except OSError:
        return b""


MOST_AGENTS = 1_000  # files beside a transcript that are looked into, the newest

_PART_BEGINNING = 256 * 1024  # bytes that a first line is looked for in
_PART_ENDINGS = (".jsonl", ".json")


def source_at(path: Path, folders: ClientFolders) -> str | None:
    """The program in whose folder a file of this name really lies; None elsewhere."""
    places = {
        CLAUDE_CODE: folders.claude,
        CODEX: folders.codex,
        GEMINI: folders.gemini,
        CURSOR: folders.cursor,
    }
    try:
        real = path.resolve()
        found = (name for name, place in places.items() if real.is_relative_to(place.resolve()))
        return next(found, None)
    except (OSError, RuntimeError, ValueError):  # a circle of links, or what is no path
        return None


def agents_of(path: Path, source: str, session: str) -> list[Path]:
    """The transcripts of the agents that the session sent."""
    if not session:
        return []
    if source == CLAUDE_CODE:
        return [*_listed(path.with_suffix("") / "subagents"), *_beside(path, session)]
    if source == GEMINI and Path(session).name == session != "..":
        return _listed(path.parent / session)
    return []


def _beside(path: Path, session: str) -> Iterator[Path]:
    """Older versions keep all agents of a folder in one place; each record names its session."""
    found = [each for each in _listed(path.parent) if each.name.startswith("agent-")]
    return (each for each in found[-MOST_AGENTS:] if _session_of(each) == session)


def _session_of(path: Path) -> str:
    # Imported here: a hook asks only where a transcript lies.
    try:
        with path.open("rb") as file:
            return string(decoded(file.readline(_PART_BEGINNING)).get("sessionId"))
    except OSError:
        return ""


def _listed(folder: Path) -> list[Path]:
    """The oldest first: what is in two of them stays with the one that had it first."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(_PART_ENDINGS) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # there is none, or it went away meanwhile
        return []
    return [folder / name for _, name in sorted(found)]
