"""Texts in databases other than SQLite: escaped NUL characters, JSON, and index entries that a change affects.

Some engines store the indexed words of each record separately. The caller reads and writes them; this module decides
which entries change when records change.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from math import isnan
from operator import attrgetter
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from everkept.core.fallback_answers import clip_context, has_context
from everkept.core.projects import STATUSES, Project
from everkept.core.records import Record
from everkept.core.times import MAX_TIME, MIN_TIME
from everkept.errors import StoreDamaged
from everkept.values import Value, field

P = ParamSpec("P")
T = TypeVar("T")

ESCAPE, _NUL = "\x01", "\x01\x02"
_ESCAPED_PATTERN = re.compile(f"{ESCAPE}(.)", re.DOTALL)


def escape_text(text: str) -> str:
    """Return the text in the form that the database stores."""
    if "\0" in text or ESCAPE in text:
        return text.replace(ESCAPE, ESCAPE * 2).replace("\0", _NUL)
    return text


def unescape_text(text: str) -> str:
    """Reverse `escape_text`."""
    if ESCAPE not in text:
        return text
    return _ESCAPED_PATTERN.sub(lambda found: "\0" if found[1] == _NUL[1] else ESCAPE, text)


def encode_facets(facets: Mapping[str, Any]) -> str | None:
    return json.dumps(facets, sort_keys=True) if facets else None


def decode_facets(stored: str | None) -> dict[str, Any]:
    return _decode_object(stored) if stored else {}


def _decode_object(stored: str) -> dict[str, Any]:
    found: Any = json.loads(stored)
    if not isinstance(found, dict):
        raise TypeError("not a JSON object")
    return cast(dict[str, Any], found)


def encode_before(before: Mapping[str, Any] | None) -> str | None:
    """Encode the old values of an edit for the log."""
    return None if before is None else json.dumps(before)


def decode_before(stored: str | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    before = _decode_object(stored)
    if "tags" in before:
        before["tags"] = tuple(before["tags"])
    return before


def check_times(*times: int | None) -> None:
    """Raise ValueError for a time that no date has. Without it, showing the time would fail."""
    for at in times:
        if at is not None and not MIN_TIME <= at <= MAX_TIME:
            raise ValueError("not a time")


def check_record(record: Record) -> Record:
    """Return the record. Raise ValueError or TypeError for values that Everkept never stores."""
    check_times(record.created_at, record.updated_at, record.occurred_at, record.deleted_at)
    if record.importance is not None and isnan(record.importance):
        raise ValueError("importance is not a number")
    "".join(record.tags)  # raises TypeError for anything but texts
    return record


def check_project(project: Project) -> Project:
    """Return the project. Raise ValueError or TypeError for values that Everkept never stores."""
    check_times(project.created_at, project.updated_at, project.off_since)
    if project.status not in STATUSES:
        raise ValueError("not a status")
    return project


def report_damage(title: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function that decodes a row. For a value that cannot be decoded, it raises StoreDamaged."""

    def decorate(read: Callable[P, T]) -> Callable[P, T]:
        @wraps(read)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return read(*args, **kwargs)
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
                raise StoreDamaged(
                    f"A row in {title} was not written by Everkept, or is damaged.",
                    hint="Restore a backup, or export what is still readable.",
                ) from error

        return reading

    return decorate


# Fields that determine the indexed words of a record, and those that also determine the words of its neighbors.
_get_indexed_fields = attrgetter("name", "type", "text", "parent", "session", "position", "scope", "deleted_at")
_get_context_fields = attrgetter("text", "session", "position", "scope", "deleted_at")

SessionPlace = tuple[str, int]  # a session, and a position in the session
AgedRecord = tuple[int, Record]


class StoredNeighbors(Protocol):
    """The stored data before the change, each record with its age."""

    async def list_children(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        """Return the live children of all these records."""
        ...

    async def list_at_places(self, places: Sequence[SessionPlace]) -> Iterable[AgedRecord]:
        """Return the live records at these places."""
        ...

    async def list_records(self, record_ids: Sequence[str]) -> Iterable[AgedRecord]:
        """Return these records, live or deleted."""
        ...


class RecordShift(Value, frozen=False):
    """Records before and after a change. A record that is missing from one of them does not exist there."""

    before: Mapping[str, Record]
    after: Mapping[str, Record]
    ages: dict[str, int]  # of all named records, and of records read since then
    others: dict[str, Record] = field(default_factory=dict[str, Record])  # read and unchanged

    def find_current(self, record_id: str) -> Record | None:
        if record_id in self.before or record_id in self.after:
            return self.after.get(record_id)
        return self.others.get(record_id)

    @property
    def reworded_ids(self) -> list[str]:
        """The ids of records whose indexed words change, including those that leave the index."""
        return [
            record_id
            for record_id in dict.fromkeys((*self.before, *self.after))
            if _is_different(_get_indexed_fields, self.before.get(record_id), self.after.get(record_id))
        ]

    @property
    def renamed_ids(self) -> list[str]:
        """The ids of records with a new name. Their children are indexed by that name too."""
        stay = self.before.keys() & self.after.keys()
        return [i for i in self.after if i in stay and self.before[i].name != self.after[i].name]

    def add_stored(self, found: Iterable[AgedRecord]) -> list[str]:
        """Add unchanged records and all ages. Return the ids."""
        ids: list[str] = []
        for age, record in found:
            ids.append(record.id)
            self.ages[record.id] = age
            if record.id not in self.before and record.id not in self.after:
                self.others[record.id] = record
        return ids


class IndexEntry(NamedTuple):
    """A live record, and the text that it is found by besides its own words."""

    record: Record
    context: list[str]


class IndexChanges(NamedTuple):
    """Records whose indexed words change, and the ids of records that leave the index."""

    found: list[IndexEntry]
    lost: list[str]


async def find_index_changes(shift: RecordShift, stored: StoredNeighbors) -> IndexChanges:
    """Find the index entries to write and to delete. Other records that matter are read into the shift."""
    altered = shift.reworded_ids
    renamed = shift.renamed_ids
    children = shift.add_stored(await stored.list_children(renamed)) if renamed else []
    reached = [*altered, *children]
    wanted = dict.fromkeys((*reached, *await _find_context_changes(shift, stored, reached)))
    live = [r for i in wanted if (r := shift.find_current(i)) is not None and r.deleted_at is None]
    parents = {r.parent for r in live if r.parent is not None and shift.find_current(r.parent) is None}
    if parents:
        shift.add_stored(await stored.list_records(sorted(parents)))
    there = {record.id for record in live}
    return IndexChanges(_build_entries(shift, live), [i for i in wanted if i not in there])


async def _find_context_changes(shift: RecordShift, stored: StoredNeighbors, reached: Sequence[str]) -> list[str]:
    """Read the neighbors of reworded records, and return the ids of records whose context may change."""
    states = [(shift.before.get(i), shift.after.get(i)) for i in shift.reworded_ids]
    said = [r for old, new in states if _is_different(_get_context_fields, old, new) for r in (old, new) if r]
    near = _get_places(said, (-1, 1))
    listening = [r for i in reached if (r := shift.find_current(i)) is not None]
    wanted = _get_places(said, (-2, -1, 0, 1, 2)) | _get_places(listening, (-1, 1))
    if wanted:
        shift.add_stored(await stored.list_at_places(sorted(wanted)))
    known = dict.fromkeys((*shift.others, *shift.after))
    return [i for i in known if (r := shift.find_current(i)) is not None and _find_place(r, 0) in near]


def _build_entries(shift: RecordShift, live: Iterable[Record]) -> list[IndexEntry]:
    at: dict[SessionPlace, list[Record]] = {}
    for record_id in {*shift.others, *shift.after}:
        record = shift.find_current(record_id)
        if record is not None and (place := _find_place(record, 0)) is not None:
            at.setdefault(place, []).append(record)

    def context(record: Record) -> list[str]:
        parent = shift.find_current(record.parent) if record.parent is not None else None
        beside = [other for place in _get_places([record], (-1, 1)) for other in at.get(place, ())]
        beside.sort(key=lambda other: shift.ages[other.id])
        around = [
            clip_context(other.text, before=(other.position or 0) < (record.position or 0))
            for other in beside
            if has_context(record, other)
        ]
        return [(parent and parent.name) or "", *around]

    return [IndexEntry(record, context(record)) for record in live]


def _is_different(what: Any, old: Record | None, new: Record | None) -> bool:
    return (old is None) != (new is None) or bool(old and new and what(old) != what(new))


def _get_places(records: Iterable[Record], steps: Iterable[int]) -> set[SessionPlace]:
    return {place for record in records for step in steps if (place := _find_place(record, step)) is not None}


def _find_place(record: Record, step: int) -> SessionPlace | None:
    if record.session is None or record.position is None:
        return None
    return record.session, record.position + step
