"""Memories: what storing, changing and forgetting one does, whoever asks."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from recollect.core.entities import check_name
from recollect.core.ports import Indexing, RecordStore
from recollect.core.records import Delete, Insert, Link, Record, Step, Update
from recollect.core.text import clipped
from recollect.errors import Conflict, InvalidInput, NotFound, RecollectError, Refused
from recollect.families.memories.amending import (
    Amendment,
    Values,
    amended,
    clean_tags,
    retagged,
)
from recollect.families.memories.identity import full_id, new_memory_id, place_of, text_key
from recollect.families.memories.likeness import Alike, alike
from recollect.families.memories.linking import (
    check_entities,
    link_steps,
    links_made,
    unlink_steps,
)
from recollect.families.memories.masking import Masking
from recollect.families.memories.model import (
    DEFAULT_IMPORTANCE,
    MEMORY,
    SUPERSEDES,
    EntityChange,
    ForgottenMemory,
    MemoryType,
    Options,
    RelatedEntity,
    Scope,
    Source,
    StoredMemory,
    TagChange,
    TaggedMemory,
    UpdatedMemory,
    Warned,
)
from recollect.families.memories.promotion import same_text, settle
from recollect.families.memories.sessions import NO_SESSION, Uses, session_steps, stored_by
from recollect.families.memories.stores import Planned, Stores, still_there

UNKNOWN_SOURCE = Source()
HOOKS = "hook"  # what a source's tool begins with where nobody asked for the memory


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory as it is asked for; `session` is None where no session is known."""

    content: str
    type: MemoryType
    scope: Scope
    importance: float = DEFAULT_IMPORTANCE
    session: str | None = None
    tags: Sequence[str] = ()
    source: Source = UNKNOWN_SOURCE
    entities: Sequence[RelatedEntity] = ()
    author: str | None = None
    occurred_at: int | None = None
    pinned: bool = False
    supersedes: str | None = None

    @property
    def is_automatic(self) -> bool:
        return (self.source.tool or "").startswith(HOOKS)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A memory after it was stored: new, or the one that was there."""

    record: Record
    is_new: bool
    links: int
    tags: list[str]


class Memories:
    """What one call does to the memories that it reaches."""

    def __init__(self, stores: Stores, indexing: Indexing, options: Options, uses: Uses) -> None:
        self._stores = stores
        self._indexing = indexing
        self._options = options
        self._uses = uses

    async def store(self, wanted: NewMemory) -> StoredMemory:
        """The same text again in the same scope is the memory that is there."""
        masking = Masking(enabled=self._options.mask_secrets)
        wanted = _checked(replace(wanted, content=masking.text(wanted.content)))
        warnings = [*masking.warnings(), *await self._crowding(wanted)]
        replaced = await self._replaced(wanted)

        tries = 0

        async def plan(store: RecordStore, at: int) -> Planned[_Kept]:
            # Most texts are new. One that is not makes the commit conflict, and is looked up then.
            nonlocal tries
            tries += 1
            new = _new_record(wanted, replaced, at)
            there = await same_text(store, new) if tries > 1 or replaced else None
            return await self._storing(store, new, there, wanted, replaced)

        store = await self._stores.to_write(wanted.scope)
        looking = asyncio.create_task(self._resemblance(store, wanted))
        try:
            kept = await self._stores.commit(store, plan)
            resemblance = await looking  # in another thread than the commit, so that none waits
        finally:
            looking.cancel()
        self._indexing.wake(store)
        self._count(store, wanted.session, kept)
        if replaced is not None:
            await self._mark_superseded(replaced, kept.record.id)
        elif kept.is_new:
            warnings += _told(resemblance, kept.record)
        elif newer := kept.record.facets.get("superseded_by"):
            message = f"It was replaced by {newer}. If it holds again, say `supersedes` with that."
            warnings.append(Warned("superseded_memory", message))
        return self._stored(kept, warnings)

    async def update(self, memory_id: str, amendment: Amendment) -> UpdatedMemory:
        if amendment == Amendment():
            raise InvalidInput(
                "Nothing to change was given.",
                hint="Pass content, importance, tags, metadata or related_entities.",
            )
        masking = Masking(enabled=self._options.mask_secrets)
        amendment = _checked_amendment(amendment, masking)
        store, found = await self._holding(memory_id)

        async def plan(store: RecordStore, at: int) -> Planned[UpdatedMemory]:
            record = await still_there(store, found.id)
            changed = amended(record, amendment)
            values: Values = {key: v for part in changed.values() for key, v in part.items()}
            await _check_text(store, record, values)
            links = await _relinking(store, record, amendment.entities, at)
            steps: list[Step] = [Update(record.id, values, record.version)] if values else []
            return [*steps, *links], UpdatedMemory(
                memory_id=record.id,
                updated_fields=[*changed, *(["related_entities"] if links else [])],
                re_embedded="content" in changed and self._failure() is None,
                version=record.version + bool(values),
                warnings=masking.warnings() or None,
            )

        updated = await self._stores.commit(store, plan)
        self._indexing.wake(store)
        return updated

    async def tag(self, memory_id: str, change: TagChange) -> TaggedMemory:
        store, found = await self._holding(memory_id)

        async def plan(store: RecordStore, at: int) -> Planned[TaggedMemory]:
            record = await still_there(store, found.id)
            tags = retagged(record.tags, change)
            steps: list[Step] = []
            if tags != record.tags:
                steps.append(Update(record.id, {"tags": tags}, record.version))
            return steps, TaggedMemory(record.id, list(tags))

        return await self._stores.commit(store, plan)

    async def forget(self, memory_id: str, reason: str | None) -> ForgottenMemory:
        """Soft, and a second time changes nothing."""
        if reason:
            reason = Masking(enabled=self._options.mask_secrets).text(reason)
        try:
            store, found = await self._holding(memory_id)
        except NotFound:
            if (gone := await self._forgotten(memory_id)) is None:
                raise
            return gone

        async def plan(store: RecordStore, at: int) -> Planned[ForgottenMemory]:
            record = await still_there(store, found.id)
            steps: list[Step] = [Delete(record.ref)]
            if reason:
                facets = {**record.facets, "forgotten_reason": reason}
                steps.insert(0, Update(record.id, {"facets": facets}, record.version))
            return steps, ForgottenMemory(record.id, "forgotten", reason or None)

        return await self._stores.commit(store, plan)

    async def _holding(self, memory_id: str) -> tuple[RecordStore, Record]:
        """Where the memory lives, once a promotion that a crash cut short is completed."""
        store, record = await self._stores.holding(memory_id)
        if record.scope == "user":
            await settle(await self._stores.project(), [record], self._stores.clock)
        return store, record

    async def _forgotten(self, memory_id: str) -> ForgottenMemory | None:
        for store in (await self._stores.user(), await self._stores.project()):
            for record in await store.get([full_id(memory_id)], include_deleted=True):
                if record.kind == MEMORY and record.deleted_at is not None:
                    reason = record.facets.get("forgotten_reason")
                    return ForgottenMemory(record.id, "forgotten", reason)
        return None

    async def _storing(
        self,
        store: RecordStore,
        new: Record,
        there: Record | None,
        wanted: NewMemory,
        replaced: str | None,
    ) -> Planned[_Kept]:
        record = there or new
        if record.id == replaced:
            raise InvalidInput(
                f"`supersedes` names {record.id}, which has this very text.",
                argument="supersedes",
                value=replaced,
            )
        added = [tag for tag in new.tags if tag not in record.tags]
        steps: list[Step] = [Insert(new)] if there is None else _topped_up(there, new)
        links = await link_steps(store, record.id, wanted.entities, new.created_at)
        steps += links
        if replaced is not None:
            steps += await _supersession(store, record.id, replaced, new.created_at)
        if wanted.session is not None and wanted.scope != "user":
            client = self._stores.call.session.client
            steps += await session_steps(store, wanted.session, client, new.created_at)
        return steps, _Kept(record, there is None, links_made(links), added)

    async def _replaced(self, wanted: NewMemory) -> str | None:
        if wanted.supersedes is None:
            return None
        _, record = await self._holding(wanted.supersedes)
        return record.id

    async def _mark_superseded(self, old: str, new: str) -> None:
        """Once the new one is there: a crash in between leaves both, and neither is lost."""
        store, _ = await self._stores.holding(old)

        async def plan(store: RecordStore, at: int) -> Planned[None]:
            record = await still_there(store, old)
            if record.facets.get("superseded_by") == new:
                return [], None
            facets = {**record.facets, "superseded_by": new}
            return [Update(record.id, {"facets": facets}, record.version)], None

        await self._stores.commit(store, plan)

    async def _crowding(self, wanted: NewMemory) -> list[Warned]:
        """A session that stores without end is a hook gone wild."""
        if wanted.session is None:
            return []
        limit = self._options.max_per_session
        use = self._uses.of(wanted.session)
        if use.stored is None:
            stores = (await self._stores.project(), await self._stores.user())
            use.stored = len(await stored_by(stores, wanted.session, limit))
        if use.stored < limit:
            return []
        message = f'Session "{wanted.session}" holds {limit} memories already.'
        if wanted.is_automatic:
            raise Refused(
                f"{message} Automatic ones are no longer stored.",
                hint="reflect_and_consolidate sums them up; max_memories_per_session is the limit.",
                session_id=wanted.session,
                limit=limit,
            )
        return [Warned("session_full", message)]

    def _count(self, store: RecordStore, session: str | None, kept: _Kept) -> None:
        use = self._uses.of(session) if session is not None else None
        if use is None:
            return
        if use.stored is not None:
            use.stored += kept.is_new
        if kept.record.scope != "user":
            use.stores.add(store)

    async def _resemblance(self, store: RecordStore, wanted: NewMemory) -> list[Alike]:
        try:
            return await alike(store, wanted.content, wanted.type, wanted.session or NO_SESSION)
        except RecollectError:  # the memory is stored, whatever a look around it says
            return []

    def _stored(self, kept: _Kept, warnings: list[Warned]) -> StoredMemory:
        failure = self._failure()
        if failure is not None:
            warnings = [*warnings, Warned("embedding_failed", failure)]
        return StoredMemory(
            memory_id=kept.record.id,
            embedding_generated=failure is None,
            graph_edges_created=kept.links,
            scope=kept.record.scope,
            type=kept.record.type or "",
            embedding="pending" if failure is None and kept.is_new else None,
            searchable_by="keyword_only" if failure is not None else None,
            existing=None if kept.is_new else True,
            tags_added=None if kept.is_new else kept.tags or None,
            warnings=warnings or None,
        )

    def _failure(self) -> str | None:
        """Why the text gets no vector, if it gets none."""
        if self._indexing.fault is not None:
            return f"{self._indexing.fault.message} The memory is found by its words."
        if self._indexing.embedder is None:
            return "Search by meaning is switched off. The memory is found by its words."
        return None


def _checked(wanted: NewMemory) -> NewMemory:
    check_entities(wanted.entities, "related_entities")
    for name, value in (("session_id", wanted.session), ("author", wanted.author)):
        if value is not None:
            check_name(value, name)
    return replace(wanted, tags=clean_tags(wanted.tags))


def _checked_amendment(amendment: Amendment, masking: Masking) -> Amendment:
    if amendment.entities is not None:
        check_entities(amendment.entities.add or (), "related_entities.add")
    if amendment.content is not None:
        amendment = replace(amendment, content=masking.text(amendment.content))
    if amendment.metadata is not None:
        amendment = replace(amendment, metadata=masking.object(amendment.metadata))
    return amendment


def _new_record(wanted: NewMemory, replaced: str | None, at: int) -> Record:
    facets: dict[str, Any] = {
        "source": wanted.source.facts(),
        "pinned": wanted.pinned,
        "automatic": wanted.is_automatic,
        "supersedes": replaced,
    }
    return Record(
        id=new_memory_id(at),
        kind=MEMORY,
        type=wanted.type,
        text=wanted.content,
        name_key=text_key(wanted.content),
        variant=place_of(wanted.scope, wanted.session),
        scope=wanted.scope,
        session=wanted.session,
        position=wanted.source.conversation_turn,
        author=wanted.author,
        importance=wanted.importance,
        occurred_at=wanted.occurred_at,
        tags=tuple(wanted.tags),
        facets={name: value for name, value in facets.items() if value},
        created_at=at,
        updated_at=at,
    )


def _topped_up(there: Record, new: Record) -> list[Step]:
    """The memory that was there gets the tags it lacked; what replaces another is current again."""
    values: Values = {}
    if missing := [tag for tag in new.tags if tag not in there.tags]:
        values["tags"] = clean_tags([*there.tags, *missing])
    if "supersedes" in new.facets:
        kept = {name: value for name, value in there.facets.items() if name != "superseded_by"}
        values["facets"] = {**kept, "supersedes": new.facets["supersedes"]}
    return [Update(there.id, values, there.version)] if values else []


async def _supersession(store: RecordStore, new: str, old: str, at: int) -> list[Step]:
    """In one store both facts change together; across stores only their own records say it."""
    found = await store.get([old])
    if not found:
        return []
    facets = {**found[0].facets, "superseded_by": new}
    steps: list[Step] = [Update(old, {"facets": facets}, found[0].version)]
    links = await store.links([new], direction="out")
    if all((link.verb, link.target) != (SUPERSEDES, old) for link in links):
        steps.append(Insert(Link(str(uuid4()), new, SUPERSEDES, old, at)))
    return steps


async def _check_text(store: RecordStore, record: Record, values: Mapping[str, Any]) -> None:
    if "name_key" not in values:
        return
    other = await same_text(store, replace(record, name_key=values["name_key"]))
    if other is not None and other.id != record.id:
        raise Conflict(
            f"Memory {other.id} has this text already.",
            hint="forget_memory takes away the one that is not needed.",
            memory_id=other.id,
        )


async def _relinking(
    store: RecordStore, record: Record, change: EntityChange | None, at: int
) -> list[Step]:
    if change is None:
        return []
    return [
        *await unlink_steps(store, record.id, change.remove or ()),
        *await link_steps(store, record.id, change.add or (), at),
    ]


def _told(resemblance: Sequence[Alike], new: Record) -> list[Warned]:
    """The new one itself may be among what was found: it is stored by now."""
    found = next((alike for alike in resemblance if alike.record.id != new.id), None)
    if found is None:
        return []
    named = f'{found.record.id} ("{clipped(found.record.text, 200)}")'
    if found.likeness == "superseded":
        message = f"This may replace {named}. If it does, forget that one, or say `supersedes`."
        return [Warned("likely_superseded", message)]
    return [Warned("similar_memory", f"There is a similar memory: {named}.")]
