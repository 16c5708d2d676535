"""Promotion: a memory that reaches further, safe against a crash between two databases."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from recollect.core.ports import AccessBook, Indexing, RecordStore
from recollect.core.records import (
    SESSION_SCOPE,
    Batch,
    Delete,
    Insert,
    Record,
    Restore,
    Step,
    Update,
    Where,
)
from recollect.core.times import Clock
from recollect.errors import Conflict, InvalidInput
from recollect.families.memories.identity import place_of
from recollect.families.memories.linking import link_steps, linked_entities
from recollect.families.memories.model import (
    MEMORY,
    SCOPES,
    PromotedMemory,
    RelatedEntity,
)
from recollect.families.memories.stores import Planned, Stores, still_there

LOOKED_AT = 1_000  # of the user's newest memories: what a crash cut short is among them


class Promotion:
    """Takes one memory to a broader scope.

    Within a store that is one commit. To the user's store the target comes first, under the same
    id, then the source's tombstone: a crash leaves the memory in both places, never in none.
    """

    def __init__(self, stores: Stores, indexing: Indexing, accesses: AccessBook) -> None:
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses

    async def promote(self, memory_id: str, target: str, reason: str | None) -> PromotedMemory:
        source, found = await self._stores.holding(memory_id)
        if target == "user" and await self._is_resumed(found):
            note = cast(dict[str, Any], found.facets.get("promoted", {}))
            return PromotedMemory(found.id, note.get("from_scope", "project"), target, reason)
        _check_broader(found, target)
        if target == "user":
            kept = await self._to_user(source, found, reason)
        else:
            kept = await self._within(source, found, target, reason)
        merged = True if kept != found.id else None
        return PromotedMemory(kept, found.scope, target, reason, merged)

    async def _is_resumed(self, found: Record) -> bool:
        """Whether a crash had cut this very promotion short; now it is complete."""
        if found.scope != "user":
            return False
        return await settle(await self._stores.project(), [found], self._stores.clock) > 0

    async def _within(
        self, store: RecordStore, found: Record, target: str, reason: str | None
    ) -> str:
        async def plan(store: RecordStore, at: int) -> Planned[str]:
            record = await still_there(store, found.id)
            _check_broader(record, target)
            new = _promoted(record, target, reason, at)
            twin = await same_text(store, new)
            if twin is None:
                values = {
                    name: getattr(new, name) for name in ("scope", "session", "variant", "facets")
                }
                return [Update(record.id, values, record.version)], record.id
            entities = await _entities(store, record.id)
            steps = await _merging(store, twin, record, entities, at)
            return [*steps, *_tombstone(record, new, twin.id)], twin.id

        return await self._stores.commit(store, plan)

    async def _to_user(self, source: RecordStore, found: Record, reason: str | None) -> str:
        user = await self._stores.user()
        entities = await _entities(source, found.id)

        async def copy(user: RecordStore, at: int) -> Planned[str]:
            new = _promoted(found, "user", reason, at)
            twin = await same_text(user, new)
            if twin is not None:
                return await _merging(user, twin, found, entities, at), twin.id
            steps = await _placing(user, new)
            return [*steps, *await link_steps(user, new.id, entities, at)], new.id

        async def bury(source: RecordStore, at: int) -> Planned[None]:
            for record in await source.get([found.id]):
                return _tombstone(record, _promoted(record, "user", reason, at), kept), None
            return [], None

        kept = await self._stores.commit(user, copy)
        self._indexing.wake(user)
        access = (await self._accesses.of(source, [found.id])).get(found.id)
        await self._stores.commit(source, bury)
        if access is not None:
            await user.note_accesses({kept: access.count}, access.last_at)
        return kept


async def finish_promotions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Completes what a crash left: what lives in both places is the user's."""
    where = Where(kinds=(MEMORY,), scopes=("user",))
    newest = await user.scan(where, order="newest", limit=LOOKED_AT)
    arrived = [r for r in newest if r.facets.keys() & {"promoted", "merged"}]
    return await settle(project, arrived, clock)


async def settle(project: RecordStore, of_user: Sequence[Record], clock: Clock) -> int:
    """Buries the project's copies of memories that the user's store has; says how many."""
    settled = 0
    broader = {
        promoted: record
        for record in of_user
        for promoted in (record.id, *cast(list[str], record.facets.get("merged", [])))
    }
    for record in await project.get(list(broader)):
        kept = broader[record.id]
        steps = _tombstone(record, kept, kept.id)
        try:
            await project.commit(Batch(tuple(steps), clock(), "promote_memory"))
        except Conflict:
            continue  # another process has settled it, or is at it
        settled += 1
    return settled


async def same_text(store: RecordStore, record: Record) -> Record | None:
    """The memory with this text in this place, the record itself included."""
    if record.name_key is None:
        return None
    found = await store.scan(Where(kinds=(MEMORY,), name_keys=(record.name_key,)))
    return next((other for other in found if other.variant == record.variant), None)


def _check_broader(record: Record, target: str) -> None:
    if SCOPES.index(target) > SCOPES.index(record.scope):
        return
    broader = SCOPES[SCOPES.index(record.scope) + 1 :]
    raise InvalidInput(
        f"Memory {record.id} has the scope {record.scope}; {target} is not broader.",
        hint=f"Broader is: {', '.join(broader)}." if broader else "Nothing is broader than user.",
        argument="target_scope",
        value=target,
    )


def _promoted(record: Record, target: str, reason: str | None, at: int) -> Record:
    note: dict[str, Any] = {"from_scope": record.scope, "at": at}
    note |= {"reason": reason} if reason else {}
    note |= {"session": record.session} if record.session else {}
    session = None if record.scope == SESSION_SCOPE else record.session
    return replace(
        record,
        scope=target,
        session=session,
        variant=place_of(target, session),
        facets={**record.facets, "promoted": note},
        updated_at=at,
        deleted_at=None,
    )


async def _placing(user: RecordStore, new: Record) -> list[Step]:
    """The same id may be there: live after a crash, or forgotten once."""
    for there in await user.get([new.id], include_deleted=True):
        if there.deleted_at is None:
            return []
        values = {name: getattr(new, name) for name in ("text", "facets", "tags", "importance")}
        return [Restore(there.ref), Update(there.id, values, there.version)]
    return [Insert(new)]


async def _merging(
    store: RecordStore,
    twin: Record,
    record: Record,
    entities: Sequence[RelatedEntity],
    at: int,
) -> list[Step]:
    """The twin with whatever the other one had more."""
    merged = [*twin.facets.get("merged", []), record.id]
    pinned = {"pinned": True} if record.facets.get("pinned") else {}
    values: dict[str, Any] = {
        "tags": tuple(dict.fromkeys([*twin.tags, *record.tags])),
        "importance": max(twin.importance or 0.0, record.importance or 0.0),
        "facets": {**twin.facets, **pinned, "merged": list(dict.fromkeys(merged))},
    }
    return [
        Update(twin.id, values, twin.version),
        *await link_steps(store, twin.id, entities, at),
    ]


def _tombstone(record: Record, promoted: Record, kept: str) -> list[Step]:
    """Its scope is the new one, so that it does not count as a forgotten memory of the old."""
    facets = {**record.facets, "promoted": promoted.facets.get("promoted", {})}
    if kept != record.id:
        facets["superseded_by"] = kept
    values = {"scope": promoted.scope, "facets": facets}
    return [Update(record.id, values, record.version), Delete(record.ref)]


async def _entities(store: RecordStore, memory_id: str) -> list[RelatedEntity]:
    return [
        RelatedEntity(entity.name or "", entity.type or "", link.verb)
        for link, entity in await linked_entities(store, memory_id)
    ]
