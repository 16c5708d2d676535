"""Writes to memories: store, change and forget."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from everkept.core.commits import Planned, check_writable
from everkept.core.ports import RecordStore, VectorIndexer
from everkept.core.records import Delete, Insert, Record, RecordFilter, Step, Update
from everkept.core.secrets import Masker, mask_apart
from everkept.core.sessions import format_signature
from everkept.core.text import clip_text, format_count
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, Refused
from everkept.families.memories.lifecycle import build_supersession, find_same_text, finish_moves, mark_superseded
from everkept.families.memories.likeness import SimilarMemory, find_similar
from everkept.families.memories.memory_identity import get_event_time
from everkept.families.memories.memory_record import (
    Amendment,
    FieldValues,
    NewMemory,
    build_link_steps,
    build_record,
    build_top_up,
    build_unlink_steps,
    change_tags,
    check_entities,
    check_memory,
    clear_automatic,
    compute_amendment,
    count_new_links,
    count_relink,
    find_type,
    list_differences,
)
from everkept.families.memories.model import (
    MEMORY,
    SUPERSEDED_BY,
    EntityChange,
    ForgottenMemory,
    MemoryOptions,
    RelatedEntity,
    StoredMemory,
    TagChange,
    TaggedMemory,
    UpdatedMemory,
)
from everkept.families.memories.stores import (
    NO_SESSION,
    MemoryStores,
    SessionUses,
    build_session_steps,
    get_own_start,
    read_live_memory,
)
from everkept.tools.tool import ToolWarning, build_masking_warnings
from everkept.values import Value, replace

T = TypeVar("T")
PlanChange = Callable[[RecordStore, Record, int], Awaitable[Planned[T]]]


class _StoreOutcome(Value):
    """Memory after a store: a new one, or the existing one."""

    record: Record
    is_new: bool
    links: int
    updated: list[str]
    told_apart: list[str]


class MemoryWriter:
    """Writes of one call."""

    def __init__(
        self, stores: MemoryStores, indexing: VectorIndexer, options: MemoryOptions, uses: SessionUses
    ) -> None:
        self._stores = stores
        self._indexing = indexing
        self._options = options
        self._uses = uses
        self._masking = Masker(enabled=options.mask_secrets)

    async def store(self, wanted: NewMemory) -> StoredMemory:
        """Store a memory. The same text in the same scope updates the existing memory."""
        wanted = check_memory(await mask_apart(len(wanted.content), partial(self._mask_memory, wanted)))
        warnings = [*build_masking_warnings(self._masking.kinds), *await self._check_session_limit(wanted)]
        wanted = replace(wanted, entities=await self._add_types(wanted.entities))
        replaced = await self._find_replaced(wanted)

        tries = 0

        async def plan(store: RecordStore, at: int) -> Planned[_StoreOutcome]:
            # Most texts are new. A known text makes the commit conflict, and is then looked up.
            nonlocal tries
            tries += 1
            new = build_record(wanted, replaced, at)
            there = await find_same_text(store, new) if tries > 1 or replaced else None
            return await self._plan_store(store, new, there, wanted, replaced)

        store = await self._stores.open_for_write(wanted.scope)
        looking = asyncio.create_task(self._find_similar(store, wanted))
        try:
            kept = await self._stores.commit(store, plan)
            resemblance = await looking  # runs in another thread than the commit, so that neither waits
        finally:
            looking.cancel()
        self._indexing.wake(store)
        await self._count_stored(store, wanted.session, kept)
        if replaced is not None:
            await self._mark_superseded(replaced, kept.record.id)
        warnings += _list_store_warnings(kept, resemblance, replaced)
        return await self._build_answer(store, kept, warnings)

    async def update(self, memory_id: str, amendment: Amendment) -> UpdatedMemory:
        if amendment == Amendment():
            raise InvalidInput(
                "Nothing to update.", hint="Pass content, importance, tags, metadata, related_entities or pinned."
            )
        amendment = await mask_apart(len(amendment.content or ""), partial(self._mask_amendment, amendment))
        if amendment.entities is not None:
            added = await self._add_types(amendment.entities.add or ())
            amendment = replace(amendment, entities=replace(amendment.entities, add=added))
        warnings = build_masking_warnings(self._masking.kinds)

        async def change(store: RecordStore, record: Record, at: int) -> Planned[UpdatedMemory]:
            changed = compute_amendment(record, amendment)
            values: FieldValues = {key: v for part in changed.values() for key, v in part.items()}
            await _check_text(store, record, values)
            links = await _build_relinks(store, record, amendment.entities, at)
            if links:
                values["facets"] = count_relink(values.get("facets", record.facets))
            values = clear_automatic(record, values)
            steps: list[Step] = [Update(record.id, values, record.version)] if values else []
            failure = self._find_embedding_failure() if "content" in changed else None
            told = [*warnings, ToolWarning("embedding_failed", failure)] if failure else warnings
            return [*steps, *links], UpdatedMemory(
                memory_id=record.id,
                updated_fields=[*changed, *(["related_entities"] if links else [])],
                re_embedded="content" in changed and failure is None,
                version=record.version + bool(values),
                warnings=told or None,
            )

        return await self._change(memory_id, change)

    async def tag(self, memory_id: str, wanted: TagChange) -> TaggedMemory:
        wanted = self._mask_tags(wanted)
        warnings = build_masking_warnings(self._masking.kinds) or None

        async def change(store: RecordStore, record: Record, at: int) -> Planned[TaggedMemory]:
            tags = change_tags(record.tags, wanted)
            steps: list[Step] = []
            if tags != record.tags:
                steps.append(Update(record.id, clear_automatic(record, {"tags": tags}), record.version))
            return steps, TaggedMemory(record.id, list(tags), warnings)

        return await self._change(memory_id, change)

    async def forget(self, memory_id: str, reason: str | None) -> ForgottenMemory:
        """Hide the memory from recall. Forgetting it again changes nothing."""
        _, found = await self._stores.find_memory(memory_id)
        if found.deleted_at is not None:
            return ForgottenMemory(found.id, "forgotten", found.facets.get("forgotten_reason"))
        reason = self._masking.mask_optional(reason)
        warnings = build_masking_warnings(self._masking.kinds) or None

        async def change(store: RecordStore, record: Record, at: int) -> Planned[ForgottenMemory]:
            steps: list[Step] = [Delete(record.ref)]
            if reason:
                facets = {**record.facets, "forgotten_reason": reason}
                steps.insert(0, Update(record.id, {"facets": facets}, record.version))
            return steps, ForgottenMemory(record.id, "forgotten", reason or None, warnings)

        return await self._change(memory_id, change)

    def _mask_memory(self, wanted: NewMemory) -> NewMemory:
        if wanted.session is not None:
            self._masking.check_id(wanted.session, "session_id")
        return replace(
            wanted,
            content=self._masking.mask(wanted.content),
            tags=self._masking.mask_all(wanted.tags),
            source=replace(
                wanted.source,
                tool=self._masking.mask_optional(wanted.source.tool),
                file=self._masking.mask_optional(wanted.source.file),
            ),
            entities=self._mask_entities(wanted.entities),
            author=self._masking.mask_optional(wanted.author),
            metadata=wanted.metadata and self._masking.mask_json(wanted.metadata),
        )

    def _mask_amendment(self, amendment: Amendment) -> Amendment:
        """Mask added values only, because values to remove may have been stored unmasked."""
        if isinstance(amendment.tags, list):
            amendment = replace(amendment, tags=self._masking.mask_all(amendment.tags))
        elif amendment.tags is not None:
            amendment = replace(amendment, tags=self._mask_tags(amendment.tags))
        if amendment.entities is not None:
            check_entities(amendment.entities.add or (), "related_entities.add")
            added = self._mask_entities(amendment.entities.add or ())
            amendment = replace(amendment, entities=replace(amendment.entities, add=added))
        if amendment.metadata is not None:
            amendment = replace(amendment, metadata=self._masking.mask_json(amendment.metadata))
        return replace(amendment, content=self._masking.mask_optional(amendment.content))

    def _mask_entities(self, entities: Sequence[RelatedEntity]) -> list[RelatedEntity]:
        mask = self._masking.mask
        return [RelatedEntity(mask(e.name), e.type and mask(e.type), mask(e.relationship)) for e in entities]

    async def _add_types(self, entities: Sequence[RelatedEntity]) -> list[RelatedEntity]:
        """Add the types of entities given by name only, which may be known in the other store."""
        if all(entity.type for entity in entities):
            return list(entities)
        stores = (await self._stores.open_project(), await self._stores.open_user())
        return [entity if entity.type else await find_type(stores, entity) for entity in entities]

    def _mask_tags(self, change: TagChange) -> TagChange:
        return replace(change, add=self._masking.mask_all(change.add or ()))

    async def _change(self, memory_id: str, change: PlanChange[T]) -> T:
        try:
            return await self._try_change(memory_id, change)
        except NotFound:
            return await self._try_change(memory_id, change)  # it may have moved since the lookup

    async def _try_change(self, memory_id: str, change: PlanChange[T]) -> T:
        store, found = await self._find_memory(memory_id)

        async def plan(store: RecordStore, at: int) -> Planned[T]:
            return await change(store, await read_live_memory(store, found.id), at)

        answer = await self._stores.commit(store, plan)
        self._indexing.wake(store)
        return answer

    async def _find_memory(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Find the memory, and first complete its promotion if a crash interrupted it."""
        store, record = await self._stores.find_live_memory(memory_id)
        if record.scope == "user":
            project = await self._stores.open_project()
            await finish_moves(project, store, [record], self._stores.writer)
        return store, record

    async def _plan_store(
        self, store: RecordStore, new: Record, there: Record | None, wanted: NewMemory, replaced: str | None
    ) -> Planned[_StoreOutcome]:
        record = there or new
        if record.id == replaced:
            raise InvalidInput(
                f"`supersedes` is {record.id}, which already has this text.",
                hint="Omit `supersedes`.",
                argument="supersedes",
                value=replaced,
            )
        links = await build_link_steps(store, record.id, wanted.entities, new.created_at, is_new=there is None)
        steps: list[Step] = [Insert(new)]
        updated: list[str] = []
        if there is not None:
            steps, updated = build_top_up(there, new, has_links=bool(links))
        steps += links
        if replaced is not None:
            steps += await build_supersession(store, record.id, replaced, new.created_at)
        if wanted.session is not None and wanted.scope != "user":
            client = format_signature(self._stores.call.session.client)
            began = get_own_start(self._stores.call, wanted.session, self._options)
            steps += await build_session_steps(store, wanted.session, client, new.created_at, began)
        unlike = list_differences(record, new, updated)
        return steps, _StoreOutcome(record, there is None, count_new_links(links), updated, unlike)

    async def _find_replaced(self, wanted: NewMemory) -> str | None:
        if wanted.supersedes is None:
            return None
        store, record = await self._find_memory(wanted.supersedes)
        check_writable(store)  # it is marked after the new one is stored
        return record.id

    async def _mark_superseded(self, old: str, new: str) -> None:
        """Mark the old memory in its current store, if it was not forgotten since the lookup."""
        try:
            store, record = await self._stores.find_live_memory(old)
        except NotFound:
            return
        if record.id != new:
            await mark_superseded(self._stores.writer, store, record.id, new)

    async def _check_session_limit(self, wanted: NewMemory) -> list[ToolWarning]:
        """Warn at the limit, or refuse an automatic memory, because endless storing means a faulty hook."""
        if wanted.session is None:
            return []
        limit = self._options.max_per_session
        use = self._uses.get_use(wanted.session)
        if use.stored is None or use.stored >= limit:
            where = RecordFilter(kinds=(MEMORY,), sessions=(wanted.session,))
            stores = (await self._stores.open_project(), await self._stores.open_user())
            use.stored = max(use.stored or 0, sum([await store.count_records(where) for store in stores]))
        if use.stored < limit:
            return []
        stored = format_count(use.stored, "memory", "memories")
        message = f'Session "{wanted.session}" has stored {stored}; its limit is {limit:,}.'
        if wanted.is_automatic:
            raise Refused(
                f"{message} Automatic memories are no longer stored.",
                hint="Call reflect_and_consolidate to summarize them, or raise max_memories_per_session.",
                session_id=wanted.session,
                stored=use.stored,
                limit=limit,
            )
        return [ToolWarning("session_full", message)]

    async def _count_stored(self, store: RecordStore, session: str | None, kept: _StoreOutcome) -> None:
        if session is None:
            return
        use = self._uses.get_use(session)
        if use.stored is not None:
            use.stored += kept.is_new
        if kept.record.scope != "user":
            use.stores.add(store)
        use.user = await self._stores.open_user()

    async def _find_similar(self, store: RecordStore, wanted: NewMemory) -> list[SimilarMemory]:
        try:
            return await find_similar(store, wanted.content, wanted.type, wanted.session or NO_SESSION)
        except EverkeptError:  # the memory is stored even if this search fails
            return []

    async def _build_answer(self, store: RecordStore, kept: _StoreOutcome, warnings: list[ToolWarning]) -> StoredMemory:
        failure = self._find_embedding_failure()
        embedder = self._indexing.embedder
        is_pending = kept.is_new or (
            embedder is not None and not await store.get_vectors(embedder.name, [kept.record.id])
        )
        if failure is not None:
            warnings = [*warnings, ToolWarning("embedding_failed", failure)]
        return StoredMemory(
            memory_id=kept.record.id,
            embedding_generated=failure is None,
            graph_edges_created=kept.links,
            scope=kept.record.scope,
            type=kept.record.type or "",
            embedding="pending" if failure is None and is_pending else None,
            searchable_by="keyword_only" if failure is not None else None,
            existing=None if kept.is_new else True,
            updated=kept.updated or None,
            warnings=warnings or None,
        )

    def _find_embedding_failure(self) -> str | None:
        """Return why the text gets no embedding, or None."""
        if self._indexing.fault is not None:
            return f"{self._indexing.fault.message} Recall finds the memory by its words only."
        if self._indexing.embedder is None:
            return "Search by meaning is turned off. Recall finds the memory by its words only."
        return None


async def _check_text(store: RecordStore, record: Record, values: Mapping[str, Any]) -> None:
    if "name_key" not in values:
        return
    other = await find_same_text(store, replace(record, name_key=values["name_key"]))
    if other is not None and other.id != record.id:
        raise Conflict(
            f"Memory {other.id} already has this text.",
            hint="Call forget_memory on the one you do not need.",
            memory_id=other.id,
        )


async def _build_relinks(store: RecordStore, record: Record, change: EntityChange | None, at: int) -> list[Step]:
    if change is None:
        return []
    return [
        *await build_unlink_steps(store, record.id, change.remove or ()),
        *await build_link_steps(store, record.id, change.add or (), at),
    ]


def _list_store_warnings(
    kept: _StoreOutcome, resemblance: Sequence[SimilarMemory], replaced: str | None
) -> list[ToolWarning]:
    if kept.is_new:
        return [] if replaced else _list_similarity_warnings(resemblance, kept.record)
    told: list[ToolWarning] = []
    if kept.told_apart:
        message = f"This memory already exists and keeps its own {' and '.join(kept.told_apart)}."
        told.append(ToolWarning("kept_as_it_was", message))
    if (newer := kept.record.facets.get(SUPERSEDED_BY)) and not replaced:
        message = f"This memory was superseded by {newer}. If it is true again, pass that id as `supersedes`."
        told.append(ToolWarning("superseded_memory", message))
    return told


def _list_similarity_warnings(resemblance: Sequence[SimilarMemory], new: Record) -> list[ToolWarning]:
    """Warn about a similar memory. The new memory is stored by now, so it may be among the found ones."""
    found = next((a for a in resemblance if not _is_unrelated(a.record, new)), None)
    if found is None:
        return []
    named = f'{found.record.id} ("{clip_text(found.record.text, 200)}")'
    if found.likeness == "superseded":
        message = (
            f"This may replace {named}. If it does, call forget_memory on that one, or pass its id as `supersedes`."
        )
        return [ToolWarning("likely_superseded", message)]
    return [ToolWarning("similar_memory", f"A similar memory already exists: {named}.")]


def _is_unrelated(found: Record, new: Record) -> bool:
    """Return whether the found memory is the new one itself, or an event at another time."""
    moments = [get_event_time(record.type, record.occurred_at) for record in (found, new)]
    return found.id == new.id or (None not in moments and moments[0] != moments[1])
