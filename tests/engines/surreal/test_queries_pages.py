"""Questions whose answers are too many rows, or too large, for one go."""

import numpy as np
import pytest

from everkept.core.ports import Order, RecordVector
from everkept.core.records import RecordFilter
from everkept.engines.surreal import queries, vectors
from everkept.engines.surreal.connection import AnswerTooLarge
from everkept.engines.surreal.store import SurrealStore
from records import batch, entity, link, memory
from surreal_libraries import Shelf
from surreal_stores import NarrowConnection, store_over

MANY = 10
NAMES = [f"e{number}" for number in (3, 7, 0, 9, 1, 8, 2, 6, 5, 4)]


@pytest.fixture
def narrow(namespace: Shelf, monkeypatch: pytest.MonkeyPatch) -> NarrowConnection:
    """A way that can be made to let nothing through but pages."""
    monkeypatch.setattr(queries, "PAGE_ROWS", 3)
    monkeypatch.setattr(vectors, "PAGE_VECTORS", 3)
    return NarrowConnection(namespace.connection())


async def filled(connection: NarrowConnection) -> SurrealStore:
    store = store_over(connection)
    await store.commit(batch(*map(entity, NAMES)))
    return store


@pytest.mark.parametrize(("order", "wanted"), [("age", NAMES), ("newest", NAMES[::-1]), ("name", sorted(NAMES))])
@pytest.mark.parametrize("widest", [3, 2, 1])
async def test_pages_have_all_in_their_order(
    narrow: NarrowConnection, order: Order, wanted: list[str], widest: int
) -> None:
    store = await filled(narrow)
    narrow.widest = widest
    for limit in (None, 0, 1, 3, 4, 6, 10, 11):
        found = await store.scan(RecordFilter(), order=order, limit=limit)
        assert [record.id for record in found] == wanted[:limit]
    after = await store.scan(RecordFilter(), order="age", after=NAMES[3])
    assert [record.id for record in after] == NAMES[4:]
    some = await store.scan(RecordFilter(ids=tuple(sorted(NAMES[:5]))), order="age")
    assert [record.id for record in some] == NAMES[:5]


async def test_links_come_in_pages(narrow: NarrowConnection) -> None:
    store = await filled(narrow)
    await store.commit(batch(*(link("e0", f"verb {name}", name) for name in NAMES)))
    narrow.widest = 3
    found = await store.scan_links(deleted=None)
    assert [each.target for each in found] == NAMES


async def test_vectors_come_in_pages(narrow: NarrowConnection) -> None:
    store = store_over(narrow)
    await store.commit(batch(*map(memory, NAMES)))
    drawn = np.random.default_rng(1).normal(size=(MANY, 4)).astype(np.float32)
    vectors = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    items = [RecordVector(name, 1, vector) for name, vector in zip(NAMES, vectors, strict=True)]
    await store.put_vectors("model", items)
    narrow.widest = 3
    cosines = dict(zip(NAMES, vectors @ vectors[0], strict=True))
    nearest = sorted(NAMES, key=lambda name: -cosines[name])
    for limit in (1, 4, 20):
        found = await store.find_near("model", vectors[0], RecordFilter(), limit)
        assert [match.id for match in found] == nearest[:limit]
    some = tuple(sorted(NAMES[:5]))
    found = await store.find_near("model", vectors[0], RecordFilter(ids=some), 20)
    assert [match.id for match in found] == [name for name in nearest if name in some]


async def test_one_row_that_is_too_large_is_told(narrow: NarrowConnection) -> None:
    store = await filled(narrow)
    narrow.widest = 0
    with pytest.raises(AnswerTooLarge):
        await store.scan(RecordFilter())


async def test_the_size_of_a_store_on_a_server_grows_with_its_texts_and_vectors(narrow: NarrowConnection) -> None:
    store = store_over(narrow)
    assert await store.measure_size() == 0
    await store.commit(batch(memory("x" * 10_000, id="a"), memory("y" * 10_000, id="b")))
    texts = await store.measure_size()
    assert 20_000 < texts < 100_000
    await store.put_vectors("m", [RecordVector(each, 1, np.ones(1_000, np.float32)) for each in ("a", "b")])
    assert await store.measure_size() > texts + 10_000
