"""How a transaction begins and ends: every one sets what it needs, for itself alone."""

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from recollect.engines.postgres.connecting.dialing import Connection
from recollect.engines.postgres.connecting.lines import Line
from recollect.engines.postgres.connecting.migrating import (
    Layout,
    check_version,
    lock_number,
    version_query,
)
from recollect.engines.postgres.connecting.news import NotingCursor

T = TypeVar("T")
Cursor = psycopg.Cursor[tuple[Any, ...]]
Work = Callable[[Cursor], T]

_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED"


class Outdated(Exception):
    """The tables are not there any more, or older than when the connection was opened."""


class Form:
    """The texts that begin transactions in one schema.

    All in one, for one way to the server and back. A session's settings would last longer, and
    behind a pooler be those of somebody else.
    """

    def __init__(self, schema: str, layout: Layout, place: str) -> None:
        self._layout = layout
        self._place = place
        self._version = version_query(schema)
        # Whoever writes shares it: so nobody changes the tables under a transaction.
        self._lock = f"SELECT pg_advisory_xact_lock_shared({lock_number(schema)})"

    def begin(self, line: Line, search_path: str, *, alters: bool, limit: float) -> None:
        """Raises StoreTooNew where a newer program has changed the tables, and Outdated."""
        milliseconds = max(1, round(limit * 1000))
        text = "; ".join(
            (
                _WRITING if alters else _READING,
                f"SET LOCAL search_path = {search_path}",
                f"SET LOCAL statement_timeout = {milliseconds}",
                # Stores are of unequal size: a plan for all of them is a bad one for most.
                "SET LOCAL plan_cache_mode = force_custom_plan",
                # A program that is frozen must not hold its locks for ever.
                f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds}",
                *((self._lock,) if alters else ()),
                self._version,
            )
        )
        try:
            row = _last_row(line.connection, text)
        except psycopg.errors.UndefinedTable as error:
            raise Outdated from error
        version = int(row[0]) if row is not None else 0
        check_version(version, self._layout, self._place)
        if row is None or version < self._layout.version:
            raise Outdated


def done(line: Line, work: Work[T]) -> tuple[T, set[int | None]]:
    """Runs it in the transaction that has begun, and commits. With what it has changed."""
    with NotingCursor(line.connection) as cursor:
        result = work(cursor)
        cursor.execute("COMMIT", prepare=False)
        if cursor.statusmessage != "COMMIT":
            raise RuntimeError("a transaction went on after one of its statements had failed")
        return result, cursor.news


def _last_row(connection: Connection, text: str) -> tuple[Any, ...] | None:
    with connection.execute(text.encode(), prepare=False) as cursor:
        while cursor.nextset():
            pass
        return cursor.fetchone()
