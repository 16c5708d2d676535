"""Rows of deleted projects: where they are many, removing them takes longer than a call may.

Such a project is out of sight at once, and its store has no name from then on. Its rows go all
together, in a statement that takes its time, and whoever deletes it waits for that; where it did
not come to its end, whoever looks next begins it anew.
"""

from collections.abc import Sequence

from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.connecting.dialing import Connection

MANY = 100_000  # records, links and changes; up to here they go at once


def give_up(cursor: Cursor, stores: Sequence[int]) -> None:
    """Nobody sees these any more, nor the projects that they belong to."""
    numbers = list(stores)
    cursor.execute("DELETE FROM projects WHERE store = ANY(%s::int[])", (numbers,))
    cursor.execute(
        "DELETE FROM stores WHERE number = ANY(%(numbers)s::int[]) AND "
        "(SELECT sum(ages + seq) FROM stores WHERE number = ANY(%(numbers)s::int[])) <= %(many)s",
        {"numbers": numbers, "many": MANY},
    )
    cursor.execute("UPDATE stores SET name = NULL WHERE number = ANY(%s::int[])", (numbers,))


def are_left(cursor: Cursor) -> bool:
    return cursor.execute("SELECT FROM stores WHERE name IS NULL LIMIT 1").fetchone() is not None


def remove(connection: Connection) -> None:
    """What another removes just now is left to it."""
    connection.execute(
        "DELETE FROM stores WHERE number IN "
        "(SELECT number FROM stores WHERE name IS NULL FOR UPDATE SKIP LOCKED)"
    )
