"""Giving up the room of rows that were removed or rewritten, so that no page has them any more."""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from psycopg import Connection

from everkept.engines.postgres.connecting.cursor import Cursor, cursor_on
from everkept.engines.postgres.connecting.database import Database
from everkept.engines.postgres.connecting.wire import Answer
from everkept.engines.postgres.records.asking import ask
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
