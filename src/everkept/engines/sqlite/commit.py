"""One commit: steps applied in order, with the word index and the log, inside a transaction."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import apsw

from everkept.core.records import (
    AMENDABLE,
    Batch,
    Change,
    Delete,
    Edit,
    Insert,
    Operation,
    Record,
    RecordLink,
    Ref,
    Restore,
    Subject,
    Update,
)
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.queries import read_changes
from everkept.engines.sqlite.rows import (
    AMENDABLE_FIELDS,
    INSERTED_FIELDS,
    build_update,
    compute_checksum,
    decode_field,
    encode_before,
    encode_facets,
    encode_field,
    encode_list,
    encode_record,
)
from everkept.engines.sqlite.vectors import forget_vectors, get_pending_mark
from everkept.engines.sqlite.word_index import (
    SessionPlace,
    find_children,
    find_neighbors,
    find_place,
    index_records,
    read_places,
)
from everkept.errors import Conflict

_SELECT_DESCENDANTS = """
WITH RECURSIVE below(key, depth) AS (
    SELECT ?, 0 UNION ALL
    SELECT r.key, depth + 1 FROM below JOIN records r ON r.parent = below.key
    WHERE r.deleted_at IS NULL)
SELECT key FROM below WHERE depth > 0 ORDER BY depth DESC, key
"""
_INSERT_RECORD = (
    f"INSERT INTO records(parent, embedded, checksum, {', '.join(INSERTED_FIELDS)}) "
    f"VALUES (?, ?, ?{', ?' * len(INSERTED_FIELDS)})"
)
_CLEARED = tuple((name, "NULL") for name in ("name", "name_key", "tags", "facets", "embedded"))
_CLEAR_RECORD = build_update("records", (("text", "''"), *_CLEARED), "key = ?1")
_TOUCH_RECORD = build_update("records", (("updated_at", "?1"),), "key = ?2 AND updated_at < ?1")
_SET_DELETED = {
    subject: build_update(f"{subject}s", (("deleted_at", "?1"),), "key = ?2") for subject in ("record", "link")
}
# A vector belongs to the text and name it was computed from.
_EMBEDDED_FIELDS = frozenset(("text", "name"))
# Fields that determine whether and by which words the neighbors in a session are found.
_CONTEXT_FIELDS = frozenset(("text", "session", "position", "scope"))
# Fields that determine the indexed words of the record itself.
_INDEXED_FIELDS = _CONTEXT_FIELDS | {"name", "type"}


def commit_batch(connection: Connection, batch: Batch) -> Change:
    """Commit the batch. Raise Conflict if it contradicts the stored data; the caller then rolls back."""
    if batch.key is not None and (made := _find_committed(connection, batch.key)):
        return made
    if batch.revision not in (None, read_newest_change(connection)):
        message = "The data changed while this write was being prepared."
        raise Conflict(message, hint="Try again.", revision=batch.revision)
    commit = _Commit(connection, batch)
    for step in batch.steps:
        match step:
            case Insert(Record() as record):
                commit.insert_record(record)
            case Insert(RecordLink() as link):
                commit.insert_link(link)
            case Update():
                commit.update(step)
            case Delete(ref):
                commit.delete(ref)
            case Restore(ref):
                commit.restore(ref)
            case _:
                raise TypeError(step)
    return commit.finish()


def read_newest_change(connection: Connection) -> int:
    return connection.execute("SELECT coalesce(max(seq), 0) FROM changes").get


def _find_committed(connection: Connection, key: str) -> Change | None:
    seq = connection.execute("SELECT seq FROM changes WHERE key = ?", (key,)).get
    if seq is None:
        return None
    [change] = read_changes(connection, seq - 1, 1, newest_first=False)
    return change


class _Commit:
    def __init__(self, connection: Connection, batch: Batch) -> None:
        self._db = connection
        self._batch = batch
        self._edits: list[tuple[Operation, Subject, int, str, Mapping[str, Any] | None]] = []
        self._keys: dict[str, int] = {}
        self._touched: set[int] = set()
        self._indexed: set[int] = set()  # records to index again
        self._renamed: set[int] = set()
        self._places: set[SessionPlace] = set()  # where a text was added, removed or changed

    def insert_record(self, record: Record) -> None:
        parent = None if record.parent is None else self._require_record(record.parent)
        try:
            columns = encode_record(record)
            checksum = compute_checksum(parent, None, 1, *columns)
            self._db.execute(_INSERT_RECORD, (parent, get_pending_mark(record.text), checksum, *columns))
        except apsw.ConstraintError as error:
            raise _build_name_conflict(record.kind, record.name or record.id) from error
        key = self._keys[record.id] = self._db.last_insert_rowid()
        self._write_tags(key, record.tags)
        self._indexed.add(key)
        self._note_position(find_place(record.kind, record.session, record.position))
        if parent is not None:
            self._touched.add(parent)
        self._log("insert", "record", key, record.id)

    def insert_link(self, link: RecordLink) -> None:
        source, target = self._require_record(link.source), self._require_record(link.target)
        try:
            columns = (link.id, source, link.verb, target, encode_facets(link.facets), link.created_at)
            self._db.execute(
                "INSERT INTO links(id, source, verb, target, facets, created_at, checksum) VALUES (?,?,?,?,?,?,?)",
                (*columns, compute_checksum(*columns, None)),
            )
        except apsw.ConstraintError as error:
            raise _build_name_conflict("link", link.verb) from error
        self._log("insert", "link", self._db.last_insert_rowid(), link.id)

    def update(self, step: Update) -> None:
        unknown = set(step.values) - AMENDABLE
        if unknown:
            raise ValueError(f"not amendable: {sorted(unknown)}")
        row = self._db.execute(
            f"SELECT key, version, kind, {', '.join(AMENDABLE_FIELDS)} FROM records "
            "WHERE id = ? AND deleted_at IS NULL",
            (step.id,),
        ).get
        if row is None or row[1] != step.version:
            raise _build_version_conflict("record", step.id)
        key, _, kind, *found = row
        old = {name: decode_field(name, column) for name, column in zip(AMENDABLE_FIELDS, found, strict=True)}
        new = {name: decode_field(name, encode_field(name, value)) for name, value in step.values.items()}
        altered = {name: value for name, value in new.items() if old[name] != value}
        if not altered and step.at is None:
            return
        columns = {name: encode_field(name, value) for name, value in altered.items()}
        if altered.keys() & _EMBEDDED_FIELDS:
            columns["embedded"] = get_pending_mark(altered.get("text", old["text"]))
        try:
            names = (*columns, "updated_at")
            values = [(name, f"?{number}") for number, name in enumerate(names, 2)]
            self._db.execute(
                build_update("records", (*values, ("version", "version + 1")), "key = ?1"),
                (key, *columns.values(), self._batch.at if step.at is None else step.at),
            )
        except apsw.ConstraintError as error:
            raise _build_name_conflict("record", str(altered.get("name", step.id))) from error
        self._update_derived(key, kind, old, altered)
        before = {} if self._batch.derived else {name: old[name] for name in altered}
        self._log("update", "record", key, step.id, before)

    def delete(self, ref: Ref) -> None:
        if ref.subject == "link":
            row = self._db.execute("SELECT key, id FROM links WHERE id = ? AND deleted_at IS NULL", (ref.id,)).get
            if row is None:
                raise _build_version_conflict("link", ref.id)
            self._delete_link(*row)
            return
        key = self._require_record(ref.id)
        family = [row[0] for row in self._db.execute(_SELECT_DESCENDANTS, (key,))] + [key]
        for member in family:
            for link in self._db.execute(
                "SELECT key, id FROM links WHERE deleted_at IS NULL AND source = ? UNION "
                "SELECT key, id FROM links WHERE deleted_at IS NULL AND target = ?",
                (member, member),
            ).fetchall():
                self._delete_link(*link)
        self._places |= read_places(self._db, family)
        for member in family:
            self._delete_record(member)
        self._touch_parent(key)

    def restore(self, ref: Ref) -> None:
        table = "records" if ref.subject == "record" else "links"
        row = self._db.execute(
            f"SELECT key, deleted_at FROM {table} WHERE id = ? AND deleted_at IS NOT NULL", (ref.id,)
        ).get
        if row is None:
            raise _build_version_conflict(ref.subject, ref.id)
        key, deleted_at = row
        ends = "parent" if ref.subject == "record" else "source, target"
        for end in cast(
            tuple[int | None, ...], self._db.execute(f"SELECT {ends}, NULL FROM {table} WHERE key = ?", (key,)).get
        ):
            if end is not None and not self._is_live(end):
                message = f"{ref.subject.capitalize()} {ref.id} belongs to a deleted record."
                raise Conflict(message, hint="Restore that record first.", id=ref.id)
        try:
            self._db.execute(_SET_DELETED[ref.subject], (None, key))
        except apsw.ConstraintError as error:
            raise _build_name_conflict(ref.subject, ref.id) from error
        if ref.subject == "record":
            self._indexed.add(key)
            self._places |= read_places(self._db, [key])
            self._touch_parent(key)
        self._log("restore", ref.subject, key, ref.id, {"deleted_at": deleted_at})

    def finish(self) -> Change:
        """Write the word index and the log for all steps together."""
        batch = self._batch
        if not self._edits:
            return Change(0, batch.at, batch.tool, batch.client, batch.undoes, ())
        self._db.executemany(_TOUCH_RECORD, [(batch.at, key) for key in sorted(self._touched) if not batch.copied])
        reached = find_children(self._db, self._renamed) | find_neighbors(self._db, self._places)
        index_records(self._db, self._indexed | reached)
        self._db.execute(
            "INSERT INTO changes(at, tool, client, undoes, key, reindexed) VALUES (?,?,?,?,?,?)",
            (
                batch.at,
                batch.tool,
                batch.client,
                batch.undoes,
                batch.key,
                encode_list(sorted(reached - self._indexed)) if reached - self._indexed else None,
            ),
        )
        seq = self._db.last_insert_rowid()
        self._db.executemany(
            "INSERT INTO edits(change, position, operation, subject, item, before) VALUES (?,?,?,?,?,?)",
            [
                (seq, position, operation, subject, key, encode_before(before))
                for position, (operation, subject, key, _, before) in enumerate(self._edits)
            ],
        )
        edits = tuple(
            Edit(operation, subject, item_id, before) for operation, subject, _, item_id, before in self._edits
        )
        return Change(seq, batch.at, batch.tool, batch.client, batch.undoes, edits)

    def _update_derived(self, key: int, kind: str, old: Mapping[str, Any], altered: Mapping[str, Any]) -> None:
        """Update everything that is derived from the values of a record."""
        if altered.keys() & _INDEXED_FIELDS:
            self._indexed.add(key)
        if "name" in altered:
            self._renamed.add(key)
        if "tags" in altered:
            self._db.execute("DELETE FROM tags WHERE record = ?", (key,))
            self._write_tags(key, altered["tags"])
        if altered.keys() & _EMBEDDED_FIELDS:
            forget_vectors(self._db, [key])
        if altered.keys() & _CONTEXT_FIELDS:
            for values in (old, {**old, **altered}):
                self._note_position(find_place(kind, values["session"], values["position"]))

    def _write_tags(self, key: int, tags: Sequence[str]) -> None:
        if tags:
            self._db.executemany("INSERT OR IGNORE INTO tags(tag, record) VALUES (?,?)", [(tag, key) for tag in tags])

    def _note_position(self, place: SessionPlace | None) -> None:
        if place is not None:
            self._places.add(place)

    def _require_record(self, record_id: str) -> int:
        known = self._keys.get(record_id)
        if known is None:
            known = self._db.execute("SELECT key FROM records WHERE id = ? AND deleted_at IS NULL", (record_id,)).get
            if known is None:
                raise _build_version_conflict("record", record_id)
            self._keys[record_id] = known
        return known

    def _is_live(self, key: int) -> bool:
        return bool(self._db.execute("SELECT count(*) FROM records WHERE key = ? AND deleted_at IS NULL", (key,)).get)

    def _delete_link(self, key: int, link_id: str) -> None:
        self._db.execute(_SET_DELETED["link"], (self._batch.at, key))
        self._log("delete", "link", key, link_id, {"deleted_at": None})

    def _delete_record(self, key: int) -> None:
        self._db.execute(_SET_DELETED["record"], (self._batch.at, key))
        record_id = self._db.execute("SELECT id FROM records WHERE key = ?", (key,)).get
        self._keys.pop(record_id, None)
        self._indexed.add(key)
        if self._batch.derived:
            self._db.execute(_CLEAR_RECORD, (key,))
            self._db.execute("DELETE FROM tags WHERE record = ?", (key,))
            forget_vectors(self._db, [key])
        self._log("delete", "record", key, record_id, {"deleted_at": None})

    def _touch_parent(self, key: int) -> None:
        parent = self._db.execute(
            "SELECT p.key FROM records r JOIN records p ON p.key = r.parent WHERE r.key = ? AND p.deleted_at IS NULL",
            (key,),
        ).get
        if parent is not None:
            self._touched.add(parent)

    def _log(
        self, operation: Operation, subject: Subject, key: int, item_id: str, before: Mapping[str, Any] | None = None
    ) -> None:
        self._edits.append((operation, subject, key, item_id, before))


def _build_name_conflict(kind: str, name: str) -> Conflict:
    hint = "Use the existing one, or choose another name."
    return Conflict(f'A {kind} "{name}" already exists.', hint=hint, kind=kind, name=name)


def _build_version_conflict(subject: str, item_id: str) -> Conflict:
    message = f"{subject.capitalize()} {item_id} changed or no longer exists."
    return Conflict(message, hint="Read the data again, then retry.", subject=subject, id=item_id)
