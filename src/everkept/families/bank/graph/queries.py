"""Queries of the graph's tools: entities by name or id, searches, and neighborhoods.

Public ids are computed, so a directory caches them.
"""

import asyncio
import heapq
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from everkept.core.answers import Hops
from everkept.core.fallback_answers import is_match, split_fields
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, RecordLink
from everkept.core.text import clip_text, compute_name_key, format_count
from everkept.core.times import format_iso
from everkept.errors import AmbiguousId, AmbiguousName, NotFound
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.graph.model import (
    ENTITY_PREFIX,
    ID_CHARACTERS,
    MAX_NODES,
    OBSERVATION_PREFIX,
    BankEntityView,
    BankFoundNodes,
    BankObservationView,
    BankOpenedNodes,
    BankRelationView,
    FoundEntity,
    FoundObservation,
    FoundRelation,
    NestedObservation,
    compute_own_id,
    get_attrs,
    get_observation_id,
    get_public_id,
    resolve_observation_id,
)
from everkept.graph.entities import (
    ENTITY,
    OBSERVATION,
    build_ambiguity_error,
    find_candidates,
    list_observations,
    list_relations_among,
    map_names,
    require_unique,
    walk_around,
)
from everkept.language.words import parse_query
from everkept.retrieval.profile import SearchPage, SearchPlace, SearchProfile, Tier
from everkept.retrieval.search import search
from everkept.tools.tool import ToolWarning
from everkept.values import Value

PAGE_RECORDS = 2_000
MAX_FOLLOWED_CHANGES = 1_000  # from here on, building the directory again is faster
MIN_TYPED_CHARACTERS = 4  # of an id
MAX_DIRECTORIES = 8  # of the most recently used projects

_ENTITY_ID = re.compile(rf"{ENTITY_PREFIX}[\w-]{{{ID_CHARACTERS}}}", re.ASCII)


class EntityCard(NamedTuple):
    """The searchable fields of an entity, with its public id."""

    public_id: str
    name: str  # normalized, like the type
    type: str
    attrs: str  # lower-case JSON, or empty
    own_id: str

    @classmethod
    def from_record(cls, record: Record) -> "EntityCard":
        attrs = get_attrs(record)
        return cls(
            get_public_id(record),
            record.name_key or compute_name_key(record.name or ""),
            compute_name_key(record.type or ""),
            json.dumps(attrs, ensure_ascii=False).lower() if attrs else "",
            compute_own_id(record),
        )


class PublicIdIndex:
    """Public ids and their records: several if an entity has several spellings."""

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

    def get_records(self, public: str) -> tuple[str, ...]:
        return self._records.get(public, ())

    def complete(self, typed: str, head: str) -> list[str]:
        """Return the public ids that are the typed text, or begin with it."""
        if typed in self._records or not typed.startswith(head) or len(typed) < len(head) + MIN_TYPED_CHARACTERS:
            return [typed]
        return [public for public in self._records if public.startswith(typed)]


class EntityDirectory:
    """The entities of one store, and their observations after the first lookup of one by id.

    The first call reads all of them. Later calls read only the records that the change log names.
    """

    def __init__(self) -> None:
        self.cards: dict[str, EntityCard] = {}
        self.entities = PublicIdIndex()
        self.observations: PublicIdIndex | None = None
        self._revision: int | None = None
        self._turn = asyncio.Lock()

    async def catch_up(self, store: RecordStore, *, observations: bool = False) -> None:
        async with self._turn:
            revision = await store.get_revision()
            if observations and self.observations is None:
                self._revision, self.observations = None, PublicIdIndex()
            if revision == self._revision:
                return
            # A canceled call leaves no revision, so the next one builds the directory again.
            known, self._revision = self._revision, None
            if known is None or not await self._follow(store, known, revision):
                await self._build(store)
            self._revision = revision

    async def _follow(self, store: RecordStore, known: int, revision: int) -> bool:
        """Return False if the change log does not name the changed records, or names too many."""
        if not known <= revision <= known + MAX_FOLLOWED_CHANGES:
            return False
        changes = await store.read_changes(after=known, limit=revision - known)
        # The log does not name purged or permanently rewritten records.
        if not all(change.edits for change in changes):
            return False
        edits = [edit for change in changes for edit in change.edits]
        touched = {edit.id for edit in edits if edit.subject == "record" and edit.id}
        await self._reread(store, touched)
        return True

    async def _reread(self, store: RecordStore, touched: set[str]) -> None:
        live = await store.scan(RecordFilter(kinds=(ENTITY, OBSERVATION), ids=tuple(touched)))
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
            below = RecordFilter(kinds=(OBSERVATION,), parents=tuple(renamed))
            self._put_observations(await store.scan(below))

    async def _build(self, store: RecordStore) -> None:
        self.cards, self.entities = {}, PublicIdIndex()
        await _read_pages(store, ENTITY, self._put_entities)
        if self.observations is not None:
            self.observations = PublicIdIndex()
            await _read_pages(store, OBSERVATION, self._put_observations)

    def _put_entities(self, records: Iterable[Record]) -> list[str]:
        """Return the records whose public id has changed."""
        renamed: list[str] = []
        for record in records:
            card, old = EntityCard.from_record(record), self.cards.get(record.id)
            self.cards[record.id] = card
            self.entities.put(record.id, card.public_id)
            if old is not None and old.public_id != card.public_id:
                renamed.append(record.id)
        return renamed

    def _put_observations(self, records: Iterable[Record]) -> None:
        for record in records:
            owner = self.cards.get(record.parent or "")
            if owner is not None and self.observations is not None:
                public = resolve_observation_id(owner.own_id, owner.public_id, record)
                self.observations.put(record.id, public)


class EntityLookup:
    """Lookup of names and ids in the graphs of all banks."""

    def __init__(self, records: BankRecords) -> None:
        self._records = records
        self._directories: OrderedDict[str, EntityDirectory] = OrderedDict()

    async def open_directory(self, bank: Bank, store: RecordStore, *, observations: bool = False) -> EntityDirectory:
        """Return the directory of a bank, up to date."""
        project = await self._records.find_project_id(bank)
        directory = self._directories.pop(project or "", None) or EntityDirectory()
        if project is not None:
            self._directories[project] = directory
            if len(self._directories) > MAX_DIRECTORIES:
                self._directories.popitem(last=False)
        await directory.catch_up(store, observations=observations)
        return directory

    async def find_entities(self, bank: Bank, store: RecordStore, names: Sequence[str]) -> dict[str, Record | None]:
        """Map each name or id to its one entity, or to None. Raise AmbiguousName if a name matches several."""
        return require_unique(await self.find_candidates(bank, store, names), build_ambiguous_error)

    async def find_candidates(self, bank: Bank, store: RecordStore, names: Sequence[str]) -> dict[str, list[Record]]:
        """Map each name or id to all entities it matches."""
        names = list(dict.fromkeys(names))
        found = await self._find_by_id(bank, store, [x for x in names if _ENTITY_ID.fullmatch(x.strip())])
        others = [name for name in names if name not in found]
        found |= await find_candidates(store, others) if others else {}
        # Other programs compute ids differently.
        found |= await self._find_by_id(bank, store, [name for name in others if not found[name]])
        return {name: list(found[name]) for name in names}

    async def find_observations(self, bank: Bank, store: RecordStore, public: str) -> list[tuple[Record, Record]]:
        """Return the observations with this id, each with its entity."""
        directory = await self.open_directory(bank, store, observations=True)
        index = directory.observations or PublicIdIndex()
        meant = index.complete(public, OBSERVATION_PREFIX)
        records = await store.get([record for each in meant for record in index.get_records(each)])
        parents = await store.get([record.parent or "" for record in records])
        owners = {owner.id: owner for owner in parents}
        pairs = [(r, owners[r.parent or ""]) for r in records if r.parent in owners]
        if len(titles := {get_observation_id(*pair): clip_text(pair[0].text) for pair in pairs}) > 1:
            raise AmbiguousId(OBSERVATION, public, titles)
        return [pair for pair in pairs if get_observation_id(*pair) in meant]

    async def _find_by_id(self, bank: Bank, store: RecordStore, asked: Sequence[str]) -> dict[str, list[Record]]:
        if not asked:
            return {}
        directory = await self.open_directory(bank, store)
        index = directory.entities
        ids = {
            name: [
                record for public in index.complete(name.strip(), ENTITY_PREFIX) for record in index.get_records(public)
            ]
            for name in asked
        }
        records = {r.id: r for r in await store.get([i for some in ids.values() for i in some])}
        return {name: meant for name, some in ids.items() if (meant := [records[i] for i in some if i in records])}


def build_ambiguous_error(name: str, meant: Sequence[Record]) -> AmbiguousName:
    """Build the error that lists the matches: with public ids, or with record ids if the public ids are equal."""
    public = {record.id: get_public_id(record) for record in meant}
    unique = {i: known for i, known in public.items() if [*public.values()].count(known) == 1}
    return build_ambiguity_error(name, meant, unique)


async def _read_pages(store: RecordStore, kind: str, take: Callable[[Iterable[Record]], object]) -> None:
    last: str | None = None
    while True:
        page = await store.scan(RecordFilter(kinds=(kind,)), after=last, limit=PAGE_RECORDS)
        take(page)
        if len(page) < PAGE_RECORDS:
            return
        last = page[-1].id


ENTITY_PROFILE = SearchProfile(kinds=(ENTITY,))
OBSERVATION_PROFILE = SearchProfile(kinds=(OBSERVATION,))
TIERS_BY_STRICTNESS: tuple[Tier, ...] = ("expression", "all", "any", "substring")
MATCH_ALL = "*"
MAX_NEWEST_OBSERVATIONS = 5  # observations shown for an entity if none matched
MAX_LITERAL_OBSERVATIONS = 200  # observations compared if they contain the whole query
TYPE_WEIGHT, ATTRS_WEIGHT = 0.8, 0.6  # relative to a match in the name


class GraphReader(Value):
    """Read access of one call to one bank's graph."""

    bank: Bank
    store: RecordStore
    lookup: EntityLookup

    async def open(self, nodes: Sequence[str], depth: int) -> BankOpenedNodes:
        """Return these nodes and their neighborhood. Raise NotFound if none of them exists."""
        found = await self.lookup.find_candidates(self.bank, self.store, nodes)
        missing = [name for name, records in found.items() if not records]
        if len(missing) == len(found):
            names = ", ".join(missing)
            raise NotFound(
                ENTITY, names, message=f"Some entities not found: {names}.", hint="Find entities with graph_search."
            )
        roots = list({record.id: record for records in found.values() for record in records}.values())
        shown = await _read_neighborhood(self.store, roots, depth)
        by_id = {record.id: record for record in shown.entities}
        observations = await list_observations(self.store, by_id)
        return BankOpenedNodes(
            [BankEntityView.from_record(record) for record in shown.entities],
            [BankObservationView.from_record(o, by_id[o.parent or ""]) for o in observations],
            [BankRelationView.from_link(x, by_id[x.source], by_id[x.target]) for x in shown.relations],
            missing or None,
            shown.warnings,
        )

    async def find(self, query: str, limit: int, depth: int) -> BankFoundNodes:
        """Search entities and observations; with a depth, add connected entities."""
        is_listing = query.strip() in ("", MATCH_ALL)
        found = await (self._list_all(limit) if is_listing else self._find_matching(query.strip(), limit))
        shown = await _read_neighborhood(self.store, found.entities, depth)
        names = map_names(shown.entities)
        notes = await self._select_notes(found.matched, shown.entities)
        return BankFoundNodes(
            query,
            [_build_found_entity(record, notes.get(record.id, [])) for record in shown.entities],
            await self._build_found_observations(found.observations[:limit]),
            [FoundRelation(names[x.source], names[x.target], x.verb) for x in shown.relations],
            shown.warnings,
        )

    async def _list_all(self, limit: int) -> "_QueryHits":
        newest = [
            await self.store.scan(RecordFilter(kinds=(kind,)), order="newest", limit=limit)
            for kind in (ENTITY, OBSERVATION)
        ]
        return _QueryHits(*newest, matched=[])

    async def _find_matching(self, query: str, limit: int) -> "_QueryHits":
        """Return literal matches by score, then other matches of the words."""
        words = await self._find_by_words(query, limit)
        directory = await self.lookup.open_directory(self.bank, self.store)
        literal = _rank_cards(directory.cards.items(), query, limit)
        ids = list(dict.fromkeys([*literal, *(record.id for record in words.entities)]))
        observations = await self._find_literal_observations(query)
        known = {record.id for record in observations}
        observations += [record for record in words.observations if record.id not in known]
        entities = [r for r in await self.store.get(ids[:limit]) if r.kind == ENTITY]
        return _QueryHits(entities, observations, matched=observations)

    async def _find_by_words(self, query: str, limit: int) -> "_QueryHits":
        """Search both kinds by words, and keep only the hits of the stricter match.

        The entity of a matching observation is also a hit if its name has one of the words.
        """
        place = SearchPlace(self.store)
        entities = await search([place], query, ENTITY_PROFILE, limit=limit)
        observations = await search([place], query, OBSERVATION_PROFILE, limit=limit)
        strictest = min(_get_strictness(entities), _get_strictness(observations))
        named, told = (
            [hit.record for hit in found.hits] if _get_strictness(found) == strictest else []
            for found in (entities, observations)
        )
        words = parse_query(query).build_any_query()
        for owner in await self.store.get([record.parent or "" for record in told]):
            if words and is_match(split_fields(owner.name or "", "", ""), words):
                named.append(owner)
        return _QueryHits(named, told, matched=told)

    async def _find_literal_observations(self, query: str) -> list[Record]:
        found = await self.store.match_text(query, RecordFilter(kinds=(OBSERVATION,)), MAX_LITERAL_OBSERVATIONS)
        records = await self.store.get([match.id for match in found])
        score = _PhraseScorer(query.lower())
        records.sort(key=lambda record: (-score(record.text.lower()), -record.effective_at))
        return records

    async def _select_notes(self, matched: Sequence[Record], entities: Sequence[Record]) -> dict[str, list[Record]]:
        """Map each entity to its matched observations, or to its newest if none matched."""
        notes = _group_by_parent(matched)
        others = [record.id for record in entities if record.id not in notes]
        found = _group_by_parent(await list_observations(self.store, others))
        for owner, records in found.items():
            notes[owner] = heapq.nlargest(MAX_NEWEST_OBSERVATIONS, records, key=lambda record: record.effective_at)
        return notes

    async def _build_found_observations(self, observations: Sequence[Record]) -> list[FoundObservation]:
        parents = dict.fromkeys(record.parent or "" for record in observations)
        owners = {owner.id: owner for owner in await self.store.get(list(parents))}
        return [
            FoundObservation(
                get_observation_id(record, owner),
                record.text,
                get_public_id(owner),
                owner.name or "",
                format_iso(record.effective_at),
            )
            for record in observations
            if (owner := owners.get(record.parent or "")) is not None
        ]


class _QueryHits(Value):
    """The hits of a query. `matched` has all matching observations, including those not shown."""

    entities: list[Record]
    observations: list[Record]
    matched: list[Record]


class _Neighborhood(Value):
    entities: list[Record]
    relations: list[RecordLink]
    warnings: list[ToolWarning] | None = None


async def _read_neighborhood(store: RecordStore, roots: Sequence[Record], depth: int) -> _Neighborhood:
    """Return the roots, the entities up to `depth` relations away, and all relations between them."""
    shown = {record.id: record for record in roots}
    left_out = 0
    hops = Hops(depth, sources=(ENTITY,), width=MAX_NODES)
    async for hop in walk_around(store, roots, hops, MAX_NODES):
        shown |= {record.id: record for record in hop.entities}
        left_out += hop.left_out
    relations = await list_relations_among(store, shown.keys())
    omitted = format_count(left_out, "connected entity", "connected entities")
    warning = ToolWarning("too_many_entities", f"Omitted {omitted}; at most {MAX_NODES:,} are shown.")
    return _Neighborhood(list(shown.values()), relations, [warning] if left_out else None)


def _group_by_parent(observations: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in observations:
        found.setdefault(record.parent or "", []).append(record)
    return found


def _build_found_entity(record: Record, notes: Sequence[Record]) -> FoundEntity:
    return FoundEntity(
        get_public_id(record),
        record.name or "",
        record.type or "",
        get_attrs(record) or None,
        [
            NestedObservation(get_observation_id(note, record), note.text, format_iso(note.effective_at))
            for note in notes
        ],
    )


class _PhraseScorer:
    """Score of a text by where it has the phrase: equal, at the beginning, as words, anywhere."""

    def __init__(self, phrase: str) -> None:
        self._phrase = phrase
        self._word = re.compile(rf"(?<!\w){re.escape(phrase)}(?!\w)")

    def __call__(self, text: str) -> float:
        if self._phrase not in text:
            return 0
        if text.startswith(self._phrase):
            return 100 if text == self._phrase else 80
        return 60 if self._word.search(text) else 40

    def score(self, card: EntityCard) -> float:
        return max(self(card.name), TYPE_WEIGHT * self(card.type), ATTRS_WEIGHT * self(card.attrs))


def _rank_cards(cards: Iterable[tuple[str, EntityCard]], query: str, limit: int) -> list[str]:
    """Return the records with the query in name, type or attributes, best first, then by name."""
    scoring = _PhraseScorer(compute_name_key(query))
    scored = ((-score, card.name, record_id) for record_id, card in cards if (score := scoring.score(card)) > 0)
    return [record_id for _, _, record_id in heapq.nsmallest(limit, scored)]


def _get_strictness(found: SearchPage) -> int:
    """Return the rank of the tier that matched; without hits, one past the loosest tier."""
    return len(TIERS_BY_STRICTNESS) if found.tier is None else TIERS_BY_STRICTNESS.index(found.tier)
