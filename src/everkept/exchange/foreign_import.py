"""Import of what a source yields: each item once, by its source and its id there, however often it runs."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from everkept.core.ports import RecordStore
from everkept.core.projects import to_project_name
from everkept.core.records import Record, RecordLink
from everkept.core.secrets import Masker
from everkept.core.text import blake2b, compute_name_key, find_forbidden
from everkept.core.times import Clock
from everkept.exchange.foreign import (
    OWN_ID,
    ForeignEntity,
    ForeignItem,
    ForeignLink,
    ForeignMemory,
    ForeignRelation,
    Skipped,
)
from everkept.exchange.importer import PAUSE_SECONDS, ExportImport, Progress, StoreImport, split_chunks
from everkept.families.memories.memory_identity import (
    EVENT_TYPE,
    build_variant,
    compute_memory_id,
    compute_text_key,
    get_event_time,
)
from everkept.families.memories.model import (
    CONTENT_LIMIT,
    DEFAULT_RELATIONSHIP,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    MEMORY,
    PATH_LIMIT,
    SUPERSEDED_BY,
    SUPERSEDES,
)
from everkept.graph.entities import (
    ENTITY,
    MAX_NAME_CHARACTERS,
    OBSERVATION,
    STUB_FACETS,
    UNKNOWN_TYPE,
    compute_observation_key,
)
from everkept.values import Value, field, replace

PINNED = "pinned"
IMPORTED_FACET = "imported"  # where a record comes from, and what it had there that ours has not
USER = ""  # place of memories with the scope user; other places are names of projects
USER_TITLE = "the user"

OpenProject = Callable[[str], Awaitable[RecordStore | None]]  # None: it is off, so nothing may be stored there


class CleanText:
    """Texts of other programs within our limits, and with secrets masked."""

    def __init__(self, masking: Masker) -> None:
        self.masking = masking

    def clean_text(self, text: str) -> str:
        if find_forbidden(text) is not None:
            text = "".join(sign for sign in text if find_forbidden(sign) is None)
        return self.masking.mask(text)

    def clean_name(self, text: Any, limit: int = MAX_NAME_CHARACTERS) -> str:
        """Return a name or tag in one line, within the limit."""
        plain = "".join(sign if sign.isprintable() else " " for sign in self.clean_text(str(text)))
        return " ".join(plain.split())[:limit].strip()

    def clean_tags(self, tags: Iterable[Any]) -> tuple[str, ...]:
        names = (self.clean_name(tag, MAX_TAG_CHARACTERS) for tag in tags)
        return tuple(dict.fromkeys(filter(None, names)))[:MAX_TAGS]


class ImportedKind(Value):
    """How many items of one kind become what, and where."""

    kind: str
    becomes: str
    project: str
    count: int


class ForeignImport(Value, frozen=False):
    """Counts of what an import added. `skipped` are items that it does not import, by reason.

    `forgotten` memories were forgotten here and stay so; `older` ones are newer here.
    """

    source: str
    place: str
    dry_run: bool = False
    projects: list[str] = field(default_factory=list[str])
    kinds: list[ImportedKind] = field(default_factory=list[ImportedKind])
    memories: int = 0
    entities: int = 0
    observations: int = 0
    links: int = 0
    conversations: int = 0
    turns: int = 0
    updated: int = 0
    unchanged: int = 0
    older: int = 0
    forgotten: int = 0
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    masked: list[str] = field(default_factory=list[str])


class ImportTarget(Value):
    """Target of an import. With `one_project`, everything but the user's memories goes to `main`."""

    user: RecordStore
    main: str
    open_project: OpenProject
    one_project: bool = False


async def import_foreign(
    items: Sequence[ForeignItem],
    outcome: ForeignImport,
    skipped: Skipped,
    target: ImportTarget,
    clock: Clock,
    progress: Progress,
    *,
    at: int,
    mask: bool = True,
) -> ForeignImport:
    """Import the items. `at` is the time of those without a time: that of their file."""
    run = _Import(outcome, skipped, target, clock, progress, mask=mask, at=at)
    return await run.import_all(items)


class _Import:
    """One import: the items by place, and the records that they become."""

    def __init__(
        self,
        outcome: ForeignImport,
        skipped: Skipped,
        target: ImportTarget,
        clock: Clock,
        progress: Progress,
        *,
        mask: bool,
        at: int,
    ) -> None:
        self._outcome = outcome
        self._skipped = skipped
        self._target = target
        self._clock = clock
        self._progress = progress
        self._mask = mask
        self._clean = CleanText(Masker(enabled=mask))
        self._at = at
        self._counts = ExportImport()
        self._done = self._total = 0
        self._places: dict[str, str] = {}  # the place of each memory, by its id there

    async def import_all(self, items: Sequence[ForeignItem]) -> ForeignImport:
        by_place: dict[str, list[ForeignItem]] = {}
        for item in items:
            if isinstance(item, ForeignMemory):
                if not self._is_storable(item):
                    continue
                self._places[item.id] = USER if item.scope == "user" else self._name_project(item.project)
            elif isinstance(item, ForeignEntity):
                self._places[item.id] = self._choose_graph(item)
        for item in _pair_versions(items):
            if (place := self._choose_place(item)) is not None:
                by_place.setdefault(place, []).append(item)
        stores = await self._open_stores(by_place)
        self._total = sum(len(by_place[place]) for place in stores)
        self._outcome.kinds = _count_kinds({place: by_place[place] for place in stores})
        for place, store in stores.items():
            await self._import_place(place, store, by_place[place])
        for name in ("updated", "unchanged", "older", "forgotten"):
            setattr(self._outcome, name, getattr(self._counts, name))
        self._skip("other end is missing", self._counts.left_out)
        self._outcome.skipped = dict(sorted((+self._skipped).items()))
        self._outcome.masked = sorted({*self._counts.masked, *self._clean.masking.kinds})
        self._outcome.projects = sorted(place for place in stores if place != USER)
        self._progress(self._total, self._total)
        return self._outcome

    def _is_storable(self, item: ForeignMemory) -> bool:
        reason = "empty" if not item.text.strip() else "too long" if len(item.text) > CONTENT_LIMIT else None
        self._skip(reason or "", int(reason is not None))
        return reason is None

    def _skip(self, reason: str, count: int = 1) -> None:
        if count:
            self._skipped[reason] += count

    def _choose_place(self, item: ForeignItem) -> str | None:
        """Return the place of an item, or None if it is not imported."""
        if isinstance(item, ForeignLink):
            here = self._places.get(item.source)
            if here is None or self._places.get(item.target) != here:
                self._skip("other end is missing")
                return None
            return here
        if isinstance(item, ForeignMemory):
            return self._places.get(item.id)
        return self._choose_graph(item)

    def _choose_graph(self, item: ForeignEntity | ForeignRelation) -> str:
        return USER if item.scope == "user" else self._name_project(item.project)

    def _name_project(self, name: str | None) -> str:
        if name is None or self._target.one_project:
            return self._target.main
        return to_project_name(self._clean.clean_name(name))

    async def _open_stores(self, by_place: Mapping[str, Sequence[ForeignItem]]) -> dict[str, RecordStore]:
        """Open all stores before anything is imported. Raise ProjectArchived."""
        stores: dict[str, RecordStore] = {}
        for place, items in by_place.items():
            store = self._target.user if place == USER else await self._target.open_project(place)
            if store is None:
                self._skip(f"project {place} is off", len(items))
            else:
                stores[place] = store
        return stores

    async def _import_place(self, place: str, store: RecordStore, items: Sequence[ForeignItem]) -> None:
        dry_run = self._outcome.dry_run
        joining = StoreImport(store, self._clock, self._counts, mask=self._mask, dry_run=dry_run)
        builder = _RecordBuilder(self._outcome.source, place, self._clean, self._at)
        entities = [item for item in items if isinstance(item, ForeignEntity)]
        relations = [item for item in items if isinstance(item, ForeignRelation)]
        memories = [item for item in items if isinstance(item, ForeignMemory)]
        made = builder.build_entities(entities, relations, memories)
        told = builder.build_observations(entities)
        records = [builder.build_memory(item, self._places) for item in memories]
        bare = {record.id for item, record in zip(memories, records, strict=True) if item.has_only_text}
        exported = {builder.build_entity_id(item.id): item.updated_at for item in entities}
        known = _KnownDetails(store, builder.own, exported)
        self._outcome.entities += await self._add(joining, await known.keep(made))
        self._outcome.observations += await self._add(joining, await known.keep(told))
        self._outcome.memories += await self._add(joining, await known.keep(records, bare))
        links = [builder.build_relation(item) for item in relations]
        links += [link for item in memories for link in builder.build_memory_links(item, self._places)]
        links += [builder.build_link(item) for item in items if isinstance(item, ForeignLink)]
        before = self._counts.links
        for chunk in split_chunks(links):
            await joining.add_links(chunk)
            await self._report(0)
        self._outcome.links += self._counts.links - before
        await self._report(len(relations) + len(items) - len(entities) - len(relations) - len(memories))

    async def _add(self, joining: StoreImport, records: Sequence[Record]) -> int:
        """Add the records and return how many are new."""
        before = self._counts.records
        for chunk in split_chunks(records):
            await joining.add_records(chunk)
            await self._report(sum(record.kind != OBSERVATION for record in chunk))
        return self._counts.records - before

    async def _report(self, done: int) -> None:
        self._done = min(self._done + done, self._total)
        self._progress(self._done, self._total)
        await asyncio.sleep(PAUSE_SECONDS)


class _KnownDetails:
    """What is stored already and a source does not show: it stays, and only what the source shows can change it."""

    def __init__(self, store: RecordStore, own: Collection[str], exported: Mapping[str, int | None]) -> None:
        """`own` are ids of records in an export of ours, and `exported` the times of its entities."""
        self._store = store
        self._own = own
        self._exported = exported

    async def keep(self, records: Sequence[Record], bare: Collection[str] = ()) -> list[Record]:
        """Return the records with their stored details. Of `bare` ones, the source has only the texts."""
        asked = [record.id for record in records if record.id in self._own or record.id in bare]
        known = {record.id: record for chunk in split_chunks(asked) for record in await self._store.get(chunk)}
        return [self._merge(each, known[each.id], each.id in bare) if each.id in known else each for each in records]

    def _merge(self, record: Record, there: Record, is_bare: bool) -> Record:
        shown: dict[str, Any] = (
            {} if _is_same_text(record.text, there.text) else {"text": record.text, "name_key": record.name_key}
        )
        if is_bare:
            return replace(there, **shown, updated_at=record.updated_at)
        if record.kind == OBSERVATION:  # an export shows no time of it
            exported = self._exported.get(record.parent or "")
            return there if exported is not None and there.updated_at > exported else replace(there, **shown)
        names = ("name", "name_key", "type", "variant")
        if record.kind == MEMORY:
            names = ("type", "variant", "author", "importance", "occurred_at", "tags")
        shown |= {name: getattr(record, name) for name in names}
        return replace(there, **shown, updated_at=min(record.updated_at, there.updated_at))


def _is_same_text(one: str, other: str) -> bool:
    """Return whether two texts differ only in whitespace at the ends of lines."""
    first, second = ([line.rstrip() for line in text.strip().split("\n")] for text in (one, other))
    return first == second


def _pair_versions(items: Sequence[ForeignItem]) -> list[ForeignItem]:
    """Return the items with both ids wherever one of two versions of a memory names the other."""
    memories = [item for item in items if isinstance(item, ForeignMemory)]
    pairs = [(item.supersedes, item.id) for item in memories] + [(item.id, item.superseded_by) for item in memories]
    newer = {old: new for old, new in pairs if old and new}
    older = {new: old for old, new in newer.items()}
    return [
        replace(item, supersedes=older.get(item.id), superseded_by=newer.get(item.id))
        if isinstance(item, ForeignMemory) and (item.id in newer or item.id in older)
        else item
        for item in items
    ]


def _count_kinds(by_place: Mapping[str, Sequence[ForeignItem]]) -> list[ImportedKind]:
    counts: Counter[tuple[str, str, str]] = Counter()
    for place, items in by_place.items():
        for item in items:
            counts[(*_name_kinds(item), place or USER_TITLE)] += 1
            if isinstance(item, ForeignEntity) and item.observations:
                counts[("observation", "observation", place)] += len(item.observations)
    return [ImportedKind(*key, count) for key, count in sorted(counts.items(), key=lambda each: (each[0][2], each[0]))]


def _name_kinds(item: ForeignItem) -> tuple[str, str]:
    """Return what an item is called there and here."""
    if isinstance(item, ForeignMemory):
        return item.kind or "memory", f"{item.type} memory"
    if isinstance(item, ForeignEntity):
        return item.type, "entity"
    return "relation" if isinstance(item, ForeignRelation) else "link", "relation"


class _RecordBuilder:
    """Builds the records and links of one place."""

    def __init__(self, source: str, place: str, clean: CleanText, at: int) -> None:
        self._source = source
        self._place = place
        self._clean = clean
        self._at = at
        self.own: set[str] = set()  # ids of records that come from an export of ours

    def build_memory(self, item: ForeignMemory, places: Mapping[str, str]) -> Record:
        created = self._at if item.created_at is None else item.created_at
        occurred = item.occurred_at
        if item.type == EVENT_TYPE and occurred is None:
            occurred = created  # the same words at another time are another event
        session = None if item.session is None else self._clean.clean_name(item.session)
        text = self._clean.clean_text(item.text)
        file = self._clean.clean_name(item.file or "", PATH_LIMIT)
        facets = {
            "source": {"tool": self._source, **({"file": file} if file else {})},
            "metadata": self._clean.masking.mask_json(item.metadata) if item.metadata else None,
            IMPORTED_FACET: {"from": self._source},
            SUPERSEDES: self._find_memory(item.supersedes, places),
            PINNED: item.is_pinned,
            SUPERSEDED_BY: self._find_memory(item.superseded_by, places),
        }
        return Record(
            id=self._build_memory_id(item.id),
            kind=MEMORY,
            name=file or None,
            type=item.type,
            text=text,
            name_key=compute_text_key(text),
            variant=build_variant(item.scope, session, get_event_time(item.type, occurred)),
            scope=item.scope,
            session=session or None,
            author=self._clean.clean_name(item.author or "") or None,
            importance=min(max(item.importance, 0.0), 1.0),
            occurred_at=occurred,
            tags=self._clean.clean_tags(item.tags),
            facets={name: value for name, value in facets.items() if value},
            created_at=created,
            updated_at=max(created, item.updated_at or created),
        )

    def build_memory_links(self, item: ForeignMemory, places: Mapping[str, str]) -> list[RecordLink]:
        """Build the links of a memory to its entities, and of the memory that replaces it to the memory."""
        memory, at = self._build_memory_id(item.id), item.created_at
        entities = [self.build_entity_id(_name_entity(*each)) for each in item.related]
        links = [self._build_link(memory, DEFAULT_RELATIONSHIP, entity, at) for entity in entities]
        if newer := self._find_memory(item.superseded_by, places):
            links.append(self._build_link(newer, SUPERSEDES, memory, at))
        return links

    def build_entities(
        self, entities: Sequence[ForeignEntity], relations: Sequence[ForeignRelation], memories: Sequence[ForeignMemory]
    ) -> list[Record]:
        """Build the entities, and those that only a relation or a memory names."""
        records = {item.id: self._build_entity(item) for item in entities}
        for item in relations:
            for end in (item.source, item.target):
                if end not in records:
                    stub = ForeignEntity(end, end, UNKNOWN_TYPE, created_at=item.created_at)
                    records[end] = self._build_entity(stub, STUB_FACETS)
        for memory in memories:
            for kind, name in memory.related:
                key = _name_entity(kind, name)
                if key not in records:
                    records[key] = self._build_entity(ForeignEntity(key, name, kind, created_at=memory.created_at))
        return list(records.values())

    def _build_entity(self, item: ForeignEntity, facets: Mapping[str, Any] | None = None) -> Record:
        name = self._clean.clean_name(item.name) or "?"
        kind = self._clean.clean_name(item.type) or UNKNOWN_TYPE
        metadata = self._clean.masking.mask_json(item.metadata) if item.metadata else {}
        created = self._at if item.created_at is None else item.created_at
        return Record(
            id=self.build_entity_id(item.id),
            kind=ENTITY,
            name=name,
            type=kind,
            name_key=compute_name_key(name),
            variant=compute_name_key(kind),
            facets={
                IMPORTED_FACET: {"from": self._source},
                **({"metadata": metadata} if metadata else {}),
                **(facets or {}),
            },
            created_at=created,
            updated_at=created,
        )

    def build_observations(self, entities: Sequence[ForeignEntity]) -> list[Record]:
        records: dict[str, Record] = {}
        for item in entities:
            parent = self.build_entity_id(item.id)
            created = self._at if item.created_at is None else item.created_at
            marks = [*item.observation_ids, *[None] * (len(item.observations) - len(item.observation_ids))]
            for mark, said in zip(marks, item.observations, strict=True):
                if not (text := self._clean.clean_text(said).strip()):
                    continue
                key = compute_observation_key(text)
                if mark is not None:
                    self.own.add(mark)
                record = Record(
                    id=mark or self._build_id("observation", f"{item.id} {key}"),
                    kind=OBSERVATION,
                    text=text,
                    name_key=key,
                    parent=parent,
                    created_at=created,
                    updated_at=created,
                )
                records[record.id] = record
        return list(records.values())

    def build_relation(self, item: ForeignRelation) -> RecordLink:
        source, target = self.build_entity_id(item.source), self.build_entity_id(item.target)
        return self._build_link(source, self._clean.clean_name(item.verb) or "relates_to", target, item.created_at)

    def build_link(self, item: ForeignLink) -> RecordLink:
        source, target = self._build_memory_id(item.source), self._build_memory_id(item.target)
        return self._build_link(source, self._clean.clean_name(item.verb) or "relates_to", target, item.created_at)

    def _build_link(self, source: str, verb: str, target: str, at: int | None) -> RecordLink:
        link_id = self._build_id("link", f"{source} {verb} {target}")
        return RecordLink(link_id, source, verb, target, self._at if at is None else at)

    def _find_memory(self, item: str | None, places: Mapping[str, str]) -> str | None:
        """Return our id of a memory that is imported to this place, or None."""
        return self._build_memory_id(item) if item is not None and places.get(item) == self._place else None

    def _build_memory_id(self, item: str) -> str:
        """Return our id. It holds no time, because a later time of a file must not make another memory."""
        if (own := self._find_own(item)) is not None:
            return own
        name = f"{self._source} {item}"
        mark = int.from_bytes(blake2b(name.encode("utf-8", "replace"), digest_size=6).digest(), "big")
        return compute_memory_id(mark // 8 * 1000, name)  # the first sign of such an id is at most 7

    def build_entity_id(self, item: str) -> str:
        return self._find_own(item) or self._build_id("entity", item)

    def _find_own(self, item: str) -> str | None:
        if not item.startswith(OWN_ID):
            return None
        own = item.removeprefix(OWN_ID)
        self.own.add(own)
        return own

    def _build_id(self, kind: str, item: str) -> str:
        # A project's store and the user's are read together, so their ids differ.
        place = "project" if self._place else "user"
        return str(uuid5(NAMESPACE_URL, f"{self._source} {place} {kind} {item}"))


def _name_entity(kind: str, name: str) -> str:
    """Return the id of an entity that a memory names."""
    return f"{kind}:{name}"
