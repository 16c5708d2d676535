"""Word index entries of records, and the entries that a change affects."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from everkept.core.fallback_answers import clip_context
from everkept.core.records import SESSION_SCOPE
from everkept.engines.sqlite.connection import Connection
from everkept.engines.sqlite.rows import encode_list
from everkept.language.spellings import stem
from everkept.language.words import join_index_texts, prepare_text

_IS_BESIDE = (
    "n.kind = {0}.kind AND n.session = {0}.session "
    "AND n.position IN ({0}.position - 1, {0}.position + 1) AND n.deleted_at IS NULL"
)
_SELECT_AROUND = (
    "SELECT r.key, n.text, n.position < r.position FROM records r "
    # CROSS JOIN: go from a record to its neighbors, never the other way round.
    f"CROSS JOIN records n INDEXED BY records_session ON {_IS_BESIDE.format('r')} "
    "WHERE r.key IN (SELECT value FROM json_each(?)) "
    "AND r.session IS NOT NULL AND r.position IS NOT NULL "
    # A caller who finds a record by a neighbor's text must be allowed to see that text.
    f"AND (n.scope <> '{SESSION_SCOPE}' OR r.scope = '{SESSION_SCOPE}') ORDER BY r.key, n.key"
)
_SELECT_NEIGHBORS = (
    "WITH place(kind, session, position) AS MATERIALIZED (SELECT value ->> 0, value ->> 1, "
    "value ->> 2 FROM json_each(?)) "
    "SELECT DISTINCT n.key FROM place "
    f"CROSS JOIN records n INDEXED BY records_session ON {_IS_BESIDE.format('place')}"
)


class SessionPlace(NamedTuple):
    """The position of a record in a session. Its neighbors are of the same kind."""

    kind: str
    session: str
    position: int


def find_place(kind: str, session: str | None, position: int | None) -> SessionPlace | None:
    return None if session is None or position is None else SessionPlace(kind, session, position)


def read_places(db: Connection, keys: Iterable[int]) -> set[SessionPlace]:
    rows = db.execute(
        "SELECT kind, session, position FROM records WHERE key IN (SELECT value FROM json_each(?)) "
        "AND session IS NOT NULL AND position IS NOT NULL",
        (encode_list(keys),),
    )
    return {SessionPlace(*row) for row in rows}


def find_neighbors(db: Connection, places: Collection[SessionPlace]) -> set[int]:
    """Return the keys of live records just before and after these places. Their context includes the texts there."""
    if not places:
        return set()
    return {row[0] for row in db.execute(_SELECT_NEIGHBORS, (encode_list(places),))}


def find_children(db: Connection, keys: Collection[int]) -> set[int]:
    """Return the keys of live children of these records. Their context includes the parent's name."""
    if not keys:
        return set()
    rows = db.execute(
        "SELECT key FROM records WHERE parent IN (SELECT value FROM json_each(?)) AND deleted_at IS NULL",
        (encode_list(keys),),
    )
    return {row[0] for row in rows}


def index_records(db: Connection, keys: Collection[int]) -> None:
    """Write the current index entries of these records. Delete the entries of deleted records."""
    rows = _read_parts(db, keys)
    db.executemany("DELETE FROM words WHERE rowid = ?", [(key,) for key in sorted({*keys} - rows.keys())])
    # A text is also in the context of its neighbors, but is prepared once.
    texts = {text for columns in rows.values() for column in columns for text in column}
    ready = {text: prepare_text(text) for text in texts}
    db.executemany(
        "INSERT OR REPLACE INTO words(rowid, name, text, context) VALUES (?,?,?,?)",
        [
            (key, *(join_index_texts([ready[text] for text in column]) for column in columns))
            for key, columns in rows.items()
        ],
    )


def _read_parts(db: Connection, keys: Collection[int]) -> dict[int, list[list[str]]]:
    """Return the texts per column of each live record: name, type and text, parent's name and neighbors' texts."""
    around: dict[int, list[str]] = {}
    for key, text, is_before in db.execute(_SELECT_AROUND, (encode_list(keys),)):
        around.setdefault(key, []).append(clip_context(text, before=is_before))
    rows = db.execute(
        "SELECT r.key, r.name, r.type, r.text, p.name FROM records r "
        "LEFT JOIN records p ON p.key = r.parent "
        "WHERE r.key IN (SELECT value FROM json_each(?)) AND r.deleted_at IS NULL ORDER BY r.key",
        (encode_list(keys),),
    )
    return {
        key: [[name or ""], [part for part in (kind, text) if part], [parent or "", *around.get(key, ())]]
        for key, name, kind, text, parent in rows
    }


def count_indexed_rows(db: Connection) -> int:
    """Return the number of indexed records, which is the first number of the index totals."""
    return read_totals(db)[0]


def read_totals(db: Connection) -> list[int]:
    """Return the number of rows in the index, and the number of words in each column."""
    return decode_varints(db.execute("SELECT block FROM words_data WHERE id = 1").get or b"\0")


def decode_varints(blob: bytes) -> list[int]:
    """Decode SQLite's varints: seven bits per byte, highest bits first."""
    numbers: list[int] = []
    number = 0
    for byte in blob:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    return numbers


def measure_words(db: Connection, words: Sequence[str]) -> dict[str, float]:
    rows = max(count_indexed_rows(db), 1)
    return {
        word: (db.execute("SELECT doc FROM word_counts WHERE term = ?", (stem(word),)).get or 0) / rows
        for word in dict.fromkeys(words)
    }
