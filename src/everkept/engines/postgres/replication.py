"""Replication: apply a page from another store, including the log and all derived data."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from everkept.core.answers import StorePage
from everkept.core.records import Record, RecordLink
from everkept.engines.commit_plan import assign_ages, check_references, is_vector_outdated, list_record_ids
from everkept.engines.postgres.indexes import StoreGrowth
from everkept.engines.postgres.purge import TableLosses, erase
from everkept.engines.postgres.rows import escape_text, escape_texts
from everkept.engines.postgres.statements import Cursor, ask
from everkept.engines.postgres.vectors import forget_vectors, put_vectors
from everkept.engines.postgres.writes import (
    LINKS_QUERY,
    RECORDS_QUERY,
    PurgeSet,
    StorePlace,
    StoreState,
    advance_state,
    ask_store_lock,
    build_link_columns,
    build_record_columns,
    compute_words,
    decode_aged_link,
    decode_aged_record,
    decode_state,
    diff_columns,
    encode_rows,
    insert,
    log_changes,
    read_purge_set,
    update,
)
from everkept.engines.stored_text import RecordShift
from everkept.values import Value

_LAST_SEQ_QUERY = "SELECT coalesce(max(seq), 0) FROM changes WHERE store = %s AND seq < %s"
_ACCESSES_INSERT = (
    "INSERT INTO accesses (store, record, count, last_at) SELECT %s::integer, n.record, n.count, "
    "n.last_at FROM json_to_recordset(%s::json) AS n(record text, count bigint, last_at bigint) "
    "ORDER BY n.record ON CONFLICT (store, record) "
    "DO UPDATE SET count = excluded.count, last_at = excluded.last_at"
)


class _PageUpdate(Value, frozen=False):
    """Page to apply, with the stored data that it affects."""

    stock: StorePage
    state: StoreState
    records: dict[str, Record]
    links: dict[str, RecordLink]
    stays: dict[str, Record]  # stored records that the page names and does not remove
    ages: dict[str, int]  # of all stored records
    stays_linked: dict[str, RecordLink]
    purge_set: PurgeSet
    last: int  # last number in the log before the part that is replaced

    @property
    def old_records(self) -> dict[str, Record]:
        """Return the stored records that the page changes or removes."""
        kept_ones = {i: old for i in self.records if (old := self.stays.get(i)) is not None}
        return {**self.purge_set.records, **kept_ones}


class AppliedPage(NamedTuple):
    """Growth of the store, and the tables that lost rows."""

    grown: StoreGrowth
    tables: set[str]


def apply_page(cursor: Cursor, place: StorePlace, stock: StorePage) -> AppliedPage:
    """Apply the page. Raise Conflict if it contradicts the stored data."""
    # No check_open: archived projects are replicated too.
    state = decode_state(place, ask_store_lock(cursor, place).fetchone())
    work = _read(cursor, place.number, state, stock)
    items = (*work.records.values(), *work.links.values())
    check_references(items, work.records.keys() | work.stays.keys())
    new = [r.ref for r in work.records.values() if r.id not in work.stays]
    new += [x.ref for x in work.links.values() if x.id not in work.stays_linked]
    fresh, fresh_links = assign_ages(new, state.ages)
    shift = RecordShift(work.old_records, work.records, {**work.ages, **fresh})
    words = compute_words(cursor, place.number, shift)
    seq = max([work.last, *(change.seq for change in stock.changes)])
    losses = TableLosses()
    grown = StoreGrowth(state.ages, state.ages + len(new))
    with advance_state(cursor, place, seq=seq, ages=grown.after):
        erase(cursor, place.number, work.purge_set, losses)
        _write_records(cursor, place.number, work, fresh, words)
        _write_links(cursor, place.number, work, fresh_links)
        _write_log(cursor, place.number, stock)
        _write_side_data(cursor, place.number, work)
    return AppliedPage(grown, losses.tables)


def _read(cursor: Cursor, store: int, state: StoreState, stock: StorePage) -> _PageUpdate:
    records = {record.id: record for record in stock.records}
    links = {link.id: link for link in stock.links}
    wanted = escape_texts(list_record_ids(stock))
    found = ask(cursor, f"{RECORDS_QUERY} r.id = ANY(%s::text[])", store, wanted)
    linked = ask(cursor, f"{LINKS_QUERY} l.id = ANY(%s::text[])", store, escape_texts(list(links)))
    last = ask(cursor, _LAST_SEQ_QUERY, store, stock.log_from or 0)
    purge_set = read_purge_set(cursor, store, stock.gone)
    aged = [decode_aged_record(row) for row in found.fetchall()]
    there = [decode_aged_link(row)[1] for row in linked.fetchall()]
    return _PageUpdate(
        stock,
        state,
        records,
        links,
        {record.id: record for _, record in aged if record.id not in purge_set.records},
        {**purge_set.ages, **{record.id: age for age, record in aged}},
        {link.id: link for link in there if link.id not in purge_set.links},
        purge_set,
        state.seq if stock.log_from is None else last.fetchall()[0][0],
    )


def _write_records(
    cursor: Cursor, store: int, work: _PageUpdate, fresh: Mapping[str, int], words: Mapping[str, str | None]
) -> None:
    rows: dict[str, dict[str, Any]] = {i: {"words": w} for i, w in words.items() if i not in fresh}
    retold: list[str] = []
    for record_id, old in work.stays.items():
        if (new := work.records.get(record_id)) is not None:
            columns = diff_columns(build_record_columns(old), build_record_columns(new))
            rows[record_id] = {**rows.get(record_id, {}), **columns}
            if is_vector_outdated(old, new):
                rows[record_id]["embedded"] = None
                retold.append(record_id)
    update(cursor, "records", store, rows)
    if retold:
        forget_vectors(cursor, store, retold)
    new_rows = [
        {**build_record_columns(work.records[i]), "age": age, "words": words.get(i)} for i, age in fresh.items()
    ]
    insert(cursor, "records", store, new_rows)


def _write_links(cursor: Cursor, store: int, work: _PageUpdate, fresh: Mapping[str, int]) -> None:
    altered = {
        link_id: diff_columns(build_link_columns(old), build_link_columns(work.links[link_id]))
        for link_id, old in work.stays_linked.items()
    }
    update(cursor, "links", store, altered)
    new_rows = [{**build_link_columns(work.links[i]), "age": age} for i, age in fresh.items()]
    insert(cursor, "links", store, new_rows)


def _write_log(cursor: Cursor, store: int, stock: StorePage) -> None:
    changes = {change.seq: change for change in stock.changes}
    for table in ("changes", "edits"):
        if stock.log_from is not None:
            condition = "store = %s AND seq >= %s"
            ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, stock.log_from)
        if changes:
            condition = "store = %s AND seq = ANY(%s::bigint[])"
            ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, list(changes))
    log_changes(cursor, store, list(changes.values()))


def _write_side_data(cursor: Cursor, store: int, work: _PageUpdate) -> None:
    """Write accesses and vectors. Always advance `moves`, so that the stamp changes."""
    there = work.stays.keys() | work.records.keys()
    counts = [
        {"record": escape_text(record_id), "count": known.count, "last_at": known.last_at}
        for record_id, known in work.stock.accesses.items()
        if record_id in there
    ]
    if counts:
        ask(cursor, _ACCESSES_INSERT, store, encode_rows(counts))
    for model, items in work.stock.vectors.items():
        if items:
            put_vectors(cursor, store, model, items, include_deleted=True)
    ask(cursor, "UPDATE stores SET moves = moves + 1 WHERE number = %s", store)
