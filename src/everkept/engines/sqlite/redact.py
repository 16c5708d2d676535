"""Rewriting what is and was held, so that a checkpoint leaves no byte of what was there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import apsw

from everkept.core.records import AMENDABLE, Ref
from everkept.engines.sqlite.cleansing import cleanse_at_once
from everkept.engines.sqlite.meaning import forget_vectors, waiting
from everkept.engines.sqlite.rows import (
    AMENDED,
    before_from,
    before_to,
    facets_from,
    facets_to,
    listed,
    read,
    stored,
)
from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.word_index import Place, children, index, neighbours, places_of
from everkept.errors import Conflict

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.ports import Redaction


def rewrite(db: Connection, refs: Sequence[Ref], clean: "Redaction", at: int) -> tuple[int, int]:
    """Says how many records and links had something to rewrite, in themselves or in the log."""
    keys: set[int] = set()
    places: set[Place] = set()  # where they stood, and where they stand
    links = 0
    for ref in dict.fromkeys(refs):
        if ref.subject == "link":
            links += _rewrite_link(db, ref, clean)
            continue
        row = db.execute(
            f"SELECT key, {', '.join(AMENDED)} FROM records WHERE id = ?", (ref.id,)
        ).get
        if row is not None:
            key, *columns = row
            values = {
                name: read(name, column) for name, column in zip(AMENDED, columns, strict=True)
            }
            stood = places_of(db, [key])
            in_record = _rewrite_record(db, key, values, dict(clean(ref, values)))
            in_log = _rewrite_log(db, key, ref, clean)
            if in_record or in_log:
                keys.add(key)
                places |= stood | places_of(db, [key])
    if keys:
        _reindex(db, keys | children(db, keys) | neighbours(db, places), at)
    elif links:
        db.execute("INSERT INTO changes(at, tool) VALUES (?, 'redact')", (at,))
    return len(keys), links


def _reindex(db: Connection, reached: set[int], at: int) -> None:
    index(db, reached)
    cleanse_at_once(db)
    db.execute(
        "INSERT INTO changes(at, tool, reindexed) VALUES (?, 'redact', ?)",
        (at, listed(sorted(reached))),
    )


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


def _rewrite_link(db: Connection, ref: Ref, clean: "Redaction") -> bool:
    """The log has no values of a link: nothing but its deletion ever changes one."""
    row = db.execute("SELECT verb, facets FROM links WHERE id = ?", (ref.id,)).get
    if row is None:
        return False
    old = {"verb": row[0], "facets": facets_from(row[1])}
    new = dict(clean(ref, old))
    if new == old:
        return False
    try:
        db.execute(
            "UPDATE links SET verb = ?, facets = ? WHERE id = ?",
            (new["verb"], facets_to(new["facets"]), ref.id),
        )
    except apsw.ConstraintError as error:
        raise Conflict("Another link says the same already.") from error
    return True


def _rewrite_log(db: Connection, key: int, ref: Ref, clean: "Redaction") -> bool:
    rewritten: list[tuple[str | None, int, int]] = []
    for change, position, stored_before in db.execute(
        "SELECT change, position, before FROM edits "
        "WHERE subject = 'record' AND item = ? AND before IS NOT NULL",
        (key,),
    ):
        before = before_from(stored_before) or {}
        after = dict(clean(ref, before))
        if after != before:
            rewritten.append((before_to(after), change, position))
    db.executemany("UPDATE edits SET before = ? WHERE change = ? AND position = ?", rewritten)
    return bool(rewritten)
