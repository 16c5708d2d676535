"""The files below `graph/` of a bank: the log, the Markdown view, and the position up to which the log is written."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast
from zlib import crc32

from everkept.core.files import FileInfo
from everkept.core.ports import Library, RecordStore
from everkept.core.text import clip_text, compute_name_key, format_count
from everkept.core.times import format_iso
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank, get_last_part
from everkept.families.bank.graph.graph_events import (
    FORMAT_VERSION,
    INDEX_PATH,
    LOG_MARKER,
    LOG_PATH,
    MARKER_LINE,
    SNAPSHOT_PATH,
    GraphLog,
    encode_events,
    encode_thing,
    read_mark,
)
from everkept.families.bank.graph.graph_records import is_newer
from everkept.families.bank.graph.log_merge import MergeBase
from everkept.families.bank.graph.model import (
    EntityState,
    Event,
    GraphState,
    ObservationState,
    Put,
    compute_difference,
    replay_events,
)
from everkept.values import Value, as_dict, replace

VIEW_PATH = "graph/graph.md"
MAX_RECENT_ENTITIES = 10  # entities under Recent Activity
MAX_OBSERVATIONS_SHOWN = 3  # of each entity
MAX_OBSERVATION_CHARACTERS = 300
MAX_LISTED = 1_000  # entities or relations of one type
TIME_LINE_PREFIX = "- **Generated:** "

# Text with a meaning in Markdown: some characters anywhere, an underscore at the edge of a word, an HTML entity, and
# some characters at the beginning of a line.
_MARKDOWN_SPECIAL = re.compile(
    r"[\\`|*<]|\](?=[(\[:])|(?<![^\W_])_|_(?![^\W_])|~(?=~)|&(?=#?\w+;)"
    r"|^[>\[]|^#(?=#*(?:\s|$))|^[+-](?=[\s-]|$)|^[0-9]+(?=[.)](?:\s|$))"
)


def render_view(state: GraphState, store: str, at: int) -> str:
    """Render the Markdown view. For the same graph, only the line with the time differs."""
    observations = _group_by_entity(state)
    parts = [
        "# Knowledge Graph\n",
        f"- **Store:** {_escape_line(store)}\n{TIME_LINE_PREFIX}{format_iso(at)}\n- **Version:** {FORMAT_VERSION}\n",
        _render_statistics(state),
        _render_recent(state),
        _render_entities(state, observations),
        _render_relations(state),
    ]
    return "\n".join(part for part in parts if part)


MAX_NAMED_ENTITIES = 5  # in each list of an overview


def strip_time(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith(TIME_LINE_PREFIX)]


def summarize_graph(state: GraphState) -> str | None:
    """Return a short overview of the graph, or None if it is empty."""
    if state.is_empty:
        return None
    counts = (
        format_count(len(state.entities), "entity", "entities"),
        format_count(len(state.observations), "observation"),
        format_count(len(state.relations), "relation"),
    )
    ends = Counter(end for relation in state.relations.values() for end in {relation.from_id, relation.to_id})
    most = ends.most_common(MAX_NAMED_ENTITIES)
    connected = [f"{_format_plain_name(state.entities[key])} {count}" for key, count in most]
    recent = [_format_plain_name(entity) for entity in _sort_newest(state.entities.values())[:MAX_NAMED_ENTITIES]]
    lines = [f"{', '.join(counts)}.", f"- Most recent: {', '.join(recent)}"]
    if connected:
        lines.append(f"- Most connected: {', '.join(connected)}")
    return "\n".join(lines)


def _group_by_entity(state: GraphState) -> dict[str, list[ObservationState]]:
    found: dict[str, list[ObservationState]] = {}
    for observation in sorted(state.observations.values(), key=lambda o: (-o.at, o.id)):
        found.setdefault(observation.entity_id, []).append(observation)
    return found


def _render_statistics(state: GraphState) -> str:
    rows = [
        ("Entities", len(state.entities)),
        ("Observations", len(state.observations)),
        ("Relations", len(state.relations)),
        ("Entity types", len({entity.type for entity in state.entities.values()})),
        ("Relation types", len({relation.type for relation in state.relations.values()})),
    ]
    table = "".join(f"| {name} | {count} |\n" for name, count in rows)
    return f"## Statistics\n\n| Metric | Count |\n| --- | --- |\n{table}"


def _render_recent(state: GraphState) -> str:
    if state.is_empty:
        return ""
    lines = [
        f"- {format_iso(entity.updated_at)} {_escape_line(entity.name)} ({_escape_line(entity.type)})\n"
        for entity in _sort_newest(state.entities.values())[:MAX_RECENT_ENTITIES]
    ]
    return "## Recent Activity\n\n" + "".join(lines)


def _render_entities(state: GraphState, observations: dict[str, list[ObservationState]]) -> str:
    if state.is_empty:
        return ""
    groups: dict[str, list[EntityState]] = {}
    for entity in sorted(state.entities.values(), key=lambda e: (e.type.lower(), e.name.lower())):
        groups.setdefault(entity.type, []).append(entity)
    lines = ["## Entities\n"]
    for kind, entities in groups.items():
        lines.append(f"\n### {_escape_line(kind)}\n\n")
        for entity in entities[:MAX_LISTED]:
            lines += _render_entity(entity, observations.get(entity.id, []))
        lines.append(_format_more(len(entities) - MAX_LISTED))
    return "".join(lines)


def _render_entity(entity: EntityState, observations: list[ObservationState]) -> list[str]:
    lines = [f"- **{_escape_line(entity.name)}**\n"]
    lines += [f"  - {_escape_line(key)}: {_format_value(value)}\n" for key, value in entity.attrs.items()]
    lines += [f"  - {_escape_line(o.text)}\n" for o in observations[:MAX_OBSERVATIONS_SHOWN]]
    if more := _format_more(len(observations) - MAX_OBSERVATIONS_SHOWN):
        lines.append(f"  {more}")
    return lines


def _render_relations(state: GraphState) -> str:
    if not state.relations:
        return ""
    groups: dict[str, list[str]] = {}
    for relation in state.relations.values():
        source, target = (state.entities[end] for end in (relation.from_id, relation.to_id))
        line = f"- {_escape_line(source.name)} --{_escape_line(relation.type)}--> {_escape_line(target.name)}\n"
        groups.setdefault(relation.type, []).append(line)
    lines = ["## Relations\n"]
    for kind in sorted(groups, key=str.lower):
        lines.append(f"\n### {_escape_line(kind)}\n\n")
        lines += sorted(groups[kind])[:MAX_LISTED]
        lines.append(_format_more(len(groups[kind]) - MAX_LISTED))
    return "".join(lines)


def _sort_newest(entities: Iterable[EntityState]) -> list[EntityState]:
    return sorted(entities, key=lambda entity: (-entity.updated_at, entity.name))


def _format_plain_name(entity: EntityState) -> str:
    """Format name and type without Markdown, for the text of a result."""
    return (
        f"{clip_text(entity.name, MAX_OBSERVATION_CHARACTERS)} ({clip_text(entity.type, MAX_OBSERVATION_CHARACTERS)})"
    )


def _format_value(value: Any) -> str:
    return _escape_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _escape_line(text: str) -> str:
    """Clip the text to one line, and escape everything that Markdown would interpret."""
    return _MARKDOWN_SPECIAL.sub(_escape_match, clip_text(text, MAX_OBSERVATION_CHARACTERS))


def _escape_match(found: re.Match[str]) -> str:
    # In "1." it is the period after the number that begins a list, so the backslash goes before it.
    mark = found.group()
    return f"{mark}\\" if mark.isdigit() else f"\\{mark}"


def _format_more(count: int) -> str:
    return f"- and {count} more\n" if count > 0 else ""


LOCK = "graph"
GRAPH_FOLDER = "graph"
_COPY_PREFIX, _COPY_SUFFIX = "graph.jsonl.", ".bak"
_COPY_PATH = f"{GRAPH_FOLDER}/{_COPY_PREFIX.rstrip('.')}{_COPY_SUFFIX}"
_NOTE_PREFIX = "bank graph "


class LogCursor(Value):
    """The change up to which the log was written for a project, and the file as we left it."""

    project: str
    seq: int
    size: int  # -1 if there was no file
    modified_at: int
    checksum: int  # of the whole file; an append continues it without reading the rest
    ends_line: bool
    owes: bool = False  # the log was merged, but lacks parts that the records have
    has_doubles: bool = False  # the log has some parts under ids that the records do not show
    newest: int = 0
    mark: str = ""  # of change `seq`; an older, restored file of the project lacks it

    @classmethod
    def from_change(cls, project: str, seq: int, mark: str) -> "LogCursor":
        """Return the cursor of a log that does not exist."""
        return cls(project, seq, -1, 0, 0, True, mark=mark)

    def with_data(self, data: bytes, modified_at: int = 0) -> "LogCursor":
        return replace(
            self,
            size=len(data),
            modified_at=modified_at,
            checksum=crc32(data),
            ends_line=not data or data.endswith(b"\n"),
        )

    def with_change(self, seq: int, mark: str) -> "LogCursor":
        return replace(self, seq=seq, mark=mark)

    def with_times(self, events: Sequence[Event]) -> "LogCursor":
        return replace(self, newest=max([self.newest, *(event.at for event in events)]))

    def is_newer_than(self, events: Sequence[Event]) -> bool:
        """Return whether the log has events newer than some of these, because of a wrong clock."""
        return any(is_newer(self.newest, event.at) for event in events)

    async def is_known_to(self, store: RecordStore) -> bool:
        """Return whether the log was written for this store, and the store was not replaced by an older copy."""
        return await read_mark(store, self.seq) == self.mark

    def is_unchanged(self, info: FileInfo | None) -> bool:
        """Return whether size and time of the log are those that we left; the content is not read."""
        if info is None:
            return self.size == -1
        return (info.size, info.modified_at) == (self.size, self.modified_at)

    def is_current(self, project: str | None, info: FileInfo | None) -> bool:
        return self.project == project and self.is_unchanged(info)

    def can_grow(self, events: Sequence[Event]) -> bool:
        """Return whether the log is complete up to these events, so that they can be appended."""
        if self.has_doubles and not all(isinstance(event, Put) for event in events):
            return False  # a deleted part must be deleted under all of its ids
        return not self.owes and (self.size >= 0 or not events)

    def has_content(self, data: bytes) -> bool:
        return len(data) == max(self.size, 0) and crc32(data) == self.checksum

    def find_base(self, data: bytes, log: GraphLog) -> MergeBase | None:
        """Return the state that we left if the log still begins with it, otherwise None."""
        ours = data[: max(self.size, 0)]
        if self.size > len(data) or crc32(ours) != self.checksum:
            return None
        return MergeBase(replay_events(log.list_events_until(self.size)), self.seq)


class GraphFiles:
    """The files of one graph. Callers that write must hold the lock."""

    def __init__(self, bank: Bank, library: Library) -> None:
        self._files = bank.files
        self._store = get_last_part(bank.home.address) or "default"
        self._library = library
        self._key = _NOTE_PREFIX + bank.address

    async def read_cursor(self) -> LogCursor | None:
        note = await self._library.get_note(self._key)
        try:
            return None if note is None else LogCursor(**cast(dict[str, Any], json.loads(note)))
        except (ValueError, TypeError, RecursionError):
            return None  # the log is read from its beginning

    async def read_info(self) -> FileInfo | None:
        return await self._files.read_info(LOG_PATH)

    async def read(self) -> bytes | None:
        try:
            return await self._files.read(LOG_PATH)
        except NotFound:
            return None

    async def append(self, cursor: LogCursor, data: bytes) -> LogCursor | None:
        """Append to the log. If a program without the lock wrote at the same time, save no cursor and return None."""
        await self._files.append(LOG_PATH, data)
        checksum = crc32(data, cursor.checksum)
        return await self._write_cursor_if_whole(replace(cursor, size=cursor.size + len(data), checksum=checksum))

    async def write(self, cursor: LogCursor, data: bytes) -> LogCursor | None:
        """Replace the whole log. Return None in the same case as `append`."""
        await self._files.write(LOG_PATH, data)
        return await self._write_cursor_if_whole(replace(cursor.with_data(data), has_doubles=False))

    async def _write_cursor_if_whole(self, cursor: LogCursor) -> LogCursor | None:
        info = await self.read_info()
        if info is None or info.size != cursor.size:
            return None
        return await self.write_cursor(replace(cursor, modified_at=info.modified_at, ends_line=True))

    async def write_cursor(self, cursor: LogCursor) -> LogCursor:
        """Save that the log contains every change up to the cursor's."""
        await self._library.set_note(self._key, json.dumps(as_dict(cursor)))
        return cursor

    async def write_copy(self, data: bytes) -> str:
        """Save a copy of the log, replacing the previous one: a folder in git should not collect copies."""
        await self._files.write(_COPY_PATH, data)
        return _COPY_PATH

    async def rename_foreign_log(self, at: int) -> str:
        """Rename a file that is not one of our logs, and return its new name."""
        time = format_iso(at).replace(":", "-").replace(".", "-")
        name = f"{GRAPH_FOLDER}/{_COPY_PREFIX}{time}{_COPY_SUFFIX}"
        await self._files.rename(LOG_PATH, name)
        return name

    async def erase_history(self, state: GraphState, lines: int, at: int) -> None:
        """Remove all copies of the log, and rewrite the files derived from it with only this state."""
        there = await self._list_names()
        for name in there:
            if name.startswith(_COPY_PREFIX) and name.endswith(_COPY_SUFFIX):
                await self._files.remove(f"{GRAPH_FOLDER}/{name}")
        if there & {get_last_part(SNAPSHOT_PATH), get_last_part(INDEX_PATH)}:
            await self.write_derived(state, lines, at)
        elif get_last_part(VIEW_PATH) in there:
            await self.write_view(state, at)

    async def write_derived(self, state: GraphState, lines: int, at: int) -> None:
        """Write snapshot, index and view, so that the public server need not read the log."""
        info = await self.read_info()
        snapshot = {
            "meta": {**LOG_MARKER, "storeId": self._store, "createdAt": format_iso(at)},
            "entities": [encode_thing(entity) for entity in state.entities.values()],
            "observations": [encode_thing(one) for one in state.observations.values()],
            "relations": [encode_thing(relation) for relation in state.relations.values()],
        }
        index = {
            "lastEventLineCount": lines,
            "snapshotBuiltAt": format_iso(at),
            "jsonlModifiedAt": format_iso(at if info is None else info.modified_at),
            "stats": state.compute_stats(),
            "nameToEntityId": {compute_name_key(e.name): e.id for e in state.entities.values()},
        }
        await self._files.write(SNAPSHOT_PATH, _encode_pretty(snapshot))
        await self._files.write(INDEX_PATH, _encode_pretty(index))
        await self.write_view(state, at)

    async def write_view(self, state: GraphState, at: int) -> None:
        await self._files.write(VIEW_PATH, render_view(state, self._store, at).encode("utf-8"))

    async def refresh_view(self, state: GraphState, there: str | None, at: int) -> None:
        """Write the view unless only its time would change."""
        if there is None or strip_time(there) != strip_time(render_view(state, self._store, at)):
            await self.write_view(state, at)

    async def read_view(self) -> str | None:
        try:
            return (await self._files.read(VIEW_PATH)).decode("utf-8", "replace")
        except NotFound:
            return None

    async def _list_names(self) -> set[str]:
        try:
            return {info.name for info in await self._files.list(GRAPH_FOLDER)}
        except NotFound:
            return set()


async def read_mirrored_banks(library: Library) -> dict[str, str]:
    """Map the address of each bank to the project that its log was last written for."""
    found: dict[str, str] = {}
    for key, note in (await library.list_notes(_NOTE_PREFIX)).items():
        with suppress(ValueError, TypeError, KeyError, RecursionError):  # a damaged note, which the next write replaces
            found[key.removeprefix(_NOTE_PREFIX)] = str(cast(dict[str, Any], json.loads(note))["project"])
    return found


def encode_whole_log(state: GraphState, drops: Sequence[Event] = ()) -> bytes:
    """Encode the shortest log for this state, preceded by recent deletions."""
    puts = compute_difference(GraphState(), state, lambda key: state.times[key])
    return MARKER_LINE + encode_events(drops) + encode_events(puts)


def _encode_pretty(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode("utf-8")
