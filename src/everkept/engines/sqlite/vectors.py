"""Vectors and access counts of records. They are stored separately, and changes and undo do not include them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from everkept.core import store as questions
from everkept.core.records import Record
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.rows import RECORD_COLUMNS, decode_record, encode_list
from everkept.values import Value

if TYPE_CHECKING:  # a hook loads only what it uses, and only callers that pass vectors load numpy
    import numpy as np
    from numpy.typing import NDArray

    from everkept.core.answers import AccessCount, RecordVector

# Records whose vector for the model ?2 is pending: those without a vector, and those with another model's.
_PENDING_CONDITIONS = ("r.embedded = ''", "r.embedded > '' AND r.embedded < ?2", "r.embedded > ?2")


def find_unembedded(db: Connection, question: questions.FindUnembedded) -> list[Record]:
    """Return the newest records without a vector. Query the index for each kind and condition separately."""
    keys = [
        row[0]
        for kind in dict.fromkeys(question.kinds)
        for waits in _PENDING_CONDITIONS
        for row in db.execute(
            "SELECT r.key FROM records r INDEXED BY records_embedded "
            f"WHERE r.kind = ?1 AND {waits} AND r.deleted_at IS NULL "
            "ORDER BY r.key DESC LIMIT ?3",
            (kind, question.model, question.limit),
        )
    ]
    rows = db.execute(
        f"SELECT {RECORD_COLUMNS} FROM records r WHERE r.key IN (SELECT value FROM json_each(?)) "
        "ORDER BY r.key DESC LIMIT ?",
        (encode_list(keys), question.limit),
    )
    return [decode_record(row) for row in rows]


def count_vectors(db: Connection, question: questions.CountVectors) -> tuple[int, int]:
    there, waiting = db.execute(
        "SELECT count(*) FILTER (WHERE r.embedded = ?1), "
        "count(*) FILTER (WHERE r.embedded <> ?1) FROM records r INDEXED BY records_embedded "
        "WHERE r.kind IN (SELECT value FROM json_each(?2)) "
        "AND r.embedded IS NOT NULL AND r.deleted_at IS NULL",
        (question.model, encode_list(question.kinds)),
    ).get
    return there, waiting


def get_pending_mark(text: str) -> str | None:
    """Return the value of `embedded` for a record with a new text."""
    return "" if text else None


class HalfVector(Value):
    """A vector in its stored form."""

    id: str
    version: int
    vector: bytes
    code: bytes


def put_vectors(db: Connection, model: str, items: Sequence[HalfVector], *, include_deleted: bool = False) -> int:
    """Store the vectors of unchanged records. Return the number of stored vectors."""
    live = "" if include_deleted else " AND deleted_at IS NULL"
    keys = [
        db.execute(f"SELECT key FROM records WHERE id = ? AND version = ?{live}", (item.id, item.version)).get
        for item in items
    ]
    kept = {key: (item.vector, item.code) for key, item in zip(keys, items, strict=True) if key is not None}
    _set_vectors(db, model, list(kept.items()))
    db.executemany(
        "UPDATE records SET embedded = ?1 WHERE key = ?2 AND embedded IS NOT ?1", [(model, key) for key in kept]
    )
    return len(kept)


def forget_vectors(db: Connection, keys: Iterable[int]) -> None:
    """Delete the vectors of these records, and leave rows that tell readers so."""
    rows = db.execute(
        "SELECT record FROM vectors WHERE record IN (SELECT value FROM json_each(?)) AND model IS NOT NULL",
        (encode_list(keys),),
    )
    _set_vectors(db, None, [(key, (None, None)) for (key,) in rows])


def _set_vectors(
    db: Connection, model: str | None, items: Sequence[tuple[int, tuple[bytes, bytes] | tuple[None, None]]]
) -> None:
    if items:
        seen = read_newest_vector(db)
        db.executemany(
            "INSERT OR REPLACE INTO vectors(record, model, seq, vector, code) VALUES (?,?,?,?,?)",
            [(key, model, seen + n, *blobs) for n, (key, blobs) in enumerate(items, 1)],
        )
        db.execute("UPDATE meta SET value = ? WHERE key = 'vectors'", (seen + len(items),))


def read_newest_vector(db: Connection) -> int:
    """Return the number of the last vector that was added or removed."""
    return db.execute("SELECT value FROM meta WHERE key = 'vectors'").get


def to_half_vectors(items: "Sequence[RecordVector]") -> list[HalfVector]:
    """Convert vectors to their stored form: half the size, and no cosine changes by more than 0.0001."""
    from everkept.engines.vectors import compute_signs

    halves = [item.vector.astype("<f2") for item in items]
    return [
        HalfVector(item.id, item.version, half.tobytes(), compute_signs(half[None, :]).tobytes())
        for item, half in zip(items, halves, strict=True)
    ]


def get_vectors(db: Connection, question: questions.GetVectors) -> "dict[str, NDArray[np.float32]]":
    rows = db.execute(
        "SELECT r.id, v.vector FROM records r JOIN vectors v ON v.record = r.key "
        "WHERE r.id IN (SELECT value FROM json_each(?)) AND +v.model = ?",
        (encode_list(question.ids), question.model),
    ).fetchall()
    if not rows:
        return {}
    import numpy as np

    return {record_id: np.frombuffer(blob, "<f2").astype(np.float32) for record_id, blob in rows}


def note_accesses(db: Connection, upkeep: questions.NoteAccesses) -> None:
    db.executemany(
        "INSERT INTO accesses(record, count, last_at) "
        "SELECT key, ?2, ?3 FROM records WHERE id = ?1 "
        "ON CONFLICT(record) DO UPDATE SET count = count + excluded.count, "
        "last_at = max(last_at, excluded.last_at)",
        [(record_id, count, upkeep.at) for record_id, count in upkeep.counts.items()],
    )


def get_accesses(db: Connection, question: questions.GetAccesses) -> "dict[str, AccessCount]":
    from everkept.core.answers import AccessCount

    rows = db.execute(
        "SELECT r.id, a.count, a.last_at FROM records r JOIN accesses a ON a.record = r.key "
        "WHERE r.id IN (SELECT value FROM json_each(?))",
        (encode_list(question.ids),),
    )
    return {record_id: AccessCount(count, last_at) for record_id, count, last_at in rows}


def list_most_accessed(db: Connection, question: questions.ListMostAccessed) -> "dict[str, AccessCount]":
    from everkept.core.answers import AccessCount

    rows = db.execute(
        "SELECT r.id, a.count, a.last_at FROM accesses a JOIN records r ON r.key = a.record "
        "WHERE r.deleted_at IS NULL ORDER BY a.count DESC, a.last_at DESC, r.id LIMIT ?",
        (question.limit,),
    )
    return {record_id: AccessCount(count, last_at) for record_id, count, last_at in rows}
