"""Filling a token budget with lines of several sections, by priority, need and rank."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from everkept.core.records import Record
from everkept.core.tokens import token_count
from everkept.values import Value

FIRST_SHARE = 0.5  # of the budget that the first section may take before others have their share
SHORT = 200  # characters of an entry, while others wait for room
SHORTEST = 40  # characters; less of a text says nothing
_CHARACTERS_PER_TOKEN = 5  # at most, on one line: a blank and four letters


class Entry(Value):
    """A record that may get a line, with where it comes from; equal texts have one `text_key`.

    `is_whole` says whether `text` is all that the record has.
    """

    record: Record
    text: str
    source: str
    text_key: str
    is_whole: bool = True

    def line(self, length: int | None = None) -> str:
        text = self.text
        if length is not None and length < len(text):
            text = text[: length - 1].rstrip() + "…"
        elif not self.is_whole:
            text += "…"
        return f"- {text} ({self.source})"

    def fitting(self, room: int, longest: int | None = None) -> str | None:
        """The longest line that takes no more tokens; None where too little would be left."""
        most = min(len(self.text), longest or len(self.text))
        # What is much too long is not counted through.
        low, high = min(most, SHORTEST), min(most, _CHARACTERS_PER_TOKEN * max(room, 0))
        if high == most and cost(self.line(most)) <= room:
            return self.line(most)
        if high < low or cost(self.line(low)) > room:
            return None
        while low < high:
            middle = (low + high + 1) // 2
            if cost(self.line(middle)) <= room:
                low = middle
            else:
                high = middle - 1
        return self.line(low)


@lru_cache(1_024)  # a line is weighed several times on its way into a block
def cost(line: str) -> int:
    """In tokens, with the end of the line."""
    return token_count(line + "\n")


class Filling:
    """Chooses lines while there is room for them.

    The first section comes first, up to half of the room; the others share the rest by what they
    need, and what one leaves over goes to the next. Entries are clipped before any is left out,
    and get back their length while there is room. Nothing is said twice.
    """

    def __init__(
        self, entries: Mapping[str, Sequence[Entry]], headings: Mapping[str, str], room: int
    ) -> None:
        self._entries = entries
        self._headings = headings
        self._room = room
        self._chosen: dict[str, dict[int, str]] = {section: {} for section in entries}
        self._shown: set[str] = set()  # ids of records
        self._said: set[str] = set()  # keys of texts
        self._fill()

    @property
    def used(self) -> list[Record]:
        return [
            entries[place].record
            for section, entries in self._entries.items()
            for place in sorted(self._chosen[section])
        ]

    @property
    def is_truncated(self) -> bool:
        """Whether an entry is clipped, or not there in any section."""
        return any(
            self._is_clipped(entry, self._chosen[section].get(place)) or not self._is_said(entry)
            for section, entries in self._entries.items()
            for place, entry in enumerate(entries)
        )

    def text(self) -> str:
        """A heading and lines for each section that has any, each after an empty line."""
        parts: list[str] = []
        for section, lines in self._chosen.items():
            if lines:
                parts += ["", self._headings[section], *(lines[place] for place in sorted(lines))]
        return "".join(f"{part}\n" for part in parts)

    def _is_said(self, entry: Entry) -> bool:
        return entry.record.id in self._shown or entry.text_key in self._said

    def _is_clipped(self, entry: Entry, line: str | None) -> bool:
        return line is not None and not (entry.is_whole and line == entry.line())

    def _fill(self) -> None:
        first, *rest = self._entries
        self._take(first, int(self._room * FIRST_SHARE))
        needs = {section: self._need(section) for section in rest}
        shared, needed = self._room, max(sum(needs.values()), 1)
        for section in rest:
            self._take(section, shared * needs[section] // needed)
        for section in self._entries:
            self._take(section, self._room)
        self._lengthen()

    def _take(self, section: str, allowance: int) -> None:
        for place, entry in enumerate(self._entries[section]):
            if self._is_said(entry):
                continue
            heading = 0 if self._chosen[section] else self._heading_cost(section)
            room = min(allowance, self._room) - heading
            line = entry.fitting(room, SHORT) if room > 0 else None
            if line is not None:
                self._chosen[section][place] = line
                self._shown.add(entry.record.id)
                self._said.add(entry.text_key)
                self._room -= heading + cost(line)
                allowance -= heading + cost(line)

    def _need(self, section: str) -> int:
        lines = [
            cost(entry.line(SHORT)) for entry in self._entries[section] if not self._is_said(entry)
        ]
        return sum(lines) + self._heading_cost(section) if lines else 0

    def _heading_cost(self, section: str) -> int:
        return cost("\n" + self._headings[section])

    def _lengthen(self) -> None:
        for section, lines in self._chosen.items():
            for place in sorted(lines):
                room = self._room + cost(lines[place])
                longer = self._entries[section][place].fitting(room)
                if longer is not None and len(longer) > len(lines[place]):
                    lines[place] = longer
                    self._room = room - cost(longer)
