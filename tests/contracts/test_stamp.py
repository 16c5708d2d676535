"""The stamp of a store: it is another one whenever an answer may be another."""

from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from everkept.core.ports import RecordStore, RecordVector
from everkept.core.records import Delete, RecordFilter, Ref, Restore, Update, Weights
from everkept.errors import Conflict
from everkept.language.words import parse_query
from records import DAY_ONE, batch, entity, link, link_ref, note, record_ref

MODEL = "model"
NORTH = np.array([1.0, 0.0], np.float32)


def embedded(record_id: str, version: int = 1) -> RecordVector:
    return RecordVector(record_id, version, NORTH)


@pytest.fixture
async def filled(store: RecordStore) -> RecordStore:
    await store.commit(batch(entity("Ada", text="wrote"), entity("Bob"), note("Ada", "born in London")))
    await store.commit(batch(link("Ada", "knows", "Bob")))
    await store.put_vectors(MODEL, [embedded("Ada")])
    return store


def _cleaned(ref: Ref, values: Any) -> dict[str, Any]:
    return {**values, "text": "clean"} if "text" in values else dict(values)


CHANGES: dict[str, Callable[[RecordStore], Awaitable[Any]]] = {
    "insert": lambda store: store.commit(batch(entity("Eve"))),
    "update": lambda store: store.commit(batch(Update("Bob", {"text": "new"}, 1))),
    "update of what is found by no word": lambda store: store.commit(
        batch(Update("Bob", {"facets": {"pinned": True}}, 1), derived=True)
    ),
    "delete": lambda store: store.commit(batch(Delete(record_ref("Bob")))),
    "delete of a link": lambda store: store.commit(batch(Delete(link_ref("Ada knows Bob")))),
    "derived": lambda store: store.commit(batch(note("Bob", "read"), derived=True)),
    "redact": lambda store: store.redact([record_ref("born in London")], _cleaned),
    "purge": lambda store: store.purge([record_ref("born in London")]),
    "purge of a link": lambda store: store.purge([link_ref("Ada knows Bob")]),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_every_change_makes_the_first_number_grow(filled: RecordStore, change: str) -> None:
    before = await filled.get_stamp()
    await CHANGES[change](filled)
    after = await filled.get_stamp()
    assert after[0] > before[0]
    assert after[1] >= before[1]


@pytest.mark.smoke
async def test_a_restored_record_makes_it_grow_again(filled: RecordStore) -> None:
    await filled.commit(batch(Delete(record_ref("Bob"))))
    before = await filled.get_stamp()
    await filled.commit(batch(Restore(record_ref("Bob"))))
    assert (await filled.get_stamp())[0] > before[0]


async def test_every_vector_that_comes_makes_the_second_number_grow(filled: RecordStore) -> None:
    changes, vectors = await filled.get_stamp()
    await filled.put_vectors(MODEL, [embedded("Bob")])
    one_more = await filled.get_stamp()
    await filled.put_vectors("another model", [embedded("Bob"), embedded("Ada")])
    three_more = await filled.get_stamp()
    assert one_more[0] == three_more[0] == changes
    assert vectors < one_more[1] < three_more[1]


@pytest.mark.parametrize("change", ["update", "purge", "redact", "derived delete"])
async def test_every_vector_that_goes_makes_the_second_number_grow(filled: RecordStore, change: str) -> None:
    _, vectors = await filled.get_stamp()
    if change == "update":
        await filled.commit(batch(Update("Ada", {"text": "another"}, 1)))
    elif change == "purge":
        await filled.purge([record_ref("Ada")])
    elif change == "redact":
        await filled.redact([record_ref("Ada")], _cleaned)
    else:
        await filled.commit(batch(Delete(record_ref("Ada")), derived=True))
    assert (await filled.get_stamp())[1] > vectors


async def test_a_vector_that_fits_nothing_is_no_news(filled: RecordStore) -> None:
    before = await filled.get_stamp()
    assert await filled.put_vectors(MODEL, [embedded("nobody"), embedded("Ada", 7)]) == 0
    assert await filled.get_stamp() == before


async def test_whoever_reads_leaves_it_as_it_is(filled: RecordStore) -> None:
    before = await filled.get_stamp()
    words = parse_query("Ada born").build_any_query()
    assert words is not None
    await filled.match(words, RecordFilter(), Weights(), 10)
    await filled.find_near(MODEL, NORTH, RecordFilter(), 10)
    await filled.match_text("ada", RecordFilter(), 10)
    await filled.measure_words(["ada"])
    await filled.list_authors()
    await filled.find_faults()
    assert await filled.get_stamp() == before


async def test_what_is_refused_or_changes_nothing_leaves_it_as_it_is(filled: RecordStore) -> None:
    before = await filled.get_stamp()
    with pytest.raises(Conflict):
        await filled.commit(batch(entity("Eve"), Update("Bob", {"text": "new"}, 9)))
    await filled.commit(batch(Update("Bob", {"text": ""}, 1)))
    await filled.purge([record_ref("nobody")])
    await filled.note_accesses({"Ada": 1}, DAY_ONE)
    assert await filled.get_stamp() == before
