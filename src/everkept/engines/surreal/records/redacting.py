"""Rewriting what records and links hold and held."""

from collections.abc import Sequence

from everkept.core.ports import Purged, Redaction
from everkept.core.records import Change, Edit, Link, Record, Ref
from everkept.engines.redacting import (
    redacted_edit,
    redacted_link,
    redacted_record,
    told_of,
)
from everkept.engines.surreal.records.commit import log
from everkept.engines.surreal.records.meaning import forget_vectors, waiting
from everkept.engines.surreal.records.rows import (
    Row,
    before_to,
    changed_fields,
    edit_from,
    kept,
    link_from,
    link_to,
    record_from,
    thing,
    things,
)
from everkept.engines.surreal.records.tables import Tables, Writing
from everkept.engines.surreal.records.uniqueness import check_unique
from everkept.engines.surreal.records.wording import rewrite_words
from everkept.engines.wording import Shift

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
