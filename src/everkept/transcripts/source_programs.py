"""Programs whose transcripts are imported: their folders, limits and record fields."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from everkept.core.disk import open_regular
from everkept.core.times import to_microseconds
from everkept.values import Value

_MIN_MICROSECONDS, _MAX_MICROSECONDS = (to_microseconds(datetime(year, 1, 1, tzinfo=UTC)) for year in (1, 9999))
# Smaller numbers are seconds (up to the year 5138), larger ones milliseconds.
_MIN_MILLISECONDS = 10**11


def as_mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, otherwise an empty one."""
    return cast(Mapping[str, Any], value) if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, otherwise an empty one."""
    return cast(list[Any], value) if isinstance(value, list) else []


def as_text(value: Any) -> str:
    """Return the value if it is a text, otherwise an empty one."""
    return value if isinstance(value, str) else ""


def as_texts(value: Any) -> tuple[str, ...]:
    """Return the unique texts in a list. A single text counts as a list of one."""
    return deduplicate_texts([value] if isinstance(value, str) else as_list(value))


def deduplicate_texts(values: Iterable[Any]) -> tuple[str, ...]:
    """Return the unique values that are non-empty texts, in order."""
    return tuple(dict.fromkeys(v for v in values if isinstance(v, str) and v.strip()))


def decode_object(raw: Any) -> Mapping[str, Any]:
    """Parse a JSON object from text or bytes. Return an empty object if it is not one."""
    if not isinstance(raw, str | bytes):
        return {}
    try:
        return parse_record(raw.encode("utf-8", "replace") if isinstance(raw, str) else raw) or {}
    except NoRecord:
        return {}


def parse_time(value: Any) -> int | None:
    """Return the microseconds since 1970 of an ISO time, or of a number of seconds or milliseconds.

    A time without a zone is in the zone of this machine. Return None for an invalid time.
    """
    if isinstance(value, str):
        return _parse_iso_time(value.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _parse_epoch(value)


def compute_fingerprint(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _parse_iso_time(text: str) -> int | None:
    try:
        return to_microseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError):
        pass
    try:
        return _parse_epoch(float(text))
    except ValueError:
        return None


def _parse_epoch(number: float) -> int | None:
    scale = 1_000_000 if abs(number) < _MIN_MILLISECONDS else 1_000
    # This form of the comparison also rejects NaN and infinity.
    if not _MIN_MICROSECONDS / scale <= number <= _MAX_MICROSECONDS / scale:
        return None
    return round(number * scale)


BROKEN_LINE = "broken line"
WRONG_SHAPE = "wrong shape"
LINE_TOO_LONG = "line too long"

_BLANK_BYTES = b" \t\r\n\0"  # a crash may leave zeros in unwritten parts of a file
_BOM = b"\xef\xbb\xbf"
# A line with an object for every three bytes would take a hundred times its size in memory.
_LONG_LINE_BYTES = 256 * 1024
_MAX_LINE_PARTS = 500_000
# Escapes that may encode unpaired surrogates or control characters.
_UNCLEAN_PATTERN = re.compile(rb"\\u00[01]|\\u[dD][89a-fA-F]|\\[bf]|\x7f")
_COLOR_PATTERN = re.compile("\x1b\\[[0-?]{0,40}[ -/]?[@-~]")  # color codes of terminals
_CONTROL_CHARACTERS = {code: None for code in (*range(32), 127) if chr(code) not in "\t\n\r"}


class NoRecord(Exception):
    """A line without a record. `reason` is the name under which it is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def parse_record(line: bytes | None) -> Mapping[str, Any] | None:
    """Parse a line into an object whose texts can be stored anywhere. Return None for an empty line.

    Pass None for a line that was too long to be kept. Raise NoRecord if the line is not an object.
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
            value = clean_value(value)
    except (ValueError, RecursionError):
        raise NoRecord(BROKEN_LINE) from None
    if not isinstance(value, dict):
        raise NoRecord(WRONG_SHAPE)
    return cast(Mapping[str, Any], value)


def parse_value(text: str) -> Any:
    """Parse a text inside a record as JSON. Return None if it is not JSON."""
    try:
        return clean_value(json.loads(text))
    except (ValueError, RecursionError):
        return None


def decode_text(raw: bytes) -> str:
    """Decode the text of a file and remove its control characters."""
    return _strip_control(raw.decode("utf-8-sig", "replace"))


def clean_value(value: Any) -> Any:
    """Return the value without characters that cannot be stored, in all of its texts."""
    if isinstance(value, str):
        return _strip_control(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [clean_value(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        parts = cast(dict[str, Any], value)
        return {clean_value(name): clean_value(part) for name, part in parts.items()}
    return value


def _strip_control(text: str) -> str:
    return (_COLOR_PATTERN.sub("", text) if "\x1b" in text else text).translate(_CONTROL_CHARACTERS)


CLAUDE_CODE = "claude-code"
CODEX = "codex"
GEMINI = "gemini"
CURSOR = "cursor"
PLAIN = "jsonl"  # plain lines, without a default folder

SOURCES = (CLAUDE_CODE, CODEX, GEMINI, CURSOR, PLAIN)

_KIBIBYTE = 1024
_MEBIBYTE = 1024 * _KIBIBYTE

MAX_DOCUMENT_BYTES = 32 * _MEBIBYTE  # read into memory as a whole
MAX_VALUE_BYTES = 8 * _MEBIBYTE  # of a database; a larger value contains pictures
MAX_LINE_BYTES = 8 * _MEBIBYTE  # a longer line contains a picture, or is not a record
MAX_EXPANDED_LINE_BYTES = 64 * _MEBIBYTE  # of a compressed file; no program writes longer lines
MAX_EXPANSION_FACTOR = 500  # times the size of a compressed file, in addition to one such line
MAX_LIST_BYTES = 4 * _MEBIBYTE  # of a program's list of projects

# A portion ends with the item that reaches one of these limits.
PORTION_EVENTS = 64
PORTION_CHARACTERS = _MEBIBYTE
PORTION_BYTES = 4 * _MEBIBYTE  # so that stretches without turns end too

# Limits of a turn.
MAX_TEXT_CHARACTERS = 1_000_000
MAX_CODE_CHARACTERS = 2_000_000
MAX_REPLACED_CHARACTERS = 20_000  # of the text that one snippet replaced
MAX_TURN_ITEMS = 200  # of each kind: files, tools, snippets
MAX_FAILURES = 20
MAX_FAILURE_CHARACTERS = 2_000  # masked before it is stored, then shortened
MAX_TITLE_CHARACTERS = 1_000  # masked before it is stored, then shortened
MAX_PATH_CHARACTERS = 1_000
MAX_NAME_CHARACTERS = 200  # of a session, a branch, a model or a tool

MAX_SKIPPED_KINDS = 20  # names from the transcript, in addition to our own


class ClientFolders(Value):
    """The folder of each program. It may not exist."""

    claude: Path
    codex: Path
    gemini: Path
    cursor: Path
    cursor_user: Path  # the editor's own folder, which contains its database


def get_client_folders(environment: Mapping[str, str], home: Path, platform: str) -> ClientFolders:
    """Return the folders of all programs. `platform` has a value of `sys.platform`."""
    return ClientFolders(
        claude=_find_folder_variable(environment, "CLAUDE_CONFIG_DIR") or home / ".claude",
        codex=_find_folder_variable(environment, "CODEX_HOME") or home / ".codex",
        gemini=(_find_folder_variable(environment, "GEMINI_CLI_HOME") or home) / ".gemini",
        cursor=home / ".cursor",
        cursor_user=_get_applications_folder(environment, home, platform) / "Cursor" / "User",
    )


def _get_applications_folder(environment: Mapping[str, str], home: Path, platform: str) -> Path:
    """Return the folder in which editors keep their data."""
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
    except RuntimeError:  # the home of the named user is unknown
        return path


_HEAD_BYTES = 256 * 1024  # read from the start of the file
_SOURCE_ENDINGS = {".vscdb": CURSOR, ".txt": CURSOR, ".zst": CODEX}


def guess_source(path: Path) -> str | None:
    """Guess the source from the file's ending and content. Return None if it is unclear or unreadable."""
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
        with open_regular(path) as file:
            return file.read(_HEAD_BYTES)
    except OSError:
        return b""


MAX_AGENTS = 1_000  # newest agent files beside a transcript that are read

_FIRST_LINE_BYTES = 256 * 1024  # limit of a first line
_AGENT_ENDINGS = (".jsonl", ".json")


def find_source(path: Path, folders: ClientFolders) -> str | None:
    """Return the program whose folder contains the resolved file, or None."""
    places = {CLAUDE_CODE: folders.claude, CODEX: folders.codex, GEMINI: folders.gemini, CURSOR: folders.cursor}
    try:
        real = path.resolve()
        found = (name for name, place in places.items() if real.is_relative_to(place.resolve()))
        return next(found, None)
    except (OSError, RuntimeError, ValueError):  # a loop of links, or an invalid path
        return None


def list_agents(path: Path, source: str, session: str) -> list[Path]:
    if not session:
        return []
    if source == CLAUDE_CODE:
        # Older versions keep all agents of a folder beside the transcripts.
        beside = [each for each in _list_transcripts(path.parent) if each.name.startswith("agent-")]
        own = [each for each in beside[-MAX_AGENTS:] if _read_session(each) == session]
        return [*_list_transcripts(path.with_suffix("") / "subagents"), *own]
    if source == GEMINI and Path(session).name == session != "..":
        return _list_transcripts(path.parent / session)
    return []


def _read_session(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return as_text(decode_object(file.readline(_FIRST_LINE_BYTES)).get("sessionId"))
    except OSError:
        return ""


def _list_transcripts(folder: Path) -> list[Path]:
    """Return the transcripts, oldest first. A turn in two of them stays with the older one."""
    try:
        with os.scandir(folder) as entries:
            found = [
                (entry.stat().st_mtime_ns, entry.name)
                for entry in entries
                if entry.name.endswith(_AGENT_ENDINGS) and entry.is_file(follow_symlinks=False)
            ]
    except OSError:  # the folder does not exist, or a file was deleted since it was listed
        return []
    return [folder / name for _, name in sorted(found)]
