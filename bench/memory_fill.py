"""Fills a library with many memories at once: straight through the port, vectors included."""

import random
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from everkept.core.ports import Embedder, Library, RecordStore, RecordVector
from everkept.core.records import Batch, Insert, Record, RecordLink, Step
from everkept.core.text import compute_name_key
from everkept.core.times import read_clock
from everkept.families.memories.memory_identity import build_variant, compute_text_key, create_memory_id
from everkept.families.memories.model import MEMORY, SESSION
from everkept.graph.entities import build_entity
from memory_workload import SESSION_LENGTH, VERBS, Memory, MemoryWorkload

BATCH = 50 * SESSION_LENGTH
SCATTER = 0.88  # length of what is added to a true vector: the cosine to it is 0.75


async def fill(library: Library, project: str, workload: MemoryWorkload, embedder: Embedder) -> None:
    vectors = await _Vectors.made(workload, embedder)
    await library.create(project, "")
    _, store = await library.open(project)
    user = await library.open_user_store()
    entities = await _put_entities(store, workload)
    for numbers in _batches(workload.size):
        memories = [workload.memory(number) for number in numbers]
        records = [_record(memory) for memory in memories]
        await _commit(store, _sessions(records))
        of_user = [memory.scope == "user" for memory in memories]
        await _commit(user, [Insert(r) for r, own in zip(records, of_user, strict=True) if own])
        steps: list[Step] = []
        for memory, record, own in zip(memories, records, of_user, strict=True):
            if not own:
                steps += [Insert(record), *_links(memory, record, entities)]
        await _commit(store, steps)
        made = [
            RecordVector(record.id, record.version, vector)
            for record, vector in zip(records, vectors.of(numbers), strict=True)
        ]
        for place, wanted in ((store, False), (user, True)):
            chosen = [item for item, own in zip(made, of_user, strict=True) if own is wanted]
            await place.put_vectors(embedder.name, chosen)


class _Vectors:
    """Some memories have the vector of their text; those of the ones after it lie around that.

    So there are clusters, where the model puts texts of this kind, and no time is spent on a
    million embeddings.
    """

    def __init__(self, true: NDArray[np.float32], spacing: int) -> None:
        self._true = true
        self._spacing = spacing
        self._chance = np.random.default_rng(0)

    @classmethod
    async def made(cls, workload: MemoryWorkload, embedder: Embedder) -> "_Vectors":
        numbers = range(0, workload.size, workload.spacing)
        texts = [workload.memory(number).content for number in numbers]
        return cls(await embedder.embed(texts), workload.spacing)

    def of(self, numbers: Sequence[int]) -> NDArray[np.float32]:
        centre, distance = np.divmod(np.asarray(numbers), self._spacing)
        vectors = self._true[centre]
        noise = self._chance.standard_normal(vectors.shape, np.float32)
        noise *= SCATTER / np.linalg.norm(noise, axis=1, keepdims=True)
        noise[distance == 0] = 0
        vectors = vectors + noise
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


async def _put_entities(store: RecordStore, workload: MemoryWorkload) -> dict[str, str]:
    """Their ids by name. Each has a relation to one that came before it."""
    chance = random.Random(0)
    ids: list[str] = []
    by_name: dict[str, str] = {}
    for numbers in _batches(workload.entity_count):
        steps: list[Step] = []
        for number in numbers:
            entity = workload.entity(number)
            record = build_entity(entity.name, entity.type, compute_name_key(entity.type), read_clock())
            steps.append(Insert(record))
            if ids:
                steps.append(_link(record, chance.choice(VERBS), chance.choice(ids)))
            ids.append(record.id)
            by_name[entity.name] = record.id
        await _commit(store, steps)
    return by_name


def _record(memory: Memory) -> Record:
    at = read_clock() - round(memory.age * 1e6)
    return Record(
        id=create_memory_id(at),
        kind=MEMORY,
        created_at=at,
        updated_at=at,
        text=memory.content,
        type=memory.type,
        name_key=compute_text_key(memory.content),
        variant=build_variant(memory.scope, memory.session),
        scope=memory.scope,
        session=memory.session,
        position=memory.turn,
        author=memory.author,
        importance=memory.importance,
        tags=memory.tags,
        facets={"source": {"conversation_turn": memory.turn}},
    )


def _sessions(memories: Sequence[Record]) -> list[Step]:
    """The records of their sessions; a batch holds whole ones."""
    begun = {memory.session: memory.created_at for memory in reversed(memories)}
    return [
        Insert(Record(id=session, kind=SESSION, name_key=session, created_at=at, updated_at=at))
        for session, at in begun.items()
        if session is not None
    ]


def _links(memory: Memory, record: Record, entities: Mapping[str, str]) -> list[Step]:
    return [_link(record, verb, entities[entity.name]) for entity, verb in memory.entities]


def _link(source: Record, verb: str, target: str) -> Step:
    return Insert(RecordLink(str(uuid4()), source.id, verb, target, source.created_at))


async def _commit(store: RecordStore, steps: Sequence[Step]) -> None:
    if steps:
        await store.commit(Batch(tuple(steps), at=read_clock(), tool="bench"))


def _batches(count: int) -> Iterator[range]:
    for start in range(0, count, BATCH):
        yield range(start, min(start + BATCH, count))
