"""A few memories in one or two stores, and the search over them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from everkept.core.ports import Embedder, RecordStore, RecordVector
from everkept.core.projects import Project
from everkept.core.records import Delete, Record, RecordFilter, RecordLink, Ref, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.retrieval.profile import Priors, SearchPage, SearchPlace, SearchProfile
from everkept.retrieval.search import search
from everkept.values import replace
from hash_embedder import HashingEmbedder
from records import DAY_ONE, batch

DAY = 86_400_000_000
MEMORIES = SearchProfile(kinds=("memory",), reading="any", strategy="hybrid")
MIXED = replace(MEMORIES, priors=Priors(0.5, 0.3), half_lives={"episodic": 1.0, "semantic": 7.0})


def memory(text: str, **more: Any) -> Record:
    """A memory whose id is its text, unless another is given."""
    fields: dict[str, Any] = {
        "id": text,
        "kind": "memory",
        "text": text,
        "type": "semantic",
        "scope": "project",
        "importance": 0.5,
        "created_at": DAY_ONE,
        "updated_at": more.get("created_at", DAY_ONE),
    }
    return Record(**(fields | more))


@dataclass(slots=True)
class Shelf:
    """Stores with their vectors; without an embedder there are none."""

    stores: list[RecordStore]
    embedder: Embedder | None = field(default_factory=HashingEmbedder)

    async def put(self, *items: Record | RecordLink, store: int = 0, at: int = DAY_ONE) -> None:
        await self.stores[store].commit(batch(*items, at=at))
        await self.embed(store)

    async def change(self, record_id: str, at: int, **values: Any) -> None:
        (record,) = await self.stores[0].get([record_id])
        await self.stores[0].commit(batch(Update(record_id, values, record.version), at=at))
        await self.embed()

    async def forget(self, record_id: str, at: int) -> None:
        await self.stores[0].commit(batch(Delete(Ref("record", record_id)), at=at))

    async def embed(self, store: int = 0) -> None:
        if self.embedder is None:
            return
        kept = self.stores[store]
        waiting = await kept.find_unembedded(self.embedder.name, ("memory",), 1_000)
        if waiting:
            vectors = await self.embedder.embed([record.text for record in waiting])
            items = [RecordVector(r.id, r.version, v) for r, v in zip(waiting, vectors, strict=True)]
            await kept.put_vectors(self.embedder.name, items)

    async def search(
        self,
        query: str,
        profile: SearchProfile = MEMORIES,
        *,
        where: RecordFilter | Sequence[RecordFilter] = RecordFilter(),  # noqa: B008 (frozen)
        limit: int = 10,
        **more: Any,
    ) -> SearchPage:
        wheres = [where] * len(self.stores) if isinstance(where, RecordFilter) else where
        places = [SearchPlace(*pair) for pair in zip(self.stores, wheres, strict=True)]
        given: dict[str, Any] = {"embedder": self.embedder, "now": DAY_ONE} | more
        return await search(places, query, profile, limit=limit, **given)

    async def texts(self, query: str, profile: SearchProfile = MEMORIES, **more: Any) -> list[str]:
        return [hit.record.text for hit in (await self.search(query, profile, **more)).hits]


class OneShelf(MemoryLibrary):
    """A library that opens one store, whatever the project."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__()
        self.store = store

    async def open(self, name: str) -> tuple[Project, MemoryStore]:
        return await self.get_project(name), self.store
