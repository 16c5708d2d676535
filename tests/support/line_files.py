"""Reading files of lines in tests: what comes of it, however often reading is interrupted."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from everkept.core.transcripts import Mark
from everkept.transcripts.documents import LineTranscript, MakeFormat
from transcript_replay import Replay


def jsonl(*records: Any) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def spoken(known: Replay) -> list[tuple[str, str]]:
    return [(turn.author, turn.text) for turn in known.turns.values()]


def read(path: Path, make_format: MakeFormat, mark: Mark | None = None) -> Replay:
    known = Replay()
    known.mark = mark
    return known.read(LineTranscript(path, "test", make_format))


def read_with_breaks(path: Path, make_format: MakeFormat, lengths: Sequence[int]) -> Replay:
    """Each time the file is as long as that, and reading stops after a portion of one turn."""
    transcript = LineTranscript(path, "test", make_format, turns_in_portion=1)
    whole = path.read_bytes()
    known = Replay()
    for length in lengths:
        path.write_bytes(whole[:length])
        known.read(transcript, portions=1)
    path.write_bytes(whole)
    return known.read(transcript)


def read_growing(path: Path, make_format: MakeFormat, lengths: Sequence[int]) -> Replay:
    """Each time the file is as long as that, and is read to its end."""
    transcript = LineTranscript(path, "test", make_format)
    whole = path.read_bytes()
    known = Replay()
    for length in [*lengths, len(whole)]:
        path.write_bytes(whole[:length])
        known.read(transcript)
    return known


def places(value: Any, above: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every field of a record, and of what is in it."""
    found = [above]
    if isinstance(value, dict | list):
        for step, part in value.items() if isinstance(value, dict) else enumerate(value):
            found += places(part, (*above, step))
    return found


def changed(record: Any, where: Sequence[str | int], value: Any) -> Any:
    """The record with another value there."""
    if not where:
        return value
    step, *rest = where
    if isinstance(record, list):
        return [changed(p, rest, value) if i == step else p for i, p in enumerate(record)]
    return {**record, step: changed(record[step], rest, value)}
