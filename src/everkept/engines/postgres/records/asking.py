"""Statements that are put together of parts of our own, with what they are about beside them."""

from collections.abc import Sequence
from typing import Any

from everkept.engines.postgres.connecting.cursor import Cursor
from everkept.engines.postgres.connecting.wire import Answer

LARGEST = 2**63 - 1  # number that the database knows


def ask(cursor: Cursor, statement: str, *values: Any) -> Answer:
    """It goes out with what comes next, or when its answer is looked at."""
    # Nothing that a caller gives is ever part of a statement: it is among the values.
    return cursor.ask(statement, values)


def ask_last(cursor: Cursor, statement: str, *values: Any) -> Answer:
    """Likewise, of a question that asks nothing behind it."""
    return cursor.ask_last(statement, values)


def ask_for(cursor: Cursor, statement: str, store: int, wanted: Sequence[Any]) -> Answer | None:
    """Of one store and some things in it; without any there is nothing to ask."""
    return ask(cursor, statement, store, wanted) if wanted else None


def rows_of(asked: Answer | None) -> list[tuple[Any, ...]]:
    return [] if asked is None else asked.fetchall()


def most(limit: int | None) -> int | None:
    """What a statement takes as its limit."""
    return None if limit is None or limit < 0 else min(limit, LARGEST)
