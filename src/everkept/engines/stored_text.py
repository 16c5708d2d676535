"""Texts in databases other than SQLite: NUL as two characters, and whose words a change affects.

Some engines keep the words of each record in a place of their own. There the caller reads and
writes, and this decides by what records are found once some of them are others.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from everkept.core.fallback_answers import heard, hears
from everkept.core.records import Record
from everkept.values import Value, field

ESCAPE, _NUL = "\x01", "\x01\x02"
_ESCAPED = re.compile(f"{ESCAPE}(.)", re.DOTALL)


def kept(text: str) -> str:
    """A string as the database has it."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\0", _NUL)
    return text


def given(text: str) -> str:
    """What `kept` made of it, taken back."""
    if ESCAPE not in text:
        return text
    return _ESCAPED.sub(lambda found: "\0" if found[1] == _NUL[1] else ESCAPE, text)


# What a record is found by and whom it hears; what those beside it are found by is among it.
_worded = attrgetter("name", "type", "text", "session", "position", "scope", "deleted_at")
_heard = attrgetter("text", "session", "position", "scope", "deleted_at")

Place = tuple[str, int]  # a session, and a position in it
Aged = tuple[int, Record]


class Surroundings(Protocol):
    """What is stored before the change, each record with its age."""

    async def children(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        """Live ones of all of these."""
        ...

    async def standing_at(self, places: Sequence[Place]) -> Iterable[Aged]:
        """Live ones."""
        ...

    async def records(self, record_ids: Sequence[str]) -> Iterable[Aged]:
        """Live or deleted."""
        ...


class Shift(Value, frozen=False):
    """Records as they were and as they are to be; one that is in neither is not there."""

    before: Mapping[str, Record]
    after: Mapping[str, Record]
    ages: dict[str, int]  # of all that are named, and of those that are read meanwhile
    others: dict[str, Record] = field(default_factory=dict[str, Record])  # read, and as they were

    def now(self, record_id: str) -> Record | None:
        if record_id in self.before or record_id in self.after:
            return self.after.get(record_id)
        return self.others.get(record_id)

    @property
    def altered(self) -> list[str]:
        """The ids of those that are found by other words than before, or no longer."""
        return [
            record_id
            for record_id in dict.fromkeys((*self.before, *self.after))
            if _differs(_worded, self.before.get(record_id), self.after.get(record_id))
        ]

    @property
    def renamed(self) -> list[str]:
        """The ids of those whose children are found by another name."""
        stay = self.before.keys() & self.after.keys()
        return [i for i in self.after if i in stay and self.before[i].name != self.after[i].name]

    def take_in(self, found: Iterable[Aged]) -> list[str]:
        """Their ids."""
        ids: list[str] = []
        for age, record in found:
            ids.append(record.id)
            self.ages[record.id] = age
            if record.id not in self.before and record.id not in self.after:
                self.others[record.id] = record
        return ids


class Worded(NamedTuple):
    """A live record, and what it is found by beside its own words."""

    record: Record
    context: list[str]


class Reach(NamedTuple):
    """Those that are found by other words now, and the ids of those that are found by none."""

    found: list[Worded]
    lost: list[str]


async def reach(shift: Shift, stored: Surroundings) -> Reach:
    """Whoever else matters is read into the shift."""
    altered = shift.altered
    renamed = shift.renamed
    children = shift.take_in(await stored.children(renamed)) if renamed else []
    reached = [*altered, *children]
    wanted = dict.fromkeys((*reached, *await _hearing_anew(shift, stored, reached)))
    live = [r for i in wanted if (r := shift.now(i)) is not None and r.deleted_at is None]
    parents = {r.parent for r in live if r.parent is not None and shift.now(r.parent) is None}
    if parents:
        shift.take_in(await stored.records(sorted(parents)))
    there = {record.id for record in live}
    return Reach(_worded_now(shift, live), [i for i in wanted if i not in there])


async def _hearing_anew(shift: Shift, stored: Surroundings, reached: Sequence[str]) -> list[str]:
    """Reads whoever stands beside those who are found by other words: who hears something new?"""
    states = [(shift.before.get(i), shift.after.get(i)) for i in shift.altered]
    said = [r for old, new in states if _differs(_heard, old, new) for r in (old, new) if r]
    near = _places(said, (-1, 1))
    listening = [r for i in reached if (r := shift.now(i)) is not None]
    wanted = _places(said, (-2, -1, 0, 1, 2)) | _places(listening, (-1, 1))
    if wanted:
        shift.take_in(await stored.standing_at(sorted(wanted)))
    known = dict.fromkeys((*shift.others, *shift.after))
    return [i for i in known if (r := shift.now(i)) is not None and _place(r, 0) in near]


def _worded_now(shift: Shift, live: Iterable[Record]) -> list[Worded]:
    at: dict[Place, list[Record]] = {}
    for record_id in {*shift.others, *shift.after}:
        record = shift.now(record_id)
        if record is not None and (place := _place(record, 0)) is not None:
            at.setdefault(place, []).append(record)

    def context(record: Record) -> list[str]:
        parent = shift.now(record.parent) if record.parent is not None else None
        beside = [other for place in _places([record], (-1, 1)) for other in at.get(place, ())]
        beside.sort(key=lambda other: shift.ages[other.id])
        around = [
            heard(other.text, before=(other.position or 0) < (record.position or 0))
            for other in beside
            if hears(record, other)
        ]
        return [(parent and parent.name) or "", *around]

    return [Worded(record, context(record)) for record in live]


def _differs(what: Any, old: Record | None, new: Record | None) -> bool:
    return (old is None) != (new is None) or bool(old and new and what(old) != what(new))


def _places(records: Iterable[Record], steps: Iterable[int]) -> set[Place]:
    return {
        place for record in records for step in steps if (place := _place(record, step)) is not None
    }


def _place(record: Record, step: int) -> Place | None:
    if record.session is None or record.position is None:
        return None
    return record.session, record.position + step
