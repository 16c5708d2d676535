"""Reads transcripts as an import does: a turn that comes again takes its own place."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from everkept.core.transcripts import Event, ExclusionEvent, Mark, Portion, RewindEvent, TitleEvent, Transcript, Turn

SAMPLES = Path(__file__).parents[1] / "transcripts" / "samples"


def expected(sample: str) -> Mapping[str, Any]:
    return json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))[sample]


def written(path: Path, records: Iterable[Any]) -> Path:
    """A file of these records, one on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line(record) for record in records))
    return path


def line(record: Any) -> bytes:
    return json.dumps(record).encode() + b"\n"


class Replay:
    """What is known after all that was read, over any number of readings."""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.titles: dict[str, str] = {}
        self.skipped: Counter[str] = Counter()
        self.marked: set[str] = set()
        self.mark: Mark | None = None
        self._again: set[str] | None = None  # what came since all began anew

    def read(self, transcript: Transcript, portions: int | None = None) -> "Replay":
        """On from where it was; only so many portions, where a number is given."""
        for count, portion in enumerate(transcript.read_portions(self.mark)):
            if count == portions:
                break
            self._take(portion)
        return self

    def _take(self, portion: Portion) -> None:
        if portion.is_anew:
            self._again = set()
        for event in portion.events:
            self._keep(event)
        if portion.is_last and self._again is not None:
            self.turns = {key: self.turns[key] for key in self.turns if key in self._again}
            self._again = None
        self.skipped.update(portion.skipped)
        # A mark is stored as JSON.
        self.mark = json.loads(json.dumps(portion.mark))

    def _keep(self, event: Event) -> None:
        match event:
            case Turn():
                if self._again is not None and event.key not in self._again:
                    self.turns.pop(event.key, None)  # what comes anew comes last
                    self._again.add(event.key)
                self.turns[event.key] = event
            case TitleEvent():
                self.titles[event.session] = event.title
            case ExclusionEvent():
                self.marked.add(event.session)
            case RewindEvent():
                keys = list(self.turns)
                if event.key in (keys if self._again is None else self._again):
                    for key in keys[keys.index(event.key) :]:
                        del self.turns[key]
                        (self._again or set()).discard(key)

    @property
    def texts(self) -> list[str]:
        return [turn.text for turn in self.turns.values()]


def replayed(transcript: Transcript) -> Replay:
    return Replay().read(transcript)


def only(turns: Sequence[Turn]) -> Turn:
    [turn] = turns
    return turn
