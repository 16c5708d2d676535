"""Rewriting what records hold and held, so that a checkpoint leaves no byte of what was there."""

from collections.abc import Sequence
from typing import Any

import apsw

from recollect.core.ports import Redaction
from recollect.core.records import AMENDABLE
from recollect.engines.sqlite.meaning import forget_vectors, waiting
from recollect.engines.sqlite.rows import (
    AMENDED,
    before_from,
    before_to,
    listed,
    read,
    stored,
)
from recollect.engines.sqlite.sql import Connection
from recollect.engines.sqlite.word_index import children, index, neighbours, places_of
from recollect.errors import Conflict


def rewrite(db: Connection, ids: Sequence[str], clean: Redaction, at: int) -> int:
    """Says how many records had something to rewrite, in themselves or in the log."""
    keys: set[int] = set()
    for record_id in dict.fromkeys(ids):
        row = db.execute(
            f"SELECT key, {', '.join(AMENDED)} FROM records WHERE id = ?", (record_id,)
        ).get
        if row is not None:
            values = {
                name: read(name, column) for name, column in zip(AMENDED, row[1:], strict=True)
            }
            in_record = _rewrite_record(db, row[0], values, dict(clean(record_id, values)))
            in_log = _rewrite_log(db, row[0], record_id, clean)
            if in_record or in_log:
                keys.add(row[0])
    if keys:
        reached = keys | children(db, keys) | neighbours(db, places_of(db, keys))
        index(db, reached)
        # What is replaced in the index is only marked there; this rewrites it.
        db.execute("INSERT INTO words(words) VALUES ('optimize')")
        db.execute(
            "INSERT INTO changes(at, tool, reindexed) VALUES (?, 'redact', ?)",
            (at, listed(sorted(reached))),
        )
    return len(keys)


def _rewrite_record(db: Connection, key: int, old: dict[str, Any], new: dict[str, Any]) -> bool:
    altered = {name: new[name] for name in AMENDABLE if new[name] != old[name]}
    if not altered:
        return False
    columns = {name: stored(name, value) for name, value in altered.items()}
    columns["embedded"] = waiting(new["text"])
    forget_vectors(db, [key])
    try:
        db.execute(
            f"UPDATE records SET {', '.join(f'{name} = ?' for name in columns)}, "
            "version = version + 1 WHERE key = ?",
            (*columns.values(), key),
        )
    except apsw.ConstraintError as error:
        raise Conflict("Another record has these words already.") from error
    if "tags" in altered:
        db.execute("DELETE FROM tags WHERE record = ?", (key,))
        db.executemany(
            "INSERT OR IGNORE INTO tags(tag, record) VALUES (?,?)",
            [(tag, key) for tag in new["tags"]],
        )
    return True


def _rewrite_log(db: Connection, key: int, record_id: str, clean: Redaction) -> bool:
    rewritten: list[tuple[str | None, int, int]] = []
    for change, position, stored_before in db.execute(
        "SELECT change, position, before FROM edits "
        "WHERE subject = 'record' AND item = ? AND before IS NOT NULL",
        (key,),
    ):
        before = before_from(stored_before) or {}
        after = dict(clean(record_id, before))
        if after != before:
            rewritten.append((before_to(after), change, position))
    db.executemany("UPDATE edits SET before = ? WHERE change = ? AND position = ?", rewritten)
    return bool(rewritten)
