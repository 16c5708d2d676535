"""The move of a memory from a project's store to the user's, which can stop anywhere.

The target comes first, under the same id, then the source's tombstone: a crash leaves the memory
in both places, never in none. The copy notes which version of the source it was made from, and
only that version is buried; what was changed meanwhile is carried over first.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from everkept.core.commits import ATTEMPTS, Planned, Writer
from everkept.core.ports import RecordStore
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
from everkept.core.text import normalised
from everkept.errors import Conflict
from everkept.families.memories.amending import not_automatic
from everkept.families.memories.identity import moment_of, place_of
from everkept.families.memories.joining import Values, joined
from everkept.families.memories.linking import (
    RELINKED,
    carrying_steps,
    link_steps,
    linked_entities,
    memory_links,
    relinked,
)
from everkept.families.memories.model import (
    DERIVED_FROM,
    MEMORY,
    MERGED_INTO,
    SUPERSEDED_BY,
    SUPERSEDES,
    TAG_LIMIT,
    RelatedEntity,
)
from everkept.families.memories.stores import still_there
from everkept.values import Value, replace

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


def _note(record: Record, reason: str | None, at: int) -> Values:
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
        facets={**not_automatic(record.facets), PROMOTED: _note(record, reason, at)},
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
