"""Vectors of records and the search for the nearest. Vectors are not part of a change or an undo."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everkept.core import store as questions
from everkept.core.ports import RecordVector
from everkept.core.records import Match, Record, RecordFilter
from everkept.core.text import compute_digest
from everkept.engines.surreal.connection import AnswerTooLarge
from everkept.engines.surreal.queries import build_filter, get_parent_id
from everkept.engines.surreal.rows import Row, decode_id, decode_record, encode_id, encode_ids, escape_text
from everkept.engines.surreal.schema import (
    StoreState,
    StoreTables,
    TransactionBuilder,
    VectorModel,
    build_vector_definitions,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_EXACT_VECTORS = 600  # up to here, all vectors are read and the result is exact
MAX_INDEX_RESULTS = 1_000  # of the index; a larger request reads all matching vectors

PAGE_VECTORS = 1_000  # per page, if all are read

_ROW_FIELDS = "id, of, parent, age, exact"


def get_pending_mark(text: str) -> str | None:
    """Return the value of `embedded` for a record with a new text."""
    return "" if text else None


def forget_vectors(writing: TransactionBuilder, state: StoreState, ids: Iterable[str]) -> None:
    """Delete the vectors of these records for every model."""
    gone = list(dict.fromkeys(ids))
    if gone and state.models:
        for model in state.models:
            writing.delete(encode_ids(model.table, gone))
        writing.moves += len(gone)


async def find_unembedded(tables: StoreTables, question: questions.FindUnembedded) -> list[Record]:
    if question.limit <= 0 or not question.kinds:
        return []
    state = await tables.read_state()
    # Pending records: those without a vector, and those with a vector of another model.
    waits = {"", *(escape_text(m.name) for m in state.models)} - {escape_text(question.model)}
    rows = await tables.ask(
        "SELECT * FROM record WITH INDEX record_embedded WHERE embedded IN $waits "
        f"AND kind IN $kinds AND deleted_at IS NONE ORDER BY age DESC LIMIT {question.limit}",
        waits=sorted(waits),
        kinds=[escape_text(kind) for kind in dict.fromkeys(question.kinds)],
    )
    return [decode_record(row) for row in rows]


async def count_vectors(tables: StoreTables, question: questions.CountVectors) -> tuple[int, int]:
    rows = await tables.ask(
        "SELECT embedded = $model AS has, count() AS count FROM record WITH INDEX record_kind "
        "WHERE kind IN $kinds AND embedded IS NOT NONE AND deleted_at IS NONE GROUP BY has",
        kinds=[escape_text(kind) for kind in dict.fromkeys(question.kinds)],
        model=escape_text(question.model),
    )
    counts = {row["has"]: row["count"] for row in rows}
    return counts.get(True, 0), counts.get(False, 0)


async def put_vectors(tables: StoreTables, upkeep: questions.PutVectors) -> int:
    """Store the vectors of records that still have these versions. Return how many were stored.

    Raise WriteContention if another write came in between.
    """
    state, found = await tables.read(
        records=("SELECT * FROM $", encode_ids("record", (item.id for item in upkeep.items)))
    )
    tables.check_open(state)
    rows = {decode_id(row["id"]): row for row in found["records"]}
    fitting = {
        item.id: item
        for item in upkeep.items
        if (row := rows.get(item.id)) and row.get("deleted_at") is None and row["version"] == item.version
    }
    if not fitting:
        return 0
    writing = TransactionBuilder()
    models = {m.table: m for m in state.models}
    await add_vectors(tables, models, writing, upkeep.model, list(fitting.values()), rows)
    after = {"models": [m.to_row() for m in models.values()]}
    await tables.write(state, writing, after, vectors=True)
    return len(fitting)


async def add_vectors(
    tables: StoreTables,
    known: dict[str, VectorModel],
    writing: TransactionBuilder,
    model: str,
    items: Sequence[RecordVector],
    rows: Mapping[str, Row],
) -> None:
    """Give these records the vectors of this model and delete those of other models.

    `known` maps tables to models and gets this one. `rows` has the rows of the records.
    """
    by_length: dict[int, list[RecordVector]] = {}
    for item in items:
        by_length.setdefault(len(item.vector), []).append(item)
    for dimensions, embedded in by_length.items():
        made = VectorModel(model, dimensions, build_table_name(model, dimensions))
        if made.table not in known:
            await tables.define(build_vector_definitions(made.table, dimensions))
            known[made.table] = made
        for other in known.values():
            if other.table != made.table:
                writing.delete(encode_ids(other.table, (item.id for item in embedded)))
        writing.put([_encode_vector(made, item, rows[item.id]) for item in embedded])
    writing.merge([(rows[item.id]["id"], {"embedded": escape_text(model)}) for item in items])
    writing.moves += len(items)


def build_table_name(model: str, dimensions: int) -> str:
    return f"vector_{compute_digest(f'{dimensions} {model}')[:16]}"


async def get_vectors(tables: StoreTables, question: questions.GetVectors) -> "dict[str, NDArray[np.float32]]":
    state = await tables.read_state()
    wanted = [m for m in state.models if m.name == question.model]
    if not wanted or not question.ids:
        return {}
    import numpy as np

    every = [encode_id(m.table, record_id) for m in wanted for record_id in dict.fromkeys(question.ids)]
    rows = await tables.ask("SELECT of, exact FROM $ids", ids=every)
    return {decode_id(row["of"]): np.frombuffer(row["exact"], "<f4").copy() for row in rows}


async def find_nearest(tables: StoreTables, question: questions.FindNear) -> list[Match]:
    table = build_table_name(question.model, len(question.vector))
    state = await tables.read_state()
    if table not in {m.table for m in state.models}:
        return []
    found: list[tuple[float, Row]] = []
    if question.limit > 0:
        async for rows in _read_nearest(tables, table, question.vector, question.where, question.limit):
            found += await asyncio.to_thread(_score_rows, rows, question.vector)
            found = sorted(found, key=_build_sort_key)[: question.limit]
    if question.also:
        asked = await tables.ask(f"SELECT {_ROW_FIELDS} FROM $ids", ids=encode_ids(table, question.also))
        found += _score_rows(asked, question.vector)
    by_id = {decode_id(row["of"]): (score, row) for score, row in found}
    ordered = sorted(by_id.items(), key=lambda item: _build_sort_key(item[1]))
    return [Match(record_id, get_parent_id(row), score) for record_id, (score, row) in ordered]


async def _read_nearest(
    tables: StoreTables, table: str, vector: "NDArray[np.float32]", where: RecordFilter, limit: int
) -> AsyncGenerator[list[Row], None]:
    """Yield matching rows, including the nearest."""
    wanted = build_filter(where, beside=True)
    counted = await tables.ask(f"SELECT count() AS count FROM {table} GROUP ALL")
    if counted and counted[0]["count"] > MAX_EXACT_VECTORS and limit * 2 <= MAX_INDEX_RESULTS and where.ids is None:
        # The numbers of a vector search are part of the statement: no version accepts them as values.
        many = min(max(4 * limit, 100), MAX_INDEX_RESULTS)
        rows = await tables.ask(
            f"SELECT * FROM (SELECT {_ROW_FIELDS}, kind, vector::distance::knn() AS distance "
            f"FROM {table} "
            f"WHERE embedding <|{many},{2 * many}|> $vector) WHERE {wanted.text}",
            vector=vector.tolist(),
            **wanted.values,
        )
        # A faulty index returns rows without a distance, or too few rows.
        if len(rows) >= limit and all(row["distance"] is not None for row in rows):
            yield rows
            return
    # Filtering records is faster than filtering vectors, which would have to be read.
    own = build_filter(where)
    source = "$ids" if where.ids is not None else "record"
    fitting = await tables.ask(f"SELECT VALUE id FROM {source} WHERE {own.text}", **own.values)
    ids = [decode_id(each) for each in fitting]
    size = PAGE_VECTORS
    while ids:
        try:
            yield await tables.ask(f"SELECT {_ROW_FIELDS} FROM $rows", rows=encode_ids(table, ids[:size]))
        except AnswerTooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        ids = ids[size:]


def _score_rows(rows: Sequence[Row], vector: "NDArray[np.float32]") -> list[tuple[float, Row]]:
    """Return the rows with their cosines."""
    if not rows:
        return []
    import numpy as np

    exact = np.frombuffer(b"".join(row["exact"] for row in rows), "<f4")
    scores = np.vecdot(exact.reshape(len(rows), -1), vector).tolist()
    return list(zip(scores, rows, strict=True))


def _build_sort_key(scored: tuple[float, Row]) -> tuple[float, int]:
    """Return a key that sorts by score, then by age."""
    score, row = scored
    return -score, row["age"]


def _encode_vector(model: VectorModel, item: RecordVector, row: Row) -> dict[str, Any]:
    return {
        "id": encode_id(model.table, item.id),
        "of": row["id"],
        "age": row["age"],
        "kind": row["kind"],
        "parent": row.get("parent"),
        "embedding": item.vector.tolist(),
        "exact": item.vector.astype("<f4").tobytes(),
    }
