"""Purges and redactions that leave no byte: rows, log entries and terms of the word index.

A small index is rewritten by the transaction that removes the rows. Rewriting a large one takes seconds, in which no
other process could write. So it is merged step by step afterwards, each step in its own transaction. If that is
interrupted, the next purge continues.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from everkept.core.records import AMENDABLE, Ref
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.rows import (
    AMENDABLE_FIELDS,
    build_update,
    decode_before,
    decode_facets,
    decode_field,
    encode_before,
    encode_facets,
    encode_field,
    encode_list,
)
from everkept.engines.sqlite.vectors import forget_vectors, get_pending_mark
from everkept.engines.sqlite.word_index import (
    SessionPlace,
    count_indexed_rows,
    decode_varints,
    find_children,
    find_neighbors,
    index_records,
    read_places,
)
from everkept.errors import Conflict

if TYPE_CHECKING:  # a hook loads only what it uses
    from everkept.core.ports import Redaction

MAX_REWRITTEN_ROWS = 20_000  # this many rows are rewritten in less than a second
STEP_PAGES = 1_000  # written per step, some 4 MB
MAX_STEPS = 100_000

_SELECT_STRUCTURE = "SELECT block FROM words_data WHERE id = 10"
_HEADER_BYTES = 8  # size of the structure's header
_SEGMENT_NUMBERS = 8
_MERGE_PAGES = "INSERT INTO words(words, rank) VALUES ('merge', ?)"


class _Segment(NamedTuple):
    """A part of the index with everything written between two moments."""

    id: int
    first_page: int
    last_page: int
    begin: int
    end: int
    pages_of_marks: int
    marks: int
    entries: int


def cleanse_if_small(db: Connection) -> None:
    """Rewrite the index, unless it is large."""
    if count_indexed_rows(db) <= MAX_REWRITTEN_ROWS:
        db.execute("INSERT INTO words(words) VALUES ('optimize')")


def read_newest_moment(db: Connection) -> int:
    return max((segment.end for segment in _read_segments(db)), default=0)


def has_marks(db: Connection, until: int) -> bool:
    """Return whether data written by that moment is only marked as removed."""
    return any(segment.marks and segment.begin <= until for segment in _read_segments(db))


def cleanse_step(db: Connection) -> None:
    """Continue to merge, or begin to merge all."""
    if not (_merge(db, STEP_PAGES) or _merge(db, -STEP_PAGES)):
        db.execute("INSERT INTO words(words) VALUES ('optimize')")


def _merge(db: Connection, pages: int) -> bool:
    before = db.total_changes()
    db.execute(_MERGE_PAGES, (pages,))
    return db.total_changes() - before > 1  # the statement itself counts as one


def _read_segments(db: Connection) -> list[_Segment]:
    levels, _, _, *numbers = decode_varints((db.execute(_SELECT_STRUCTURE).get or b"")[_HEADER_BYTES:]) or (0, 0, 0)
    segments: list[_Segment] = []
    place = 0
    for _ in range(levels):
        count = numbers[place + 1]
        place += 2
        for _ in range(count):
            segments.append(_Segment(*numbers[place : place + _SEGMENT_NUMBERS]))
            place += _SEGMENT_NUMBERS
    return segments


_SELECT_FAMILY = """
WITH RECURSIVE family(key) AS (
    SELECT key FROM records WHERE id IN (SELECT value FROM json_each(?)) UNION
    SELECT r.key FROM family JOIN records r ON r.parent = family.key)
"""


def purge(db: Connection, refs: Sequence[Ref], at: int) -> tuple[int, int]:
    """Erase the data, and log a change unless nothing was erased."""
    records, links = erase(db, refs)
    if records or links:
        db.execute("INSERT INTO changes(at, tool) VALUES (?, 'purge')", (at,))
    return records, links


def erase(db: Connection, refs: Sequence[Ref]) -> tuple[int, int]:
    """Delete records and links with their descendants, links and log entries. Return the numbers of both.

    The bytes are gone from the disk once the index is cleansed and the write-ahead log is folded.
    """
    # A parent may be deleted before its child. Only the final state must be complete.
    db.execute("PRAGMA defer_foreign_keys=ON")
    records, relations = (
        encode_list(ref.id for ref in refs if ref.subject == subject) for subject in ("record", "link")
    )
    keys = [row[0] for row in db.execute(_SELECT_FAMILY + "SELECT key FROM family", (records,))]
    places = read_places(db, keys)
    links = [
        row[0]
        for row in db.execute(
            "SELECT key FROM links WHERE source IN (SELECT value FROM json_each(?1)) "
            "OR target IN (SELECT value FROM json_each(?1)) "
            "OR id IN (SELECT value FROM json_each(?2))",
            (encode_list(keys), relations),
        )
    ]
    for subject, items in (("record", keys), ("link", links)):
        db.execute(
            "DELETE FROM edits WHERE subject = ? AND item IN (SELECT value FROM json_each(?))",
            (subject, encode_list(items)),
        )
    db.executemany("DELETE FROM links WHERE key = ?", [(key,) for key in links])
    forget_vectors(db, keys)
    for table in ("tags", "accesses"):
        db.executemany(f"DELETE FROM {table} WHERE record = ?", [(key,) for key in keys])
    db.executemany("DELETE FROM records WHERE key = ?", [(key,) for key in keys])
    if keys:
        # The index entries of neighbors contain a purged text as context.
        index_records(db, {*keys} | find_neighbors(db, places))
        cleanse_if_small(db)
    return len(keys), len(links)


def redact(db: Connection, refs: Sequence[Ref], clean: "Redaction", at: int) -> tuple[int, int]:
    """Return the numbers of records and links that were rewritten, in themselves or in the log."""
    keys: set[int] = set()
    places: set[SessionPlace] = set()  # before and after the redaction
    links = 0
    for ref in dict.fromkeys(refs):
        if ref.subject == "link":
            links += _rewrite_link(db, ref, clean)
            continue
        row = db.execute(f"SELECT key, {', '.join(AMENDABLE_FIELDS)} FROM records WHERE id = ?", (ref.id,)).get
        if row is not None:
            key, *columns = row
            values = {name: decode_field(name, column) for name, column in zip(AMENDABLE_FIELDS, columns, strict=True)}
            stood = read_places(db, [key])
            in_record = _rewrite_record(db, key, values, dict(clean(ref, values)))
            in_log = _rewrite_log(db, key, ref, clean)
            if in_record or in_log:
                keys.add(key)
                places |= stood | read_places(db, [key])
    if keys:
        reached = keys | find_children(db, keys) | find_neighbors(db, places)
        index_records(db, reached)
        cleanse_if_small(db)
        reindexed = encode_list(sorted(reached))
        db.execute("INSERT INTO changes(at, tool, reindexed) VALUES (?, 'redact', ?)", (at, reindexed))
    elif links:
        db.execute("INSERT INTO changes(at, tool) VALUES (?, 'redact')", (at,))
    return len(keys), links


def _rewrite_record(db: Connection, key: int, old: dict[str, Any], new: dict[str, Any]) -> bool:
    altered = {name: new[name] for name in AMENDABLE if new[name] != old[name]}
    if not altered:
        return False
    columns = {name: encode_field(name, value) for name, value in altered.items()}
    columns["embedded"] = get_pending_mark(new["text"])
    forget_vectors(db, [key])
    values = [(name, f"?{number}") for number, name in enumerate(columns, 2)]
    try:
        db.execute(build_update("records", (*values, ("version", "version + 1")), "key = ?1"), (key, *columns.values()))
    except apsw.ConstraintError as error:
        message = "Another record would have the same name or text."
        raise Conflict(message, hint="Delete one of the two records first.") from error
    if "tags" in altered:
        db.execute("DELETE FROM tags WHERE record = ?", (key,))
        db.executemany("INSERT OR IGNORE INTO tags(tag, record) VALUES (?,?)", [(tag, key) for tag in new["tags"]])
    return True


def _rewrite_link(db: Connection, ref: Ref, clean: "Redaction") -> bool:
    """Rewrite a link. The log has no values of links, because a link is never changed, only deleted."""
    row = db.execute("SELECT key, verb, facets FROM links WHERE id = ?", (ref.id,)).get
    if row is None:
        return False
    key, verb, facets = row
    old = {"verb": verb, "facets": decode_facets(facets)}
    new = dict(clean(ref, old))
    if new == old:
        return False
    try:
        db.execute(
            build_update("links", (("verb", "?2"), ("facets", "?3")), "key = ?1"),
            (key, new["verb"], encode_facets(new["facets"])),
        )
    except apsw.ConstraintError as error:
        message = "Another link would be the same relation."
        raise Conflict(message, hint="Delete one of the two links first.") from error
    return True


def _rewrite_log(db: Connection, key: int, ref: Ref, clean: "Redaction") -> bool:
    rewritten: list[tuple[str | None, int, int]] = []
    for change, position, stored_before in db.execute(
        "SELECT change, position, before FROM edits WHERE subject = 'record' AND item = ? AND before IS NOT NULL",
        (key,),
    ):
        before = decode_before(stored_before) or {}
        after = dict(clean(ref, before))
        if after != before:
            rewritten.append((encode_before(after), change, position))
    db.executemany("UPDATE edits SET before = ? WHERE change = ? AND position = ?", rewritten)
    return bool(rewritten)
