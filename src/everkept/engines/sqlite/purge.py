"""Removing for good: rows, log entries and index terms, so that a checkpoint leaves no byte."""

from collections.abc import Sequence

from everkept.core.records import Ref
from everkept.engines.sqlite.cleansing import cleanse_at_once
from everkept.engines.sqlite.meaning import forget_vectors
from everkept.engines.sqlite.rows import listed
from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.word_index import index, neighbours, places_of

_FAMILY = """
WITH RECURSIVE family(key) AS (
    SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?)) UNION
    SELECT r.key FROM family JOIN records r ON r.parent = family.key)
"""


def remove(db: Connection, refs: Sequence[Ref], at: int) -> tuple[int, int]:
    """A change of its own, unless there is nothing to remove."""
    records, links = erase(db, refs)
    if records or links:
        db.execute("INSERT INTO changes(at, tool) VALUES (?, 'purge')", (at,))
    return records, links


def erase(db: Connection, refs: Sequence[Ref]) -> tuple[int, int]:
    """Deletes the things, what hangs on them, and all that the log says of them.

    Says how many records and links that were. The bytes are gone from the disk once the index was
    cleansed and the write-ahead log folded in.
    """
    # A parent may go before its child here; what counts is that nothing dangles at the end.
    db.execute("PRAGMA defer_foreign_keys=ON")
    records, relations = (
        listed(ref.id for ref in refs if ref.subject == subject) for subject in ("record", "link")
    )
    keys = [row[0] for row in db.execute(_FAMILY + "SELECT key FROM family", (records,))]
    places = places_of(db, keys)
    links = [
        row[0]
        for row in db.execute(
            "SELECT key FROM links WHERE source IN (SELECT value FROM json_each(?1)) "
            "OR target IN (SELECT value FROM json_each(?1)) "
            "OR id IN (SELECT value FROM json_each(?2))",
            (listed(keys), relations),
        )
    ]
    for subject, items in (("record", keys), ("link", links)):
        db.execute(
            "DELETE FROM edits WHERE subject = ? AND item IN (SELECT value FROM json_each(?))",
            (subject, listed(items)),
        )
    db.executemany("DELETE FROM links WHERE key = ?", [(key,) for key in links])
    forget_vectors(db, keys)
    for table in ("tags", "accesses"):
        db.executemany(f"DELETE FROM {table} WHERE record = ?", [(key,) for key in keys])
    db.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in keys])
    if keys:
        # The words around a purged text quote it as their context.
        index(db, {*keys} | neighbours(db, places))
        cleanse_at_once(db)
    return len(keys), len(links)
