"""Permanent removal of items or parts of their text from tables, log and indexes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from everkept.core.ports import PurgeResult, Redaction
from everkept.core.records import Change, Edit, Record, RecordLink, Ref
from everkept.engines.commit_plan import get_edit_ref, redact_edit, redact_link, redact_record
from everkept.engines.stored_text import RecordShift, encode_before
from everkept.engines.surreal.commit import check_unique, log_change
from everkept.engines.surreal.rows import (
    Row,
    decode_edit,
    decode_id,
    decode_link,
    decode_record,
    diff_fields,
    encode_id,
    encode_ids,
    encode_link,
    escape_text,
)
from everkept.engines.surreal.schema import StoreState, StoreTables, TransactionBuilder
from everkept.engines.surreal.search import rewrite_words
from everkept.engines.surreal.vectors import forget_vectors, get_pending_mark
from everkept.values import Value

_ROWS_BY_ID = "SELECT * FROM $ids"
_CHILDREN_BY_PARENT = "SELECT * FROM record WITH INDEX record_parent WHERE parent IN $ids"
_LINKS_AT_RECORDS = "SELECT ->link.* AS going, <-link.* AS coming FROM $ids"


class PurgeSet(Value):
    """Rows to purge by id: records with their descendants, and links with those at the records."""

    records: Mapping[str, Row]
    links: Mapping[str, Row]

    def decode_records(self) -> dict[str, Record]:
        return {record_id: decode_record(row) for record_id, row in self.records.items()}

    def get_ages(self) -> dict[str, int]:
        return {record_id: row["age"] for record_id, row in self.records.items()}


async def purge(tables: StoreTables, refs: Sequence[Ref], at: int) -> PurgeResult:
    """Purge the items with a separate change in the log, unless there is nothing to remove.

    Raise WriteContention if another write came in between.
    """
    state = await tables.read_state()
    tables.check_open(state)
    purge_set = await read_purge_set(tables, refs)
    if purge_set.records or purge_set.links:
        writing = TransactionBuilder()
        erase(writing, state, purge_set)
        await rewrite_words(tables, RecordShift(purge_set.decode_records(), {}, purge_set.get_ages()), writing)
        log_change(writing, Change(state.seq + 1, at, "purge", "", None, ()))
        await tables.write(state, writing, {"seq": state.seq + 1, "turn": state.turn + 1})
    return PurgeResult(len(purge_set.records), len(purge_set.links), complete=True)


async def read_purge_set(tables: StoreTables, refs: Iterable[Ref]) -> PurgeSet:
    """Read these items, the descendants of the records, and the links at them, including deleted ones."""
    wanted = list(dict.fromkeys(refs))
    found = await _read_rows(tables, _ROWS_BY_ID, encode_ids("record", _select_ids(wanted, "record")))
    level = found
    while level := {
        record_id: row
        for record_id, row in (await _read_rows(tables, _CHILDREN_BY_PARENT, _list_row_ids(level))).items()
        if record_id not in found
    }:
        found = found | level
    links = await _read_rows(tables, _ROWS_BY_ID, encode_ids("link", _select_ids(wanted, "link")))
    if found:
        for row in await tables.ask(_LINKS_AT_RECORDS, ids=_list_row_ids(found)):
            links |= {decode_id(link["id"]): link for side in row.values() for link in side}
    return PurgeSet(found, links)


def erase(writing: TransactionBuilder, state: StoreState, purge_set: PurgeSet, told_anew: Sequence[Any] = ()) -> None:
    """Delete all rows of these items except words. `told_anew` has the ids of edits that are overwritten."""
    for subject, items in (("record", purge_set.records), ("link", purge_set.links)):
        if items:
            named = writing.bind([escape_text(item) for item in items])
            writing.add(
                "DELETE (SELECT VALUE id FROM edit WITH INDEX edit_item "
                f"WHERE item IN {named} AND subject = '{subject}' "
                f"AND id NOT IN {writing.bind(told_anew)}) RETURN NONE"
            )
    writing.delete(_list_row_ids(purge_set.links))
    writing.delete(_list_row_ids(purge_set.records))
    writing.delete(encode_ids("access", purge_set.records))
    forget_vectors(writing, state, purge_set.records)


async def _read_rows(tables: StoreTables, text: str, ids: Sequence[Any]) -> dict[str, Row]:
    return {decode_id(row["id"]): row for row in await tables.ask(text, ids=ids)} if ids else {}


def _list_row_ids(rows: Mapping[str, Row]) -> list[Any]:
    return [row["id"] for row in rows.values()]


_EDITS_QUERY = "SELECT * FROM edit WITH INDEX edit_item WHERE item IN $"


async def redact(tables: StoreTables, refs: Sequence[Ref], clean: Redaction, at: int) -> PurgeResult:
    """Rewrite the items and their log entries. Return how many records and links changed.

    Raise Conflict if two items would be the same, and WriteContention if another write came in between.
    """
    wanted = list(dict.fromkeys(refs))
    state, found = await tables.read(
        records=("SELECT * FROM $", encode_ids("record", _select_ids(wanted, "record"))),
        links=("SELECT * FROM $", encode_ids("link", _select_ids(wanted, "link"))),
        edits=(_EDITS_QUERY, [escape_text(ref.id) for ref in wanted]),
    )
    tables.check_open(state)
    records = [(old, redact_record(old, clean)) for old in map(decode_record, found["records"])]
    links = [(old, redact_link(old, clean)) for old in map(decode_link, found["links"])]
    altered = [(old, new) for old, new in records if new is not old]
    altered_links = [(old, new) for old, new in links if new is not old]
    there = {r.ref for r, _ in records} | {x.ref for x, _ in links}
    edits = _redact_edits(found["edits"], there & set(wanted), clean)
    touched = {new.ref for _, new in altered} | {new.ref for _, new in altered_links}
    touched |= {get_edit_ref(edit) for _, edit in edits}
    if touched:
        await check_unique(tables, [r for _, r in altered], [x for _, x in altered_links])
        writing = TransactionBuilder()
        _write(writing, altered, altered_links)
        writing.merge([(row["id"], {"before": encode_before(edit.before)}) for row, edit in edits])
        forget_vectors(writing, state, [new.id for _, new in altered])
        ages = {decode_record(row).id: row["age"] for row in found["records"]}
        shift = RecordShift({old.id: old for old, _ in altered}, {r.id: r for _, r in altered}, ages)
        await rewrite_words(tables, shift, writing)
        log_change(writing, Change(state.seq + 1, at, "redact", "", None, ()))
        await tables.write(state, writing, {"seq": state.seq + 1, "turn": state.turn + 1})
    count = sum(ref.subject == "record" for ref in touched)
    return PurgeResult(count, len(touched) - count, complete=True)


def _write(
    writing: TransactionBuilder,
    records: Sequence[tuple[Record, Record]],
    links: Sequence[tuple[RecordLink, RecordLink]],
) -> None:
    writing.merge(
        [
            (encode_id("record", new.id), {**diff_fields(old, new), "embedded": get_pending_mark(new.text)})
            for old, new in records
        ]
    )
    for _, new in links:
        row = encode_link(new)
        fields = {name: row[name] for name in ("verb", "edge", "facets")}
        writing.merge([(row["id"], fields)])


def _redact_edits(rows: Sequence[Row], wanted: set[Ref], clean: Redaction) -> list[tuple[Row, Edit]]:
    """Return the edits of these items whose old values change, with the new values."""
    edits = [(row, decode_edit(row)) for row in rows]
    cleaned = [(row, old, redact_edit(old, wanted, clean)) for row, old in edits]
    return [(row, new) for row, old, new in cleaned if new is not old]


def _select_ids(refs: Sequence[Ref], subject: str) -> list[str]:
    return [ref.id for ref in refs if ref.subject == subject]
