"""Who is meant by a name or a public id: the ids are computed, so a directory remembers them."""

import asyncio
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from everkept.core.ports import RecordStore
from everkept.core.records import Record, Where
from everkept.core.text import normalised
from everkept.errors import AmbiguousName
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.graph_ids import ENTITY_PREFIX, LENGTH
from everkept.families.bank.graph_model import (
    attrs_of,
    observation_id_below,
    observation_public_id,
    own_id,
    public_id,
)
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.graph.lookup import ambiguous, candidates, one_each

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
