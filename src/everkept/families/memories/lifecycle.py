"""What becomes of memories with time: promoted to the user's store, superseded, or expired."""

from collections.abc import Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from everkept.core.commits import ATTEMPTS, Planned, Writer, check_writable
from everkept.core.ports import Access, AccessBook, Indexing, RecordStore
from everkept.core.records import (
    AMENDABLE,
    SESSION_SCOPE,
    Delete,
    Insert,
    Link,
    Record,
    Restore,
    Step,
    Update,
    Where,
)
from everkept.core.secrets import Masking
from everkept.core.sessions import check_own
from everkept.core.text import normalised
from everkept.core.times import Clock
from everkept.errors import Conflict, InvalidInput, NotFound, ReadOnly
from everkept.families.memories.memory_identity import PREFIX, moment_of, place_of
from everkept.families.memories.memory_record import (
    RELINKED,
    Values,
    carrying_steps,
    joined,
    link_steps,
    linked_entities,
    memory_links,
    not_automatic,
    relinked,
)
from everkept.families.memories.model import (
    AUTOMATIC,
    DEFAULT_IMPORTANCE,
    DERIVED_FROM,
    ENTITIES_LIMIT,
    MEMORIES,
    MEMORY,
    MERGED_INTO,
    SCOPES,
    SUPERSEDED_BY,
    SUPERSEDES,
    TAG_LIMIT,
    PromotedMemory,
    RelatedEntity,
)
from everkept.families.memories.stores import Stores, still_there
from everkept.tools.tool import Warned, masking_warnings
from everkept.values import Value, replace

DAY = 86_400 * 1_000_000  # microseconds
LASTING = 0.2  # of its half-life that each use adds
FADED = 0.01  # strength below which nothing is left of a memory
RESTING = 14 * DAY  # what was stored or used since then stays, however weak
KEPT_BY_USES = 2  # from so many on it stays for good
BATCH = 500  # memories of one change

FADING = "fading"  # what the log calls it
REASON = "faded"


def strength(record: Record, access: Access | None, now: int) -> float:
    """Its importance, halved with each half-life of its type since it was last used or changed.

    A use is that it was recalled; that a hook showed it is none. What is pinned never fades, nor
    does a type that has no half-life.
    """
    importance = DEFAULT_IMPORTANCE if record.importance is None else record.importance
    half_life = MEMORIES.half_lives.get(record.type or "")
    if half_life is None or record.facets.get("pinned"):
        return importance
    uses = access.count if access else 0
    last = max(record.created_at, record.updated_at, access.last_at if access else 0)
    days = max(0, now - last) / DAY
    return importance * 0.5 ** (days / (half_life * (1 + LASTING * uses)))


async def fade(store: RecordStore, clock: Clock, client: str = "") -> int:
    """Forgets the automatic memories that have faded, and no others; says how many.

    Each change forgets one batch of them, and can be undone like any other.
    """
    writer = Writer(clock, FADING, client)
    forgotten = 0
    page = _Page()
    while page is not None:
        page, count = await writer.commit(store, page.plan)
        forgotten += count
    return forgotten


class _Page(Value):
    """The candidates behind one that was looked at before, as they are when it is asked."""

    after: str | None = None

    async def plan(self, store: RecordStore, at: int) -> Planned[tuple["_Page | None", int]]:
        where = Where(kinds=(MEMORY,), automatic=True, created_before=at - RESTING)
        found = await store.scan(where, after=self.after, limit=BATCH)
        accesses = await store.accesses([record.id for record in found])
        faded = [record for record in found if _has_faded(record, accesses.get(record.id), at)]
        following = _Page(found[-1].id) if len(found) == BATCH else None
        steps = [step for record in faded for step in forgetting(record, REASON)]
        return steps, (following, len(faded))


def _has_faded(record: Record, access: Access | None, now: int) -> bool:
    """One use starts the time anew; what was used again is worth keeping."""
    uses = access.count if access else 0
    last = max(record.created_at, access.last_at if access else 0)
    return (
        bool(record.facets.get(AUTOMATIC))
        and not record.facets.get("pinned")
        and uses < KEPT_BY_USES
        and now - last > RESTING
        and strength(record, access, now) < FADED
    )


def forgetting(record: Record, reason: str) -> list[Step]:
    """Steps that hold for this version alone: what is pinned or changed meanwhile stays."""
    facets = {**record.facets, "forgotten_reason": reason}
    return [Update(record.id, {"facets": facets}, record.version), Delete(record.ref)]


SUPERSEDING_TOOL = "store_memory"  # what the log calls it
LOOKED_AT = 1_000  # of the newest changes: what a crash cut short is among them
MOST_EDITS = 2 * ENTITIES_LIMIT + 10  # of a stored fact, with its entities; an import has more


async def supersession(store: RecordStore, new: str, old: str, at: int) -> list[Step]:
    """In one store both facts change together; across stores only their own records say it."""
    found = await store.get([old])
    if not found:
        return []
    steps: list[Step] = [_marking(found[0], new)]
    links = await store.links([new], direction="out")
    if all((link.verb, link.target) != (SUPERSEDES, old) for link in links):
        steps.append(Insert(Link(str(uuid4()), new, SUPERSEDES, old, at)))
    return steps


async def mark_superseded(writer: Writer, store: RecordStore, old: str, new: str) -> bool:
    """Once the new one is there: a crash in between leaves both, and neither is lost.

    Says whether there was anything to mark; what was forgotten meanwhile needs no mark.
    """

    async def plan(store: RecordStore, _at: int) -> Planned[bool]:
        for record in await store.get([old]):
            if record.facets.get(SUPERSEDED_BY) != new:
                return [_marking(record, new)], True
        return [], False

    return await writer.commit(store, plan)


async def finish_supersessions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Marks what a crash left unmarked, because what replaces it lives in the other store."""
    writer = Writer(clock, SUPERSEDING_TOOL)
    finished = 0
    for here, there in ((project, user), (user, project)):
        claims = {r.facets[SUPERSEDES]: r.id for r in await _recent(here) if _is_claim(r)}
        for record in await there.get(list(claims)):
            if SUPERSEDED_BY not in record.facets:
                finished += await mark_superseded(writer, there, record.id, claims[record.id])
    return finished


async def _recent(store: RecordStore) -> Sequence[Record]:
    """The memories that the newest changes touched, as they are now."""
    changes = await store.changes(limit=LOOKED_AT, newest_first=True, most_edits=MOST_EDITS)
    edits = (edit for change in changes for edit in change.edits)
    return await store.get(list({e.id for e in edits if e.id and e.id.startswith(PREFIX)}))


def _is_claim(record: Record) -> bool:
    """A fact that was itself replaced claims nothing: the older one may hold again."""
    return SUPERSEDES in record.facets and SUPERSEDED_BY not in record.facets


def _marking(record: Record, new: str) -> Update:
    return Update(record.id, {"facets": {**record.facets, SUPERSEDED_BY: new}}, record.version)


PROMOTED = "promoted"  # facet: where a memory comes from, and which version of it
ABSORBED = "absorbed"  # facet: the ids and versions of what was merged into a memory
MOST_ABSORBED = 100  # the last ones; a move is finished long before that
_OF_PLACE = {"scope", "session", "variant"}  # a copy has its own


class Carried(Value):
    """What goes with a memory: the entities that it is about, and its links to others."""

    entities: Sequence[RelatedEntity]
    links: Sequence[Link]


class Move:
    """Takes memories of one project to the user."""

    def __init__(self, source: RecordStore, user: RecordStore, writer: Writer) -> None:
        self._source = source
        self._user = user
        self._writer = writer

    async def make(self, memory_id: str, reason: str | None = None) -> str:
        """Gives the id under which the user has it: another one where the text was there."""
        record = await still_there(self._source, memory_id)
        for _ in range(ATTEMPTS):
            kept = await self._copy(record, reason)
            if await self.bury(record, kept, reason):
                return kept
            found = await self._source.get([memory_id])
            if not found:
                return kept  # another process has finished it
            record = found[0]
        raise Conflict(f"Others keep changing memory {memory_id}.", hint="Try again.")

    async def bury(self, record: Record, kept: str, reason: str | None) -> bool:
        """False where the source is no longer the one that was copied."""
        at = self._writer.clock()
        steps = [
            *await _remembering(self._source, record.id, kept),
            *tombstone(record, promoted(record, "user", reason, at), kept),
        ]
        try:
            await self._writer.once(self._source, steps, at)
        except Conflict:
            return False
        return True

    async def _copy(self, record: Record, reason: str | None) -> str:
        carried = await carried_by(self._source, record)
        new = promoted(_with_sources(record, carried.links), "user", reason, self._writer.clock())

        async def plan(user: RecordStore, at: int) -> Planned[str]:
            twin = await same_text(user, new)
            for there in await user.get([new.id], include_deleted=True):
                if there.deleted_at is None:
                    return await self._catching_up(there, record, carried, at), there.id
                if twin is None:
                    values = {name: getattr(new, name) for name in AMENDABLE}
                    steps = [Restore(there.ref), Update(there.id, values, there.version)]
                    return [*steps, *await _linking(user, new.id, record.id, carried, at)], new.id
            if twin is not None:
                return await merging(user, twin, new, carried, at), twin.id
            steps = [Insert(new), *await _linking(user, new.id, record.id, carried, at)]
            return steps, new.id

        return await self._writer.commit(self._user, plan)

    async def _catching_up(
        self, copy: Record, record: Record, carried: Carried, at: int
    ) -> list[Step]:
        """Brings to a copy what has changed at its source since; what it has of its own stays."""
        note = cast(Values, copy.facets.get(PROMOTED, {}))
        version = note.get("version", record.version)
        if version == record.version:
            return []
        before = await _values_at(self._source, record, version)
        changed = {name: getattr(record, name) for name in before if name not in _OF_PLACE}
        facets = _refaceted(copy.facets, before.get("facets", record.facets), record.facets)
        changed["facets"] = {**facets, PROMOTED: {**note, "version": record.version}}
        steps: list[Step] = [Update(copy.id, changed, copy.version)]
        if facets.get(RELINKED) != copy.facets.get(RELINKED):
            steps += await _unlinking(self._user, copy.id, carried.entities)
        return [*steps, *await _linking(self._user, copy.id, record.id, carried, at)]


async def carried_by(store: RecordStore, record: Record) -> Carried:
    entities = [
        RelatedEntity(entity.name or "", entity.type or "", link.verb)
        for link, entity in await linked_entities(store, record.id)
    ]
    return Carried(entities, [*_named_links(record), *await memory_links(store, record.id)])


def _note_move(record: Record, reason: str | None, at: int) -> Values:
    note: Values = {"from_scope": record.scope, "at": at, "version": record.version}
    note |= {"reason": reason} if reason else {}
    return note | ({"session": record.session} if record.session else {})


def promoted(record: Record, target: str, reason: str | None, at: int) -> Record:
    """Whoever gives it a broader scope wants to keep it: it is automatic no longer."""
    session = None if record.scope == SESSION_SCOPE else record.session
    moment = moment_of(record.type, record.occurred_at)
    return replace(
        record,
        scope=target,
        session=session,
        variant=place_of(target, session, moment),
        facets={**not_automatic(record.facets), PROMOTED: _note_move(record, reason, at)},
        updated_at=at,
        deleted_at=None,
    )


async def merging(
    store: RecordStore, twin: Record, new: Record, carried: Carried, at: int
) -> list[Step]:
    """The twin with whatever the other one had more; `new` is how it would stand there itself."""
    version = new.facets[PROMOTED]["version"]
    absorbed = cast(dict[str, int], twin.facets.get(ABSORBED, {}))
    if absorbed.get(new.id) == version:
        return []
    values, _ = joined(twin, new)
    if "tags" in values:
        values["tags"] = values["tags"][:TAG_LIMIT]
    links = await _linking(store, twin.id, new.id, carried, at)
    absorbed = {i: v for i, v in absorbed.items() if i != new.id} | {new.id: version}
    facets: Values = {
        **values.get("facets", twin.facets),
        ABSORBED: dict(list(absorbed.items())[-MOST_ABSORBED:]),
    }
    if sources := {*twin.facets.get(DERIVED_FROM, ()), *new.facets.get(DERIVED_FROM, ())}:
        facets[DERIVED_FROM] = sorted(sources - {twin.id})
    values["facets"] = relinked(facets) if links else facets
    return [Update(twin.id, values, twin.version), *links]


def tombstone(record: Record, new: Record, kept: str) -> list[Step]:
    """Its scope is the new one, so that it does not count as a forgotten memory of the old."""
    facets = dict(new.facets)
    if kept != record.id:
        facets |= {SUPERSEDED_BY: kept, MERGED_INTO: kept}
    values = {"scope": new.scope, "facets": facets}
    return [Update(record.id, values, record.version), Delete(record.ref)]


async def same_text(store: RecordStore, record: Record) -> Record | None:
    """The memory with this text in this place, the record itself included."""
    if record.name_key is None:
        return None
    found = await store.scan(Where(kinds=(MEMORY,), name_keys=(record.name_key,)))
    return next((other for other in found if other.variant == record.variant), None)


async def came_back(store: RecordStore, record: Record, version: int) -> bool:
    """Whether the move of this version was finished and somebody has taken it back since."""
    updates = 0
    for _, edit in await store.history([record.ref]):
        updates += edit.operation == "update"
        if edit.operation == "delete" and updates >= version:
            return True
    return False


async def _linking(
    store: RecordStore, kept: str, old: str, carried: Carried, at: int
) -> list[Step]:
    return [
        *await link_steps(store, kept, carried.entities, at),
        *await carrying_steps(store, carried.links, old, kept, at),
    ]


async def _unlinking(
    store: RecordStore, memory_id: str, entities: Sequence[RelatedEntity]
) -> list[Step]:
    """Takes away the links to entities that are not among these."""
    wanted = {(normalised(e.name), normalised(e.type), e.relationship) for e in entities}
    return [
        Delete(link.ref)
        for link, entity in await linked_entities(store, memory_id)
        if (entity.name_key, normalised(entity.type or ""), link.verb) not in wanted
    ]


def _named_links(record: Record) -> list[Link]:
    """As its facets say: what left before it had to leave its links behind."""
    facets = record.facets
    ends = [(record.id, DERIVED_FROM, source) for source in facets.get(DERIVED_FROM, ())]
    if SUPERSEDES in facets:
        ends.append((record.id, SUPERSEDES, facets[SUPERSEDES]))
    if SUPERSEDED_BY in facets:
        ends.append((facets[SUPERSEDED_BY], SUPERSEDES, record.id))
    return [Link("", *end, record.created_at) for end in ends]


def _with_sources(record: Record, links: Sequence[Link]) -> Record:
    """A summary whose sources stay behind still names them."""
    targets = {x.target for x in links if x.verb == DERIVED_FROM and x.source == record.id}
    if not targets:
        return record
    sources = sorted(targets.union(record.facets.get(DERIVED_FROM, ())))
    return replace(record, facets={**record.facets, DERIVED_FROM: sources})


async def _remembering(store: RecordStore, memory_id: str, kept: str) -> list[Step]:
    """Summaries that stay behind name the source that leaves them."""
    links = await memory_links(store, memory_id)
    summaries = [x.source for x in links if x.verb == DERIVED_FROM and x.target == memory_id]
    steps: list[Step] = []
    for summary in await store.get(summaries):
        sources = sorted({*summary.facets.get(DERIVED_FROM, ()), kept})
        facets = {**summary.facets, DERIVED_FROM: sources}
        steps.append(Update(summary.id, {"facets": facets}, summary.version))
    return steps


async def _values_at(store: RecordStore, record: Record, version: int) -> Values:
    """What the record had in an earlier version, where it has something else now."""
    edits = [e for _, e in await store.history([record.ref]) if e.operation == "update"]
    before: Values = {}
    for edit in reversed(edits[version - record.version :]):
        before |= edit.before or {}
    return before


def _refaceted(
    facets: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> Values:
    """Facets with what has changed between two others."""
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    kept = {name: value for name, value in facets.items() if name not in changed}
    return kept | {name: after[name] for name in changed if name in after}


PROMOTING_TOOL = "promote_memory"  # what the log calls it
PAGE = 1_000  # of the user's memories, looked at together


class Promotion:
    """Takes one memory to a broader scope: one commit within a store, a move to the user's."""

    def __init__(
        self, stores: Stores, indexing: Indexing, accesses: AccessBook, masking: Masking
    ) -> None:
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._masking = masking

    async def promote(self, memory_id: str, target: str, reason: str | None) -> PromotedMemory:
        reason = self._masking.optional(reason)
        warnings = masking_warnings(self._masking.kinds)
        source, found = await self._stores.holding(memory_id)
        if target == "user" and await self._is_resumed(found):
            previous = _note(found).get("from_scope", "project")
            return PromotedMemory(found.id, previous, target, reason, warnings=warnings or None)
        _check_broader(found, target)
        is_users = source is await self._stores.user()
        if is_users and target != "user":
            raise ReadOnly(
                f"Memory {found.id} is kept for you alone: its project is shared with you for "
                "reading.",
                hint="Promote it to `user`, where you find it in every project.",
                memory_id=found.id,
            )
        if target == "user" and not is_users:
            kept = await self._to_user(source, found, reason)
        else:
            kept = await self._within(source, found, target, reason)
        if merged := kept != found.id:
            warnings += await self._left_out(target, found, kept)
        return PromotedMemory(
            kept, found.scope, target, reason, merged=merged or None, warnings=warnings or None
        )

    async def _is_resumed(self, found: Record) -> bool:
        """Whether a crash had cut this very promotion short; now it is complete."""
        if found.scope != "user":
            return False
        project, user = await self._stores.project(), await self._stores.user()
        return await settle(project, user, [found], self._stores.writer) > 0

    async def _within(
        self, store: RecordStore, found: Record, target: str, reason: str | None
    ) -> str:
        async def plan(store: RecordStore, at: int) -> Planned[str]:
            record = await still_there(store, found.id)
            _check_broader(record, target)
            new = promoted(record, target, reason, at)
            twin = await same_text(store, new)
            if twin is None:
                values = {
                    name: getattr(new, name) for name in ("scope", "session", "variant", "facets")
                }
                return [Update(record.id, values, record.version)], record.id
            carried = await carried_by(store, record)
            steps = await merging(store, twin, new, carried, at)
            return [*steps, *tombstone(record, new, twin.id)], twin.id

        return await self._stores.commit(store, plan)

    async def _to_user(self, source: RecordStore, found: Record, reason: str | None) -> str:
        check_writable(source)  # the user's copy is made first
        check_own(source)
        user = await self._stores.user()
        access = (await self._accesses.of(source, [found.id])).get(found.id)
        kept = await Move(source, user, self._stores.writer).make(found.id, reason)
        self._indexing.wake(user)
        if access is not None:
            await user.note_accesses({kept: access.count}, access.last_at)
        return kept

    async def _left_out(self, target: str, found: Record, kept: str) -> list[Warned]:
        """Two memories can have more tags between them than one may have."""
        store = await self._stores.to_write(target)
        tags = {tag for record in await store.get([kept]) for tag in record.tags}
        missing = [tag for tag in found.tags if tag not in tags]
        if not missing or len(tags) < TAG_LIMIT:
            return []
        message = f"A memory has at most {TAG_LIMIT} tags. Left out: {', '.join(missing)}."
        return [Warned("tags_left_out", message)]


async def finish_promotions(project: RecordStore, user: RecordStore, clock: Clock) -> int:
    """Completes what a crash left, however long ago: what lives in both places is the user's."""
    where = Where(kinds=(MEMORY,), scopes=("user",))
    writer = Writer(clock, PROMOTING_TOOL)
    settled = 0
    last: str | None = None
    while page := await user.scan(where, after=last, limit=PAGE):
        last = page[-1].id
        settled += await settle(project, user, page, writer)
    return settled


async def settle(
    project: RecordStore, user: RecordStore, of_user: Sequence[Record], writer: Writer
) -> int:
    """Buries the project's copies of memories that the user's store has; says how many."""
    settled = 0
    arrived = {moved: (record, version) for record in of_user for moved, version in _moved(record)}
    for record in await project.get(list(arrived)) if arrived else []:
        kept, version = arrived[record.id]
        if await came_back(project, record, version):
            continue
        move = Move(project, user, writer)
        reason = _note(kept).get("reason") if kept.id == record.id else None
        try:
            # What was changed since it was copied has to be carried over first.
            if record.version != version or not await move.bury(record, kept.id, reason):
                await move.make(record.id, reason)
        except (Conflict, NotFound):
            continue  # another process is at it
        settled += 1
    return settled


def _moved(record: Record) -> list[tuple[str, int]]:
    """The memories that have become this one, each with the version that was copied."""
    moved = list(cast(Mapping[str, int], record.facets.get(ABSORBED, {})).items())
    if PROMOTED in record.facets:
        moved.append((record.id, _note(record).get("version", 1)))
    return moved


def _note(record: Record) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], record.facets.get(PROMOTED, {}))


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
