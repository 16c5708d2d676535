"""The column `words` in step with the records: what each is found by, and whom a change reaches."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from recollect.core.fitting import hears
from recollect.core.matching import heard
from recollect.core.records import Record
from recollect.engines.postgres.connecting.database import Cursor
from recollect.engines.postgres.records.asking import ask
from recollect.engines.postgres.records.rows import (
    RECORD_COLUMNS,
    Row,
    kept,
    kept_all,
    record_from,
)
from recollect.engines.postgres.records.schema import PREFIX
from recollect.engines.postgres.searching.words import lexemes

# What a record is found by and whom it hears; what those beside it are found by is among it.
_worded = attrgetter("name", "type", "text", "session", "position", "scope", "deleted_at")
_heard = attrgetter("text", "session", "position", "scope", "deleted_at")

_RECORDS = f"SELECT r.age, {RECORD_COLUMNS} FROM records r "
_CHILDREN = f"{_RECORDS} WHERE r.store = %s AND r.parent = ANY(%s::text[]) AND r.deleted_at IS NULL"
_BY_ID = f"{_RECORDS} WHERE r.store = %s AND r.id = ANY(%s::text[])"
_AT_PLACES = (
    f"{_RECORDS} JOIN unnest(%s::text[], %s::bigint[]) AS p(session, position) "
    f"ON left(r.session, {PREFIX}) = left(p.session, {PREFIX}) AND r.session = p.session "
    "AND r.position = p.position WHERE r.store = %s AND r.deleted_at IS NULL"
)

_Where = tuple[str, int]  # a session, and a position in it


@dataclass(slots=True)
class Shift:
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


def new_words(cursor: Cursor, store: int, shift: Shift) -> dict[str, str | None]:
    """What the column is to hold of each record that is found by other words now.

    Those that are deleted are found by none, and those that are gone are left out.
    """
    altered = shift.altered
    if not altered:
        return {}
    reading = _Reading(cursor, store, shift)
    reached = [*altered, *reading.children(altered)]
    heard_anew = reading.around(reached)
    there = [r for i in dict.fromkeys((*reached, *heard_anew)) if (r := shift.now(i)) is not None]
    live = [record for record in there if record.deleted_at is None]
    reading.parents(live)
    return {**dict.fromkeys(r.id for r in there), **_lexemes(store, shift, live)}


@dataclass(slots=True)
class _Reading:
    """Whoever else matters is read into the shift."""

    cursor: Cursor
    store: int
    shift: Shift

    def children(self, altered: Sequence[str]) -> list[str]:
        """The ids of those whose parent has another name now."""
        before, after = self.shift.before, self.shift.after
        renamed = [
            i for i in altered if i in before and i in after and before[i].name != after[i].name
        ]
        if not renamed:
            return []
        return self._take_in(ask(self.cursor, _CHILDREN, self.store, kept_all(renamed)))

    def around(self, reached: Sequence[str]) -> list[str]:
        """Reads whoever stands beside those who are found by other words: who hears anew?"""
        shift = self.shift
        states = [(shift.before.get(i), shift.after.get(i)) for i in shift.altered]
        said = [r for old, new in states if _differs(_heard, old, new) for r in (old, new) if r]
        near = _places(said, (-1, 1))
        listening = [r for i in reached if (r := shift.now(i)) is not None]
        wanted = sorted(_places(said, (-2, -1, 0, 1, 2)) | _places(listening, (-1, 1)))
        if wanted:
            sessions, positions = [kept(place[0]) for place in wanted], [p for _, p in wanted]
            self._take_in(ask(self.cursor, _AT_PLACES, sessions, positions, self.store))
        known = dict.fromkeys((*shift.others, *shift.after))
        return [i for i in known if (r := shift.now(i)) is not None and _place(r, 0) in near]

    def parents(self, live: Sequence[Record]) -> None:
        known = self.shift.now
        missing = {r.parent for r in live if r.parent is not None and known(r.parent) is None}
        if missing:
            self._take_in(ask(self.cursor, _BY_ID, self.store, kept_all(sorted(missing))))

    def _take_in(self, rows: Iterable[Row]) -> list[str]:
        shift = self.shift
        found: list[str] = []
        for age, *columns in rows:
            record = record_from(tuple(columns))
            found.append(record.id)
            shift.ages[record.id] = age
            if record.id not in shift.before and record.id not in shift.after:
                shift.others[record.id] = record
        return found


def _lexemes(store: int, shift: Shift, live: Sequence[Record]) -> dict[str, str]:
    at: dict[_Where, list[Record]] = {}
    for record_id in sorted({*shift.others, *shift.after}, key=lambda i: shift.ages[i]):
        record = shift.now(record_id)
        place = record and _place(record, 0)
        if record and place:
            at.setdefault(place, []).append(record)

    def context(record: Record) -> list[str]:
        parent = shift.now(record.parent) if record.parent is not None else None
        places = [_place(record, step) for step in (-1, 1)]
        beside = [r for place in places if place is not None for r in at.get(place, ())]
        beside.sort(key=lambda other: shift.ages[other.id])
        around = [
            heard(other.text, before=(other.position or 0) < (record.position or 0))
            for other in beside
            if hears(record, other)
        ]
        return [(parent and parent.name) or "", *around]

    return {record.id: lexemes(store, record, context(record)) for record in live}


def _differs(what: Any, old: Record | None, new: Record | None) -> bool:
    return (old is None) != (new is None) or bool(old and new and what(old) != what(new))


def _places(records: Iterable[Record], steps: Iterable[int]) -> set[_Where]:
    return {
        place for record in records for step in steps if (place := _place(record, step)) is not None
    }


def _place(record: Record, step: int) -> _Where | None:
    if record.session is None or record.position is None:
        return None
    return record.session, record.position + step
