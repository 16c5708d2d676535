"""Permanent removal of things, or of what they held, from tables, log, indexes and pages."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from psycopg import Connection

from everkept.core.ports import Redaction
from everkept.core.records import Change, Link, Record, Ref
from everkept.engines.commit_plan import redacted_edit, redacted_link, redacted_record, told_of
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.rows import Row, before_to, edit_from, kept_all
from everkept.engines.postgres.statements import Answer, Cursor, ask, cursor_on
from everkept.engines.postgres.vectors import forget_vectors
from everkept.engines.postgres.writes import (
    LINKS,
    RECORDS,
    Belongings,
    StorePlace,
    aged_link,
    aged_record,
    belongings,
    changed_columns,
    link_columns,
    listed,
    log,
    new_words,
    record_columns,
    taken,
    update,
    written,
)
from everkept.engines.stored_text import Shift
from everkept.errors import EverkeptError

# Small numbers of dead entries would stay in the indexes, and some of these have words.
_VACUUM = "VACUUM (INDEX_CLEANUP ON, TRUNCATE OFF) "
# Whoever began earlier may still look at what was there.
_OBSERVED = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
    "AND pid <> pg_backend_pid() AND backend_type IN ('client backend', 'walsender') "
    "AND age(backend_xmin) >= age(%s::text::xid))"
)


class Losses:
    """The tables that a transaction takes something out of."""

    def __init__(self) -> None:
        self._rewritten: set[str] = set()
        self._deleted: list[tuple[str, Answer]] = []

    def rewritten(self, *tables: str) -> None:
        self._rewritten.update(tables)

    def deleted(self, table: str, asked: Answer | None) -> None:
        """By a statement that may not have been answered yet."""
        if asked is not None:
            self._deleted.append((table, asked))

    @property
    def tables(self) -> set[str]:
        """Known when all was sent."""
        return self._rewritten | {table for table, asked in self._deleted if asked.rowcount > 0}


class Removed(NamedTuple):
    """How many records and links, and the tables that had something of them."""

    records: int
    links: int
    tables: set[str]


class _Round:
    """What is to be cleansed at once."""

    def __init__(self) -> None:
        self.tables: set[str] = set()
        self.removed_in = ""  # the last transaction: who does not see its past sees no other's


class Cleanser:
    """Of one store: one round after the other, and who comes meanwhile shares the next one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._next: _Round | None = None  # it has not begun
        self._last: asyncio.Task[bool | None] | None = (
            None  # the next one's, or else the one before
        )

    async def cleansed(self, removed_in: str, tables: Iterable[str], patience: float) -> bool:
        """False where that was not done in so many seconds; it goes on, as long as there is a loop.

        It takes as long as the tables are large, whoever's store it was about: they are in them
        together.
        """
        if self._next is None or self._last is None:
            self._next = _Round()
            self._last = asyncio.create_task(self._cleanse(self._next, self._last))
        self._next.tables.update(tables)
        self._next.removed_in = removed_in
        task = self._last
        await asyncio.wait({task}, timeout=patience)
        return task.done() and not task.cancelled() and bool(task.result())

    async def _cleanse(
        self, own: _Round, former: "asyncio.Task[bool | None] | None"
    ) -> bool | None:
        """None where it could not be done: what was removed stays removed."""
        has_waited = former is not None and not former.done()
        if former is not None and has_waited:
            await asyncio.wait({former})
        self._next = None
        if former is not None and has_waited and (former.cancelled() or former.result() is None):
            return None  # the database is away, or closed: it must not be opened again for this
        try:
            return await self._database.apart(
                lambda connection: cleanse(connection, own.removed_in, own.tables)
            )
        except EverkeptError:
            return None


def moment(cursor: Cursor) -> str:
    """The transaction that removes something; later ones do not see what it removed."""
    return ask(cursor, "SELECT pg_current_xact_id()::xid::text").fetchall()[0][0]


def cleanse(
    connection: Connection[tuple[Any, ...]], removed_in: str, tables: Iterable[str]
) -> bool:
    """False where somebody still sees what was removed."""
    cursor = cursor_on(connection)
    is_observed = ask(cursor, _OBSERVED, removed_in).fetchall()[0][0]
    cursor.execute(f"{_VACUUM} {', '.join(sorted(tables))}")
    return not is_observed


def purge(cursor: Cursor, place: StorePlace, refs: Sequence[Ref], at: int) -> Removed:
    """A change of its own, unless there is nothing to remove."""
    state, store = taken(cursor, place), place.number
    doomed = belongings(cursor, store, refs)
    losses = Losses()
    if doomed:
        # The words around a purged text quote it as their context.
        words = new_words(cursor, store, Shift(doomed.records, {}, dict(doomed.ages)))
        with written(cursor, place, seq=state.seq + 1, ages=state.ages):
            erase(cursor, store, doomed, losses)
            update(cursor, "records", store, {i: {"words": said} for i, said in words.items()})
            log(cursor, store, [Change(state.seq + 1, at, "purge", "", None, ())])
    return Removed(len(doomed.records), len(doomed.links), losses.tables)


def erase(cursor: Cursor, store: int, doomed: Belongings, losses: Losses) -> None:
    """All but the words of others."""
    records, links = kept_all(list(doomed.records)), kept_all(list(doomed.links))
    if records:
        losses.rewritten("records")  # the words around them too
        losses.deleted("vectors", forget_vectors(cursor, store, list(doomed.records)))
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
            losses.deleted(table, gone)


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


def redact(
    cursor: Cursor, place: StorePlace, refs: Sequence[Ref], clean: Redaction, at: int
) -> Removed:
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
