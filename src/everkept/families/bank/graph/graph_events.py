"""Events of a graph: the lines of `graph/graph.jsonl`, and the events that a store's change log implies.

Invalid lines are skipped when the log is read. Lines are written as the public server writes them.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from everkept.core.ports import RecordStore
from everkept.core.records import Change, Edit, Record, RecordFilter, RecordLink, Ref
from everkept.core.text import find_forbidden, has_control_characters
from everkept.core.times import format_iso, parse_time
from everkept.errors import MarkerMismatch
from everkept.families.bank.graph.graph_records import MAX_READ_ATTEMPTS, FormerHolder, build_state
from everkept.families.bank.graph.model import (
    MAX_TEXT_CHARACTERS,
    SOURCE_KINDS,
    DropEntity,
    DropObservation,
    DropRelation,
    EntityState,
    Event,
    GraphState,
    ObservationState,
    Put,
    RelationState,
    Thing,
    compute_difference,
    compute_own_id,
    get_public_id,
)
from everkept.graph.entities import ENTITY, MAX_NAME_CHARACTERS, OBSERVATION
from everkept.values import Value, field, replace

LOG_PATH = "graph/graph.jsonl"
SNAPSHOT_PATH = "graph/graph.snapshot.json"
INDEX_PATH = "graph/graph.index.json"
FORMAT_VERSION = "1"
LOG_MARKER = {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": FORMAT_VERSION}
SNAPSHOT_WRITTEN = "snapshot_written"
_BOM = "\ufeff".encode()
_PUT_EVENTS: dict[type[Thing], tuple[str, str]] = {
    EntityState: ("entity_upsert", "entity"),
    ObservationState: ("observation_add", "observation"),
    RelationState: ("relation_add", "relation"),
}


class GraphLog(Value):
    """Parsed log. `ends` has the offset after the line of each event."""

    events: list[Event]
    ends: list[int]
    lines: int  # all that are not empty, including the marker line
    skipped: int
    size: int
    beginning: bytes  # bytes to append before the next line

    def list_events_until(self, size: int) -> list[Event]:
        return [event for event, end in zip(self.events, self.ends, strict=True) if end <= size]


def encode_line(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


MARKER_LINE = encode_line(LOG_MARKER)


def parse_log(data: bytes) -> GraphLog:
    """Parse a log; count and skip lines that are not valid events. Raise MarkerMismatch."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    if len(data) < len(MARKER_LINE) and MARKER_LINE.startswith(data):
        # The log is empty, or a crash cut off its first line.
        return GraphLog([], [], 0, 0, len(data), MARKER_LINE[len(data) :])
    events: list[Event] = []
    ends: list[int] = []
    lines = skipped = 0
    end = start
    for raw in data[start:].split(b"\n"):
        end = min(end + len(raw) + 1, len(data))
        if not raw.strip():
            continue
        lines += 1
        if lines == 1:
            _check_marker(raw)
            continue
        value = _parse_object(raw)
        event = _parse_event(value) if value is not None else None
        if event is not None:
            events.append(event)
            ends.append(end)
        elif value is None or value.get("type") != SNAPSHOT_WRITTEN:
            skipped += 1
    beginning = b"" if data.endswith(b"\n") or not data else b"\n"
    return GraphLog(events, ends, lines, skipped, len(data), beginning if lines else beginning + MARKER_LINE)


def encode_events(events: Iterable[Event]) -> bytes:
    return b"".join(encode_line(_encode_event(event)) for event in events)


def encode_snapshot_event(stats: Mapping[str, Any], at: int) -> bytes:
    return encode_line({"type": SNAPSHOT_WRITTEN, "snapshotPath": SNAPSHOT_PATH, "stats": stats, "ts": format_iso(at)})


def encode_thing(thing: Thing) -> dict[str, Any]:
    match thing:
        case EntityState():
            return {
                "id": thing.id,
                "name": thing.name,
                "entityType": thing.type,
                **({"attrs": thing.attrs} if thing.attrs else {}),
                "createdAt": format_iso(thing.created_at),
                "updatedAt": format_iso(thing.updated_at),
            }
        case ObservationState():
            return {
                "id": thing.id,
                "entityId": thing.entity_id,
                "text": thing.text,
                **({"source": thing.source} if thing.source else {}),
                "timestamp": format_iso(thing.at),
            }
        case RelationState():
            return {
                "id": thing.id,
                "fromId": thing.from_id,
                "toId": thing.to_id,
                "relationType": thing.type,
                "createdAt": format_iso(thing.created_at),
            }


def _encode_event(event: Event) -> dict[str, Any]:
    ts = format_iso(event.at)
    match event:
        case Put():
            name, part = _PUT_EVENTS[type(event.thing)]
            return {"type": name, part: encode_thing(event.thing), "ts": ts}
        case DropEntity():
            return {"type": "entity_delete", "entityId": event.id, "ts": ts}
        case DropObservation():
            return {"type": "observation_delete", "entityId": event.entity_id, "observationId": event.id, "ts": ts}
        case DropRelation():
            return {
                "type": "relation_remove",
                "fromId": event.from_id,
                "toId": event.to_id,
                "relationType": event.type,
                "ts": ts,
            }


def _check_marker(raw: bytes) -> None:
    value = _parse_object(raw)
    if value is None or any(value.get(name) != wanted for name, wanted in LOG_MARKER.items()):
        raise MarkerMismatch(
            f"{LOG_PATH} does not begin with the marker line of a memory bank graph.",
            hint=f"Its first line must be {MARKER_LINE.decode().strip()}",
            path=LOG_PATH,
        )


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _refuse_constant(constant: str) -> Any:
    raise ValueError(constant)  # NaN and Infinity are not JSON, and no store keeps them


def _parse_event(value: Mapping[str, Any]) -> Event | None:
    """Return None if the object is not an event, or has values that cannot be stored."""
    ts = _parse_time(value.get("ts"))
    match value.get("type"):
        case "entity_upsert":
            return _build_put(_parse_entity(_get_part(value, "entity"), ts), ts)
        case "observation_add":
            return _build_put(_parse_observation(_get_part(value, "observation"), ts), ts)
        case "relation_add":
            return _build_put(_parse_relation(_get_part(value, "relation"), ts), ts)
        case "entity_delete":
            key = _parse_id(value.get("entityId"))
            return DropEntity(key, ts or 0) if key else None
        case "observation_delete":
            key, owner = _parse_id(value.get("observationId")), _parse_id(value.get("entityId"))
            return DropObservation(key, owner or "", ts or 0) if key else None
        case "relation_remove":
            ends = _parse_id(value.get("fromId")), _parse_id(value.get("toId"))
            verb = _parse_name(value.get("relationType"))
            if ends[0] is None or ends[1] is None or verb is None:
                return None
            return DropRelation(ends[0], ends[1], verb, ts or 0)
        case _:
            return None


def _get_part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return cast(Mapping[str, Any], part) if isinstance(part, dict) else {}


def _build_put(thing: Thing | None, ts: int | None) -> Put | None:
    if thing is None:
        return None
    if ts is not None:
        return Put(thing, ts)
    match thing:
        case EntityState():
            return Put(thing, thing.updated_at)
        case ObservationState():
            return Put(thing, thing.at)
        case RelationState():
            return Put(thing, thing.created_at)


def _parse_entity(value: Mapping[str, Any], ts: int | None) -> EntityState | None:
    key, name, kind = (_parse_id(value.get("id")), _parse_name(value.get("name")), _parse_name(value.get("entityType")))
    attrs: Any = value.get("attrs") or dict[str, Any]()
    if key is None or name is None or kind is None or not isinstance(attrs, dict):
        return None
    kept = cast(dict[str, Any], attrs)
    if not _can_be_stored(kept):
        return None
    created = _parse_time(value.get("createdAt"))
    updated = _parse_time(value.get("updatedAt"))
    known = [at for at in (created, updated, ts) if at is not None]
    if not known:
        return None
    return EntityState(
        key, name, kind, kept, known[0] if created is None else created, known[-1] if updated is None else updated
    )


def _parse_observation(value: Mapping[str, Any], ts: int | None) -> ObservationState | None:
    key, owner, text = (_parse_id(value.get("id")), _parse_id(value.get("entityId")), value.get("text"))
    at = _parse_time(value.get("timestamp"))
    at = ts if at is None else at
    if key is None or owner is None or at is None or not isinstance(text, str):
        return None
    if not text.strip() or len(text) > MAX_TEXT_CHARACTERS or find_forbidden(text):
        return None
    return ObservationState(key, owner, text, _parse_source(value.get("source")), at)


def _parse_relation(value: Mapping[str, Any], ts: int | None) -> RelationState | None:
    ends = _parse_id(value.get("fromId")), _parse_id(value.get("toId"))
    verb = _parse_name(value.get("relationType"))
    at = _parse_time(value.get("createdAt"))
    at = ts if at is None else at
    if ends[0] is None or ends[1] is None or verb is None or at is None:
        return None
    return RelationState(ends[0], ends[1], verb, at)


def _parse_id(value: Any) -> str | None:
    usable = isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARACTERS
    return value if usable and not find_forbidden(value) else None


def _parse_name(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME_CHARACTERS:
        return None
    broken = has_control_characters(value) or find_forbidden(value)
    return None if broken else value


def _can_be_stored(attrs: Mapping[str, Any]) -> bool:
    try:
        json.dumps(attrs, ensure_ascii=False).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _parse_time(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return parse_time(value)
    except (ValueError, OverflowError):
        return None


def _parse_source(value: Any) -> dict[str, Any] | None:
    """Parse a source. An unknown kind becomes the `ref` of a manual source."""
    if not isinstance(value, dict):
        return None
    given = cast(Mapping[str, Any], value)
    kind, ref = given.get("kind"), given.get("ref")
    if not isinstance(kind, str) or find_forbidden(kind):
        return None
    ref = ref if isinstance(ref, str) and not find_forbidden(ref) else None
    if kind not in SOURCE_KINDS:
        kind, ref = SOURCE_KINDS[0], ref or kind
    return {"kind": kind} if ref is None else {"kind": kind, "ref": ref}


MAX_FOLLOWED_CHANGES = 500  # from here on, comparing everything is faster
PAGE_CHANGES = 500

T = TypeVar("T", Record, RecordLink)


class EventsSince(Value):
    """The events from an earlier change up to the newest change, `seq`."""

    events: list[Event]
    seq: int
    mark: str  # identifies that change, see compute_mark()


class OwnChange(Value):
    """The change that a call committed itself, if it directly follows change number `after`."""

    news: EventsSince
    after: int


BeforeAfter = tuple[T | None, T | None]  # a record or link before and after a change


def build_events(
    records: Sequence[BeforeAfter[Record]], links: Sequence[RecordLink], around: Sequence[Record], at: int
) -> list[Event]:
    """Build the events of one change that touched only these records and created only these links.

    `around` are the entities that the records and links belong to, and entities of the same name.
    """
    now = [(then, record) for then, record in records if record is not None]
    steps = _TouchedThings(
        {record.id: (then, record) for then, record in now if record.kind == ENTITY},
        [(then, record) for then, record in now if record.kind == OBSERVATION],
        [(None, link) for link in links],
        times={thing.id: at for thing in (*(record for _, record in now), *links)},
        newest=at,
    )
    steps.others = [record for record in around if record.id not in steps.entities]
    return steps.build_events()


def compute_mark(change: Change) -> str:
    """Return a mark that differs in another store, and in the same store after an older file was restored."""
    return f"{change.at} {change.tool}"


async def read_mark(store: RecordStore, seq: int) -> str | None:
    """Return the mark of a change, or None if no change has this number."""
    if seq == 0:
        return ""
    found = await store.read_changes(after=seq - 1, limit=1)
    return compute_mark(found[0]) if found and found[0].seq == seq else None


async def read_events_since(store: RecordStore, after: int, mark: str | None = None) -> EventsSince | None:
    """Return the events after a change, retried while other processes change the store.

    Return None if the change log does not have them, has too many, or if change `after` has another mark.
    """
    result: EventsSince | None = None
    for _ in range(MAX_READ_ATTEMPTS):
        result = await peek_events_since(store, after, mark)
        if result is None or result.seq == after or await store.get_revision() == result.seq:
            break
    return result


async def peek_events_since(store: RecordStore, after: int, mark: str | None = None) -> EventsSince | None:
    """Like `read_events_since`, but exact only if `seq` is still the newest change when this returns.

    Otherwise the events may include parts of later changes, which a later call returns again.
    """
    known, changes = await _read_changes(store, after)
    if known is None or mark not in (None, known):
        return None
    if not changes:
        return EventsSince([], after, known)
    if len(changes) >= MAX_FOLLOWED_CHANGES or any(_is_erasing(change) for change in changes):
        return None
    events = (await _read_touched(store, changes)).build_events()
    return EventsSince(events, changes[-1].seq, compute_mark(changes[-1]))


async def _read_changes(store: RecordStore, seq: int) -> tuple[str | None, list[Change]]:
    """Return the mark of a change and the changes after it, with one query."""
    if seq == 0:
        return "", await store.read_changes(limit=MAX_FOLLOWED_CHANGES)
    changes = await store.read_changes(after=seq - 1, limit=MAX_FOLLOWED_CHANGES + 1)
    if not changes or changes[0].seq != seq:
        return None, []
    return compute_mark(changes[0]), changes[1:]


async def has_erased_since(store: RecordStore, after: int) -> bool:
    """Return whether data was purged or permanently rewritten, so that the change log has no trace of it."""
    return any([_is_erasing(change) async for change in _iterate_changes(store, after)])


async def read_former_ids(store: RecordStore, entities: Iterable[Record], after: int) -> dict[str, list[FormerHolder]]:
    """Map each public id that an entity lost since a change to its former holders."""
    found: dict[str, list[FormerHolder]] = {}
    then = {entity.id: entity for entity in entities}
    for seq, edit in reversed(await store.read_history([e.ref for e in then.values()], after=after)):
        before = edit.before or {}
        if edit.id is None or not before.keys() & {"name", "type"}:
            continue
        entity = then[edit.id]
        name, kind = before.get("name", entity.name), before.get("type", entity.type)
        then[edit.id] = replace(entity, name=name, type=kind)
        [change] = await store.read_changes(after=seq - 1, limit=1)
        found.setdefault(compute_own_id(then[edit.id]), []).append(FormerHolder(edit.id, change.at))
    return found


async def _iterate_changes(store: RecordStore, after: int) -> AsyncGenerator[Change, None]:
    while True:
        changes = await store.read_changes(after=after, limit=PAGE_CHANGES)
        for change in changes:
            yield change
        if len(changes) < PAGE_CHANGES:
            return
        after = changes[-1].seq


def _is_erasing(change: Change) -> bool:
    return not change.edits or any(edit.id is None for edit in change.edits)


class _TouchedThings(Value, frozen=False):
    """Touched records and links before and after; None if they did not exist or are deleted."""

    entities: dict[str, tuple[Record | None, Record | None]]
    observations: list[tuple[Record | None, Record | None]]
    links: list[tuple[RecordLink | None, RecordLink | None]]
    times: Mapping[str, int]  # by the ids of touched things
    newest: int
    others: list[Record] = field(default_factory=list[Record])  # untouched entities

    def build_events(self) -> list[Event]:
        then, now = (self._build_state(side) for side in (0, 1))
        return compute_difference(then, now, lambda key: now.times.get(key) or then.times[key])

    def _build_state(self, side: int) -> GraphState:
        touched = [pair[side] for pair in self.entities.values()]
        live = [entity for entity in touched if entity is not None]
        keys = {get_public_id(entity) for pair in self.entities.values() for entity in pair if entity is not None}
        namesakes = [entity for entity in self.others if get_public_id(entity) in keys]
        return build_state(
            [*live, *namesakes],
            [o for pair in self.observations if (o := pair[side]) is not None],
            [link for pair in self.links if (link := pair[side]) is not None],
            {entity.id: entity for entity in (*live, *self.others)},
            lambda thing: self.times.get(thing.id, self.newest),
        )


async def _read_touched(store: RecordStore, changes: Sequence[Change]) -> _TouchedThings:
    edits: dict[Ref, list[Edit]] = {}
    times: dict[str, int] = {}
    for change in changes:
        for edit in change.edits:
            if edit.id is not None:
                edits.setdefault(Ref(edit.subject, edit.id), []).append(edit)
                times[edit.id] = change.at
    records = await _read_records(store, [ref.id for ref in edits if ref.subject == "record"])
    link_ids = [ref.id for ref in edits if ref.subject == "link"]
    links = await store.get_links(link_ids, include_deleted=True) if link_ids else []
    steps = _TouchedThings(
        {r.id: _compute_sides(r, edits[r.ref]) for r in records if r.kind == ENTITY},
        [_compute_sides(r, edits[r.ref]) for r in records if r.kind == OBSERVATION],
        [_compute_sides(link, edits[link.ref]) for link in links],
        times=times,
        newest=changes[-1].at,
    )
    await _add_surroundings(store, steps, records, links)
    return steps


async def _add_surroundings(
    store: RecordStore, steps: _TouchedThings, records: Sequence[Record], links: Sequence[RecordLink]
) -> None:
    """Add the observations and links of renamed entities, and the entities around all of them."""
    renamed = [
        record_id
        for record_id, (then, now) in steps.entities.items()
        if then is not None and now is not None and get_public_id(then) != get_public_id(now)
    ]
    if renamed:
        known = {record.id for record in records} | {link.id for link in links}
        below = await store.scan(RecordFilter(kinds=(OBSERVATION,), parents=tuple(renamed)))
        steps.observations += [(o, o) for o in below if o.id not in known]
        beside = await store.find_links(renamed, sources=(ENTITY,))
        steps.links += [(link, link) for link in beside if link.id not in known]
    around = {o.parent or "" for pair in steps.observations for o in pair if o is not None} | {
        end for pair in steps.links for link in pair if link is not None for end in (link.source, link.target)
    }
    others = await _read_records(store, sorted(around - steps.entities.keys()))
    keys = {
        entity.name_key
        for pair in steps.entities.values()
        for entity in pair
        if entity is not None and entity.name_key is not None
    }
    if keys:
        others += await store.scan(RecordFilter(kinds=(ENTITY,), name_keys=tuple(sorted(keys))))
    steps.others = list(
        {
            record.id: record
            for record in others
            if record.kind == ENTITY and record.deleted_at is None and record.id not in steps.entities
        }.values()
    )


async def _read_records(store: RecordStore, ids: Sequence[str]) -> list[Record]:
    return await store.get(ids, include_deleted=True) if ids else []


def _compute_sides(thing: T, edits: Sequence[Edit]) -> tuple[T | None, T | None]:
    now = thing if thing.deleted_at is None else None
    if edits[0].operation == "insert":
        return None, now
    before: dict[str, object] = {}
    for edit in reversed(edits):
        before.update(edit.before or {})
    known: Mapping[str, object] = {name: value for name, value in before.items() if hasattr(thing, name)}
    then = replace(thing, **known)  # pyright: ignore[reportArgumentType]
    return (then if then.deleted_at is None else None), now
