"""What the graph's tools read: entities found by a query, and what lies around them."""

import heapq
import re
from collections.abc import Iterable, Sequence

from everkept.core.ports import RecordStore
from everkept.core.record_match import fields_of, matches
from everkept.core.records import Link, Record, Where
from everkept.core.text import normalised
from everkept.core.times import iso
from everkept.core.walking import Hops
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.lookup import Card, Lookup
from everkept.families.bank.graph_model import (
    NODE_LIMIT,
    EntityView,
    FoundEntity,
    FoundNodes,
    FoundObservation,
    FoundRelation,
    Noted,
    ObservationView,
    OpenedNodes,
    RelationView,
    attrs_of,
    public_id,
)
from everkept.graph.entities import ENTITY, OBSERVATION, observations_of
from everkept.graph.relations import names_of, relations_among, walk_around
from everkept.language.words import parse_query
from everkept.retrieval.profile import Found, Place, Profile, Tier
from everkept.retrieval.search import search
from everkept.tools.tool import Warned
from everkept.values import Value, replace

ENTITIES = Profile(kinds=(ENTITY,))
OBSERVATIONS = Profile(kinds=(OBSERVATION,))
STRICTNESS: tuple[Tier, ...] = ("expression", "all", "any", "substring")
EVERYTHING = "*"
NEWEST = 5  # observations of an entity of which none was matched
LITERAL = 200  # observations with the very text that are compared
TYPE_SHARE, ATTRS_SHARE = 0.8, 0.6  # of what a hit in the name counts


class GraphReading(Value):
    """One bank's graph, as one call sees it."""

    bank: Bank
    store: RecordStore
    lookup: Lookup

    async def open(self, nodes: Sequence[str], depth: int) -> OpenedNodes:
        """Every node must be there."""
        found = await self.lookup.entities(self.bank, self.store, nodes)
        missing = [name for name, record in found.items() if record is None]
        if missing:
            names = ", ".join(missing)
            raise NotFound(
                ENTITY,
                names,
                message=f"Some entities not found: {names}.",
                hint="Nothing was opened. graph_search finds entities.",
            )
        roots = [record for record in found.values() if record is not None]
        shown = await _around(self.store, roots, depth)
        by_id = {record.id: record for record in shown.entities}
        observations = await observations_of(self.store, by_id)
        return OpenedNodes(
            [EntityView.of(record) for record in shown.entities],
            [ObservationView.of(o, by_id[o.parent or ""]) for o in observations],
            [RelationView.of(x, by_id[x.source], by_id[x.target]) for x in shown.relations],
            shown.warnings,
        )

    async def find(self, query: str, limit: int, depth: int) -> FoundNodes:
        """What the query finds and, with a depth, what is connected to these entities."""
        is_listing = query.strip() in ("", EVERYTHING)
        found = await (self._all(limit) if is_listing else self._matching(query.strip(), limit))
        shown = await _around(self.store, found.entities, depth)
        names = names_of(shown.entities)
        notes = await self._notes(found.matched, shown.entities)
        return FoundNodes(
            query,
            [_found_entity(record, notes.get(record.id, [])) for record in shown.entities],
            await self._listed(found.observations[:limit]),
            [FoundRelation(names[x.source], names[x.target], x.verb) for x in shown.relations],
            shown.warnings,
        )

    async def _all(self, limit: int) -> "_Finds":
        newest = [
            await self.store.scan(Where(kinds=(kind,)), order="newest", limit=limit)
            for kind in (ENTITY, OBSERVATION)
        ]
        return _Finds(*newest, matched=[])

    async def _matching(self, query: str, limit: int) -> "_Finds":
        """Literal finds by their score, then what the words find besides."""
        words = await self._by_words(query, limit)
        directory = await self.lookup.directory(self.bank, self.store)
        literal = _best(directory.cards.items(), query, limit)
        ids = list(dict.fromkeys([*literal, *(record.id for record in words.entities)]))
        observations = await self._literal_observations(query)
        known = {record.id for record in observations}
        observations += [record for record in words.observations if record.id not in known]
        entities = [r for r in await self.store.get(ids[:limit]) if r.kind == ENTITY]
        return _Finds(entities, observations, matched=observations)

    async def _by_words(self, query: str, limit: int) -> "_Finds":
        """Of the two kinds only what the stricter reading of the words finds.

        An entity whose name has a part of the words is meant too where its observation has the
        rest.
        """
        place = Place(self.store)
        entities = await search([place], query, ENTITIES, limit=limit)
        observations = await search([place], query, OBSERVATIONS, limit=limit)
        strictest = min(_strictness(entities), _strictness(observations))
        named, told = (
            [hit.record for hit in found.hits] if _strictness(found) == strictest else []
            for found in (entities, observations)
        )
        words = parse_query(query).any_term()
        for owner in await self.store.get([record.parent or "" for record in told]):
            if words and matches(fields_of(owner.name or "", "", ""), words):
                named.append(owner)
        return _Finds(named, told, matched=told)

    async def _literal_observations(self, query: str) -> list[Record]:
        found = await self.store.containing(query, Where(kinds=(OBSERVATION,)), LITERAL)
        records = await self.store.get([match.id for match in found])
        score = _Scoring(query.lower())
        records.sort(key=lambda record: (-score(record.text.lower()), -record.at))
        return records

    async def _notes(
        self, matched: Sequence[Record], entities: Sequence[Record]
    ) -> dict[str, list[Record]]:
        """For each entity its observations that were matched, else its newest."""
        notes = _by_parent(matched)
        others = [record.id for record in entities if record.id not in notes]
        found = _by_parent(await observations_of(self.store, others))
        for owner, records in found.items():
            notes[owner] = heapq.nlargest(NEWEST, records, key=lambda record: record.at)
        return notes

    async def _listed(self, observations: Sequence[Record]) -> list[FoundObservation]:
        parents = dict.fromkeys(record.parent or "" for record in observations)
        owners = {owner.id: owner for owner in await self.store.get(list(parents))}
        return [
            FoundObservation(record.text, public_id(owner), owner.name or "", iso(record.at))
            for record in observations
            if (owner := owners.get(record.parent or "")) is not None
        ]


class _Finds(Value):
    """What a query finds; `matched` are all observations that it does, however many are shown."""

    entities: list[Record]
    observations: list[Record]
    matched: list[Record]


class _Shown(Value):
    entities: list[Record]
    relations: list[Link]
    warnings: list[Warned] | None = None


async def _around(store: RecordStore, roots: Sequence[Record], depth: int) -> _Shown:
    """The entities with those that lie up to so many relations away, and the relations of all."""
    shown = {record.id: record for record in roots}
    left_out = 0
    hops = Hops(depth, sources=(ENTITY,), width=NODE_LIMIT)
    async for hop in walk_around(store, roots, hops, room=NODE_LIMIT):
        shown |= {record.id: record for record in hop.entities}
        left_out += hop.left_out
    relations = await relations_among(store, shown.keys())
    found = _Shown(list(shown.values()), relations)
    if not left_out:
        return found
    message = f"{left_out} connected entities are left out; at most {NODE_LIMIT} are shown."
    return replace(found, warnings=[Warned("too_many_entities", message)])


def _by_parent(observations: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in observations:
        found.setdefault(record.parent or "", []).append(record)
    return found


def _found_entity(record: Record, notes: Sequence[Record]) -> FoundEntity:
    return FoundEntity(
        public_id(record),
        record.name or "",
        record.type or "",
        attrs_of(record) or None,
        [Noted(note.text, iso(note.at)) for note in notes],
    )


class _Scoring:
    """How literally a text has the phrase: as a whole, at its beginning, as words, anywhere."""

    def __init__(self, phrase: str) -> None:
        self._phrase = phrase
        self._word = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)")

    def __call__(self, text: str) -> float:
        if self._phrase not in text:
            return 0
        if text.startswith(self._phrase):
            return 100 if text == self._phrase else 80
        return 60 if self._word.search(text) else 40

    def of(self, card: Card) -> float:
        return max(self(card.name), TYPE_SHARE * self(card.type), ATTRS_SHARE * self(card.attrs))


def _best(cards: Iterable[tuple[str, Card]], query: str, limit: int) -> list[str]:
    """The records with the query in name, type or attributes, best first, then by name."""
    scoring = _Scoring(normalised(query))
    scored = (
        (-score, card.name, record_id)
        for record_id, card in cards
        if (score := scoring.of(card)) > 0
    )
    return [record_id for _, _, record_id in heapq.nsmallest(limit, scored)]


def _strictness(found: Found) -> int:
    """How literally the words were taken; where nothing was found, as loosely as can be."""
    return len(STRICTNESS) if found.tier is None else STRICTNESS.index(found.tier)
