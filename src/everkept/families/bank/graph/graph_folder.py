"""The files below `graph/` of a bank: the log, the Markdown view, and the log's position."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, cast
from zlib import crc32

from everkept.core.files import FileInfo
from everkept.core.ports import Library, RecordStore
from everkept.core.text import clipped, normalised
from everkept.core.times import iso
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank, last_part
from everkept.families.bank.graph.events import (
    INDEX,
    LOG,
    MARK,
    MARKER_LINE,
    SNAPSHOT,
    VERSION,
    Log,
    mark_at,
    thing_json,
    written,
)
from everkept.families.bank.graph.log_merge import Base, is_newer
from everkept.families.bank.graph.model import (
    EntityState,
    Event,
    GraphState,
    ObservationState,
    Put,
    difference,
    replayed,
)
from everkept.values import Value, as_dict, replace

VIEW = "graph/graph.md"
RECENT = 10  # entities under Recent Activity
SHOWN_OBSERVATIONS = 3  # of each entity
TEXT_SHOWN = 300  # characters of an observation
MOST_LISTED = 1_000  # entities or relations of one type
TIME_LINE = "- **Generated:** "

# What markdown would take for its own: anywhere, as an underscore at the edge of a word, as an
# entity of HTML, and at the beginning of a line.
_SPECIAL = re.compile(
    r"[\\`|*<]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)"
    r"|^[>\[]|^#(?=#*(?:\s|$))|^[+-](?=[\s-]|$)|^[0-9]+(?=[.)](?:\s|$))"
)


def view(state: GraphState, store: str, at: int) -> str:
    """Everything but the line of its time says the same for the same graph."""
    observations = _by_entity(state)
    parts = [
        "# Knowledge Graph\n",
        f"- **Store:** {_line(store)}\n{TIME_LINE}{iso(at)}\n- **Version:** {VERSION}\n",
        _statistics(state),
        _recent(state),
        _entities(state, observations),
        _relations(state),
    ]
    return "\n".join(part for part in parts if part)


def without_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(TIME_LINE)]


def summary(state: GraphState, most: int = 5) -> str | None:
    """A few lines for whoever begins to work; None without a graph."""
    if state.is_empty:
        return None
    counts = (
        f"{len(state.entities)} entities, {len(state.observations)} observations, "
        f"{len(state.relations)} relations."
    )
    ends = Counter(
        end for relation in state.relations.values() for end in {relation.from_id, relation.to_id}
    )
    connected = [f"{_plain(state.entities[key])} {count}" for key, count in ends.most_common(most)]
    recent = [_plain(entity) for entity in _newest(state.entities.values())[:most]]
    lines = [counts, f"- Most recent: {', '.join(recent)}"]
    if connected:
        lines.append(f"- Most connected: {', '.join(connected)}")
    return "\n".join(lines)


def _by_entity(state: GraphState) -> dict[str, list[ObservationState]]:
    found: dict[str, list[ObservationState]] = {}
    for observation in sorted(state.observations.values(), key=lambda o: (-o.at, o.id)):
        found.setdefault(observation.entity_id, []).append(observation)
    return found


def _statistics(state: GraphState) -> str:
    rows = [
        ("Entities", len(state.entities)),
        ("Observations", len(state.observations)),
        ("Relations", len(state.relations)),
        ("Entity types", len({entity.type for entity in state.entities.values()})),
        ("Relation types", len({relation.type for relation in state.relations.values()})),
    ]
    table = "".join(f"| {name} | {count} |\n" for name, count in rows)
    return f"## Statistics\n\n| Metric | Count |\n| --- | --- |\n{table}"


def _recent(state: GraphState) -> str:
    if state.is_empty:
        return ""
    lines = [
        f"- {iso(entity.updated_at)} {_named(entity)}\n"
        for entity in _newest(state.entities.values())[:RECENT]
    ]
    return "## Recent Activity\n\n" + "".join(lines)


def _entities(state: GraphState, observations: dict[str, list[ObservationState]]) -> str:
    if state.is_empty:
        return ""
    groups: dict[str, list[EntityState]] = {}
    for entity in sorted(state.entities.values(), key=lambda e: (e.type.lower(), e.name.lower())):
        groups.setdefault(entity.type, []).append(entity)
    lines = ["## Entities\n"]
    for kind, entities in groups.items():
        lines.append(f"\n### {_line(kind)}\n\n")
        for entity in entities[:MOST_LISTED]:
            lines += _described(entity, observations.get(entity.id, []))
        lines.append(_more(len(entities) - MOST_LISTED))
    return "".join(lines)


def _described(entity: EntityState, observations: list[ObservationState]) -> list[str]:
    lines = [f"- **{_line(entity.name)}**\n"]
    lines += [f"  - {_line(key)}: {_value(value)}\n" for key, value in entity.attrs.items()]
    lines += [f"  - {_line(o.text)}\n" for o in observations[:SHOWN_OBSERVATIONS]]
    if more := _more(len(observations) - SHOWN_OBSERVATIONS):
        lines.append(f"  {more}")
    return lines


def _relations(state: GraphState) -> str:
    if not state.relations:
        return ""
    groups: dict[str, list[str]] = {}
    for relation in state.relations.values():
        source, target = (state.entities[end] for end in (relation.from_id, relation.to_id))
        line = f"- {_line(source.name)} --{_line(relation.type)}--> {_line(target.name)}\n"
        groups.setdefault(relation.type, []).append(line)
    lines = ["## Relations\n"]
    for kind in sorted(groups, key=str.lower):
        lines.append(f"\n### {_line(kind)}\n\n")
        lines += sorted(groups[kind])[:MOST_LISTED]
        lines.append(_more(len(groups[kind]) - MOST_LISTED))
    return "".join(lines)


def _newest(entities: Iterable[EntityState]) -> list[EntityState]:
    return sorted(entities, key=lambda entity: (-entity.updated_at, entity.name))


def _named(entity: EntityState) -> str:
    return f"{_line(entity.name)} ({_line(entity.type)})"


def _plain(entity: EntityState) -> str:
    """Without markdown, for a text in an answer."""
    return f"{clipped(entity.name, TEXT_SHOWN)} ({clipped(entity.type, TEXT_SHOWN)})"


def _value(value: Any) -> str:
    return _line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _line(text: str) -> str:
    """On one line, and with nothing in it that markdown would take for its own."""
    return _SPECIAL.sub(_escaped, clipped(text, TEXT_SHOWN))


def _escaped(found: re.Match[str]) -> str:
    # Of a number that would begin a list, the sign behind it is what counts.
    mark = found.group()
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _more(count: int) -> str:
    return f"- and {count} more\n" if count > 0 else ""


LOCK = "graph"
FOLDER = "graph"
_COPY_PREFIX, _COPY_ENDING = "graph.jsonl.", ".bak"
_COPY = f"{FOLDER}/{_COPY_PREFIX.rstrip('.')}{_COPY_ENDING}"
_NOTE = "bank graph "


class Cursor(Value):
    """Up to which change of which project the log was written, and how we left it."""

    project: str
    seq: int
    size: int  # -1 where there was no file
    modified_at: int
    checksum: int  # of all of it; it goes on with each append without a reading of the rest
    ends_line: bool
    owes: bool = False  # it was taken in, but lacks what the records have
    has_doubles: bool = False  # it tells some of it under ids that the records do not show
    newest: int = 0  # the time of the newest event
    mark: str = ""  # of the change: an older file of the project that was put back lacks it

    @classmethod
    def of(cls, project: str, seq: int, mark: str) -> "Cursor":
        """Of a log that is not there."""
        return cls(project, seq, -1, 0, 0, True, mark=mark)

    def holding(self, data: bytes, modified_at: int = 0) -> "Cursor":
        return replace(
            self,
            size=len(data),
            modified_at=modified_at,
            checksum=crc32(data),
            ends_line=not data or data.endswith(b"\n"),
        )

    def told(self, seq: int, mark: str) -> "Cursor":
        return replace(self, seq=seq, mark=mark)

    def with_times_of(self, events: Sequence[Event]) -> "Cursor":
        return replace(self, newest=max([self.newest, *(event.at for event in events)]))

    def is_ahead_of(self, events: Sequence[Event]) -> bool:
        """Whether some of them are older than what the log has: some clock was wrong."""
        return any(is_newer(self.newest, event.at) for event in events)

    async def is_known_to(self, store: RecordStore) -> bool:
        """Whether the store is the one that the log was written for, and no older one."""
        return await mark_at(store, self.seq) == self.mark

    def fits(self, info: FileInfo | None) -> bool:
        """Whether the log is as we left it, as far as can be said without reading it."""
        if info is None:
            return self.size == -1
        return (info.size, info.modified_at) == (self.size, self.modified_at)

    def stands(self, project: str | None, info: FileInfo | None) -> bool:
        return self.project == project and self.fits(info)

    def can_grow(self, events: Sequence[Event]) -> bool:
        """Whether the log says all that was before these events, so that they can follow it."""
        if self.has_doubles and not all(isinstance(event, Put) for event in events):
            return False  # what goes must go under all of its ids
        return not self.owes and (self.size >= 0 or not events)

    def is_of(self, data: bytes) -> bool:
        return len(data) == max(self.size, 0) and crc32(data) == self.checksum

    def base(self, data: bytes, log: Log) -> Base | None:
        """What we left, where the log still begins with it."""
        ours = data[: max(self.size, 0)]
        if self.size > len(data) or crc32(ours) != self.checksum:
            return None
        return Base(replayed(log.up_to(self.size)), self.seq)


class GraphFiles:
    """Whoever writes holds the lock."""

    def __init__(self, bank: Bank, library: Library) -> None:
        self._files = bank.files
        self._store = last_part(bank.home.address) or "default"
        self._library = library
        self._key = _NOTE + bank.address

    async def cursor(self) -> Cursor | None:
        note = await self._library.note(self._key)
        return None if note is None else Cursor(**cast(dict[str, Any], json.loads(note)))

    async def info(self) -> FileInfo | None:
        return await self._files.info(LOG)

    async def read(self) -> bytes | None:
        try:
            return await self._files.read(LOG)
        except NotFound:
            return None

    async def append(self, cursor: Cursor, data: bytes) -> Cursor | None:
        """None where somebody without the lock wrote at the same time: then nothing is noted."""
        await self._files.append(LOG, data)
        checksum = crc32(data, cursor.checksum)
        return await self._left(replace(cursor, size=cursor.size + len(data), checksum=checksum))

    async def write(self, cursor: Cursor, data: bytes) -> Cursor | None:
        """Like `append`, in place of all that was there."""
        await self._files.write(LOG, data)
        return await self._left(replace(cursor.holding(data), has_doubles=False))

    async def _left(self, cursor: Cursor) -> Cursor | None:
        info = await self.info()
        if info is None or info.size != cursor.size:
            return None
        return await self.note(replace(cursor, modified_at=info.modified_at, ends_line=True))

    async def note(self, cursor: Cursor) -> Cursor:
        """Notes that the log, as it is, tells all up to a change."""
        await self._library.set_note(self._key, json.dumps(as_dict(cursor)))
        return cursor

    async def keep_copy(self, data: bytes) -> str:
        """In place of the one before: a folder that travels with git is no place for many."""
        await self._files.write(_COPY, data)
        return _COPY

    async def set_aside(self, at: int) -> str:
        """Gives what is no log of ours a name of its own, under which it stays."""
        time = iso(at).replace(":", "-").replace(".", "-")
        name = f"{FOLDER}/{_COPY_PREFIX}{time}{_COPY_ENDING}"
        await self._files.rename(LOG, name)
        return name

    async def forget(self, state: GraphState, lines: int, at: int) -> None:
        """Leaves nothing but this state in what was made of the log: copies go."""
        there = await self._there()
        for name in there:
            if name.startswith(_COPY_PREFIX) and name.endswith(_COPY_ENDING):
                await self._files.remove(f"{FOLDER}/{name}")
        if there & {last_part(SNAPSHOT), last_part(INDEX)}:
            await self.write_derived(state, lines, at)
        elif last_part(VIEW) in there:
            await self.write_view(state, at)

    async def write_derived(self, state: GraphState, lines: int, at: int) -> None:
        """Snapshot, index and view, by which the public server need not read the log."""
        info = await self.info()
        snapshot = {
            "meta": {**MARK, "storeId": self._store, "createdAt": iso(at)},
            "entities": [thing_json(entity) for entity in state.entities.values()],
            "observations": [thing_json(one) for one in state.observations.values()],
            "relations": [thing_json(relation) for relation in state.relations.values()],
        }
        index = {
            "lastEventLineCount": lines,
            "snapshotBuiltAt": iso(at),
            "jsonlModifiedAt": iso(at if info is None else info.modified_at),
            "stats": state.stats(),
            "nameToEntityId": {normalised(e.name): e.id for e in state.entities.values()},
        }
        await self._files.write(SNAPSHOT, _pretty(snapshot))
        await self._files.write(INDEX, _pretty(index))
        await self.write_view(state, at)

    async def write_view(self, state: GraphState, at: int) -> None:
        await self._files.write(VIEW, view(state, self._store, at).encode("utf-8"))

    async def refresh_view(self, state: GraphState, there: str | None, at: int) -> None:
        """A view that differs in its time alone is left as it is."""
        if there is None or without_time(there) != without_time(view(state, self._store, at)):
            await self.write_view(state, at)

    async def read_view(self) -> str | None:
        try:
            return (await self._files.read(VIEW)).decode("utf-8", "replace")
        except NotFound:
            return None

    async def _there(self) -> set[str]:
        try:
            return {info.name for info in await self._files.list(FOLDER)}
        except NotFound:
            return set()


async def noted_banks(library: Library) -> dict[str, str]:
    """The project that the log of each bank was last written for, by the bank's address."""
    return {
        key.removeprefix(_NOTE): cast(dict[str, str], json.loads(note))["project"]
        for key, note in (await library.notes(_NOTE)).items()
    }


def whole_log(state: GraphState, drops: Sequence[Event] = ()) -> bytes:
    """The shortest log that tells this state, and of what was dropped lately."""
    puts = difference(GraphState(), state, lambda key: state.times[key])
    return MARKER_LINE + written(drops) + written(puts)


def _pretty(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
