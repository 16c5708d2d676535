"""What the change log says of a graph: the events that lead from an earlier moment to now."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import TypeVar

from everkept.core.ports import RecordStore
from everkept.core.records import Change, Edit, Link, Record, Ref, Where
from everkept.families.bank.graph_model import own_id, public_id
from everkept.families.bank.mirror.graph_state import Event, GraphState, difference
from everkept.families.bank.mirror.placing import Former
from everkept.families.bank.mirror.records import LOOKS, shown
from everkept.graph.entities import ENTITY, OBSERVATION
from everkept.values import Value, field, replace

FAR = 500  # changes behind which it is quicker to compare everything
PAGE = 500  # changes that are read at once

T = TypeVar("T", Record, Link)


class Moved(Value):
    """The events that lead from an earlier moment to the newest change, `seq`."""

    events: list[Event]
    seq: int
    mark: str  # by which that change is known again


class Own(Value):
    """What a call did itself, where it was the one change after that with the number `after`."""

    news: Moved
    after: int


Sides = tuple[T | None, T | None]  # of a thing: as it was before a change, and after it


def events_of(
    records: Sequence[Sides[Record]], links: Sequence[Link], around: Sequence[Record], at: int
) -> list[Event]:
    """The events of one change that touched these records, made these links and did nothing else.

    `around` are the entities that they hang on, and those of the same name.
    """
    now = [(then, record) for then, record in records if record is not None]
    steps = _Steps(
        {record.id: (then, record) for then, record in now if record.kind == ENTITY},
        [(then, record) for then, record in now if record.kind == OBSERVATION],
        [(None, link) for link in links],
        times={thing.id: at for thing in (*(record for _, record in now), *links)},
        newest=at,
    )
    steps.others = [record for record in around if record.id not in steps.entities]
    return steps.events()


def mark_of(change: Change) -> str:
    """Another store, or the same after an older file was put back, has another at that number."""
    return f"{change.at} {change.tool}"


async def mark_at(store: RecordStore, seq: int) -> str | None:
    """The mark of a change; None where there is none with this number."""
    if seq == 0:
        return ""
    found = await store.changes(after=seq - 1, limit=1)
    return mark_of(found[0]) if found and found[0].seq == seq else None


async def moved(store: RecordStore, after: int, mark: str | None = None) -> Moved | None:
    """None where the log does not say what happened, or says too much.

    Likewise where the change with the number `after` has another mark than the one given.
    """
    result: Moved | None = None
    for _ in range(LOOKS):
        result = await glimpsed(store, after, mark)
        if result is None or result.seq == after or await store.revision() == result.seq:
            break
    return result


async def glimpsed(store: RecordStore, after: int, mark: str | None = None) -> Moved | None:
    """The same, exact only if `seq` is still the newest change when this returns.

    Otherwise the events may tell some of what came later, which would be told again.
    """
    known, changes = await _changes_from(store, after)
    if known is None or mark not in (None, known):
        return None
    if not changes:
        return Moved([], after, known)
    if len(changes) >= FAR or any(_erases(change) for change in changes):
        return None
    events = (await _read(store, changes)).events()
    return Moved(events, changes[-1].seq, mark_of(changes[-1]))


async def _changes_from(store: RecordStore, seq: int) -> tuple[str | None, list[Change]]:
    """The mark of a change, and what came after it, in one question."""
    if seq == 0:
        return "", await store.changes(limit=FAR)
    changes = await store.changes(after=seq - 1, limit=FAR + 1)
    if not changes or changes[0].seq != seq:
        return None, []
    return mark_of(changes[0]), changes[1:]


async def erased_since(store: RecordStore, after: int) -> bool:
    """Whether something was purged or rewritten for good, of which the log keeps nothing."""
    return any([_erases(change) async for change in _all_changes(store, after)])


async def former_ids(
    store: RecordStore, entities: Iterable[Record], after: int
) -> dict[str, list[Former]]:
    """The public ids that entities had since, and gave up."""
    found: dict[str, list[Former]] = {}
    then = {entity.id: entity for entity in entities}
    for seq, edit in reversed(await store.history([e.ref for e in then.values()], after=after)):
        before = edit.before or {}
        if edit.id is None or not before.keys() & {"name", "type"}:
            continue
        entity = then[edit.id]
        name, kind = before.get("name", entity.name), before.get("type", entity.type)
        then[edit.id] = replace(entity, name=name, type=kind)
        [change] = await store.changes(after=seq - 1, limit=1)
        found.setdefault(own_id(then[edit.id]), []).append(Former(edit.id, change.at))
    return found


async def _all_changes(store: RecordStore, after: int) -> AsyncGenerator[Change, None]:
    while True:
        changes = await store.changes(after=after, limit=PAGE)
        for change in changes:
            yield change
        if len(changes) < PAGE:
            return
        after = changes[-1].seq


def _erases(change: Change) -> bool:
    return not change.edits or any(edit.id is None for edit in change.edits)


class _Steps(Value, frozen=False):
    """Touched things as they were and as they are; None where they were not there or are gone."""

    entities: dict[str, tuple[Record | None, Record | None]]
    observations: list[tuple[Record | None, Record | None]]
    links: list[tuple[Link | None, Link | None]]
    times: Mapping[str, int]  # by the ids of touched things
    newest: int
    others: list[Record] = field(default_factory=list[Record])  # entities that nobody touched

    def events(self) -> list[Event]:
        then, now = (self._state(side) for side in (0, 1))
        return difference(then, now, lambda key: now.times.get(key) or then.times[key])

    def _state(self, side: int) -> GraphState:
        touched = [pair[side] for pair in self.entities.values()]
        live = [entity for entity in touched if entity is not None]
        keys = {
            public_id(entity)
            for pair in self.entities.values()
            for entity in pair
            if entity is not None
        }
        namesakes = [entity for entity in self.others if public_id(entity) in keys]
        return shown(
            [*live, *namesakes],
            [o for pair in self.observations if (o := pair[side]) is not None],
            [link for pair in self.links if (link := pair[side]) is not None],
            {entity.id: entity for entity in (*live, *self.others)},
            lambda thing: self.times.get(thing.id, self.newest),
        )


async def _read(store: RecordStore, changes: Sequence[Change]) -> _Steps:
    edits: dict[Ref, list[Edit]] = {}
    times: dict[str, int] = {}
    for change in changes:
        for edit in change.edits:
            if edit.id is not None:
                edits.setdefault(Ref(edit.subject, edit.id), []).append(edit)
                times[edit.id] = change.at
    records = await _records(store, [ref.id for ref in edits if ref.subject == "record"])
    links = await _links(store, [ref.id for ref in edits if ref.subject == "link"])
    steps = _Steps(
        {r.id: _sides(r, edits[r.ref]) for r in records if r.kind == ENTITY},
        [_sides(r, edits[r.ref]) for r in records if r.kind == OBSERVATION],
        [_sides(link, edits[link.ref]) for link in links],
        times=times,
        newest=changes[-1].at,
    )
    await _complete(store, steps, records, links)
    return steps


async def _complete(
    store: RecordStore, steps: _Steps, records: Sequence[Record], links: Sequence[Link]
) -> None:
    """Adds what hangs on an entity that has another id now, and the entities around all of it."""
    renamed = [
        record_id
        for record_id, (then, now) in steps.entities.items()
        if then is not None and now is not None and public_id(then) != public_id(now)
    ]
    if renamed:
        known = {record.id for record in records} | {link.id for link in links}
        below = await store.scan(Where(kinds=(OBSERVATION,), parents=tuple(renamed)))
        steps.observations += [(o, o) for o in below if o.id not in known]
        beside = await store.links(renamed, sources=(ENTITY,))
        steps.links += [(link, link) for link in beside if link.id not in known]
    around = {o.parent or "" for pair in steps.observations for o in pair if o is not None} | {
        end
        for pair in steps.links
        for link in pair
        if link is not None
        for end in (link.source, link.target)
    }
    others = await _records(store, sorted(around - steps.entities.keys()))
    keys = {
        entity.name_key
        for pair in steps.entities.values()
        for entity in pair
        if entity is not None and entity.name_key is not None
    }
    if keys:
        others += await store.scan(Where(kinds=(ENTITY,), name_keys=tuple(sorted(keys))))
    steps.others = list(
        {
            record.id: record
            for record in others
            if record.kind == ENTITY
            and record.deleted_at is None
            and record.id not in steps.entities
        }.values()
    )


async def _records(store: RecordStore, ids: Sequence[str]) -> list[Record]:
    return await store.get(ids, include_deleted=True) if ids else []


async def _links(store: RecordStore, ids: Sequence[str]) -> list[Link]:
    return await store.get_links(ids, include_deleted=True) if ids else []


def _sides(thing: T, edits: Sequence[Edit]) -> tuple[T | None, T | None]:
    now = thing if thing.deleted_at is None else None
    if edits[0].operation == "insert":
        return None, now
    before: dict[str, object] = {}
    for edit in reversed(edits):
        before.update(edit.before or {})
    known: Mapping[str, object] = {
        name: value for name, value in before.items() if hasattr(thing, name)
    }
    then = replace(thing, **known)  # pyright: ignore[reportArgumentType]
    return (then if then.deleted_at is None else None), now
