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
_MIN_MICROSECONDS, _MAX_MICROSECONDS = (
    (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for year in (1, 9999)
)
# Numbers below this are seconds, which is until the year 5138; from there on milliseconds.
_MIN_MILLISECONDS = 10**11


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The object, or an empty one in place of anything else."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """The list, or an empty one in place of anything else."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """The text, or an empty one in place of anything else."""
    return value if isinstance(value, str) else ""


def as_texts(value: Any) -> tuple[str, ...]:
    """The texts in a list, each once, or the one text that stands in place of it."""
    return deduplicate_texts([value] if isinstance(value, str) else as_list(value))


def deduplicate_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """Those that are texts and say something, each once, in their order."""
    return tuple(dict.fromkeys(v for v in values if isinstance(v, str) and v.strip()))


def decode_object(raw: Any) -> Mapping[str, Any]:
    """The object that a text or bytes are as JSON; an empty one where they are none."""
    if not isinstance(raw, str | bytes):
        return {}
    try:
        return parse_record(raw.encode("utf-8", "replace") if isinstance(raw, str) else raw) or {}
    except NoRecord:
        return {}


def parse_time(value: Any) -> int | None:
    """Microseconds since 1970 of an ISO time, or of a number of seconds or milliseconds.

    A time without a zone is that of this machine. None where it is no time.
    """
    if isinstance(value, str):
        return _parse_iso_time(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _parse_epoch(value)


def compute_fingerprint(*parts: str) -> str:
    """Short, and the same for the same texts only."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _parse_iso_time(text: str) -> int | None:
    try:
        read = datetime.fromisoformat(text).astimezone(UTC)
        return (read - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return _parse_epoch(float(text))
    except ValueError:
        return None


def _parse_epoch(number: float) -> int | None:
    scale = 1_000_000 if abs(number) < _MIN_MILLISECONDS else 1_000
    # A comparison also holds for what is no number and for what no float can hold.
    if not _MIN_MICROSECONDS / scale <= number <= _MAX_MICROSECONDS / scale:
        return None
    return round(number * scale)


BROKEN_LINE = "broken line"
WRONG_SHAPE = "wrong shape"
LINE_TOO_LONG = "line too long"

_BLANK_BYTES = b" \t\r\n\0"  # zeros are what a crash leaves where nothing was written yet
_BOM = b"\xef\xbb\xbf"
# An object for every three bytes would take a hundred times the line's size.
_LONG_LINE_BYTES = 256 * 1024
_MAX_LINE_PARTS = 500_000
# Half characters, and control characters: escapes that may mean them.
_UNCLEAN_PATTERN = re.compile(rb"\\u00[01]|\\u[dD][89a-fA-F]|\\[bf]|\x7f")
_COLOR_PATTERN = re.compile("\x1b\\[[0-?]{0,40}[ -/]?[@-~]")  # of terminals
_CONTROL_CHARACTERS = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class NoRecord(Exception):
    """A line that holds no record; `reason` is what it is counted as."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_record(line: bytes | None) -> Mapping[str, Any] | None:
    """The object; None for a blank line. Texts in it can be stored anywhere.

    A line that is None was too long to be held. Raises NoRecord.
    """
    if line is None:
        raise NoRecord(LINE_TOO_LONG)
    data = line.strip(_BLANK_BYTES).removeprefix(_BOM)
    if not data:
        return None
    if len(data) > _LONG_LINE_BYTES and data.count(b",") + data.count(b"{") + data.count(b"[") > _MAX_LINE_PARTS:
        raise NoRecord(LINE_TOO_LONG)
    try:
        value = json.loads(data.decode("utf-8", errors="replace"))
        if _UNCLEAN_PATTERN.search(data):
            value = _clean(value)
    except (ValueError, RecursionError):
        raise NoRecord(BROKEN_LINE) from None
    if not isinstance(value, dict):
        raise NoRecord(WRONG_SHAPE)
    return cast(Mapping[str, Any], value)


def parse_value(text: str) -> Any:
    """What a text inside a record means, where it is JSON itself; else None."""
    try:
        return _clean(json.loads(text))
    except (ValueError, RecursionError):
        return None


def decode_text(raw: bytes) -> str:
    """The text of a file, without what no text should hold."""
    return _strip_control(raw.decode("utf-8-sig", "replace"))


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _strip_control(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_clean(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        parts = cast(dict[str, Any], value)
        return {_clean(name): _clean(part) for name, part in parts.items()}
    return value


def _strip_control(text: str) -> str:
    return (_COLOR_PATTERN.sub("", text) if "\x1b" in text else text).translate(_CONTROL_CHARACTERS)


CLAUDE_CODE = "claude-code"
CODEX = "codex"
GEMINI = "gemini"
CURSOR = "cursor"
PLAIN = "jsonl"  # plain lines, which are where somebody put them

SOURCES = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, PLAIN)


_KIBIBYTE = 1024
_MEBIBYTE = 1024 * _KIBIBYTE

# Bytes.
MAX_DOCUMENT_BYTES = 32 * _MEBIBYTE  # that is held in memory as a whole
MAX_VALUE_BYTES = 8 * _MEBIBYTE  # of a database; a larger one holds pictures
MAX_LINE_BYTES = 8 * _MEBIBYTE  # a longer one holds a picture, or is none
MAX_EXPANDED_LINE_BYTES = 64 * _MEBIBYTE  # of a compressed file; no program writes such a one
MAX_EXPANSION_FACTOR = 500  # times the size of a compressed file, on top of such a line
MAX_LIST_BYTES = 4 * _MEBIBYTE  # of projects, that a program keeps for itself

# A portion ends with what brings it to one of these.
PORTION_EVENTS = 64
PORTION_CHARACTERS = _MEBIBYTE
PORTION_BYTES = 4 * _MEBIBYTE  # so that what holds no turns comes to an end too

# Characters and things of a turn.
MAX_TEXT_CHARACTERS = 1_000_000
MAX_CODE_CHARACTERS = 2_000_000
MAX_REPLACED_CHARACTERS = 20_000  # of what stood in place of one snippet
MAX_TURN_ITEMS = 200  # of a sort: files, tools, snippets
MAX_FAILURES = 20
MAX_FAILURE_CHARACTERS = 2_000  # whoever keeps it masks it first, and then shortens it
MAX_TITLE_CHARACTERS = 1_000  # as with failures
MAX_PATH_CHARACTERS = 1_000
MAX_NAME_CHARACTERS = 200  # of a session, a branch, a model, a tool

MAX_SKIPPED_KINDS = 20  # of what is skipped, by the names a transcript has; our own come on top


class ClientFolders(Value):
    """The folder of each program; nobody says that it is there."""

    claude: Path
    codex: Path
    gemini: Path
    cursor: Path
    cursor_user: Path  # the editor's own folder, in which its database is


def get_client_folders(environment: Mapping[str, str], home: Path, platform: str) -> ClientFolders:
    """`platform` as in `sys.platform`."""
    return ClientFolders(
        claude=_find_folder_variable(environment, "CLAUDE_CONFIG_DIR") or home / ".claude",
        codex=_find_folder_variable(environment, "CODEX_HOME") or home / ".codex",
        gemini=(_find_folder_variable(environment, "GEMINI_CLI_HOME") or home) / ".gemini",
        cursor=home / ".cursor",
        cursor_user=_get_applications_folder(environment, home, platform) / "Cursor" / "User",
    )


def _get_applications_folder(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """The folder in which editors of this kind keep theirs."""
    if platform == "win32":
        return _find_folder_variable(environment, "APPDATA") or home / "AppData" / "Roaming"
    if platform == "darwin":
        return home / "Library" / "Application Support"
    return _find_folder_variable(environment, "XDG_CONFIG_HOME") or home / ".config"


def _find_folder_variable(environment: Mapping[str, str], variable: str) -> Path | None:
    value = environment.get(variable, "").strip()
    if not value:
        return None
    path = Path(value)
    try:
        return path.expanduser()
    except RuntimeError:  # of a user whose home is not known
        return path


_HEAD_BYTES = 256 * 1024  # bytes that are looked at
_SOURCE_ENDINGS = {".vscdb": CURSOR, ".txt": CURSOR, ".zst": CODEX}


def guess_source(path: Path) -> str | None:
    """The source; None where nothing tells, or the file cannot be read."""
    if by_ending := _SOURCE_ENDINGS.get(path.suffix):
        return by_ending
    if path.suffix == ".json":
        return GEMINI if b'"messages"' in _read_head(path) else None
    records = map(decode_object, _read_head(path).split(b"\n"))
    return next((source for record in records if (source := _guess_writer(record))), None)


def _guess_writer(record: Mapping[str, Any]) -> str | None:
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


def _read_head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


MAX_AGENTS = 1_000  # files beside a transcript that are looked into, the newest

_FIRST_LINE_BYTES = 256 * 1024  # bytes that a first line is looked for in
_AGENT_ENDINGS = (".jsonl", ".json")


def find_source(path: Path, folders: ClientFolders) -> str | None:
    """The program in whose folder a file of this name really lies; None elsewhere."""
    places = {CLAUDE_CODE: folders.claude, CODEX: folders.codex, GEMINI: folders.gemini, CURSOR: folders.cursor}
    try:
        real = path.resolve()
        found = (name for name, place in places.items() if real.is_relative_to(place.resolve()))
        return next(found, None)
    except (OSError, RuntimeError, ValueError):  # a circle of links, or what is no path
        return None


def list_agents(path: Path, source: str, session: str) -> list[Path]:
    """The transcripts of the agents that the session sent."""
    if not session:
        return []
    if source == CLAUDE_CODE:
        return [*_list_transcripts(path.with_suffix("") / "subagents"), *_find_sibling_agents(path, session)]
    if source == GEMINI and Path(session).name == session != "..":
        return _list_transcripts(path.parent / session)
    return []


def _find_sibling_agents(path: Path, session: str) -> Iterator[Path]:
    """Older versions keep all agents of a folder in one place; each record names its session."""
    found = [each for each in _list_transcripts(path.parent) if each.name.startswith("agent-")]
    return (each for each in found[-MAX_AGENTS:] if _read_session(each) == session)


def _read_session(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return as_text(decode_object(file.readline(_FIRST_LINE_BYTES)).get("sessionId"))
    except OSError:
        return ""


def _list_transcripts(folder: Path) -> list[Path]:
    """The oldest first: what is in two of them stays with the one that had it first."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(_AGENT_ENDINGS) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # there is none, or it went away meanwhile
        return []
    return [folder / name for _, name in sorted(found)]
