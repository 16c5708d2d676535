"""Which program wrote a file, by its name and its first lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.transcripts import claude_code, codex, cursor, gemini, plain
from recollect.transcripts.fields import decoded

_BEGINNING = 256 * 1024  # bytes that are looked at
_ENDINGS = {".vscdb": cursor.SOURCE, ".txt": cursor.SOURCE, ".zst": codex.SOURCE}


def guessed(path: Path) -> str | None:
    """The source; None where nothing tells, or the file cannot be read."""
    if by_ending := _ENDINGS.get(path.suffix):
        return by_ending
    if path.suffix == ".json":
        return gemini.SOURCE if b'"messages"' in _beginning(path) else None
    records = map(decoded, _beginning(path).split(b"\n"))
    return next((source for record in records if (source := _writer(record))), None)


def _writer(record: Mapping[str, Any]) -> str | None:
    names = record.keys()
    if {"session", "author", "text"} <= names:
        return plain.SOURCE
    if {"type", "payload"} <= names:
        return codex.SOURCE
    if {"sessionId", "projectHash"} <= names or names & {"$set", "$rewindTo"}:
        return gemini.SOURCE
    if {"type", "uuid"} <= names or {"type", "sessionId"} <= names or "leafUuid" in names:
        return claude_code.SOURCE
    if {"role", "message"} <= names:
        return cursor.SOURCE
    return None


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_BEGINNING)
    except OSError:
        return b""
