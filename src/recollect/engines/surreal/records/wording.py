"""The rows of `word` in step with the records: what each is found by, and whom a change reaches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from recollect.core.fitting import hears
from recollect.core.folding import tokens
from recollect.core.matching import heard
from recollect.core.records import Record
from recollect.core.stemming import stem
from recollect.core.words import Prepared, joined_texts, prepared
from recollect.engines.surreal.records.rows import field_to, place_to, record_from, thing, things
from recollect.engines.surreal.records.tables import Tables, Writing

# What a record is found by and whom it hears; what those beside it are found by is among it.
_worded = attrgetter("name", "type", "text", "session", "position", "scope", "deleted_at")
_heard = attrgetter("text", "session", "position", "scope", "deleted_at")

# In a column without words: a row of which the database has no word does not count among those
# whose number says how rare a word is. No word is written so.
NO_WORD = "-"

_CHILDREN = (
    "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids AND deleted_at IS NONE"
)
_AT_PLACES = (
    "SELECT * FROM record WITH INDEX record_place WHERE place IN $places AND deleted_at IS NONE"
)


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


async def rewrite_words(tables: Tables, shift: Shift, writing: Writing) -> None:
    """Adds what makes the index hold of each record what it is, and of others nothing."""
    altered = shift.altered
    if not altered:
        return
    reached = [*altered, *await _read_children(tables, shift, altered)]
    heard_anew = await _read_around(tables, shift, reached)
    wanted = dict.fromkeys((*reached, *heard_anew))
    live = [r for i in wanted if (r := shift.now(i)) is not None and r.deleted_at is None]
    await _read_parents(tables, shift, live)
    there = {record.id for record in live}
    writing.delete(things("word", (i for i in wanted if i not in there)))
    writing.put(_rows(shift, live))


def stems(texts: Iterable[Prepared]) -> str:
    """The words of a column, each with a blank before and behind it."""
    return f" {' '.join(map(stem, tokens(joined_texts(list(texts))))) or NO_WORD} "


async def _read_children(tables: Tables, shift: Shift, altered: list[str]) -> list[str]:
    """The ids of those whose parent has another name now."""
    renamed = [
        i
        for i in altered
        if i in shift.before and i in shift.after and shift.before[i].name != shift.after[i].name
    ]
    if not renamed:
        return []
    return _take_in(shift, await tables.ask(_CHILDREN, ids=things("record", renamed)))


async def _read_around(tables: Tables, shift: Shift, reached: list[str]) -> list[str]:
    """Reads whoever stands beside those who are found by other words; who hears something new?"""
    states = [(shift.before.get(i), shift.after.get(i)) for i in shift.altered]
    said = [r for old, new in states if _differs(_heard, old, new) for r in (old, new) if r]
    near = _places(said, (-1, 1))
    listening = [r for i in reached if (r := shift.now(i)) is not None]
    wanted = _places(said, (-2, -1, 0, 1, 2)) | _places(listening, (-1, 1))
    if wanted:
        _take_in(shift, await tables.ask(_AT_PLACES, places=sorted(wanted)))
    known = dict.fromkeys((*shift.others, *shift.after))
    return [i for i in known if (r := shift.now(i)) is not None and _place(r, 0) in near]


async def _read_parents(tables: Tables, shift: Shift, live: list[Record]) -> None:
    missing = {r.parent for r in live if r.parent is not None and shift.now(r.parent) is None}
    if missing:
        rows = await tables.ask("SELECT * FROM $ids", ids=things("record", sorted(missing)))
        _take_in(shift, rows)


def _take_in(shift: Shift, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    found = {record.id: (record, row["age"]) for row in rows for record in [record_from(row)]}
    for record_id, (record, age) in found.items():
        shift.ages[record_id] = age
        if record_id not in shift.before and record_id not in shift.after:
            shift.others[record_id] = record
    return list(found)


def _rows(shift: Shift, live: list[Record]) -> list[dict[str, Any]]:
    at: dict[str, list[Record]] = {}
    for record_id in sorted({*shift.others, *shift.after}, key=lambda i: shift.ages[i]):
        record = shift.now(record_id)
        place = record and _place(record, 0)
        if record and place:
            at.setdefault(place, []).append(record)
    ready: dict[str, Prepared] = {}

    def prepare(text: str) -> Prepared:
        # A text stands in the context of its neighbours too, and is prepared once.
        if text not in ready:
            ready[text] = prepared(text)
        return ready[text]

    def row(record: Record) -> dict[str, Any]:
        parent = shift.now(record.parent) if record.parent is not None else None
        beside = [r for step in (-1, 1) for r in at.get(_place(record, step) or "", ())]
        beside.sort(key=lambda other: shift.ages[other.id])
        around = [
            heard(other.text, before=(other.position or 0) < (record.position or 0))
            for other in beside
            if hears(record, other)
        ]
        described = [part for part in (record.type, record.text) if part]
        columns = {
            "name": [record.name or ""],
            "text": described,
            "context": [(parent and parent.name) or "", *around],
        }
        return {
            "id": thing("word", record.id),
            "of": thing("record", record.id),
            "age": shift.ages[record.id],
            "kind": field_to("kind", record.kind),
            "parent": field_to("parent", record.parent),
            **{name: stems(map(prepare, texts)) for name, texts in columns.items()},
        }

    return [row(record) for record in live]


def _differs(what: Any, old: Record | None, new: Record | None) -> bool:
    return (old is None) != (new is None) or bool(old and new and what(old) != what(new))


def _places(records: Iterable[Record], steps: Iterable[int]) -> set[str]:
    return {
        place for record in records for step in steps if (place := _place(record, step)) is not None
    }


def _place(record: Record, step: int) -> str | None:
    if record.position is None:
        return None
    return place_to(record.session, record.position + step)
