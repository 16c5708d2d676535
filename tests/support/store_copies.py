"""Copies of whole stores, page by page, and all that a store can be asked."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from everkept.core.answers import Stock
from everkept.core.ports import Embedded, RecordStore
from everkept.core.records import Record, Ref, Weights, Where
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
    records = await source.scan(Where(deleted=None))
    for some in pages(records, page):
        await target.restock(Stock(records=some))
    for links in pages(await source.scan_links(deleted=None), page):
        await target.restock(Stock(links=links))
    for changes in pages(await source.changes(limit=ALL), page):
        await target.restock(Stock(changes=changes))
    for some in pages(records, page):
        accesses = await source.accesses([record.id for record in some])
        await target.restock(Stock(accesses=accesses, vectors=await vectors_of(source, some)))


async def vectors_of(source: RecordStore, records: Sequence[Record]) -> dict[str, list[Embedded]]:
    versions = {record.id: record.version for record in records}
    return {
        model: [Embedded(i, versions[i], vector) for i, vector in found.items()]
        for model in MODELS
        if (found := await source.vectors(model, list(versions)))
    }


async def everything(store: RecordStore) -> dict[str, Any]:
    """By what it is about, so that a difference says where it is."""
    records = await store.scan(Where(deleted=None))
    links = await store.scan_links(deleted=None)
    ids = [record.id for record in records]
    refs = [Ref("record", i) for i in ids] + [Ref("link", x.id) for x in links]
    answers: dict[str, Any] = {
        "records": records,
        "live": await store.scan(Where()),
        "newest": await store.scan(Where(deleted=None), order="newest"),
        "names": await store.scan(Where(), order="name"),
        "children": [await store.scan(Where(parents=(i,), deleted=None)) for i in ids],
        "tagged": await store.scan(Where(tags=("x",), deleted=None)),
        "pinned": await store.scan(Where(pinned=True)),
        "links": links,
        "out": await store.links(ids, direction="out"),
        "in": await store.links(ids, direction="in"),
        "count": await store.count(),
        "tally": set(await store.tally(KINDS)),
        "scopes": [await store.scopes(kind) for kind in KINDS],
        "authors": await store.authors(),
        "changes": await store.changes(limit=ALL),
        "history": await store.history(refs),
        "revision": await store.revision(),
        "accesses": await store.accesses(ids),
        "most accessed": list((await store.most_accessed(ALL)).items()),
        "frequencies": await store.frequencies(["red", "parser", "größe", "nothing"]),
        "found": [await found(store, query) for query in QUERIES],
        "containing": {m.id for m in await store.containing("re", Where(), ALL)},
        "wrong": await store.check(),
    }
    for model in MODELS:
        answers[f"meaning of {model}"] = [
            await store.unembedded(model, KINDS, ALL),
            await store.vector_counts(model, KINDS),
            {i: list(vector) for i, vector in (await store.vectors(model, ids)).items()},
            await nearby(store, model),
        ]
    return answers


async def found(store: RecordStore, query: str) -> set[tuple[str, str | None]]:
    parsed = parse_query(query)
    words = parsed.expression or parsed.all_terms()
    assert words is not None
    return {(m.id, m.parent) for m in await store.match(words, Where(), Weights(), ALL)}


async def nearby(store: RecordStore, model: str) -> dict[str, float]:
    vector = np.full(8, np.sqrt(1 / 8), np.float32)
    matches = await store.near(model, vector, Where(deleted=None), ALL)
    return {match.id: round(match.score, 3) for match in matches}
