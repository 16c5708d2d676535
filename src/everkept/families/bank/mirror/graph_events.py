"""The lines of `graph/graph.jsonl`: read with forgiveness, written as the public server does."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from everkept.core.text import forbidden_in_text, has_control_characters
from everkept.core.times import iso, parsed
from everkept.errors import MarkerMismatch
from everkept.families.bank.graph_model import KINDS, TEXT_LIMIT
from everkept.families.bank.mirror.graph_state import (
    DropEntity,
    DropObservation,
    DropRelation,
    EntityState,
    Event,
    ObservationState,
    Put,
    RelationState,
    Thing,
)
from everkept.graph.entities import NAME_LIMIT
from everkept.values import Value

LOG = "graph/graph.jsonl"
SNAPSHOT = "graph/graph.snapshot.json"
INDEX = "graph/graph.index.json"
VERSION = "1"
MARK = {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": VERSION}
SNAPSHOT_WRITTEN = "snapshot_written"
_BOM = "\ufeff".encode()
_PUTS: dict[type[Thing], tuple[str, str]] = {
    EntityState: ("entity_upsert", "entity"),
    ObservationState: ("observation_add", "observation"),
    RelationState: ("relation_add", "relation"),
}


class Log(Value):
    """A log as it was read; `ends` are the offsets behind each event's line."""

    events: list[Event]
    ends: list[int]
    lines: int  # that hold something, the first one included
    skipped: int
    size: int
    beginning: bytes  # what must be appended before the next line

    def up_to(self, size: int) -> list[Event]:
        return [event for event, end in zip(self.events, self.ends, strict=True) if end <= size]


def line_of(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


MARKER_LINE = line_of(MARK)


def read_log(data: bytes) -> Log:
    """What is no event is skipped and counted. Raises MarkerMismatch."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    if len(data) < len(MARKER_LINE) and MARKER_LINE.startswith(data):
        # Nothing, or the part of the first line that a crash left.
        return Log([], [], 0, 0, len(data), MARKER_LINE[len(data) :])
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
            _check_mark(raw)
            continue
        value = _object(raw)
        event = _event(value) if value is not None else None
        if event is not None:
            events.append(event)
            ends.append(end)
        elif value is None or value.get("type") != SNAPSHOT_WRITTEN:
            skipped += 1
    if lines == 0:
        return Log([], [], 0, 0, len(data), _new_line(data) + MARKER_LINE)
    return Log(events, ends, lines, skipped, len(data), _new_line(data))


def written(events: Iterable[Event]) -> bytes:
    return b"".join(line_of(_as_json(event)) for event in events)


def snapshot_written(stats: Mapping[str, Any], at: int) -> bytes:
    return line_of(
        {"type": SNAPSHOT_WRITTEN, "snapshotPath": SNAPSHOT, "stats": stats, "ts": iso(at)}
    )


def thing_json(thing: Thing) -> dict[str, Any]:
    match thing:
        case EntityState():
            return {
                "id": thing.id,
                "name": thing.name,
                "entityType": thing.type,
                **({"attrs": thing.attrs} if thing.attrs else {}),
                "createdAt": iso(thing.created_at),
                "updatedAt": iso(thing.updated_at),
            }
        case ObservationState():
            return {
                "id": thing.id,
                "entityId": thing.entity_id,
                "text": thing.text,
                **({"source": thing.source} if thing.source else {}),
                "timestamp": iso(thing.at),
            }
        case RelationState():
            return {
                "id": thing.id,
                "fromId": thing.from_id,
                "toId": thing.to_id,
                "relationType": thing.type,
                "createdAt": iso(thing.created_at),
            }


def _as_json(event: Event) -> dict[str, Any]:
    ts = iso(event.at)
    match event:
        case Put():
            name, part = _PUTS[type(event.thing)]
            return {"type": name, part: thing_json(event.thing), "ts": ts}
        case DropEntity():
            return {"type": "entity_delete", "entityId": event.id, "ts": ts}
        case DropObservation():
            return {
                "type": "observation_delete",
                "entityId": event.entity_id,
                "observationId": event.id,
                "ts": ts,
            }
        case DropRelation():
            return {
                "type": "relation_remove",
                "fromId": event.from_id,
                "toId": event.to_id,
                "relationType": event.type,
                "ts": ts,
            }


def _new_line(data: bytes) -> bytes:
    return b"" if data.endswith(b"\n") or not data else b"\n"


def _check_mark(raw: bytes) -> None:
    value = _object(raw)
    if value is None or any(value.get(name) != wanted for name, wanted in MARK.items()):
        raise MarkerMismatch(
            f"{LOG} does not begin with the line of a memory bank's graph.",
            hint=f"Its first line must be {MARKER_LINE.decode().strip()}",
            path=LOG,
        )


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw, parse_constant=_refused)
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def _refused(constant: str) -> Any:
    raise ValueError(constant)  # NaN and its like are no JSON, and no store keeps them


def _event(value: Mapping[str, Any]) -> Event | None:
    """None for what is no event, or none that could be kept."""
    ts = _time(value.get("ts"))
    match value.get("type"):
        case "entity_upsert":
            return _put(_entity(_part(value, "entity"), ts), ts)
        case "observation_add":
            return _put(_observation(_part(value, "observation"), ts), ts)
        case "relation_add":
            return _put(_relation(_part(value, "relation"), ts), ts)
        case "entity_delete":
            key = _id(value.get("entityId"))
            return DropEntity(key, ts or 0) if key else None
        case "observation_delete":
            key, owner = _id(value.get("observationId")), _id(value.get("entityId"))
            return DropObservation(key, owner or "", ts or 0) if key else None
        case "relation_remove":
            ends = _id(value.get("fromId")), _id(value.get("toId"))
            verb = _name(value.get("relationType"))
            if ends[0] is None or ends[1] is None or verb is None:
                return None
            return DropRelation(ends[0], ends[1], verb, ts or 0)
        case _:
            return None


def _part(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = value.get(name)
    return cast(Mapping[str, Any], part) if isinstance(part, dict) else {}


def _put(thing: Thing | None, ts: int | None) -> Put | None:
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


def _entity(value: Mapping[str, Any], ts: int | None) -> EntityState | None:
    key, name, kind = _id(value.get("id")), _name(value.get("name")), _name(value.get("entityType"))
    attrs: Any = value.get("attrs") or dict[str, Any]()
    if key is None or name is None or kind is None or not isinstance(attrs, dict):
        return None
    kept = cast(dict[str, Any], attrs)
    if not _can_be_kept(kept):
        return None
    created = _time(value.get("createdAt"))
    updated = _time(value.get("updatedAt"))
    known = [at for at in (created, updated, ts) if at is not None]
    if not known:
        return None
    return EntityState(
        key,
        name,
        kind,
        kept,
        known[0] if created is None else created,
        known[-1] if updated is None else updated,
    )


def _observation(value: Mapping[str, Any], ts: int | None) -> ObservationState | None:
    key, owner, text = _id(value.get("id")), _id(value.get("entityId")), value.get("text")
    at = _time(value.get("timestamp"))
    at = ts if at is None else at
    if key is None or owner is None or at is None or not isinstance(text, str):
        return None
    if not text.strip() or len(text) > TEXT_LIMIT or forbidden_in_text(text):
        return None
    return ObservationState(key, owner, text, _source(value.get("source")), at)


def _relation(value: Mapping[str, Any], ts: int | None) -> RelationState | None:
    ends = _id(value.get("fromId")), _id(value.get("toId"))
    verb = _name(value.get("relationType"))
    at = _time(value.get("createdAt"))
    at = ts if at is None else at
    if ends[0] is None or ends[1] is None or verb is None or at is None:
        return None
    return RelationState(ends[0], ends[1], verb, at)


def _id(value: Any) -> str | None:
    usable = isinstance(value, str) and 0 < len(value) <= NAME_LIMIT
    return value if usable and not forbidden_in_text(value) else None


def _name(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip() or len(value) > NAME_LIMIT:
        return None
    broken = has_control_characters(value) or forbidden_in_text(value)
    return None if broken else value


def _can_be_kept(attrs: Mapping[str, Any]) -> bool:
    try:
        json.dumps(attrs, ensure_ascii=False).encode("utf-8")
    except (UnicodeEncodeError, RecursionError):
        return False
    return True


def _time(value: Any) -> int | None:
    if not isinstance(value, str):
        return None
    try:
        return parsed(value)
    except (ValueError, OverflowError):
        return None


def _source(value: Any) -> dict[str, Any] | None:
    """A kind that nobody knows is kept as what it says."""
    if not isinstance(value, dict):
        return None
    given = cast(Mapping[str, Any], value)
    kind, ref = given.get("kind"), given.get("ref")
    if not isinstance(kind, str) or forbidden_in_text(kind):
        return None
    ref = ref if isinstance(ref, str) and not forbidden_in_text(ref) else None
    if kind not in KINDS:
        kind, ref = KINDS[0], ref or kind
    return {"kind": kind} if ref is None else {"kind": kind, "ref": ref}
