"""Permanent removal of things, or of what they held, from tables, log and indexes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everkept.core.ports import Purged, Redaction
from everkept.core.records import Change, Edit, Link, Record, Ref
from everkept.engines.commit_plan import redacted_edit, redacted_link, redacted_record, told_of
from everkept.engines.stored_text import Shift
from everkept.engines.surreal.commit import check_unique, log
from everkept.engines.surreal.rows import (
    Row,
    before_to,
    changed_fields,
    edit_from,
    id_of,
    kept,
    link_from,
    link_to,
    record_from,
    thing,
    things,
)
from everkept.engines.surreal.schema import State, Tables, Writing
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import forget_vectors, waiting
from everkept.values import Value

_ALL = "SELECT * FROM $ids"
_BELOW = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids"
_ENDS = "SELECT ->link.* AS going, <-link.* AS coming FROM $ids"


class Belongings(Value):
    """Rows by id: of records with all below them, and of links with those at the records."""

    records: Mapping[str, Row]
    links: Mapping[str, Row]

    def before(self) -> dict[str, Record]:
        return {record_id: record_from(row) for record_id, row in self.records.items()}

    def ages(self) -> dict[str, int]:
        return {record_id: row["age"] for record_id, row in self.records.items()}


async def purge(tables: Tables, refs: Sequence[Ref], at: int) -> Purged:
    """Raises Contended where another came in between."""
    state = await tables.state()
    tables.check_open(state)
    doomed = await belongings(tables, refs)
    if doomed.records or doomed.links:
        writing = Writing()
        erase(writing, state, doomed)
        await rewrite_words(tables, Shift(doomed.before(), {}, doomed.ages()), writing)
        log(writing, Change(state.seq + 1, at, "purge", "", None, ()))
        await tables.write(state, writing, {"seq": state.seq + 1, "turn": state.turn + 1})
    return Purged(len(doomed.records), len(doomed.links), complete=True)


async def belongings(tables: Tables, refs: Iterable[Ref]) -> Belongings:
    """What goes with these, deleted ones too."""
    wanted = list(dict.fromkeys(refs))
    ids = things("record", (ref.id for ref in wanted if ref.subject == "record"))
    found = await _rows(tables, _ALL, ids)
    level = found
    while level := {
        record_id: row
        for record_id, row in (await _rows(tables, _BELOW, _row_ids(level))).items()
        if record_id not in found
    }:
        found = found | level
    links = await _rows(
        tables, _ALL, things("link", (ref.id for ref in wanted if ref.subject == "link"))
    )
    if found:
        for row in await tables.ask(_ENDS, ids=_row_ids(found)):
            links |= {id_of(link["id"]): link for side in row.values() for link in side}
    return Belongings(found, links)


def erase(
    writing: Writing, state: State, doomed: Belongings, told_anew: Sequence[Any] = ()
) -> None:
    """All but the words; `told_anew` are the ids of edits that are written over."""
    for subject, items in (("record", doomed.records), ("link", doomed.links)):
        if items:
            named = writing.value([kept(item) for item in items])
            writing.add(
                "DELETE (SELECT VALUE id FROM edit WITH INDEX edit_item "
                f"WHERE item IN {named} AND subject = '{subject}' "
                f"AND id NOT IN {writing.value(told_anew)}) RETURN NONE"
            )
    writing.delete(_row_ids(doomed.links))
    writing.delete(_row_ids(doomed.records))
    writing.delete(things("access", doomed.records))
    forget_vectors(writing, state, doomed.records)


async def _rows(tables: Tables, text: str, ids: Sequence[Any]) -> dict[str, Row]:
    return {id_of(row["id"]): row for row in await tables.ask(text, ids=ids)} if ids else {}


def _row_ids(rows: Mapping[str, Row]) -> list[Any]:
    return [row["id"] for row in rows.values()]


_EDITS = "SELECT * FROM edit WITH INDEX edit_item WHERE item IN $"


async def redact(tables: Tables, refs: Sequence[Ref], clean: Redaction, at: int) -> Purged:
    """Raises Conflict, and Contended where another came in between."""
    wanted = list(dict.fromkeys(refs))
    state, found = await tables.read(
        records=("SELECT * FROM $", things("record", _ids(wanted, "record"))),
        links=("SELECT * FROM $", things("link", _ids(wanted, "link"))),
        edits=(_EDITS, [kept(ref.id) for ref in wanted]),
    )
    tables.check_open(state)
    records = [(old, redacted_record(old, clean)) for old in map(record_from, found["records"])]
    links = [(old, redacted_link(old, clean)) for old in map(link_from, found["links"])]
    altered = [(old, new) for old, new in records if new is not old]
    altered_links = [(old, new) for old, new in links if new is not old]
    there = {r.ref for r, _ in records} | {x.ref for x, _ in links}
    edits = _cleaned_edits(found["edits"], there & set(wanted), clean)
    touched = {new.ref for _, new in altered} | {new.ref for _, new in altered_links}
    touched |= {told_of(edit) for _, edit in edits}
    if touched:
        await check_unique(tables, [r for _, r in altered], [x for _, x in altered_links])
        writing = Writing()
        _write(writing, altered, altered_links)
        writing.merge([(row["id"], {"before": before_to(edit.before)}) for row, edit in edits])
        forget_vectors(writing, state, [new.id for _, new in altered])
        ages = {record_from(row).id: row["age"] for row in found["records"]}
        shift = Shift({old.id: old for old, _ in altered}, {r.id: r for _, r in altered}, ages)
        await rewrite_words(tables, shift, writing)
        log(writing, Change(state.seq + 1, at, "redact", "", None, ()))
        await tables.write(state, writing, {"seq": state.seq + 1, "turn": state.turn + 1})
    count = sum(ref.subject == "record" for ref in touched)
    return Purged(count, len(touched) - count, complete=True)


def _write(
    writing: Writing,
    records: Sequence[tuple[Record, Record]],
    links: Sequence[tuple[Link, Link]],
) -> None:
    writing.merge(
        [
            (
                thing("record", new.id),
                {**changed_fields(old, new), "embedded": waiting(new.text)},
            )
            for old, new in records
        ]
    )
    for _, new in links:
        row = link_to(new)
        fields = {name: row[name] for name in ("verb", "edge", "facets")}
        writing.merge([(row["id"], fields)])


def _cleaned_edits(
    rows: Sequence[Row], wanted: set[Ref], clean: Redaction
) -> list[tuple[Row, Edit]]:
    """Those of these things whose old values are to be other ones, as they are to be."""
    edits = [(row, edit_from(row)) for row in rows]
    cleaned = [(row, old, redacted_edit(old, wanted, clean)) for row, old in edits]
    return [(row, new) for row, old, new in cleaned if new is not old]


def _ids(refs: Sequence[Ref], subject: str) -> list[str]:
    return [ref.id for ref in refs if ref.subject == subject]
