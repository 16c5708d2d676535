"""One commit: steps applied in order, with the word index and the log, inside a transaction."""

import json
from collections.abc import Mapping
from typing import Any, cast

import apsw

from recollect.core.records import (
    AMENDABLE,
    Batch,
    Change,
    Delete,
    Edit,
    Insert,
    Link,
    Operation,
    Record,
    Ref,
    Restore,
    Subject,
    Update,
)
from recollect.core.words import index_text
from recollect.engines.sqlite.rows import facets_from, facets_to
from recollect.engines.sqlite.sql import Connection
from recollect.errors import Conflict

_DESCENDANTS = """
WITH RECURSIVE below(key, depth) AS (
    SELECT ?, 0 UNION ALL
    SELECT r.key, depth + 1 FROM below JOIN records r ON r.parent = below.key
    WHERE r.deleted_at IS NULL)
SELECT key FROM below WHERE depth > 0 ORDER BY depth DESC, key
"""


def apply(connection: Connection, batch: Batch) -> Change:
    """Raises Conflict where the batch does not fit what is stored; the caller rolls back."""
    if batch.revision not in (None, newest_change(connection)):
        raise Conflict("Something else was stored meanwhile.", revision=batch.revision)
    commit = _Commit(connection, batch)
    for step in batch.steps:
        match step:
            case Insert(Record() as record):
                commit.insert_record(record)
            case Insert(Link() as link):
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


def newest_change(connection: Connection) -> int:
    return connection.execute("SELECT coalesce(max(seq), 0) FROM changes").get


def index_row(connection: Connection, key: int) -> tuple[int, str, str, str]:
    """What the word index holds of a record: name, type with text, and its parent's name."""
    name, kind, text, parent = connection.execute(
        "SELECT r.name, r.type, r.text, p.name FROM records r "
        "LEFT JOIN records p ON p.key = r.parent WHERE r.key = ?",
        (key,),
    ).get
    return _index_row(key, name, kind, text, parent)


class _Commit:
    def __init__(self, connection: Connection, batch: Batch) -> None:
        self._db = connection
        self._batch = batch
        self._edits: list[tuple[Operation, Subject, int, str, Mapping[str, Any] | None]] = []
        self._words: dict[int, tuple[int, str, str, str] | None] = {}
        self._parents: dict[str, tuple[int, str | None]] = {}
        self._touched: set[int] = set()

    def insert_record(self, record: Record) -> None:
        parent_key, parent_name = (
            (None, None) if record.parent is None else self._live_record(record.parent)
        )
        try:
            self._db.execute(
                "INSERT INTO records(id, kind, type, name, name_key, variant, parent, text, "
                "facets, created_at, updated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                (
                    record.id,
                    record.kind,
                    record.type,
                    record.name,
                    record.name_key,
                    record.variant,
                    parent_key,
                    record.text,
                    facets_to(record.facets),
                    record.created_at,
                    record.updated_at,
                ),
            )
        except apsw.ConstraintError as error:
            raise _taken(record.kind, record.name or record.id) from error
        key = self._db.last_insert_rowid()
        self._words[key] = _index_row(key, record.name, record.type, record.text, parent_name)
        self._parents[record.id] = (key, record.name)
        if parent_key is not None:
            self._touched.add(parent_key)
        self._log("insert", "record", key, record.id)

    def insert_link(self, link: Link) -> None:
        source, _ = self._live_record(link.source)
        target, _ = self._live_record(link.target)
        try:
            self._db.execute(
                "INSERT INTO links(id, source, verb, target, facets, created_at) "
                "VALUES (?,?,?,?,?,?)",
                (link.id, source, link.verb, target, facets_to(link.facets), link.created_at),
            )
        except apsw.ConstraintError as error:
            raise _taken("link", link.verb) from error
        self._log("insert", "link", self._db.last_insert_rowid(), link.id)

    def update(self, step: Update) -> None:
        unknown = set(step.values) - AMENDABLE
        if unknown:
            raise ValueError(f"not amendable: {sorted(unknown)}")
        row = self._db.execute(
            "SELECT key, version, type, name, name_key, variant, text, facets FROM records "
            "WHERE id = ? AND deleted_at IS NULL",
            (step.id,),
        ).get
        if row is None or row[1] != step.version:
            raise _changed("record", step.id)
        key, _, *stored = row
        old: dict[str, Any] = dict(
            zip(("type", "name", "name_key", "variant", "text"), stored[:5], strict=True)
        )
        old["facets"] = facets_from(stored[5])
        altered = {name: value for name, value in step.values.items() if old[name] != value}
        if not altered:
            return
        columns = {
            name: facets_to(value) if name == "facets" else value for name, value in altered.items()
        }
        assignments = ", ".join(f"{name} = ?" for name in columns)
        try:
            self._db.execute(
                f"UPDATE records SET {assignments}, updated_at = ?, version = version + 1 "
                "WHERE key = ?",
                (*columns.values(), self._batch.at, key),
            )
        except apsw.ConstraintError as error:
            raise _taken("record", str(altered.get("name", step.id))) from error
        self._words[key] = index_row(self._db, key)
        if "name" in altered:
            self._parents.pop(step.id, None)
            for (child,) in self._db.execute(
                "SELECT key FROM records WHERE parent = ? AND deleted_at IS NULL", (key,)
            ).fetchall():
                self._words[child] = index_row(self._db, child)
        self._log("update", "record", key, step.id, {name: old[name] for name in altered})

    def delete(self, ref: Ref) -> None:
        if ref.subject == "link":
            self._delete_link(*self._live_link(ref.id))
            return
        key, _ = self._live_record(ref.id)
        family = [row[0] for row in self._db.execute(_DESCENDANTS, (key,))] + [key]
        for member in family:
            for link in self._db.execute(
                "SELECT key, id FROM links WHERE deleted_at IS NULL AND source = ? UNION "
                "SELECT key, id FROM links WHERE deleted_at IS NULL AND target = ?",
                (member, member),
            ).fetchall():
                self._delete_link(*link)
        for member in family:
            self._delete_record(member)
        self._touch_parent_of(key)

    def restore(self, ref: Ref) -> None:
        table = "records" if ref.subject == "record" else "links"
        row = self._db.execute(
            f"SELECT key, deleted_at FROM {table} WHERE id = ? AND deleted_at IS NOT NULL",
            (ref.id,),
        ).get
        if row is None:
            raise _changed(ref.subject, ref.id)
        key, deleted_at = row
        ends = "parent" if ref.subject == "record" else "source, target"
        for end in cast(
            tuple[int | None, ...],
            self._db.execute(f"SELECT {ends}, NULL FROM {table} WHERE key = ?", (key,)).get,
        ):
            if end is not None and not self._is_live(end):
                raise Conflict(f"What {ref.subject} {ref.id} belongs to is deleted.", id=ref.id)
        try:
            self._db.execute(f"UPDATE {table} SET deleted_at = NULL WHERE key = ?", (key,))
        except apsw.ConstraintError as error:
            raise _taken(ref.subject, ref.id) from error
        if ref.subject == "record":
            self._words[key] = index_row(self._db, key)
            self._touch_parent_of(key)
        self._log("restore", ref.subject, key, ref.id, {"deleted_at": deleted_at})

    def finish(self) -> Change:
        """Writes index and log for all steps at once."""
        batch = self._batch
        if not self._edits:
            return Change(0, batch.at, batch.tool, batch.client, batch.undoes, ())
        self._db.executemany(
            "UPDATE records SET updated_at = ? WHERE key = ? AND updated_at < ?",
            [(batch.at, key, batch.at) for key in sorted(self._touched)],
        )
        gone = [(key,) for key, row in self._words.items() if row is None]
        self._db.executemany("DELETE FROM words WHERE rowid = ?", gone)
        self._db.executemany(
            "INSERT OR REPLACE INTO words(rowid, name, text, context) VALUES (?,?,?,?)",
            [row for row in self._words.values() if row is not None],
        )
        self._db.execute(
            "INSERT INTO changes(at, tool, client, undoes) VALUES (?,?,?,?)",
            (batch.at, batch.tool, batch.client, batch.undoes),
        )
        seq = self._db.last_insert_rowid()
        self._db.executemany(
            "INSERT INTO edits(change, position, operation, subject, item, before) "
            "VALUES (?,?,?,?,?,?)",
            [
                (seq, position, operation, subject, key, _stored(before))
                for position, (operation, subject, key, _, before) in enumerate(self._edits)
            ],
        )
        edits = tuple(
            Edit(operation, subject, item_id, before)
            for operation, subject, _, item_id, before in self._edits
        )
        return Change(seq, batch.at, batch.tool, batch.client, batch.undoes, edits)

    def _live_record(self, record_id: str) -> tuple[int, str | None]:
        known = self._parents.get(record_id)
        if known is None:
            row = self._db.execute(
                "SELECT key, name FROM records WHERE id = ? AND deleted_at IS NULL", (record_id,)
            ).get
            if row is None:
                raise _changed("record", record_id)
            known = self._parents[record_id] = (row[0], row[1])
        return known

    def _live_link(self, link_id: str) -> tuple[int, str]:
        row = self._db.execute(
            "SELECT key, id FROM links WHERE id = ? AND deleted_at IS NULL", (link_id,)
        ).get
        if row is None:
            raise _changed("link", link_id)
        return row[0], row[1]

    def _is_live(self, key: int) -> bool:
        return bool(
            self._db.execute(
                "SELECT count(*) FROM records WHERE key = ? AND deleted_at IS NULL", (key,)
            ).get
        )

    def _delete_link(self, key: int, link_id: str) -> None:
        self._db.execute("UPDATE links SET deleted_at = ? WHERE key = ?", (self._batch.at, key))
        self._log("delete", "link", key, link_id, {"deleted_at": None})

    def _delete_record(self, key: int) -> None:
        self._db.execute("UPDATE records SET deleted_at = ? WHERE key = ?", (self._batch.at, key))
        record_id = self._db.execute("SELECT id FROM records WHERE key = ?", (key,)).get
        self._parents.pop(record_id, None)
        self._words[key] = None
        self._log("delete", "record", key, record_id, {"deleted_at": None})

    def _touch_parent_of(self, key: int) -> None:
        parent = self._db.execute(
            "SELECT p.key FROM records r JOIN records p ON p.key = r.parent "
            "WHERE r.key = ? AND p.deleted_at IS NULL",
            (key,),
        ).get
        if parent is not None:
            self._touched.add(parent)

    def _log(
        self,
        operation: Operation,
        subject: Subject,
        key: int,
        item_id: str,
        before: Mapping[str, Any] | None = None,
    ) -> None:
        self._edits.append((operation, subject, key, item_id, before))


def _index_row(
    key: int, name: str | None, kind: str | None, text: str, parent: str | None
) -> tuple[int, str, str, str]:
    described = f"{kind}\n{text}" if kind and text else kind or text
    return (key, index_text(name or ""), index_text(described), index_text(parent or ""))


def _stored(before: Mapping[str, Any] | None) -> str | None:
    return None if before is None else json.dumps(before, ensure_ascii=False)


def _taken(kind: str, name: str) -> Conflict:
    return Conflict(f'There is a {kind} "{name}" already.', kind=kind, name=name)


def _changed(subject: str, item_id: str) -> Conflict:
    return Conflict(f"The {subject} {item_id} has changed or is gone.", subject=subject, id=item_id)
