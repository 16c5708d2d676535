"""What was said of late in a session, as its transcript has it at this moment.

The history is filled behind the hooks' back, and may not have it yet.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from everkept.transcripts.claude_code.prompts import blocks_of, prompt_of, words
from everkept.transcripts.reading.decoding import NoRecord, record_of
from everkept.transcripts.reading.fields import mapping, moment, string

MOST_READ = 300_000  # bytes, the last
LONGEST_TEXT = 20_000  # characters that are read of what one said


class Said(NamedTuple):
    text: str
    by_user: bool
    at: int | None  # microseconds since 1970


def said_of_late(transcript: Path, session: str) -> list[Said]:
    """By the user and the assistant themselves, in order; nothing where it cannot be read."""
    try:
        tail = _tail(transcript)
    except OSError:
        return []
    return [said for record in _records(tail) for said in _said(record, session)]


def _tail(transcript: Path) -> bytes:
    if not transcript.is_file():  # one could wait for anything else for ever
        return b""
    with transcript.open("rb") as opened:
        start = max(0, opened.seek(0, 2) - MOST_READ)
        opened.seek(start)
        tail = opened.read(MOST_READ)
    return tail.partition(b"\n")[2] if start else tail


def _records(tail: bytes) -> Iterator[Mapping[str, Any]]:
    for line in tail.split(b"\n"):
        if b'"user"' in line or b'"assistant"' in line or b'"attachment"' in line:
            try:
                yield record_of(line) or {}
            except NoRecord:
                continue


def _said(record: Mapping[str, Any], session: str) -> Iterator[Said]:
    is_aside = any(record.get(mark) is True for mark in ("isSidechain", "isMeta"))
    is_no_speech = any(
        record.get(mark) is True for mark in ("isCompactSummary", "isApiErrorMessage")
    )
    if is_aside or is_no_speech or string(record.get("sessionId")) not in ("", session):
        return
    kind, at = string(record.get("type")), moment(record.get("timestamp"))
    if kind == "assistant":
        for block in blocks_of(mapping(record.get("message")).get("content")):
            if block.get("type") == "text" and (text := string(block.get("text")).strip()):
                yield Said(text[:LONGEST_TEXT], by_user=False, at=at)
    elif kind in ("user", "attachment") and (text := words(prompt_of(record))):
        yield Said(text[:LONGEST_TEXT], by_user=True, at=at)
