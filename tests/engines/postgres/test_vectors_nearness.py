from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from everkept.core.ports import RecordVector
from everkept.core.records import Match, RecordFilter
from everkept.core.store import FindNear
from everkept.engines.postgres import vectors as stored
from everkept.engines.postgres.indexes import IndexedVectors, ask_usable, build_vector_index
from everkept.engines.postgres.statements import open_cursor
from everkept.engines.postgres.vectors import find_nearest, put_vectors
from postgres_server import fresh_schema
from postgres_tables import MODEL, Tables, said

SIZE, DIMENSIONS = 3_000, 48
RECALL = 0.98


def clustered(size: int, seed: int) -> NDArray[np.float32]:
    """Around a hundred centres, as texts gather around their subjects."""
    centres = np.random.default_rng(1).normal(size=(100, DIMENSIONS))
    chance = np.random.default_rng(seed)
    found = centres[chance.integers(100, size=size)] + chance.normal(0, 0.6, (size, DIMENSIONS))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    return clustered(SIZE, 2)


@pytest.fixture(scope="module")
def indexed(vectors: NDArray[np.float32]) -> Iterator[Tables]:
    """Many vectors, with their index."""
    made = Tables(fresh_schema())
    made.embed(vectors)
    made.connection.execute("ANALYZE")
    build_vector_index(made.connection, of(made))
    yield made
    made.connection.execute(f"DROP SCHEMA {made.schema} CASCADE".encode())
    made.connection.close()


def of(tables: Tables) -> IndexedVectors:
    return IndexedVectors(tables.store, MODEL, DIMENSIONS)


def asked(tables: Tables, vector: NDArray[np.float32], where: RecordFilter, limit: int, *also: str) -> list[Match]:
    with tables.connection.transaction():
        return find_nearest(tables.cursor, tables.store, FindNear(MODEL, vector, where, limit, also))


def nearest(vectors: NDArray[np.float32], vector: NDArray[np.float32], share: float, limit: int) -> set[str]:
    """Of the most important ones, by comparing all."""
    first = round(len(vectors) * (1 - share))
    best = np.argsort(-(vectors[first:] @ vector), stable=True)[:limit]
    return {str(first + int(n)) for n in best}


@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 1.0])
def test_the_index_misses_at_most_one_of_fifty(
    indexed: Tables, vectors: NDArray[np.float32], share: float, limit: int
) -> None:
    assert ask_usable(indexed.cursor, of(indexed)).rowcount
    where = RecordFilter(min_importance=1 - share - 1e-9) if share < 1 else RecordFilter()
    hits = wanted = 0
    for vector in clustered(30, 3):
        expected = nearest(vectors, vector, share, limit)
        found = asked(indexed, vector, where, limit)
        assert [m.score for m in found] == sorted((m.score for m in found), reverse=True)
        hits += len(expected & {match.id for match in found})
        wanted += len(expected)
    assert hits >= RECALL * wanted


def test_where_too_little_of_what_the_index_gives_fits_all_that_fit_are_compared(
    indexed: Tables, vectors: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "INDEX_CANDIDATES", 40)
    for vector in clustered(5, 7):
        found = asked(indexed, vector, RecordFilter(min_importance=0.99 - 1e-9), 10)
        assert {match.id for match in found} == nearest(vectors, vector, 0.01, 10)


def test_what_the_index_gives_is_enough_where_as_many_fit_as_are_wanted(
    indexed: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "INDEX_CANDIDATES", 100)
    scans = (
        "SELECT sum(pg_stat_get_xact_numscans(to_regclass(n))) FROM unnest(ARRAY['vectors_pkey', 'vectors_record']) n"
    )
    compared = 0
    for vector in clustered(10, 8):
        with indexed.connection.transaction():
            before = indexed.value(scans)
            # Some fifteen of those two hundred that it gives.
            where = RecordFilter(min_importance=0.925)
            assert len(find_nearest(indexed.cursor, indexed.store, FindNear(MODEL, vector, where, 10))) == 10
            compared += indexed.value(scans) > before
    assert compared <= 3


def test_the_index_is_what_leads(indexed: Tables) -> None:
    scans = "SELECT pg_stat_get_xact_numscans(to_regclass(%s))"
    with indexed.connection.transaction():
        before = indexed.value(scans, of(indexed).name)
        find_nearest(indexed.cursor, indexed.store, FindNear(MODEL, clustered(1, 4)[0], RecordFilter(), 10))
        assert indexed.value(scans, of(indexed).name) == before + 1
        assert indexed.value("SHOW enable_sort") == "on"


def test_what_is_stored_is_found_at_once_with_an_index_too(indexed: Tables) -> None:
    vector = clustered(1, 5)[0]
    other = indexed.connected()
    indexed.add(said("new", id="new"))
    put_vectors(indexed.cursor, indexed.store, MODEL, [RecordVector("new", 1, vector)])
    with other:
        cursor = open_cursor(other)
        found = find_nearest(cursor, indexed.store, FindNear(MODEL, vector, RecordFilter(), 1))
        assert [(m.id, m.score) for m in found] == [("new", pytest.approx(1.0, abs=1e-3))]
        indexed.connection.execute("DELETE FROM vectors WHERE record = 'new'")
        assert [m.id for m in find_nearest(cursor, indexed.store, FindNear(MODEL, vector, RecordFilter(), 1))] != [
            "new"
        ]


def test_others_are_scored_however_far_they_are(indexed: Tables, vectors: NDArray[np.float32]) -> None:
    vector = -vectors[7]
    found = asked(indexed, vector, RecordFilter(), 5, "7", "8", "nobody")
    assert len(found) == 7
    assert (found[-1].id, found[-1].score) == ("7", pytest.approx(-1.0, abs=1e-3))


def test_who_names_ids_gets_the_nearest_of_these(indexed: Tables, vectors: NDArray[np.float32]) -> None:
    some = tuple(str(n) for n in range(0, SIZE, 7))
    found = asked(indexed, vectors[70], RecordFilter(ids=some), 3)
    exact = sorted(some, key=lambda n: -float(vectors[int(n)] @ vectors[70]))[:3]
    assert [match.id for match in found] == exact


@pytest.mark.parametrize("state", ["missing", "invalid"])
def test_without_a_usable_index_the_answer_is_exact(tables: Tables, vectors: NDArray[np.float32], state: str) -> None:
    tables.embed(vectors[:800])
    if state == "invalid":
        build_vector_index(tables.connection, of(tables))
        tables.connection.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = to_regclass(%s)", (of(tables).name,)
        )
    assert not ask_usable(tables.cursor, of(tables)).rowcount
    for vector in clustered(5, 6):
        for share in (0.02, 0.5, 1.0):
            where = RecordFilter(min_importance=1 - share - 1e-9) if share < 1 else RecordFilter()
            found = asked(tables, vector, where, 10)
            assert {match.id for match in found} == nearest(vectors[:800], vector, share, 10)


def test_vectors_of_another_length_are_no_neighbours(tables: Tables) -> None:
    tables.add(said("a"), said("b"))
    for name, size in (("a", DIMENSIONS), ("b", 8)):
        vector = np.full(size, size**-0.5, np.float32)
        put_vectors(tables.cursor, tables.store, MODEL, [RecordVector(name, 1, vector)])
        found = asked(tables, vector, RecordFilter(), 5, "a", "b")
        assert [match.id for match in found] == [name]
    build_vector_index(tables.connection, of(tables))
    assert put_vectors(tables.cursor, tables.store, MODEL, [RecordVector("a", 1, np.ones(3, np.float32))])
