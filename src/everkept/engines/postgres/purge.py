"""Permanent removal of items or parts of their text from tables, log, indexes and pages."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from everkept.core.ports import Redaction
from everkept.core.records import Change, Record, RecordLink, Ref
from everkept.engines.commit_plan import get_edit_ref, redact_edit, redact_link, redact_record
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.rows import Row, decode_edit, escape_texts
from everkept.engines.postgres.statements import Cursor, QueryResult, ask, open_cursor
from everkept.engines.postgres.vectors import forget_vectors
from everkept.engines.postgres.writes import (
    LINKS_QUERY,
    RECORDS_QUERY,
    PurgeSet,
    StorePlace,
    advance_state,
    build_link_columns,
    build_record_columns,
    compute_words,
    decode_aged_link,
    decode_aged_record,
    diff_columns,
    encode_rows,
    lock_store,
    log_changes,
    read_purge_set,
    update,
)
from everkept.engines.stored_text import RecordShift, encode_before
from everkept.errors import EverkeptError

# VACUUM skips an index with few dead entries by default, but an entry may contain words.
_VACUUM = "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) "
# An older snapshot may still see the removed rows.
_OBSERVER_QUERY = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender') "
    "AND age(backend_xmin) >= age(%s::text::xid))"
)


class TableLosses:
    """Tables from which a transaction removes data."""

    def __init__(self) -> None:
        self._rewritten: set[str] = set()
        self._deleted: list[tuple[str, QueryResult]] = []

    def note_rewritten(self, *tables: str) -> None:
        self._rewritten.update(tables)

    def note_deleted(self, table: str, asked: QueryResult | None) -> None:
        """Note a deletion that may not have been run yet."""
        if asked is not None:
            self._deleted.append((table, asked))

    @property
    def tables(self) -> set[str]:
        """Return the tables. Call this after all statements were queued."""
        return self._rewritten | {table for table, asked in self._deleted if asked.rowcount > 0}


class RemovalResult(NamedTuple):
    """Number of removed records and links, and the tables that lost data."""

    records: int
    links: int
    tables: set[str]


class _VacuumRound:
    """Tables to vacuum together."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.removed_in = ""  # the last transaction: a snapshot after it is also after the earlier ones


class Vacuumer:
    """Vacuum queue of one store. It runs one round at a time, and calls during a round share the next one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next: _VacuumRound | None = None  # not started yet
        self._last: asyncio.Task[bool | None] | None = None  # task of the next round, otherwise of the previous one

    async def vacuum(self, removed_in: str, tables: Iterable[str], patience: float) -> bool:
        """Return False if it did not finish within `patience` seconds. It continues as long as the event loop runs.

        The time depends on the size of the tables, which all stores share.
        """
        if self._next is None or self._last is None:
            self._next = _VacuumRound()
            self._last = asyncio.create_task(self._run_round(self._next, self._last))
        self._next.tables.update(tables)
        self._next.removed_in = removed_in
        task = self._last
        await asyncio.wait({task}, timeout=patience)
        return task.done() and not task.cancelled() and bool(task.result())

    async def _run_round(self, own: _VacuumRound, former: "asyncio.Task[bool | None] | None") -> bool | None:
        """Run one round. Return None if the database cannot be reached; the removal itself is not affected."""
        has_waited = former is not None and not former.done()
        if former is not None and has_waited:
            await asyncio.wait({former})
        self._next = None
        if former is not None and has_waited and (former.cancelled() or former.result() is None):
            return None  # the database is unreachable or closed: do not open it again for this
        try:
            return await self._database.maintain(
                lambda connection: vacuum_tables(connection, own.removed_in, own.tables)
            )
        except EverkeptError:
            return None


def read_transaction_id(cursor: Cursor) -> str:
    """Return the id of this transaction. Later transactions do not see the data that it removes."""
    return ask(cursor, "SELECT pg_current_xact_id()::xid::text").fetchall()[0][0]


def vacuum_tables(connection: Connection[tuple[Any, ...]], removed_in: str, tables: Iterable[str]) -> bool:
    """Vacuum the tables. Return False if an older snapshot may still see the removed rows."""
    cursor = open_cursor(connection)
    is_observed = ask(cursor, _OBSERVER_QUERY, removed_in).fetchall()[0][0]
    cursor.execute(f"{_VACUUM} {', '.join(sorted(tables))}")
    return not is_observed


def purge(cursor: Cursor, place: StorePlace, refs: Sequence[Ref], at: int) -> RemovalResult:
    """Purge the items with a separate change in the log, unless there is nothing to remove."""
    state, store = lock_store(cursor, place), place.number
    purge_set = read_purge_set(cursor, store, refs)
    losses = TableLosses()
    if purge_set:
        # The words of neighboring records quote a purged text as their context.
        words = compute_words(cursor, store, RecordShift(purge_set.records, {}, dict(purge_set.ages)))
        with advance_state(cursor, place, seq=state.seq + 1, ages=state.ages):
            erase(cursor, store, purge_set, losses)
            update(cursor, "records", store, {i: {"words": said} for i, said in words.items()})
            log_changes(cursor, store, [Change(state.seq + 1, at, "purge", "", None, ())])
    return RemovalResult(len(purge_set.records), len(purge_set.links), losses.tables)


def erase(cursor: Cursor, store: int, purge_set: PurgeSet, losses: TableLosses) -> None:
    """Delete all rows of these items. The words of neighboring records stay."""
    records, links = escape_texts(list(purge_set.records)), escape_texts(list(purge_set.links))
    if records:
        losses.note_rewritten("records")  # words of neighboring records too
        losses.note_deleted("vectors", forget_vectors(cursor, store, list(purge_set.records)))
    for table, column, ids, more in (
        ("edits", "item", records, " AND subject = 'record'"),
        ("edits", "item", links, " AND subject = 'link'"),
        ("links", "id", links, ""),
        ("accesses", "record", records, ""),
        ("records", "id", records, ""),
    ):
        if ids:
            condition = f"store = %s AND {column} = ANY(%s::text[]){more}"
            gone = ask(cursor, f"DELETE FROM {table} WHERE {condition}", store, ids)
            losses.note_deleted(table, gone)


_EDITS_QUERY = (
    "SELECT seq, position, operation, subject, item, before FROM edits "
    "WHERE store = %s AND item = ANY(%s::text[]) AND before IS NOT NULL"
)
_EDITS_UPDATE = (
    "UPDATE edits e SET before = n.before FROM json_to_recordset(%s::json) "
    "AS n(seq bigint, position integer, before text) "
    "WHERE e.store = %s AND e.seq = n.seq AND e.position = n.position"
)

_EditUpdate = tuple[Ref, Mapping[str, Any]]  # ref of the edited item, and the new columns of the edit


def redact(cursor: Cursor, place: StorePlace, refs: Sequence[Ref], clean: Redaction, at: int) -> RemovalResult:
    """Rewrite the items and their log entries. Return how many records and links changed."""
    state, store = lock_store(cursor, place), place.number
    wanted = escape_texts([ref.id for ref in refs])
    records = ask(cursor, f"{RECORDS_QUERY} r.id = ANY(%s::text[])", store, wanted)
    links = ask(cursor, f"{LINKS_QUERY} l.id = ANY(%s::text[])", store, wanted)
    edits = ask(cursor, _EDITS_QUERY, store, wanted)
    asked = set(refs)
    there = [(age, r) for age, r in map(decode_aged_record, records.fetchall()) if r.ref in asked]
    there_links = [x for _, x in map(decode_aged_link, links.fetchall()) if x.ref in asked]
    altered = [(r, new) for _, r in there if (new := redact_record(r, clean)) is not r]
    altered_links = [(x, new) for x in there_links if (new := redact_link(x, clean)) is not x]
    known = {r.ref for _, r in there} | {x.ref for x in there_links}
    told = _redact_edits(edits.fetchall(), known, clean)
    touched = {new.ref for _, new in (*altered, *altered_links)} | {ref for ref, _ in told}
    losses = TableLosses()
    if touched:
        ages = {record.id: age for age, record in there}
        shift = RecordShift({old.id: old for old, _ in altered}, {r.id: r for _, r in altered}, ages)
        words = compute_words(cursor, store, shift)
        with advance_state(cursor, place, seq=state.seq + 1, ages=state.ages):
            _write(cursor, store, altered, altered_links, words, losses)
            if told:
                losses.note_rewritten("edits")
                ask(cursor, _EDITS_UPDATE, encode_rows([columns for _, columns in told]), store)
            log_changes(cursor, store, [Change(state.seq + 1, at, "redact", "", None, ())])
    count = sum(ref.subject == "record" for ref in touched)
    return RemovalResult(count, len(touched) - count, losses.tables)


def _write(
    cursor: Cursor,
    store: int,
    records: Sequence[tuple[Record, Record]],
    links: Sequence[tuple[RecordLink, RecordLink]],
    words: Mapping[str, str | None],
    losses: TableLosses,
) -> None:
    rows: dict[str, dict[str, Any]] = {record_id: {"words": w} for record_id, w in words.items()}
    for old, new in records:
        columns = diff_columns(build_record_columns(old), build_record_columns(new))
        rows[new.id] = {**rows.get(new.id, {}), **columns, "embedded": None}
    update(cursor, "records", store, rows)
    if records:
        losses.note_rewritten("records")
        losses.note_deleted("vectors", forget_vectors(cursor, store, [new.id for _, new in records]))
    rewritten = {x.id: diff_columns(build_link_columns(old), build_link_columns(x)) for old, x in links}
    update(cursor, "links", store, rewritten)
    if links:
        losses.note_rewritten("links")


def _redact_edits(rows: Sequence[Row], wanted: set[Ref], clean: Redaction) -> list[_EditUpdate]:
    """Return the edits of these items whose old values change."""
    cleaned: list[_EditUpdate] = []
    for seq, position, *columns in rows:
        old = decode_edit(tuple(columns))
        new = redact_edit(old, wanted, clean)
        if new is not old:
            told = {"seq": seq, "position": position, "before": encode_before(new.before)}
            cleaned.append((get_edit_ref(old), told))
    return cleaned
