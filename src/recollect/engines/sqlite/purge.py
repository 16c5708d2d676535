"""Removing for good: rows, log entries, index terms, and the bytes in file and write-ahead log."""

import json
import time
from collections.abc import Sequence

from recollect.engines.sqlite.connections import transaction
from recollect.engines.sqlite.sql import Connection

CHECKPOINT_DEADLINE = 5.0  # seconds to wait for readers that hold old pages

_FAMILY = """
WITH RECURSIVE family(key) AS (
    SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?)) UNION
    SELECT r.key FROM family JOIN records r ON r.parent = family.key)
"""


def remove(db: Connection, ids: Sequence[str], at: int) -> tuple[int, int]:
    """Deletes the records, what hangs on them, and all that the log says of them."""
    with transaction(db):
        # A parent may go before its child here; what counts is that nothing dangles at the end.
        db.execute("PRAGMA defer_foreign_keys=ON")
        keys = [row[0] for row in db.execute(_FAMILY + "SELECT key FROM family", (_json(ids),))]
        listed = _json(keys)
        links = [
            row[0]
            for row in db.execute(
                "SELECT key FROM links WHERE source IN (SELECT value FROM json_each(?1)) "
                "OR target IN (SELECT value FROM json_each(?1))",
                (listed,),
            )
        ]
        for subject, items in (("record", listed), ("link", _json(links))):
            db.execute(
                "DELETE FROM edits WHERE subject = ? AND item IN (SELECT value FROM json_each(?))",
                (subject, items),
            )
        db.executemany("DELETE FROM words WHERE rowid = ?", [(key,) for key in keys])
        db.executemany("DELETE FROM links WHERE key = ?", [(key,) for key in links])
        db.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in keys])
        if keys:
            db.execute("INSERT INTO changes(at, tool) VALUES (?, 'purge')", (at,))
    return len(keys), len(links)


def scrub(db: Connection) -> bool:
    """Rewrites the index without its deletion markers and empties the write-ahead log.

    False when a reader still holds old pages: the bytes go with the next checkpoint after it.
    """
    db.execute("INSERT INTO words(words) VALUES ('optimize')")
    deadline = time.monotonic() + CHECKPOINT_DEADLINE
    while True:
        busy, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        if not busy:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def _json(values: Sequence[object]) -> str:
    return json.dumps(list(values))
