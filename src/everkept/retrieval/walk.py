"""The way through the graph: from the entities that a query names to the records about them."""

import asyncio
import re
from collections.abc import Sequence
from itertools import islice

from everkept.core.entities import ENTITY
from everkept.core.ports import RecordStore
from everkept.core.records import Weights, Where
from everkept.core.text import normalised
from everkept.core.walking import Hops, beyond
from everkept.language.stop_words import STOP_WORDS
from everkept.language.words import parse_query
from everkept.retrieval.legs import Key
from everkept.retrieval.profile import Place
from everkept.values import replace

HOPS = 2  # from a named entity to the entities whose records count
LONGEST_NAME = 6  # words
LONGEST_READ = 2_000  # characters of the query
BY_WORD = 5  # entities that are taken where no name stands in the query as it is
FRONTIER = 100  # entities of one hop that are gone on from
LINKS = 2_000  # followed at each hop
NEAREST = 200  # records that are weighed
RELATED = Hops(HOPS, sources=(ENTITY,), width=FRONTIER, limit=LINKS)

_WORD = re.compile(r"[^\s,;?!()]+")
_QUOTED = re.compile(r"[\"“„`']([^\"”“`']{1,200})[\"”“`']")
_NAMES_ALONE = Weights(name=1.0, text=0.0, context=0.0)


async def closeness(places: Sequence[Place], query: str) -> dict[Key, float] | None:
    """How near each record is to an entity of the query: 1 at the entity, less with every hop.

    None when the query names no entity.
    """
    named = await asyncio.gather(*(_named(place.store, query) for place in places))
    if not any(named):
        return None
    found = await asyncio.gather(
        *(_around(place, entities) for place, entities in zip(places, named, strict=True))
    )
    return {(i, key): value for i, near in enumerate(found) for key, value in near.items()}


async def _named(store: RecordStore, query: str) -> list[str]:
    """The ids of entities whose names stand in the query, else of those that share a word."""
    keys = tuple(_possible_names(query))
    exact = await store.scan(Where(kinds=(ENTITY,), name_keys=keys)) if keys else []
    if exact:
        return [record.id for record in exact]
    words = parse_query(query[:LONGEST_READ]).any_term()
    if words is None:
        return []
    where = Where(kinds=(ENTITY,))
    matches = await store.match(words, where, _NAMES_ALONE, BY_WORD)
    return [match.id for match in matches if match.score > 0]


def _possible_names(query: str) -> list[str]:
    """Every row of words that may be a name, as names are compared."""
    text = query[:LONGEST_READ]
    words = [word.strip(".:'’\"“”`") for word in _WORD.findall(text)]
    words = [word.removesuffix("'s").removesuffix("’s") for word in words if word]
    rows = [
        " ".join(words[start : start + size])
        for start in range(len(words))
        for size in range(1, min(LONGEST_NAME, len(words) - start) + 1)
    ]
    names = (normalised(row) for row in (*_QUOTED.findall(text), *rows))
    return [name for name in dict.fromkeys(names) if name and name not in STOP_WORDS]


async def _around(place: Place, entities: Sequence[str]) -> dict[str, float]:
    """The newest records about what is nearest, as many as one search can weigh."""
    store, kinds = place.store, place.where.kinds
    near: dict[str, float] = {}

    async def meet(edge: Sequence[str], hop: int) -> bool:
        """Whether there is room for more."""
        about = await store.links(edge, direction="in", sources=kinds, limit=LINKS)
        for link in reversed(about):
            near.setdefault(link.source, 1 / (1 + hop))
        return len(near) < NEAREST

    if entities and await meet(entities, 0):
        seen = set(entities)
        for hop, links in enumerate(await store.walk(entities, RELATED), 1):
            edge = beyond(links, seen, FRONTIER)
            if not edge or not await meet(edge, hop):
                break
            seen.update(edge)
    nearest = tuple(islice(near, NEAREST))
    kept = replace(place.where, ids=nearest)
    allowed = {record.id for record in await store.scan(kept)} if near else set[str]()
    return {record_id: near[record_id] for record_id in nearest if record_id in allowed}
