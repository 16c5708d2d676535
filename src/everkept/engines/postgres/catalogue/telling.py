"""Waking whoever follows the library, soon after the transaction is committed."""

from everkept.engines.postgres.connecting.database import Cursor
from everkept.engines.postgres.connecting.news import note_change


def tell(cursor: Cursor, store: int) -> None:
    """That this store, or what is known of its project, is not as it was."""
    note_change(cursor, store)


def tell_all(cursor: Cursor) -> None:
    """That something is not as it was which belongs to no store, or to many."""
    note_change(cursor, None)
