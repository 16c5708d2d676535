"""Of all servers one makes an index, beside whoever reads and writes."""

from collections.abc import Generator
from contextlib import contextmanager

from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.records.asking import ask

_TURN = "SELECT pg_try_advisory_lock(hashtextextended(current_schema() || %s, 0))"
_TURN_OVER = "SELECT pg_advisory_unlock(hashtextextended(current_schema() || %s, 0))"


@contextmanager
def turn(cursor: Cursor, index: str) -> Generator[bool, None, None]:
    """Gives False where another is just making it."""
    if not ask(cursor, _TURN, index).fetchall()[0][0]:
        yield False
        return
    try:
        yield True
    finally:
        cursor.execute(_TURN_OVER, [index])


def drop(cursor: Cursor, index: str) -> None:
    cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
