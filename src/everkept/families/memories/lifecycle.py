"""Lifecycle of memories: fading, supersession, and promotion to a wider scope."""

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any, cast
from uuid import uuid4

from everkept.core.commits import MAX_ATTEMPTS, ChangeWriter, Planned, check_writable
from everkept.core.ports import AccessCount, AccessCounter, RecordStore, VectorIndexer
from everkept.core.records import AMENDABLE, Delete, Insert, Record, RecordFilter, RecordLink, Restore, Step, Update
from everkept.core.secrets import Masker
from everkept.core.sessions import check_own
from everkept.core.text import compute_name_key
from everkept.core.times import Clock
from everkept.errors import Conflict, InvalidInput, NotFound, ReadOnly
from everkept.families.memories.memory_identity import MEMORY_PREFIX, build_variant, get_event_time
from everkept.families.memories.memory_record import (
    RELINK_COUNT,
    FieldValues,
    build_carry_steps,
    build_link_steps,
    count_relink,
    drop_automatic,
    merge_values,
    read_linked_entities,
    read_memory_links,
)
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    DERIVED_FROM,
    ENTITIES_LIMIT,
    MAX_TAGS,
    MEMORY,
    MEMORY_PROFILE,
    MERGED_INTO,
    PROMOTED_FACET,
    SCOPES,
    SUPERSEDED_BY,
    SUPERSEDES,
    PromotedMemory,
    RelatedEntity,
)
from everkept.families.memories.stores import MemoryStores, read_live_memory
from everkept.graph.entities import UNKNOWN_TYPE, is_stub
from everkept.tools.tool import ToolWarning, build_masking_warnings
from everkept.values import Value, replace

DAY_MICROSECONDS = 86_400 * 1_000_000
HALF_LIFE_GAIN_PER_USE = 0.2  # of its half-life, for each use
MIN_STRENGTH = 0.01  # a weaker memory has faded
# Memories stored or used within this time stay, however weak.
MIN_AGE_MICROSECONDS = 14 * DAY_MICROSECONDS
MIN_USES_TO_KEEP = 2  # a memory with this many uses never fades
BATCH_MEMORIES = 500  # in one change

FADING_TOOL = "fading"  # in the change log
FADED_REASON = "faded"


def compute_strength(record: Record, access: AccessCount | None, now: int) -> float:
    """Return the importance, halved with each half-life of the type since the last use or change.

    A recall counts as a use; display by a hook does not. Pinned memories and types without a half-life never fade.
    """
    importance = DEFAULT_IMPORTANCE if record.importance is None else record.importance
    half_life = MEMORY_PROFILE.half_lives.get(record.type or "")
    if half_life is None or record.facets.get("pinned"):
        return importance
    uses = access.count if access else 0
    last = max(record.created_at, record.updated_at, access.last_at if access else 0)
    days = max(0, now - last) / DAY_MICROSECONDS
    return importance * 0.5 ** (days / (half_life * (1 + HALF_LIFE_GAIN_PER_USE * uses)))


async def fade_memories(store: RecordStore, clock: Clock, client: str = "") -> int:
    """Forget the faded automatic memories in batches, each a change that can be undone. Return their number."""
    writer = ChangeWriter(clock, FADING_TOOL, client)
    forgotten = 0
    page = _FadingPage()
    while page is not None:
        page, count = await writer.commit(store, page.plan)
        forgotten += count
    return forgotten


class _FadingPage(Value):
    """Candidates after a given id, read when the change is planned."""

    after: str | None = None

    async def plan(self, store: RecordStore, at: int) -> Planned[tuple["_FadingPage | None", int]]:
        where = RecordFilter(kinds=(MEMORY,), automatic=True, created_before=at - MIN_AGE_MICROSECONDS)
        found = await store.scan(where, after=self.after, limit=BATCH_MEMORIES)
        accesses = await store.get_accesses([record.id for record in found])
        faded = [record for record in found if _has_faded(record, accesses.get(record.id), at)]
        following = _FadingPage(found[-1].id) if len(found) == BATCH_MEMORIES else None
        steps = [step for record in faded for step in build_forget_steps(record, FADED_REASON)]
        return steps, (following, len(faded))


def _has_faded(record: Record, access: AccessCount | None, now: int) -> bool:
    """Return whether the memory has faded. One use restarts the time, and a repeated use keeps the memory."""
    uses = access.count if access else 0
    last = max(record.created_at, access.last_at if access else 0)
    return (
        can_forget(record)
        and uses < MIN_USES_TO_KEEP
        and now - last > MIN_AGE_MICROSECONDS
        and compute_strength(record, access, now) < MIN_STRENGTH
    )


def compute_fading_time(record: Record, access: AccessCount | None) -> int | None:
    """Return when an automatic memory fades if it is not recalled, or None if it stays."""
    uses = access.count if access else 0
    half_life = MEMORY_PROFILE.half_lives.get(record.type or "")
    importance = DEFAULT_IMPORTANCE if record.importance is None else record.importance
    is_kept = record.facets.get("pinned") or uses >= MIN_USES_TO_KEEP or AUTOMATIC not in record.facets
    if is_kept or half_life is None or record.deleted_at is not None:
        return None
    used = access.last_at if access else 0
    halvings = max(0.0, log2(importance / MIN_STRENGTH)) if importance > 0 else 0.0
    days = halvings * half_life * (1 + HALF_LIFE_GAIN_PER_USE * uses)
    faded = max(record.created_at, record.updated_at, used) + int(days * DAY_MICROSECONDS)
    return max(faded, max(record.created_at, used) + MIN_AGE_MICROSECONDS)


def can_forget(record: Record) -> bool:
    """Return whether the memory is automatic and not pinned."""
    return bool(record.facets.get(AUTOMATIC)) and not record.facets.get("pinned")


def build_forget_steps(record: Record, reason: str) -> list[Step]:
    """Return steps for exactly this version, so that a memory pinned or changed since then stays."""
    facets = {**record.facets, "forgotten_reason": reason}
    return [Update(record.id, {"facets": facets}, record.version), Delete(record.ref)]


SUPERSEDING_TOOL = "store_memory"  # in the change log
RECENT_CHANGES = 1_000  # newest changes to search for a supersession that a crash interrupted
MAX_EDITS = 2 * ENTITIES_LIMIT + 10  # of one stored fact with its entities; an import has more


async def build_supersession(store: RecordStore, new: str, old: str, at: int) -> list[Step]:
    """Return steps that mark and link both facts in one store. Across stores, only the facets of each record say it."""
    found = await store.get([old])
    if not found:
        return []
    steps: list[Step] = [_build_mark(found[0], new)]
    links = await store.find_links([new], direction="out")
    if all((link.verb, link.target) != (SUPERSEDES, old) for link in links):
        steps.append(Insert(RecordLink(str(uuid4()), new, SUPERSEDES, old, at)))
    return steps


async def mark_superseded(writer: ChangeWriter, store: RecordStore, old: str, new: str) -> bool:
    """Mark the old memory after the new one is stored, so that a crash loses neither. Return whether it was marked."""

    async def plan(store: RecordStore, _at: int) -> Planned[bool]:
        for record in await store.get([old]):
            if record.facets.get(SUPERSEDED_BY) != new:
                return [_build_mark(record, new)], True
        return [], False

    return await writer.commit(store, plan)


async def finish_supersessions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Mark memories that a crash left unmarked because their replacement is in the other store. Return their number."""
    writer = ChangeWriter(clock, SUPERSEDING_TOOL)
    finished = 0
    for here, there in ((project, user), (user, project)):
        # A fact that is superseded itself does not count, because the older one may be true again.
        recent = [r for r in await _read_recent(here) if SUPERSEDED_BY not in r.facets]
        claims = {r.facets[SUPERSEDES]: r.id for r in recent if SUPERSEDES in r.facets}
        for record in await there.get(list(claims)):
            if SUPERSEDED_BY not in record.facets:
                finished += await mark_superseded(writer, there, record.id, claims[record.id])
    return finished


async def _read_recent(store: RecordStore) -> Sequence[Record]:
    """Return the current state of the memories that the newest changes touched."""
    changes = await store.read_changes(limit=RECENT_CHANGES, newest_first=True, most_edits=MAX_EDITS)
    edits = (edit for change in changes for edit in change.edits)
    return await store.get(list({e.id for e in edits if e.id and e.id.startswith(MEMORY_PREFIX)}))


def _build_mark(record: Record, new: str) -> Update:
    return Update(record.id, {"facets": {**record.facets, SUPERSEDED_BY: new}}, record.version)


ABSORBED_FACET = "absorbed"  # facet: ids and versions of memories merged into this one
MAX_ABSORBED = 100  # the last ones; a move is finished long before that
_PLACE_FIELDS = {"scope", "session", "variant"}  # the copy has its own


class CarriedLinks(Value):
    """Entities and links that move with a memory."""

    entities: Sequence[RelatedEntity]
    links: Sequence[RecordLink]


class MemoryMove:
    """Move of memories from one project to the user's store."""

    def __init__(self, source: RecordStore, user: RecordStore, writer: ChangeWriter) -> None:
        self._source = source
        self._user = user
        self._writer = writer

    async def move(self, memory_id: str, reason: str | None = None) -> str:
        """Move the memory and return its id in the user's store. The id differs if the text was already there."""
        record = await read_live_memory(self._source, memory_id)
        for _ in range(MAX_ATTEMPTS):
            kept = await self._copy(record, reason)
            if await self.delete_source(record, kept, reason):
                return kept
            found = await self._source.get([memory_id])
            if not found:
                return kept  # another process has finished it
            record = found[0]
        raise Conflict(f"Memory {memory_id} was changed by other calls on every attempt.", hint="Try again.")

    async def delete_source(self, record: Record, kept: str, reason: str | None) -> bool:
        """Delete the source. Return False if it is no longer the version that was copied."""
        at = self._writer.clock()
        steps = [
            *await _build_source_updates(self._source, record.id, kept),
            *build_tombstone(record, build_promoted(record, "user", reason, at), kept),
        ]
        try:
            await self._writer.commit_steps(self._source, steps, at)
        except Conflict:
            return False
        return True

    async def _copy(self, record: Record, reason: str | None) -> str:
        carried = await read_carried_links(self._source, record)
        new = build_promoted(_with_sources(record, carried.links), "user", reason, self._writer.clock())

        async def plan(user: RecordStore, at: int) -> Planned[str]:
            twin = await find_same_text(user, new)
            for there in await user.get([new.id], include_deleted=True):
                if there.deleted_at is None:
                    return await self._build_copy_update(there, record, carried, at), there.id
                if twin is None:
                    values = {name: getattr(new, name) for name in AMENDABLE}
                    steps = [Restore(there.ref), Update(there.id, values, there.version)]
                    return [*steps, *await _build_links(user, new.id, record.id, carried, at)], new.id
            if twin is not None:
                return await build_merge(user, twin, new, carried, at), twin.id
            steps = [Insert(new), *await _build_links(user, new.id, record.id, carried, at)]
            return steps, new.id

        return await self._writer.commit(self._user, plan)

    async def _build_copy_update(self, copy: Record, record: Record, carried: CarriedLinks, at: int) -> list[Step]:
        """Return steps that apply later changes of the source to its copy. The copy's own changes stay."""
        note = cast(FieldValues, copy.facets.get(PROMOTED_FACET, {}))
        version = note.get("version", record.version)
        if version == record.version:
            return []
        before = await _read_old_values(self._source, record, version)
        changed = {
            name: _merge_change(getattr(copy, name), old, getattr(record, name))
            for name, old in before.items()
            if name not in _PLACE_FIELDS
        }
        facets = _apply_facet_changes(copy.facets, before.get("facets", record.facets), record.facets)
        changed["facets"] = {**facets, PROMOTED_FACET: {**note, "version": record.version}}
        steps: list[Step] = [Update(copy.id, changed, copy.version)]
        if facets.get(RELINK_COUNT) != copy.facets.get(RELINK_COUNT):
            steps += await _build_unlinks(self._user, copy.id, carried.entities)
        return [*steps, *await _build_links(self._user, copy.id, record.id, carried, at)]


async def read_carried_links(store: RecordStore, record: Record) -> CarriedLinks:
    entities = [
        RelatedEntity(entity.name or "", None if is_stub(entity) else entity.type, link.verb)
        for link, entity in await read_linked_entities(store, record.id)
    ]
    return CarriedLinks(entities, [*_parse_links(record), *await read_memory_links(store, record.id)])


def _build_move_note(record: Record, reason: str | None, at: int) -> FieldValues:
    note: FieldValues = {"from_scope": record.scope, "at": at, "version": record.version}
    note |= {"reason": reason} if reason else {}
    return note | ({"session": record.session} if record.session else {})


def build_promoted(record: Record, target: str, reason: str | None, at: int) -> Record:
    """Return the record in its new scope. A promoted memory is no longer automatic.

    It still counts as stored by its session, but no longer shows it.
    """
    moment = get_event_time(record.type, record.occurred_at)
    return replace(
        record,
        scope=target,
        variant=build_variant(target, record.session, moment),
        facets={**drop_automatic(record.facets), PROMOTED_FACET: _build_move_note(record, reason, at)},
        updated_at=at,
        deleted_at=None,
    )


async def build_merge(store: RecordStore, twin: Record, new: Record, carried: CarriedLinks, at: int) -> list[Step]:
    """Return steps that add to the twin what it lacks. `new` is the promoted record that the twin replaces."""
    version = new.facets[PROMOTED_FACET]["version"]
    absorbed = cast(dict[str, int], twin.facets.get(ABSORBED_FACET, {}))
    if absorbed.get(new.id) == version:
        return []
    values, _ = merge_values(twin, new)
    if "tags" in values:
        values["tags"] = values["tags"][:MAX_TAGS]
    links = await _build_links(store, twin.id, new.id, carried, at)
    absorbed = {i: v for i, v in absorbed.items() if i != new.id} | {new.id: version}
    facets: FieldValues = {
        **values.get("facets", twin.facets),
        ABSORBED_FACET: dict(list(absorbed.items())[-MAX_ABSORBED:]),
    }
    if sources := {*twin.facets.get(DERIVED_FROM, ()), *new.facets.get(DERIVED_FROM, ())}:
        facets[DERIVED_FROM] = sorted(sources - {twin.id})
    values["facets"] = count_relink(facets) if links else facets
    return [Update(twin.id, values, twin.version), *links]


def build_tombstone(record: Record, new: Record, kept: str) -> list[Step]:
    """Return steps that delete the record with its new scope, so that it does not count as forgotten in the old one."""
    facets = dict(new.facets)
    if kept != record.id:
        facets |= {SUPERSEDED_BY: kept, MERGED_INTO: kept}
    values = {"scope": new.scope, "facets": facets}
    return [Update(record.id, values, record.version), Delete(record.ref)]


async def find_same_text(store: RecordStore, record: Record) -> Record | None:
    """Return the memory with this text in this scope, which may be the record itself."""
    if record.name_key is None:
        return None
    found = await store.scan(RecordFilter(kinds=(MEMORY,), name_keys=(record.name_key,)))
    return next((other for other in found if other.variant == record.variant), None)


async def was_undone(store: RecordStore, record: Record, version: int) -> bool:
    """Return whether the move of this version was finished and undone since then."""
    updates = 0
    for _, edit in await store.read_history([record.ref]):
        updates += edit.operation == "update"
        if edit.operation == "delete" and updates >= version:
            return True
    return False


async def _build_links(store: RecordStore, kept: str, old: str, carried: CarriedLinks, at: int) -> list[Step]:
    return [
        *await build_link_steps(store, kept, carried.entities, at),
        *await build_carry_steps(store, carried.links, old, kept, at),
    ]


async def _build_unlinks(store: RecordStore, memory_id: str, entities: Sequence[RelatedEntity]) -> list[Step]:
    """Return steps that remove the links to all other entities."""
    wanted = {(compute_name_key(e.name), compute_name_key(e.type or UNKNOWN_TYPE), e.relationship) for e in entities}
    return [
        Delete(link.ref)
        for link, entity in await read_linked_entities(store, memory_id)
        if (entity.name_key, compute_name_key(entity.type or ""), link.verb) not in wanted
    ]


def _parse_links(record: Record) -> list[RecordLink]:
    """Return the links that the facets record. Memories that moved earlier left their links behind."""
    facets = record.facets
    ends = [(record.id, DERIVED_FROM, source) for source in facets.get(DERIVED_FROM, ())]
    if SUPERSEDES in facets:
        ends.append((record.id, SUPERSEDES, facets[SUPERSEDES]))
    if SUPERSEDED_BY in facets:
        ends.append((facets[SUPERSEDED_BY], SUPERSEDES, record.id))
    return [RecordLink("", *end, record.created_at) for end in ends]


def _with_sources(record: Record, links: Sequence[RecordLink]) -> Record:
    """Return the record with the ids of its sources in its facets, because the sources stay behind."""
    targets = {x.target for x in links if x.verb == DERIVED_FROM and x.source == record.id}
    if not targets:
        return record
    sources = sorted(targets.union(record.facets.get(DERIVED_FROM, ())))
    return replace(record, facets={**record.facets, DERIVED_FROM: sources})


async def _build_source_updates(store: RecordStore, memory_id: str, kept: str) -> list[Step]:
    """Return steps that record the moved source in the facets of summaries that stay behind."""
    links = await read_memory_links(store, memory_id)
    summaries = [x.source for x in links if x.verb == DERIVED_FROM and x.target == memory_id]
    steps: list[Step] = []
    for summary in await store.get(summaries):
        sources = sorted({*summary.facets.get(DERIVED_FROM, ()), kept})
        facets = {**summary.facets, DERIVED_FROM: sources}
        steps.append(Update(summary.id, {"facets": facets}, summary.version))
    return steps


async def _read_old_values(store: RecordStore, record: Record, version: int) -> FieldValues:
    """Return the values of an earlier version that have changed since then."""
    edits = [e for _, e in await store.read_history([record.ref]) if e.operation == "update"]
    before: FieldValues = {}
    for edit in reversed(edits[version - record.version :]):
        before |= edit.before or {}
    return before


def _merge_change(copied: Any, before: Any, after: Any) -> Any:
    """Return the copy's value with the change of the source. Of two changes of one text, the copy's is the later."""
    if copied == before:
        return after
    if not isinstance(copied, tuple):
        return copied
    kept = [each for each in cast(tuple[Any, ...], copied) if each in after or each not in before]
    return (*kept, *(each for each in after if each not in before and each not in kept))


def _apply_facet_changes(facets: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]) -> FieldValues:
    """Return the facets with the changes between `before` and `after`."""
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    kept = {name: value for name, value in facets.items() if name not in changed}
    return kept | {name: after[name] for name in changed if name in after}


PROMOTING_TOOL = "promote_memory"  # in the change log
PAGE_MEMORIES = 1_000  # of the user's memories, read together


class MemoryPromotion:
    """Promotion of one memory to a wider scope: one commit within a store, or a move to the user's store."""

    def __init__(self, stores: MemoryStores, indexing: VectorIndexer, accesses: AccessCounter, masking: Masker) -> None:
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._masking = masking

    async def promote(self, memory_id: str, target: str, reason: str | None) -> PromotedMemory:
        reason = self._masking.mask_optional(reason)
        warnings = build_masking_warnings(self._masking.kinds)
        source, found = await self._stores.find_live_memory(memory_id)
        if target == "user" and await self._resume(found):
            previous = _get_move_note(found).get("from_scope", "project")
            return PromotedMemory(found.id, previous, target, reason, warnings=warnings or None)
        _check_broader(found, target)
        is_users = source is await self._stores.open_user()
        if is_users and target != "user":
            raise ReadOnly(
                f"Memory {found.id} is private to you, because your access to its project is read-only.",
                hint="Promote it to `user` to recall it in every project.",
                memory_id=found.id,
            )
        if target == "user" and not is_users:
            kept = await self._move_to_user(source, found, reason)
        else:
            kept = await self._promote_within(source, found, target, reason)
        if merged := kept != found.id:
            warnings += await self._warn_dropped_tags(target, found, kept)
        return PromotedMemory(kept, found.scope, target, reason, merged=merged or None, warnings=warnings or None)

    async def _resume(self, found: Record) -> bool:
        """Complete this promotion if a crash interrupted it. Return whether that was the case."""
        if found.scope != "user":
            return False
        project, user = await self._stores.open_project(), await self._stores.open_user()
        return await finish_moves(project, user, [found], self._stores.writer) > 0

    async def _promote_within(self, store: RecordStore, found: Record, target: str, reason: str | None) -> str:
        async def plan(store: RecordStore, at: int) -> Planned[str]:
            record = await read_live_memory(store, found.id)
            _check_broader(record, target)
            new = build_promoted(record, target, reason, at)
            twin = await find_same_text(store, new)
            if twin is None:
                values = {name: getattr(new, name) for name in ("scope", "variant", "facets")}
                return [Update(record.id, values, record.version)], record.id
            carried = await read_carried_links(store, record)
            steps = await build_merge(store, twin, new, carried, at)
            return [*steps, *build_tombstone(record, new, twin.id)], twin.id

        return await self._stores.commit(store, plan)

    async def _move_to_user(self, source: RecordStore, found: Record, reason: str | None) -> str:
        check_writable(source)  # before the copy in the user's store
        check_own(source)
        user = await self._stores.open_user()
        access = (await self._accesses.read_accesses(source, [found.id])).get(found.id)
        kept = await MemoryMove(source, user, self._stores.writer).move(found.id, reason)
        self._indexing.wake(user)
        if access is not None:
            await user.note_accesses({kept: access.count}, access.last_at)
        return kept

    async def _warn_dropped_tags(self, target: str, found: Record, kept: str) -> list[ToolWarning]:
        """Warn about dropped tags: two memories together can have more tags than one may have."""
        store = await self._stores.open_for_write(target)
        tags = {tag for record in await store.get([kept]) for tag in record.tags}
        missing = [tag for tag in found.tags if tag not in tags]
        if not missing or len(tags) < MAX_TAGS:
            return []
        message = f"A memory can have at most {MAX_TAGS} tags. Not added: {', '.join(missing)}."
        return [ToolWarning("tags_left_out", message)]


async def finish_promotions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Complete interrupted promotions of any age: a memory in both stores belongs to the user. Return their number."""
    where = RecordFilter(kinds=(MEMORY,), scopes=("user",))
    writer = ChangeWriter(clock, PROMOTING_TOOL)
    settled = 0
    last: str | None = None
    while page := await user.scan(where, after=last, limit=PAGE_MEMORIES):
        last = page[-1].id
        settled += await finish_moves(project, user, page, writer)
    return settled


async def finish_moves(project: RecordStore, user: RecordStore, of_user: Sequence[Record], writer: ChangeWriter) -> int:
    """Delete the project's copies of memories that the user's store has. Return their number."""
    settled = 0
    arrived = {moved: (record, version) for record in of_user for moved, version in _list_moved(record)}
    for record in await project.get(list(arrived)) if arrived else []:
        kept, version = arrived[record.id]
        if await was_undone(project, record, version):
            continue
        move = MemoryMove(project, user, writer)
        reason = _get_move_note(kept).get("reason") if kept.id == record.id else None
        try:
            # Changes since the copy have to be carried over first.
            if record.version != version or not await move.delete_source(record, kept.id, reason):
                await move.move(record.id, reason)
        except (Conflict, NotFound):
            continue  # another process is working on it
        settled += 1
    return settled


def _list_moved(record: Record) -> list[tuple[str, int]]:
    """Return the ids of the memories that became this one, each with the version that was copied."""
    moved = list(cast(Mapping[str, int], record.facets.get(ABSORBED_FACET, {})).items())
    if PROMOTED_FACET in record.facets:
        moved.append((record.id, _get_move_note(record).get("version", 1)))
    return moved


def _get_move_note(record: Record) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], record.facets.get(PROMOTED_FACET, {}))


def _check_broader(record: Record, target: str) -> None:
    if SCOPES.index(target) > SCOPES.index(record.scope):
        return
    broader = SCOPES[SCOPES.index(record.scope) + 1 :]
    raise InvalidInput(
        f"Memory {record.id} has scope {record.scope}, and {target} is not wider.",
        hint=f"Choose {' or '.join(broader)}." if broader else "Leave it unchanged: no scope is wider than user.",
        argument="target_scope",
        value=target,
    )
