"""What the graph's tools read: who is meant by a name or an id, and what lies around entities.

Public ids are computed, so a directory remembers them.
"""

import asyncio
import heapq
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from everkept.core.answers import Hops
from everkept.core.fallback_answers import fields_of, matches
from everkept.core.ports import RecordStore
from everkept.core.records import Link, Record, Where
from everkept.core.text import normalised
from everkept.core.times import iso
from everkept.errors import AmbiguousName, NotFound
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.graph.model import (
    ENTITY_PREFIX,
    LENGTH,
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
    observation_id_below,
    observation_public_id,
    own_id,
    public_id,
)
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    names_of,
    observations_of,
    relations_among,
    walk_around,
)
from everkept.graph.lookup import ambiguous, candidates, one_each
from everkept.language.words import parse_query
from everkept.retrieval.profile import Found, Place, Profile, Tier
from everkept.retrieval.search import search
from everkept.tools.tool import Warned
from everkept.values import Value, replace

PAGE = 2_000  # records that are read at once to build a directory
FAR = 1_000  # changes behind which it is quicker to build it anew than to follow them
KEPT = 8  # directories, of the projects used last

_ENTITY_ID = re.compile(rf"{ENTITY_PREFIX}[\w-]{{{LENGTH}}}", re.ASCII)


class Card(NamedTuple):
    """What a directory knows of an entity: its public id, and what it is found by."""

    public_id: str
    name: str  # normalised, as the type is
    type: str
    attrs: str  # lower-case JSON; empty where there are none
    own_id: str

    @classmethod
    def of(cls, record: Record) -> "Card":
        attrs = attrs_of(record)
        return cls(
            public_id(record),
            record.name_key or normalised(record.name or ""),
            normalised(record.type or ""),
            json.dumps(attrs, ensure_ascii=False).lower() if attrs else "",
            own_id(record),
        )


class Ids:
    """Public ids and the records they stand for: several where their spellings differ."""

    def __init__(self) -> None:
        self._records: dict[str, tuple[str, ...]] = {}
        self._public: dict[str, str] = {}

    def put(self, record: str, public: str) -> None:
        self.drop(record)
        self._public[record] = public
        self._records[public] = (*self._records.get(public, ()), record)

    def drop(self, record: str) -> None:
        public = self._public.pop(record, None)
        if public is None:
            return
        rest = tuple(other for other in self._records[public] if other != record)
        if rest:
            self._records[public] = rest
        else:
            del self._records[public]

    def records(self, public: str) -> tuple[str, ...]:
        return self._records.get(public, ())


class Directory:
    """The entities of one store, and their observations once somebody asks for one by its id.

    Built by reading all of them once; afterwards only what the change log names is read.
    """

    def __init__(self) -> None:
        self.cards: dict[str, Card] = {}
        self.entities = Ids()
        self.observations: Ids | None = None
        self._revision: int | None = None
        self._turn = asyncio.Lock()

    async def catch_up(self, store: RecordStore, *, observations: bool = False) -> None:
        async with self._turn:
            revision = await store.revision()
            if observations and self.observations is None:
                self._revision, self.observations = None, Ids()
            if revision == self._revision:
                return
            # Whoever is cut off in the middle leaves a directory that is built anew.
            known, self._revision = self._revision, None
            if known is None or not await self._followed(store, known, revision):
                await self._build(store)
            self._revision = revision

    async def _followed(self, store: RecordStore, known: int, revision: int) -> bool:
        """False where the log does not say what changed, or says too much."""
        if not known <= revision <= known + FAR:
            return False
        changes = await store.changes(after=known, limit=revision - known)
        # Whatever was purged or rewritten for good is not named in the log.
        if not all(change.edits for change in changes):
            return False
        edits = [edit for change in changes for edit in change.edits]
        touched = {edit.id for edit in edits if edit.subject == "record" and edit.id}
        await self._take_again(store, touched)
        return True

    async def _take_again(self, store: RecordStore, touched: set[str]) -> None:
        live = await store.scan(Where(kinds=(ENTITY, OBSERVATION), ids=tuple(touched)))
        entities = [record for record in live if record.kind == ENTITY]
        for gone in touched - {record.id for record in entities}:
            self.cards.pop(gone, None)
            self.entities.drop(gone)
        renamed = self._put_entities(entities)
        if self.observations is None:
            return
        for gone in touched:
            self.observations.drop(gone)
        self._put_observations(record for record in live if record.kind == OBSERVATION)
        if renamed:
            below = Where(kinds=(OBSERVATION,), parents=tuple(renamed))
            self._put_observations(await store.scan(below))

    async def _build(self, store: RecordStore) -> None:
        self.cards, self.entities = {}, Ids()
        await _each_page(store, ENTITY, self._put_entities)
        if self.observations is not None:
            self.observations = Ids()
            await _each_page(store, OBSERVATION, self._put_observations)

    def _put_entities(self, records: Iterable[Record]) -> list[str]:
        """Gives those whose public id was another one."""
        renamed: list[str] = []
        for record in records:
            card, old = Card.of(record), self.cards.get(record.id)
            self.cards[record.id] = card
            self.entities.put(record.id, card.public_id)
            if old is not None and old.public_id != card.public_id:
                renamed.append(record.id)
        return renamed

    def _put_observations(self, records: Iterable[Record]) -> None:
        for record in records:
            owner = self.cards.get(record.parent or "")
            if owner is not None and self.observations is not None:
                public = observation_id_below(owner.own_id, owner.public_id, record)
                self.observations.put(record.id, public)


class Lookup:
    """Names and ids of the graphs of all banks."""

    def __init__(self, records: BankRecords) -> None:
        self._records = records
        self._directories: OrderedDict[str, Directory] = OrderedDict()

    async def directory(
        self, bank: Bank, store: RecordStore, *, observations: bool = False
    ) -> Directory:
        """As it is now."""
        project = await self._records.project_id(bank)
        directory = self._directories.pop(project or "", None) or Directory()
        if project is not None:
            self._directories[project] = directory
            if len(self._directories) > KEPT:
                self._directories.popitem(last=False)
        await directory.catch_up(store, observations=observations)
        return directory

    async def entities(
        self, bank: Bank, store: RecordStore, names: Sequence[str]
    ) -> dict[str, Record | None]:
        """The one entity that each name or id means, exactly; None where there is none.

        A name that fits two is an error that lists them.
        """
        names = list(dict.fromkeys(names))
        found = await self._by_id(
            bank, store, [x for x in names if _ENTITY_ID.fullmatch(x.strip())]
        )
        others = [name for name in names if name not in found]
        found |= await candidates(store, others) if others else {}
        # Other programs make ids in their own ways.
        found |= await self._by_id(bank, store, [name for name in others if not found[name]])
        return one_each({name: found[name] for name in names}, ambiguous_by_public_id)

    async def observations(
        self, bank: Bank, store: RecordStore, public: str
    ) -> list[tuple[Record, Record]]:
        """The observations with this id, each with the entity it belongs to."""
        directory = await self.directory(bank, store, observations=True)
        ids = directory.observations.records(public) if directory.observations else ()
        records = await store.get(ids)
        parents = await store.get([record.parent or "" for record in records])
        owners = {owner.id: owner for owner in parents}
        pairs = [(r, owners[r.parent or ""]) for r in records if r.parent in owners]
        return [pair for pair in pairs if observation_public_id(*pair) == public]

    async def _by_id(
        self, bank: Bank, store: RecordStore, asked: Sequence[str]
    ) -> dict[str, list[Record]]:
        if not asked:
            return {}
        directory = await self.directory(bank, store)
        ids = {name: directory.entities.records(name.strip()) for name in asked}
        records = {r.id: r for r in await store.get([i for some in ids.values() for i in some])}
        return {
            name: meant
            for name, some in ids.items()
            if (meant := [records[i] for i in some if i in records])
        }


def ambiguous_by_public_id(name: str, meant: Sequence[Record]) -> AmbiguousName:
    """List public ids, but the records' own ids if only these tell them apart."""
    public = {record.id: public_id(record) for record in meant}
    unique = {i: known for i, known in public.items() if [*public.values()].count(known) == 1}
    return ambiguous(name, meant, unique)


async def _each_page(
    store: RecordStore, kind: str, take: Callable[[Iterable[Record]], object]
) -> None:
    last: str | None = None
    while True:
        page = await store.scan(Where(kinds=(kind,)), after=last, limit=PAGE)
        take(page)
        if len(page) < PAGE:
            return
        last = page[-1].id


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
