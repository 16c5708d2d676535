"""Replication into a store: rows, log and derived data become what they are in another store.

None of it is a change that the log would tell of. Whoever keeps something in memory that was read
from the records sees by the number `restocked` that it may be wrong.
"""

from collections.abc import Iterable, Mapping, Sequence

import apsw

from everkept.core.answers import Stock
from everkept.core.records import Change, Edit, Link, Record
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.purge import erase
from everkept.engines.sqlite.rows import INSERTED, before_to, facets_to, inserted, listed
from everkept.engines.sqlite.vectors import (
    Halved,
    forget_vectors,
    newest_vector,
    put_vectors,
    waiting,
)
from everkept.engines.sqlite.word_index import children, index, neighbours, places_of
from everkept.errors import Conflict

_COLUMNS = ("key", "embedded", "parent", "deleted_at", "version", *INSERTED)
_REST = ("parent", "deleted_at", "version", *(name for name in INSERTED if name != "id"))
_PUT_RECORD = (
    f"INSERT INTO records({', '.join(_COLUMNS)}) VALUES (?{', ?' * (len(_COLUMNS) - 1)}) "
    "ON CONFLICT(key) DO UPDATE SET "
    # The vector of the words that it had is that of the words that it has.
    "embedded = iif(text = excluded.text AND name IS excluded.name, embedded, excluded.embedded), "
    + ", ".join(f"{name} = excluded.{name}" for name in _REST)
)
_PUT_LINK = (
    "INSERT INTO links(key, id, source, verb, target, facets, created_at, deleted_at) "
    "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT(key) DO UPDATE SET source = excluded.source, "
    "verb = excluded.verb, target = excluded.target, facets = excluded.facets, "
    "created_at = excluded.created_at, deleted_at = excluded.deleted_at"
)
_PUT_ACCESS = (
    "INSERT OR REPLACE INTO accesses(record, count, last_at) "
    "SELECT key, ?2, ?3 FROM records WHERE id = ?1"
)
# The tools of changes that leave nothing of what was there.
_REMOVING = ("purge", "redact")
# What an edit of a purged thing is of: no row has this key.
_NOTHING = 0


def restock(db: Connection, stock: Stock, vectors: Mapping[str, Sequence[Halved]]) -> bool:
    """Says whether something was removed, here or there, of which bytes may be left.

    The vectors are those of the stock, by model. Raises Conflict where two things would come to
    stand for the same, or one would belong to nothing.
    """
    # Parents may come after their children; what counts is that nothing dangles at the end.
    db.execute("PRAGMA defer_foreign_keys=ON")
    has_erased = bool(stock.gone) and any(erase(db, stock.gone))
    has_cut = _cut_log(db, stock.log_from)
    _put_records(db, {record.id: record for record in stock.records})
    _put_links(db, {link.id: link for link in stock.links})
    _put_changes(db, stock.changes)
    if stock.changes or has_cut:
        _number_next_change(db)
    db.executemany(
        _PUT_ACCESS, [(item, known.count, known.last_at) for item, known in stock.accesses.items()]
    )
    for model, items in vectors.items():
        put_vectors(db, model, items, include_deleted=True)
    _note_restock(db)
    return has_erased or has_cut or any(change.tool in _REMOVING for change in stock.changes)


def restocked(db: Connection) -> int:
    """Another number whenever things were put in that the log does not name."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'restocked'").get)


def _note_restock(db: Connection) -> None:
    """As if a vector had come: whoever asks for the stamp of a store sees another one."""
    moment = newest_vector(db) + 1
    db.execute("UPDATE meta SET value = ? WHERE key IN ('vectors', 'restocked')", (moment,))


def _cut_log(db: Connection, log_from: int | None) -> bool:
    if log_from is None:
        return False
    db.execute("DELETE FROM edits WHERE change >= ?", (log_from,))
    db.execute("DELETE FROM changes WHERE seq >= ?", (log_from,))
    return db.changes() > 0


def _number_next_change(db: Connection) -> None:
    """Behind the last that there is, also where there were later ones."""
    db.execute(
        "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM changes) "
        "WHERE name = 'changes'"
    )


def _put_records(db: Connection, records: Mapping[str, Record]) -> None:
    there = {
        record_id: (key, name, text)
        for key, record_id, name, text in db.execute(
            "SELECT key, id, name, text FROM records WHERE id IN (SELECT value FROM json_each(?))",
            (listed(records),),
        )
    }
    keys = _with_new_keys(db, "records", {i: known[0] for i, known in there.items()}, records)
    others = {r.parent for r in records.values() if r.parent is not None} - records.keys()
    keys |= _known_keys(db, "records", others)
    touched = {keys[record_id] for record_id in records}
    places = places_of(db, touched)
    # Out of the way: they may trade names.
    _out_of_the_way(db, "records SET name_key = NULL", touched)
    try:
        db.executemany(_PUT_RECORD, [_columns(record, keys) for record in records.values()])
    except apsw.ConstraintError as error:
        raise Conflict("Another record than one of these has its name.") from error
    _tag(db, records, keys)
    changed = [(k, r.name != n, r.text != t) for r, k, n, t in _pairs(records, there)]
    forget_vectors(db, [key for key, *differs in changed if any(differs)])
    renamed = {key for key, is_renamed, _ in changed if is_renamed}
    places |= places_of(db, touched)
    index(db, touched | children(db, renamed) | neighbours(db, places))


def _pairs(
    records: Mapping[str, Record], there: Mapping[str, tuple[int, str | None, str]]
) -> list[tuple[Record, int, str | None, str]]:
    """Those that were there before, with their keys and what they were called and said."""
    return [(records[record_id], *known) for record_id, known in there.items()]


def _columns(record: Record, keys: Mapping[str, int]) -> list[object]:
    parent = None if record.parent is None else _key_of(record.parent, keys)
    return [
        keys[record.id],
        waiting(record.text),
        parent,
        record.deleted_at,
        record.version,
        *inserted(record),
    ]


def _tag(db: Connection, records: Mapping[str, Record], keys: Mapping[str, int]) -> None:
    db.executemany("DELETE FROM tags WHERE record = ?", [(keys[each],) for each in records])
    db.executemany(
        "INSERT OR IGNORE INTO tags(tag, record) VALUES (?,?)",
        [(tag, keys[record.id]) for record in records.values() for tag in record.tags],
    )


def _put_links(db: Connection, links: Mapping[str, Link]) -> None:
    keys = _with_new_keys(db, "links", _known_keys(db, "links", links), links)
    ends = _known_keys(db, "records", {e for x in links.values() for e in (x.source, x.target)})
    _out_of_the_way(db, "links SET deleted_at = 0", keys.values())
    rows = [
        (
            keys[link.id],
            link.id,
            _key_of(link.source, ends),
            link.verb,
            _key_of(link.target, ends),
            facets_to(link.facets),
            link.created_at,
            link.deleted_at,
        )
        for link in links.values()
    ]
    try:
        db.executemany(_PUT_LINK, rows)
    except apsw.ConstraintError as error:
        raise Conflict("Another link than one of these says the same.") from error


def _put_changes(db: Connection, changes: Sequence[Change]) -> None:
    numbers = listed(change.seq for change in changes)
    for of in ("edits WHERE change", "changes WHERE seq"):
        db.execute(f"DELETE FROM {of} IN (SELECT value FROM json_each(?))", (numbers,))
    db.executemany(
        "INSERT INTO changes(seq, at, tool, client, undoes) VALUES (?,?,?,?,?)",
        [(each.seq, each.at, each.tool, each.client, each.undoes) for each in changes],
    )
    edits = [
        (change.seq, position, edit)
        for change in changes
        for position, edit in enumerate(change.edits)
    ]
    keys = {
        subject: _known_keys(db, f"{subject}s", {e.id for *_, e in edits if e.subject == subject})
        for subject in ("record", "link")
    }

    def item(edit: Edit) -> int:
        return keys[edit.subject].get(edit.id or "", _NOTHING)

    db.executemany(
        "INSERT INTO edits(change, position, operation, subject, item, before) "
        "VALUES (?,?,?,?,?,?)",
        [
            (seq, position, edit.operation, edit.subject, item(edit), before_to(edit.before))
            for seq, position, edit in edits
        ],
    )


def _known_keys(db: Connection, table: str, ids: Iterable[str | None]) -> dict[str, int]:
    rows = db.execute(
        f"SELECT id, key FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (listed(ids),)
    )
    return dict(rows.fetchall())


def _with_new_keys(
    db: Connection, table: str, known: Mapping[str, int], wanted: Iterable[str]
) -> dict[str, int]:
    """Those that are new here come behind all others, in their order."""
    newest: int = db.execute(f"SELECT coalesce(max(key), 0) FROM {table}").get
    new = [each for each in wanted if each not in known]
    return {**known, **{each: newest + n for n, each in enumerate(new, 1)}}


def _out_of_the_way(db: Connection, setting: str, keys: Iterable[int]) -> None:
    """So that none of them stands for the same as another meanwhile."""
    db.execute(
        f"UPDATE {setting} WHERE key IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL",
        (listed(keys),),
    )


def _key_of(record_id: str, keys: Mapping[str, int]) -> int:
    if record_id not in keys:
        raise Conflict(f"There is no record {record_id} for what belongs to it.", id=record_id)
    return keys[record_id]
