"""Replication into a store: rows, log and derived data become those of another store.

None of it is a change in the log. The number `restocked` shows that data in memory read from the records may be wrong.
"""

from collections.abc import Iterable, Mapping, Sequence

import apsw

from everkept.core.answers import StorePage
from everkept.core.records import Change, Edit, Record, RecordLink
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.purge import erase
from everkept.engines.sqlite.rows import (
    INSERTED_FIELDS,
    compute_checksum,
    encode_before,
    encode_facets,
    encode_list,
    encode_record,
)
from everkept.engines.sqlite.vectors import (
    HalfVector,
    forget_vectors,
    get_pending_mark,
    put_vectors,
    read_newest_vector,
)
from everkept.engines.sqlite.word_index import find_children, find_neighbors, index_records, read_places
from everkept.errors import Conflict

_COLUMNS = ("key", "embedded", "checksum", "parent", "deleted_at", "version", *INSERTED_FIELDS)
_UPDATED_COLUMNS = ("checksum", "parent", "deleted_at", "version", *(name for name in INSERTED_FIELDS if name != "id"))
_PUT_RECORD = (
    f"INSERT INTO records({', '.join(_COLUMNS)}) VALUES (?{', ?' * (len(_COLUMNS) - 1)}) "
    "ON CONFLICT(key) DO UPDATE SET "
    # Text and name are the same, so the vector still belongs to them.
    "embedded = iif(text = excluded.text AND name IS excluded.name, embedded, excluded.embedded), "
    + ", ".join(f"{name} = excluded.{name}" for name in _UPDATED_COLUMNS)
)
_PUT_LINK = (
    "INSERT INTO links(key, checksum, id, source, verb, target, facets, created_at, deleted_at) "
    "VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT(key) DO UPDATE SET checksum = excluded.checksum, source = excluded.source, "
    "verb = excluded.verb, target = excluded.target, facets = excluded.facets, "
    "created_at = excluded.created_at, deleted_at = excluded.deleted_at"
)
_PUT_ACCESS = "INSERT OR REPLACE INTO accesses(record, count, last_at) SELECT key, ?2, ?3 FROM records WHERE id = ?1"
# Tools of changes that erase data.
_REMOVAL_TOOLS = ("purge", "redact")
# The item of an edit whose record or link was purged. No row has this key.
_PURGED_KEY = 0


def apply_page(db: Connection, stock: StorePage, vectors: Mapping[str, Sequence[HalfVector]]) -> bool:
    """Apply a page and its vectors by model. Return whether data was removed, of which bytes may be left.

    Raise Conflict if keys collide or a reference has no target.
    """
    # Parents may come after their children. Only the final state must be complete.
    db.execute("PRAGMA defer_foreign_keys=ON")
    has_erased = bool(stock.gone) and any(erase(db, stock.gone))
    has_cut = _cut_log(db, stock.log_from)
    _put_records(db, {record.id: record for record in stock.records})
    _put_links(db, {link.id: link for link in stock.links})
    _put_changes(db, stock.changes)
    if stock.changes or has_cut:  # continue after the last change, also if later ones were cut
        db.execute(
            "UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(seq), 0) FROM changes) WHERE name = 'changes'"
        )
    db.executemany(_PUT_ACCESS, [(item, known.count, known.last_at) for item, known in stock.accesses.items()])
    for model, items in vectors.items():
        put_vectors(db, model, items, include_deleted=True)
    # The new number also changes the stamp of the store.
    db.execute("UPDATE meta SET value = ? WHERE key IN ('vectors', 'restocked')", (read_newest_vector(db) + 1,))
    return has_erased or has_cut or any(change.tool in _REMOVAL_TOOLS for change in stock.changes)


def read_replication_number(db: Connection) -> int:
    """Return a number that differs after every change that the log does not contain."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'restocked'").get)


def _cut_log(db: Connection, log_from: int | None) -> bool:
    if log_from is None:
        return False
    db.execute("DELETE FROM edits WHERE change >= ?", (log_from,))
    db.execute("DELETE FROM changes WHERE seq >= ?", (log_from,))
    return db.changes() > 0


def _put_records(db: Connection, records: Mapping[str, Record]) -> None:
    there = {
        record_id: (key, name, text)
        for key, record_id, name, text in db.execute(
            "SELECT key, id, name, text FROM records WHERE id IN (SELECT value FROM json_each(?))",
            (encode_list(records),),
        )
    }
    keys = _assign_keys(db, "records", {i: known[0] for i, known in there.items()}, records)
    keys |= _read_keys(db, "records", {r.parent for r in records.values() if r.parent is not None} - records.keys())
    touched = {keys[record_id] for record_id in records}
    places = read_places(db, touched)
    # The records may swap names, so clear these first.
    _clear_unique_values(db, "records SET name_key = NULL", touched)
    try:
        db.executemany(_PUT_RECORD, [_encode_columns(record, keys) for record in records.values()])
    except apsw.ConstraintError as error:
        raise Conflict("Another record has the same name or text.", hint="Delete or rename that record.") from error
    db.executemany("DELETE FROM tags WHERE record = ?", [(keys[each],) for each in records])
    db.executemany(
        "INSERT OR IGNORE INTO tags(tag, record) VALUES (?,?)",
        [(tag, keys[record.id]) for record in records.values() for tag in record.tags],
    )
    changed = [(key, records[i].name != name, records[i].text != text) for i, (key, name, text) in there.items()]
    forget_vectors(db, [key for key, *differs in changed if any(differs)])
    renamed = {key for key, is_renamed, _ in changed if is_renamed}
    places |= read_places(db, touched)
    index_records(db, touched | find_children(db, renamed) | find_neighbors(db, places))


def _encode_columns(record: Record, keys: Mapping[str, int]) -> list[object]:
    parent = None if record.parent is None else _get_key(record.parent, keys)
    columns = (parent, record.deleted_at, record.version, *encode_record(record))
    return [keys[record.id], get_pending_mark(record.text), compute_checksum(*columns), *columns]


def _put_links(db: Connection, links: Mapping[str, RecordLink]) -> None:
    keys = _assign_keys(db, "links", _read_keys(db, "links", links), links)
    ends = _read_keys(db, "records", {e for x in links.values() for e in (x.source, x.target)})
    _clear_unique_values(db, "links SET deleted_at = 0", keys.values())
    rows = [
        (
            link.id,
            _get_key(link.source, ends),
            link.verb,
            _get_key(link.target, ends),
            encode_facets(link.facets),
            link.created_at,
            link.deleted_at,
        )
        for link in links.values()
    ]
    try:
        db.executemany(_PUT_LINK, [(keys[row[0]], compute_checksum(*row), *row) for row in rows])
    except apsw.ConstraintError as error:
        raise Conflict("Another link is the same relation.", hint="Delete that link first.") from error


def _put_changes(db: Connection, changes: Sequence[Change]) -> None:
    numbers = encode_list(change.seq for change in changes)
    for of in ("edits WHERE change", "changes WHERE seq"):
        db.execute(f"DELETE FROM {of} IN (SELECT value FROM json_each(?))", (numbers,))
    db.executemany(
        "INSERT INTO changes(seq, at, tool, client, undoes) VALUES (?,?,?,?,?)",
        [(each.seq, each.at, each.tool, each.client, each.undoes) for each in changes],
    )
    edits = [(change.seq, position, edit) for change in changes for position, edit in enumerate(change.edits)]
    keys = {
        subject: _read_keys(db, f"{subject}s", {e.id for *_, e in edits if e.subject == subject})
        for subject in ("record", "link")
    }

    def item(edit: Edit) -> int:
        return keys[edit.subject].get(edit.id or "", _PURGED_KEY)

    db.executemany(
        "INSERT INTO edits(change, position, operation, subject, item, before) VALUES (?,?,?,?,?,?)",
        [
            (seq, position, edit.operation, edit.subject, item(edit), encode_before(edit.before))
            for seq, position, edit in edits
        ],
    )


def _read_keys(db: Connection, table: str, ids: Iterable[str | None]) -> dict[str, int]:
    rows = db.execute(f"SELECT id, key FROM {table} WHERE id IN (SELECT value FROM json_each(?))", (encode_list(ids),))
    return dict(rows.fetchall())


def _assign_keys(db: Connection, table: str, known: Mapping[str, int], wanted: Iterable[str]) -> dict[str, int]:
    """Return the known keys, and the next free keys for new ids in their order."""
    newest: int = db.execute(f"SELECT coalesce(max(key), 0) FROM {table}").get
    new = [each for each in wanted if each not in known]
    return {**known, **{each: newest + n for n, each in enumerate(new, 1)}}


def _clear_unique_values(db: Connection, setting: str, keys: Iterable[int]) -> None:
    """Clear values that must be unique, so that rows do not collide while they are replaced one by one."""
    db.execute(
        f"UPDATE {setting} WHERE key IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL", (encode_list(keys),)
    )


def _get_key(record_id: str, keys: Mapping[str, int]) -> int:
    if record_id not in keys:
        message = f"Record {record_id} does not exist, but other data refers to it."
        raise Conflict(message, hint="Copy the data again from the beginning.", id=record_id)
    return keys[record_id]
