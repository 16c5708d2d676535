"""Making things what they are elsewhere: rows, log and all that is derived from them."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from everkept.core.answers import Stock
from everkept.core.records import Link, Record
from everkept.engines.commit_plan import ages_of, check_belonging, is_retold, records_of
from everkept.engines.postgres.indexes import Growth
from everkept.engines.postgres.purge import Losses, erase
from everkept.engines.postgres.rows import kept, kept_all
from everkept.engines.postgres.statements import Cursor, ask
from everkept.engines.postgres.vectors import forget_vectors, put_vectors
from everkept.engines.postgres.writes import (
    LINKS,
    RECORDS,
    Belongings,
    State,
    StorePlace,
    aged_link,
    aged_record,
    belongings,
    changed_columns,
    found_state,
    insert,
    link_columns,
    listed,
    log,
    new_words,
    record_columns,
    take,
    update,
    written,
)
from everkept.engines.stored_text import Shift
from everkept.values import Value

_LAST = "SELECT coalesce(max(seq), 0) FROM changes WHERE store = %s AND seq < %s"
_ACCESSES = (
    "INSERT INTO accesses (store, record, count, last_at) SELECT %s::integer, n.record, n.count, "
    "n.last_at FROM json_to_recordset(%s::json) AS n(record text, count bigint, last_at bigint) "
    "ORDER BY n.record ON CONFLICT (store, record) "
    "DO UPDATE SET count = excluded.count, last_at = excluded.last_at"
)


class _Restocking(Value, frozen=False):
    """What is to be, and what is there of it and stays."""

    stock: Stock
    state: State
    records: dict[str, Record]
    links: dict[str, Link]
    stays: dict[str, Record]  # these records, what they belong to, and what has a vector
    ages: dict[str, int]  # of all records that are there
    stays_linked: dict[str, Link]
    doomed: Belongings
    last: int  # of the log, without what goes

    @property
    def before(self) -> dict[str, Record]:
        """The records that will not be what they are."""
        kept_ones = {i: old for i in self.records if (old := self.stays.get(i)) is not None}
        return {**self.doomed.records, **kept_ones}


class Restocked(NamedTuple):
    """What became of the store, and the tables that lost something."""

    grown: Growth
    tables: set[str]


def restock(cursor: Cursor, place: StorePlace, stock: Stock) -> Restocked:
    """Raises Conflict."""
    # What is put away is copied too.
    state = found_state(place, take(cursor, place).fetchone())
    work = _read(cursor, place.number, state, stock)
    items = (*work.records.values(), *work.links.values())
    check_belonging(items, work.records.keys() | work.stays.keys())
    new = [r.ref for r in work.records.values() if r.id not in work.stays]
    new += [x.ref for x in work.links.values() if x.id not in work.stays_linked]
    fresh, fresh_links = ages_of(new, state.ages)
    shift = Shift(work.before, work.records, {**work.ages, **fresh})
    words = new_words(cursor, place.number, shift)
    seq = max([work.last, *(change.seq for change in stock.changes)])
    losses = Losses()
    grown = Growth(state.ages, state.ages + len(new))
    with written(cursor, place, seq=seq, ages=grown.after):
        erase(cursor, place.number, work.doomed, losses)
        _write_records(cursor, place.number, work, fresh, words)
        _write_links(cursor, place.number, work, fresh_links)
        _write_log(cursor, place.number, stock)
        _write_beside(cursor, place.number, work)
    return Restocked(grown, losses.tables)


def _read(cursor: Cursor, store: int, state: State, stock: Stock) -> _Restocking:
    records = {record.id: record for record in stock.records}
    links = {link.id: link for link in stock.links}
    wanted = kept_all(records_of(stock))
    found = ask(cursor, f"{RECORDS} r.id = ANY(%s::text[])", store, wanted)
    linked = ask(cursor, f"{LINKS} l.id = ANY(%s::text[])", store, kept_all(list(links)))
    last = ask(cursor, _LAST, store, stock.log_from or 0)
    doomed = belongings(cursor, store, stock.gone)
    aged = [aged_record(row) for row in found.fetchall()]
    there = [aged_link(row)[1] for row in linked.fetchall()]
    return _Restocking(
        stock,
        state,
        records,
        links,
        {record.id: record for _, record in aged if record.id not in doomed.records},
        {**doomed.ages, **{record.id: age for age, record in aged}},
        {link.id: link for link in there if link.id not in doomed.links},
        doomed,
        state.seq if stock.log_from is None else last.fetchall()[0][0],
    )


def _write_records(
    cursor: Cursor,
    store: int,
    work: _Restocking,
    fresh: Mapping[str, int],
    words: Mapping[str, str | None],
) -> None:
    rows: dict[str, dict[str, Any]] = {i: {"words": w} for i, w in words.items() if i not in fresh}
    retold: list[str] = []
    for record_id, old in work.stays.items():
        if (new := work.records.get(record_id)) is not None:
            columns = changed_columns(record_columns(old), record_columns(new))
            rows[record_id] = {**rows.get(record_id, {}), **columns}
            if is_retold(old, new):
                rows[record_id]["embedded"] = None
                retold.append(record_id)
    update(cursor, "records", store, rows)
    if retold:
        forget_vectors(cursor, store, retold)
    new_rows = [
        {**record_columns(work.records[i]), "age": age, "words": words.get(i)}
        for i, age in fresh.items()
    ]
    insert(cursor, "records", store, new_rows)


def _write_links(cursor: Cursor, store: int, work: _Restocking, fresh: Mapping[str, int]) -> None:
    altered = {
        link_id: changed_columns(link_columns(old), link_columns(work.links[link_id]))
        for link_id, old in work.stays_linked.items()
    }
    update(cursor, "links", store, altered)
    new_rows = [{**link_columns(work.links[i]), "age": age} for i, age in fresh.items()]
    insert(cursor, "links", store, new_rows)


def _write_log(cursor: Cursor, store: int, stock: Stock) -> None:
    changes = {change.seq: change for change in stock.changes}
    for table in ("changes", "edits"):
        if stock.log_from is not None:
            condition = "store = %s AND seq >= %s"
            ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, stock.log_from)
        if changes:
            condition = "store = %s AND seq = ANY(%s::bigint[])"
            ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, list(changes))
    log(cursor, store, list(changes.values()))


def _write_beside(cursor: Cursor, store: int, work: _Restocking) -> None:
    """Accesses and vectors; and as if one had come, so that the stamp is another one."""
    there = work.stays.keys() | work.records.keys()
    counts = [
        {"record": kept(record_id), "count": known.count, "last_at": known.last_at}
        for record_id, known in work.stock.accesses.items()
        if record_id in there
    ]
    if counts:
        ask(cursor, _ACCESSES, store, listed(counts))
    for model, items in work.stock.vectors.items():
        if items:
            put_vectors(cursor, store, model, items, include_deleted=True)
    ask(cursor, "UPDATE stores SET moves = moves + 1 WHERE number = %s", store)
