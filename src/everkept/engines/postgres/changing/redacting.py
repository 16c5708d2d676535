"""Rewriting what records and links hold and held."""

from collections.abc import Mapping, Sequence
from typing import Any

from everkept.core.ports import Redaction
from everkept.core.records import Change, Link, Record, Ref
from everkept.engines.postgres.changing.belongings import LINKS, RECORDS, aged_link, aged_record
from everkept.engines.postgres.changing.cleansing import Losses, Removed
from everkept.engines.postgres.changing.turns import Place, taken, written
from everkept.engines.postgres.changing.wording import new_words
from everkept.engines.postgres.changing.writing import (
    changed_columns,
    link_columns,
    listed,
    log,
    record_columns,
    update,
)
from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask
from everkept.engines.postgres.records.rows import Row, before_to, edit_from, kept_all
from everkept.engines.postgres.searching.meaning import forget_vectors
from everkept.engines.redacting import (
    redacted_edit,
    redacted_link,
    redacted_record,
    told_of,
)
from everkept.engines.wording import Shift

_EDITS = (
    "SELECT seq, position, operation, subject, item, before FROM edits "
    "WHERE store = %s AND item = ANY(%s::text[]) AND before IS NOT NULL"
)
_REWRITE = (
    "UPDATE edits e SET before = n.before FROM json_to_recordset(%s::json) "
    "AS n(seq bigint, position integer, before text) "
    "WHERE e.store = %s AND e.seq = n.seq AND e.position = n.position"
)

_Told = tuple[Ref, Mapping[str, Any]]  # whose edit it is, and the columns that it is to have


def redact(cursor: Cursor, place: Place, refs: Sequence[Ref], clean: Redaction, at: int) -> Removed:
    """How many records and links had something to rewrite, in themselves or in the log."""
    state, store = taken(cursor, place), place.number
    wanted = kept_all([ref.id for ref in refs])
    records = ask(cursor, f"{RECORDS} r.id = ANY(%s::text[])", store, wanted)
    links = ask(cursor, f"{LINKS} l.id = ANY(%s::text[])", store, wanted)
    edits = ask(cursor, _EDITS, store, wanted)
    asked = set(refs)
    there = [(age, r) for age, r in map(aged_record, records.fetchall()) if r.ref in asked]
    there_links = [x for _, x in map(aged_link, links.fetchall()) if x.ref in asked]
    altered = [(r, new) for _, r in there if (new := redacted_record(r, clean)) is not r]
    altered_links = [(x, new) for x in there_links if (new := redacted_link(x, clean)) is not x]
    known = {r.ref for _, r in there} | {x.ref for x in there_links}
    told = _cleaned_edits(edits.fetchall(), known, clean)
    touched = {new.ref for _, new in (*altered, *altered_links)} | {ref for ref, _ in told}
    losses = Losses()
    if touched:
        ages = {record.id: age for age, record in there}
        shift = Shift({old.id: old for old, _ in altered}, {r.id: r for _, r in altered}, ages)
        words = new_words(cursor, store, shift)
        with written(cursor, place, seq=state.seq + 1, ages=state.ages):
            _write(cursor, store, altered, altered_links, words, losses)
            if told:
                losses.rewritten("edits")
                ask(cursor, _REWRITE, listed([columns for _, columns in told]), store)
            log(cursor, store, [Change(state.seq + 1, at, "redact", "", None, ())])
    count = sum(ref.subject == "record" for ref in touched)
    return Removed(count, len(touched) - count, losses.tables)


def _write(
    cursor: Cursor,
    store: int,
    records: Sequence[tuple[Record, Record]],
    links: Sequence[tuple[Link, Link]],
    words: Mapping[str, str | None],
    losses: Losses,
) -> None:
    rows: dict[str, dict[str, Any]] = {record_id: {"words": w} for record_id, w in words.items()}
    for old, new in records:
        columns = changed_columns(record_columns(old), record_columns(new))
        rows[new.id] = {**rows.get(new.id, {}), **columns, "embedded": None}
    update(cursor, "records", store, rows)
    if records:
        losses.rewritten("records")
        losses.deleted("vectors", forget_vectors(cursor, store, [new.id for _, new in records]))
    rewritten = {x.id: changed_columns(link_columns(old), link_columns(x)) for old, x in links}
    update(cursor, "links", store, rewritten)
    if links:
        losses.rewritten("links")


def _cleaned_edits(rows: Sequence[Row], wanted: set[Ref], clean: Redaction) -> list[_Told]:
    """Those of these things whose old values are to be other ones."""
    cleaned: list[_Told] = []
    for seq, position, *columns in rows:
        old = edit_from(tuple(columns))
        new = redacted_edit(old, wanted, clean)
        if new is not old:
            told = {"seq": seq, "position": position, "before": before_to(new.before)}
            cleaned.append((told_of(old), told))
    return cleaned
