"""Vectors beside the records: no change, and no part of an undo."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from everkept.core import store as questions
from everkept.core.ports import Embedded
from everkept.core.records import Match, Record, Where
from everkept.core.text import digest
from everkept.engines.surreal.connection import TooLarge
from everkept.engines.surreal.queries import conditions, parent_of
from everkept.engines.surreal.rows import Row, id_of, kept, record_from, thing, things
from everkept.engines.surreal.schema import Model, State, Tables, Writing, vector_definitions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXACT = 600  # vectors; up to here all are read, and the answer is exact
MOST_NEAR = 1_000  # of the index; who wants more reads all that fit

VECTORS = 1_000  # read at a time, where all are

_ROW = "id, of, parent, age, exact"


def waiting(text: str) -> str | None:
    """What `embedded` is of a record whose text is new."""
    return "" if text else None


def forget_vectors(writing: Writing, state: State, ids: Iterable[str]) -> None:
    """Takes the vectors of these away, of whatever model."""
    gone = list(dict.fromkeys(ids))
    if gone and state.models:
        for model in state.models:
            writing.delete(things(model.table, gone))
        writing.moves += len(gone)


async def unembedded(tables: Tables, question: questions.FindUnembedded) -> list[Record]:
    if question.limit <= 0 or not question.kinds:
        return []
    state = await tables.state()
    # All that waits: what has no vector, and what has another model's.
    waits = {"", *(kept(m.name) for m in state.models)} - {kept(question.model)}
    rows = await tables.ask(
        "SELECT * FROM record WITH INDEX record_embedded WHERE embedded IN $waits "
        f"AND kind IN $kinds AND deleted_at IS NONE ORDER BY age DESC LIMIT {question.limit}",
        waits=sorted(waits),
        kinds=[kept(kind) for kind in dict.fromkeys(question.kinds)],
    )
    return [record_from(row) for row in rows]


async def vector_counts(tables: Tables, question: questions.CountVectors) -> tuple[int, int]:
    rows = await tables.ask(
        "SELECT embedded = $model AS has, count() AS count FROM record WITH INDEX record_kind "
        "WHERE kind IN $kinds AND embedded IS NOT NONE AND deleted_at IS NONE GROUP BY has",
        kinds=[kept(kind) for kind in dict.fromkeys(question.kinds)],
        model=kept(question.model),
    )
    counts = {row["has"]: row["count"] for row in rows}
    return counts.get(True, 0), counts.get(False, 0)


async def put_vectors(tables: Tables, upkeep: questions.PutVectors) -> int:
    """Says how many were kept; raises Contended where another came in between."""
    state, found = await tables.read(
        records=("SELECT * FROM $", things("record", (item.id for item in upkeep.items)))
    )
    tables.check_open(state)
    rows = {id_of(row["id"]): row for row in found["records"]}
    fitting = {
        item.id: item
        for item in upkeep.items
        if (row := rows.get(item.id))
        and row.get("deleted_at") is None
        and row["version"] == item.version
    }
    if not fitting:
        return 0
    writing = Writing()
    models = {m.table: m for m in state.models}
    await add_vectors(tables, models, writing, upkeep.model, list(fitting.values()), rows)
    after = {"models": [m.row() for m in models.values()]}
    await tables.write(state, writing, after, vectors=True)
    return len(fitting)


async def add_vectors(
    tables: Tables,
    known: dict[str, Model],
    writing: Writing,
    model: str,
    items: Sequence[Embedded],
    rows: Mapping[str, Row],
) -> None:
    """Gives records the vectors of the model instead of any other.

    `known` are the models by their tables, and then with this one; `rows` those of the records.
    """
    by_length: dict[int, list[Embedded]] = {}
    for item in items:
        by_length.setdefault(len(item.vector), []).append(item)
    for dimensions, embedded in by_length.items():
        made = Model(model, dimensions, table_of(model, dimensions))
        if made.table not in known:
            await tables.define(vector_definitions(made.table, dimensions))
            known[made.table] = made
        for other in known.values():
            if other.table != made.table:
                writing.delete(things(other.table, (item.id for item in embedded)))
        writing.put([_row(made, item, rows[item.id]) for item in embedded])
    writing.merge([(rows[item.id]["id"], {"embedded": kept(model)}) for item in items])
    writing.moves += len(items)


def table_of(model: str, dimensions: int) -> str:
    return f"vector_{digest(f'{dimensions} {model}')[:16]}"


async def vectors(
    tables: Tables, question: questions.GetVectors
) -> "dict[str, NDArray[np.float32]]":
    state = await tables.state()
    wanted = [m for m in state.models if m.name == question.model]
    if not wanted or not question.ids:
        return {}
    import numpy as np

    every = [thing(m.table, record_id) for m in wanted for record_id in dict.fromkeys(question.ids)]
    rows = await tables.ask("SELECT of, exact FROM $ids", ids=every)
    return {id_of(row["of"]): np.frombuffer(row["exact"], "<f4").copy() for row in rows}


async def near(tables: Tables, question: questions.FindNear) -> list[Match]:
    table = table_of(question.model, len(question.vector))
    state = await tables.state()
    if table not in {m.table for m in state.models}:
        return []
    found: list[tuple[float, Row]] = []
    if question.limit > 0:
        async for rows in _nearest(tables, table, question.vector, question.where, question.limit):
            found += await asyncio.to_thread(_ranked, rows, question.vector)
            found = sorted(found, key=_rank)[: question.limit]
    if question.also:
        asked = await tables.ask(f"SELECT {_ROW} FROM $ids", ids=things(table, question.also))
        found += _ranked(asked, question.vector)
    by_id = {id_of(row["of"]): (score, row) for score, row in found}
    ordered = sorted(by_id.items(), key=lambda item: _rank(item[1]))
    return [Match(record_id, parent_of(row), score) for record_id, (score, row) in ordered]


async def _nearest(
    tables: Tables, table: str, vector: "NDArray[np.float32]", where: Where, limit: int
) -> AsyncGenerator[list[Row], None]:
    """Rows that fit, the nearest among them."""
    wanted = conditions(where, beside=True)
    counted = await tables.ask(f"SELECT count() AS count FROM {table} GROUP ALL")
    if counted and counted[0]["count"] > EXACT and limit * 2 <= MOST_NEAR and where.ids is None:
        # Numbers of the index are part of the text: no version takes them as values.
        many = min(max(4 * limit, 100), MOST_NEAR)
        rows = await tables.ask(
            f"SELECT * FROM (SELECT {_ROW}, kind, vector::distance::knn() AS distance FROM {table} "
            f"WHERE embedding <|{many},{2 * many}|> $vector) WHERE {wanted.text}",
            vector=vector.tolist(),
            **wanted.values,
        )
        # An index that lost its way gives rows without a distance, or too few of them.
        if len(rows) >= limit and all(row["distance"] is not None for row in rows):
            yield rows
            return
    # Which records fit is known sooner than which vectors do: those would be read for it.
    own = conditions(where)
    source = "$ids" if where.ids is not None else "record"
    fitting = await tables.ask(f"SELECT VALUE id FROM {source} WHERE {own.text}", **own.values)
    ids = [id_of(each) for each in fitting]
    size = VECTORS
    while ids:
        try:
            yield await tables.ask(f"SELECT {_ROW} FROM $rows", rows=things(table, ids[:size]))
        except TooLarge:
            if size == 1:
                raise
            size //= 2
            continue
        ids = ids[size:]


def _ranked(rows: Sequence[Row], vector: "NDArray[np.float32]") -> list[tuple[float, Row]]:
    """With their cosines."""
    if not rows:
        return []
    import numpy as np

    exact = np.frombuffer(b"".join(row["exact"] for row in rows), "<f4")
    scores = np.vecdot(exact.reshape(len(rows), -1), vector).tolist()
    return list(zip(scores, rows, strict=True))


def _rank(scored: tuple[float, Row]) -> tuple[float, int]:
    """Best first; of equal ones the older record."""
    score, row = scored
    return -score, row["age"]


def _row(model: Model, item: Embedded, row: Row) -> dict[str, Any]:
    return {
        "id": thing(model.table, item.id),
        "of": row["id"],
        "age": row["age"],
        "kind": row["kind"],
        "parent": row.get("parent"),
        "embedding": item.vector.tolist(),
        "exact": item.vector.astype("<f4").tobytes(),
    }
