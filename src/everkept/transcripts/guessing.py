"""Which program wrote a file, by its name and its first lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everkept.transcripts.reading.fields import decoded
from everkept.transcripts.sources import CLAUDE_CODE, CODEX, CURSOR, GEMINI, PLAIN

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
