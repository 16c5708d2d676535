"""Rebase of pending commits onto the current data of a store."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Delete, Insert, Record, RecordFilter, RecordLink, Ref, Restore, Step, Update
from everkept.engines.commit_plan import CommitPlanner, UniqueEdge, get_unique_edge, get_unique_name
from everkept.errors import Conflict
from everkept.values import Value, replace

_Name = tuple[str, str]  # kind and name_key


class CachedStoreView:
    """CommitView of a store that reads everything only once."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._records: dict[str, Record | None] = {}
        self._links: dict[str, RecordLink | None] = {}
        self._named: dict[_Name, list[Record]] = {}
        self._outgoing: dict[str, list[RecordLink]] = {}

    async def prefetch(self, steps: Sequence[Step]) -> None:
        """Read everything that the steps mention."""
        refs = [ref for step in steps for ref in _list_refs(step)]
        await self._read_records(ref.id for ref in refs if ref.subject == "record")
        await self._read_links(ref.id for ref in refs if ref.subject == "link")
        # Restored and changed items refer to more records.
        records = [record for record in self._records.values() if record]
        links = [link for link in self._links.values() if link]
        await self._read_records(end for link in links for end in (link.source, link.target))
        await self._read_records(record.parent for record in records if record.parent)
        inserted = [step.item for step in steps if isinstance(step, Insert)]
        links += [item for item in inserted if isinstance(item, RecordLink)]
        await self._read_outgoing({link.source for link in links})
        records += [item for item in inserted if isinstance(item, Record)]
        names = {(each.kind, each.name_key) for each in records if each.name_key is not None}
        updated = [step for step in steps if isinstance(step, Update)]
        for step in updated:
            record, name_key = self._records.get(step.id), step.values.get("name_key")
            if record and name_key is not None:
                names.add((record.kind, name_key))
        await self._read_names(names)

    async def find_record(self, record_id: str) -> Record | None:
        await self._read_records([record_id])
        return self._records[record_id]

    async def find_link(self, link_id: str) -> RecordLink | None:
        await self._read_links([link_id])
        return self._links[link_id]

    async def list_children(self, record_ids: Sequence[str]) -> Sequence[Record]:
        return await self._store.scan(RecordFilter(parents=tuple(record_ids), deleted=None))

    async def list_links(self, record_id: str) -> Sequence[RecordLink]:
        return await self._store.find_links([record_id])

    async def list_namesakes(self, record: Record) -> Sequence[Record]:
        if record.name_key is None:
            return []
        name = record.kind, record.name_key
        await self._read_names([name])
        place = record.variant, record.parent
        return [each for each in self._named[name] if (each.variant, each.parent) == place]

    async def list_duplicates(self, link: RecordLink) -> Sequence[RecordLink]:
        await self._read_outgoing([link.source])
        edge = link.verb, link.target
        return [each for each in self._outgoing[link.source] if (each.verb, each.target) == edge]

    async def _read_records(self, ids: Iterable[str]) -> None:
        if new := [each for each in dict.fromkeys(ids) if each not in self._records]:
            self._records |= dict.fromkeys(new)
            self._records |= {r.id: r for r in await self._store.get(new, include_deleted=True)}

    async def _read_links(self, ids: Iterable[str]) -> None:
        if new := [each for each in dict.fromkeys(ids) if each not in self._links]:
            self._links |= dict.fromkeys(new)
            self._links |= {link.id: link for link in await self._store.get_links(new, include_deleted=True)}

    async def _read_names(self, names: Iterable[_Name]) -> None:
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for kind, name_key in names:
            if (kind, name_key) not in self._named:
                self._named[kind, name_key] = []
                keys[kind].append(name_key)
        for kind, wanted in keys.items():
            for record in await self._store.scan(RecordFilter(kinds=(kind,), name_keys=tuple(wanted))):
                self._named[kind, record.name_key or ""].append(record)

    async def _read_outgoing(self, sources: Iterable[str]) -> None:
        new = [each for each in dict.fromkeys(sources) if each not in self._outgoing]
        if new:
            self._outgoing |= {source: [] for source in new}
            for link in await self._store.find_links(new, direction="out"):
                self._outgoing[link.source].append(link)


def _list_refs(step: Step) -> list[Ref]:
    match step:
        case Insert(Record() as record):
            parent = [Ref("record", record.parent)] if record.parent else []
            return [record.ref, *parent]
        case Insert(RecordLink() as link):
            return [link.ref, Ref("record", link.source), Ref("record", link.target)]
        case Update():
            return [Ref("record", step.id)]
        case Delete(ref) | Restore(ref):
            return [ref]
        case _:
            raise TypeError(step)


_ID_CHARACTERS = 8  # enough to distinguish most ids


# What tells two records of one name apart. Not the spelling of the name, because the name key decides which are equal.
_CONTENT_FIELDS = ("text", "scope", "importance", "occurred_at", "tags", "facets")


class _BaseMissing(Exception):
    """Data that a step builds on is missing."""


class RebasedBatch(Value):
    """A batch for the current data, possibly without steps. `merged` maps ids of items that the store already has."""

    batch: Batch
    merged: Mapping[str, str]


async def rebase_batch(batch: Batch, store: RecordStore) -> RebasedBatch | None:
    """Return the batch for the current data, or None if data it builds on is missing."""
    view = CachedStoreView(store)
    await view.prefetch(batch.steps)
    rebase = _BatchRebase(batch, view)
    try:
        steps = [fitting for step in batch.steps for fitting in await rebase.rebase_step(step)]
    except _BaseMissing:
        return None
    return RebasedBatch(replace(batch, steps=tuple(steps), revision=None), rebase.merged)


def rename_items(batch: Batch, merged: Mapping[str, str]) -> Batch:
    """Return the batch with the ids of the items with which earlier batches were merged.

    An undo deletes only what its change created, so it does not delete these.
    """
    if not merged:
        return batch
    made = {step.item.id for step in batch.steps if isinstance(step, Insert)}
    ids = {old: new for old, new in merged.items() if old not in made}
    steps = (
        _rename_item(step, ids)
        for step in batch.steps
        if not (batch.undoes is not None and isinstance(step, Delete) and step.ref.id in ids)
    )
    return replace(batch, steps=tuple(steps))


def _rename_item(step: Step, ids: Mapping[str, str]) -> Step:
    match step:
        case Insert(Record() as record):
            parent = record.parent and ids.get(record.parent, record.parent)
            return Insert(replace(record, parent=parent))
        case Insert(RecordLink() as link):
            ends = ids.get(link.source, link.source), ids.get(link.target, link.target)
            return Insert(replace(link, source=ends[0], target=ends[1]))
        case Update():
            return replace(step, id=ids.get(step.id, step.id))
        case Delete(ref):
            return Delete(replace(ref, id=ids.get(ref.id, ref.id)))
        case Restore(ref):
            return Restore(replace(ref, id=ids.get(ref.id, ref.id)))
        case _:
            raise TypeError(step)


class _BatchRebase:
    """One batch, with the effects of the steps so far on the stored data."""

    def __init__(self, batch: Batch, view: CachedStoreView) -> None:
        self._view = view
        self._planner = CommitPlanner(batch, view)
        self._named: dict[str, None] = {}  # records that may have got a name in the batch
        self._joined: dict[UniqueEdge, str] = {}  # new links of the batch
        self.merged: dict[str, str] = {}  # new items that exist under another id

    async def rebase_step(self, step: Step) -> Sequence[Step]:
        """Return the steps with the intended effect, or none if the store already has it."""
        match step := _rename_item(step, self.merged):
            case Insert(Record() as record):
                return await self._insert(record)
            case Insert(RecordLink() as link):
                return [] if await self._planner.find_link(link.id) else await self._skip_duplicate(step, link)
            case Update():
                return await self._update(step)
            case Delete(ref):
                thing = await self._find_item(ref)
                is_there = thing is not None and thing.deleted_at is None
                return [await self._select_first(step)] if is_there else []
            case Restore(ref):
                return await self._restore(ref)
            case _:
                raise TypeError(step)

    async def _insert(self, record: Record) -> Sequence[Step]:
        if await self._planner.find_record(record.id):
            return []
        if record.parent is not None:
            await self._get_live(record.parent)
        holder = None if record.name_key is None else await self._find_holder(record)
        if holder is not None and _has_same_content(holder, record):
            self.merged[record.id] = holder.id
            return []
        self._named[record.id] = None
        others = _build_variants(record.variant, record.id)
        renamed = (Insert(replace(record, variant=each)) for each in others)
        return [await self._select_first(Insert(record), *renamed)]

    async def _update(self, step: Update) -> Sequence[Step]:
        record = await self._get_live(step.id)
        self._named[record.id] = None
        fresh = replace(step, version=record.version)
        others = _build_variants(step.values.get("variant", record.variant), record.id)
        renamed = (replace(fresh, values={**step.values, "variant": each}) for each in others)
        return [await self._select_first(fresh, *renamed)]

    async def _restore(self, ref: Ref) -> Sequence[Step]:
        thing = await self._find_item(ref)
        if thing and thing.deleted_at is None:
            return []
        if thing is None:
            raise _BaseMissing
        if isinstance(thing, RecordLink):
            return await self._skip_duplicate(Restore(ref), thing)
        if thing.parent is not None:
            await self._get_live(thing.parent)
        self._named[thing.id] = None
        if await self._can_apply(Restore(ref)):
            return [Restore(ref)]
        return await self._restore_beside(thing)

    async def _restore_beside(self, record: Record) -> Sequence[Step]:
        """Restore a record whose name is taken. It cannot be renamed while deleted, so the other one is, for now."""
        holder = await self._find_holder(record)
        if holder is None:
            raise _BaseMissing
        away = await self._rename(holder.id, _build_variants(holder.variant, holder.id))
        back = await self._select_first(Restore(record.ref))
        beside = await self._rename(record.id, _build_variants(record.variant, record.id))
        return [away, back, beside, await self._rename(holder.id, (holder.variant,))]

    async def _rename(self, record_id: str, variants: Sequence[str]) -> Step:
        record = await self._get_live(record_id)
        at, version = record.updated_at, record.version
        return await self._select_first(*(Update(record_id, {"variant": each}, version, at) for each in variants))

    async def _find_holder(self, wanted: Record) -> Record | None:
        """Return the live record that has the name of this one."""
        there = (record.id for record in await self._view.list_namesakes(wanted))
        for record_id in (*there, *self._named):
            record = await self._planner.find_record(record_id)
            if record and record.deleted_at is None and get_unique_name(record) == get_unique_name(wanted):
                return record
        return None

    async def _skip_duplicate(self, step: Step, link: RecordLink) -> Sequence[Step]:
        await self._get_live(link.source)
        await self._get_live(link.target)
        edge = get_unique_edge(link)
        if await self._can_apply(step):
            self._joined[edge] = link.id
            return [step]
        there = [each.id for each in await self._view.list_duplicates(link) if each.deleted_at is None]
        self.merged[link.id] = self._joined.get(edge) or there[0]
        return []

    async def _select_first(self, *steps: Step) -> Step:
        for step in steps:
            if await self._can_apply(step):
                return step
        raise _BaseMissing

    async def _can_apply(self, step: Step) -> bool:
        try:
            await self._planner.apply(step)
        except Conflict:
            return False
        return True

    async def _get_live(self, record_id: str) -> Record:
        record = await self._planner.find_record(record_id)
        if record is None or record.deleted_at is not None:
            raise _BaseMissing
        return record

    async def _find_item(self, ref: Ref) -> Record | RecordLink | None:
        if ref.subject == "record":
            return await self._planner.find_record(ref.id)
        return await self._planner.find_link(ref.id)


def _has_same_content(one: Record, other: Record) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _CONTENT_FIELDS)


def _build_variants(variant: str, record_id: str) -> tuple[str, ...]:
    """Return variants that only this record can have, the shorter first."""
    return f"{variant}~{record_id[:_ID_CHARACTERS]}", f"{variant}~{record_id}"
