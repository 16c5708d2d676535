"""The index of vectors, where there are too many to read them all."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from everkept.core.ports import RecordVector
from everkept.core.records import Delete, RecordFilter, Update
from everkept.engines.surreal import vectors
from everkept.engines.surreal.store import SurrealStore
from records import batch, memory
from surreal_libraries import Shelf
from surreal_stores import DATABASE, WatchedConnection, store_over

MANY, DIMENSIONS = 60, 16


def vectors_of(seed: int) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=(MANY, DIMENSIONS)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


@pytest.fixture
async def store(namespace: Shelf, monkeypatch: pytest.MonkeyPatch) -> SurrealStore:
    """One that reads no vector but those that the index names."""
    monkeypatch.setattr(vectors, "MAX_EXACT_VECTORS", 0)
    store = store_over(namespace.connection())
    await store.commit(batch(*(memory(f"m{n}", session=str(n % 10), importance=n / MANY) for n in range(MANY))))
    items = [RecordVector(f"m{n}", 1, vector) for n, vector in enumerate(vectors_of(1))]
    assert await store.put_vectors("model", items) == MANY
    return store


def nearest(question: Any, among: range) -> list[str]:
    cosines = vectors_of(1) @ question
    return [f"m{n}" for n in sorted(among, key=lambda n: -cosines[n])]


async def test_the_index_names_the_nearest(store: SurrealStore) -> None:
    question = vectors_of(2)[0]
    found = await store.find_near("model", question, RecordFilter(), 5)
    assert [match.id for match in found] == nearest(question, range(MANY))[:5]
    exact = sorted(vectors_of(1) @ question, reverse=True)[:5]
    assert [match.score for match in found] == pytest.approx(exact, abs=1e-5)


async def test_who_wants_few_of_many_gets_them_all(store: SurrealStore) -> None:
    question = vectors_of(2)[1]
    found = await store.find_near("model", question, RecordFilter(sessions=("3",)), 5)
    assert [match.id for match in found] == nearest(question, range(3, MANY, 10))[:5]
    found = await store.find_near("model", question, RecordFilter(sessions=("3",)), 50)
    assert [match.id for match in found] == nearest(question, range(3, MANY, 10))


async def test_the_index_follows_what_comes_and_goes(store: SurrealStore) -> None:
    question = vectors_of(2)[2]
    first, second, third = nearest(question, range(MANY))[:3]
    await store.commit(batch(Update(first, {"text": "new"}, 1), Delete(memory(second).ref)))
    assert (await store.find_near("model", question, RecordFilter(), 1))[0].id == third
    await store.put_vectors("model", [RecordVector(first, 2, question)])
    assert (await store.find_near("model", question, RecordFilter(), 1))[0].score == pytest.approx(1.0)


async def test_an_index_that_gives_too_few_is_not_believed(store: SurrealStore, namespace: Shelf) -> None:
    table = vectors.build_table_name("model", DIMENSIONS)
    await namespace.connection().run(DATABASE, f"REMOVE INDEX {table}_embedding ON {table}")
    question = vectors_of(2)[3]
    found = await store.find_near("model", question, RecordFilter(), 5)
    assert [match.id for match in found] == nearest(question, range(MANY))[:5]


async def test_a_model_may_have_vectors_of_two_lengths(store: SurrealStore) -> None:
    short = np.eye(4, dtype=np.float32)
    assert await store.put_vectors("model", [RecordVector("m0", 1, short[0])]) == 1
    assert [m.id for m in await store.find_near("model", short[0], RecordFilter(), 5)] == ["m0"]
    question = vectors_of(1)[0]
    assert "m0" not in [m.id for m in await store.find_near("model", question, RecordFilter(), MANY)]
    kept = await store.get_vectors("model", ["m0", "m1"])
    assert [len(kept[i]) for i in ("m0", "m1")] == [4, DIMENSIONS]
    assert await store.find_faults() == []


async def test_a_vector_of_what_changed_meanwhile_is_left_out(namespace: Shelf) -> None:
    other, watched = store_over(namespace.connection()), WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(memory("a"), memory("b")))
    items = [RecordVector(record_id, 1, vectors_of(1)[0]) for record_id in "ab"]
    watched.disturb = lambda: other.commit(batch(Update("a", {"text": "new"}, 1)))
    assert await store.put_vectors("model", items) == 1
    assert set(await store.get_vectors("model", ["a", "b"])) == {"b"}
    assert await store.find_faults() == []


async def test_a_record_has_a_vector_of_one_model_whoever_brings_it(namespace: Shelf) -> None:
    other, watched = store_over(namespace.connection()), WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(memory("a")))
    vector = vectors_of(1)[0]
    watched.disturb = lambda: other.put_vectors("theirs", [RecordVector("a", 1, vector)])
    assert await store.put_vectors("ours", [RecordVector("a", 1, vector)]) == 1
    assert [m.id for m in await store.find_near("ours", vector, RecordFilter(), 5)] == ["a"]
    assert await store.find_near("theirs", vector, RecordFilter(), 5) == []
    assert await store.find_faults() == []
