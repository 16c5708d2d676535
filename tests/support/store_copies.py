"""Copies of whole stores, page by page, and all that a store can be asked."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from everkept.core.answers import StorePage
from everkept.core.ports import RecordStore, RecordVector
from everkept.core.records import Record, RecordFilter, Ref, Weights
from everkept.language.words import parse_query

T = TypeVar("T")

MODELS = ("one", "two")
KINDS = ("entity", "observation", "memory")
QUERIES = ("red", "blue parser", "parse OR blue", "red NOT blue", '"red blue"', "par*", "größe")
ALL = 10_000


def axis(number: int) -> NDArray[np.float32]:
    """Unit vectors that every precision keeps as they are."""
    vector = np.zeros(8, np.float32)
    vector[number % 8] = 1.0
    return vector


def pages(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


async def copy_all(source: RecordStore, target: RecordStore, page: int = ALL) -> None:
    """Parents come before their children, records before what is said of them."""
    records = await source.scan(RecordFilter(deleted=None))
    for some in pages(records, page):
        await target.replicate(StorePage(records=some))
    for links in pages(await source.scan_links(deleted=None), page):
        await target.replicate(StorePage(links=links))
    for changes in pages(await source.read_changes(limit=ALL), page):
        await target.replicate(StorePage(changes=changes))
    for some in pages(records, page):
        accesses = await source.get_accesses([record.id for record in some])
        await target.replicate(StorePage(accesses=accesses, vectors=await vectors_of(source, some)))


async def vectors_of(source: RecordStore, records: Sequence[Record]) -> dict[str, list[RecordVector]]:
    versions = {record.id: record.version for record in records}
    return {
        model: [RecordVector(i, versions[i], vector) for i, vector in found.items()]
        for model in MODELS
        if (found := await source.get_vectors(model, list(versions)))
    }


async def everything(store: RecordStore) -> dict[str, Any]:
    """By what it is about, so that a difference says where it is."""
    records = await store.scan(RecordFilter(deleted=None))
    links = await store.scan_links(deleted=None)
    ids = [record.id for record in records]
    refs = [Ref("record", i) for i in ids] + [Ref("link", x.id) for x in links]
    answers: dict[str, Any] = {
        "records": records,
        "live": await store.scan(RecordFilter()),
        "newest": await store.scan(RecordFilter(deleted=None), order="newest"),
        "names": await store.scan(RecordFilter(), order="name"),
        "children": [await store.scan(RecordFilter(parents=(i,), deleted=None)) for i in ids],
        "tagged": await store.scan(RecordFilter(tags=("x",), deleted=None)),
        "pinned": await store.scan(RecordFilter(pinned=True)),
        "links": links,
        "out": await store.find_links(ids, direction="out"),
        "in": await store.find_links(ids, direction="in"),
        "count": await store.count_live(),
        "tally": set(await store.tally(KINDS)),
        "scopes": [await store.list_scopes(kind) for kind in KINDS],
        "authors": await store.list_authors(),
        "changes": await store.read_changes(limit=ALL),
        "history": await store.read_history(refs),
        "revision": await store.get_revision(),
        "accesses": await store.get_accesses(ids),
        "most accessed": list((await store.list_most_accessed(ALL)).items()),
        "frequencies": await store.measure_words(["red", "parser", "größe", "nothing"]),
        "found": [await found(store, query) for query in QUERIES],
        "containing": {m.id for m in await store.match_text("re", RecordFilter(), ALL)},
        "wrong": await store.find_faults(),
    }
    for model in MODELS:
        answers[f"meaning of {model}"] = [
            await store.find_unembedded(model, KINDS, ALL),
            await store.count_vectors(model, KINDS),
            {i: list(vector) for i, vector in (await store.get_vectors(model, ids)).items()},
            await nearby(store, model),
        ]
    return answers


async def found(store: RecordStore, query: str) -> set[tuple[str, str | None]]:
    parsed = parse_query(query)
    words = parsed.expression or parsed.build_all_query()
    assert words is not None
    return {(m.id, m.parent) for m in await store.match(words, RecordFilter(), Weights(), ALL)}


async def nearby(store: RecordStore, model: str) -> dict[str, float]:
    vector = np.full(8, np.sqrt(1 / 8), np.float32)
    matches = await store.find_near(model, vector, RecordFilter(deleted=None), ALL)
    return {match.id: round(match.score, 3) for match in matches}
