"""The import of what the surrealdb-memory plugin stored: each row once, with its id and its times."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import NAMESPACE_URL, uuid5

from everkept.core.ports import RecordStore
from everkept.core.records import SESSION_SCOPE, Record, RecordLink
from everkept.core.secrets import Masker
from everkept.core.text import compute_name_key
from everkept.core.times import Clock, parse_time
from everkept.exchange.foreign_import import IMPORTED_FACET, USER, CleanText
from everkept.exchange.importer import PAUSE_SECONDS, ExportImport, Progress, StoreImport, split_chunks
from everkept.exchange.plugin_database import (
    ENTITIES,
    ENTITY_LINKS,
    MEMORIES,
    MEMORY_LINKS,
    PLUGIN,
    SESSIONS,
    PluginDatabase,
    Row,
)
from everkept.families.memories.consolidation import DERIVED_FACET
from everkept.families.memories.memory_identity import (
    EVENT_TYPE,
    MEMORY_PREFIX,
    build_variant,
    compute_text_key,
    get_event_time,
)
from everkept.families.memories.model import DEFAULT_IMPORTANCE, DERIVED_FROM, MEMORY, SCOPES, SESSION
from everkept.graph.entities import ENTITY, UNKNOWN_TYPE
from everkept.values import Value, field

DEFAULT_SCOPE, USER_SCOPE = "project", "user"
TYPES = ("semantic", "episodic", "procedural", "working")
HOUR_MICROSECONDS = 3_600_000_000  # accesses within an hour are noted together


class UnreadableRow(Value):
    """A row that was skipped, and why."""

    id: str
    reason: str


class PluginImport(Value, frozen=False):
    """Counts of what an import added.

    `forgotten` memories were forgotten here and stay so; `older` ones are newer here.
    """

    place: str
    dry_run: bool = False
    projects: list[str] = field(default_factory=list[str])
    memories: int = 0
    entities: int = 0
    sessions: int = 0
    links: int = 0
    updated: int = 0
    unchanged: int = 0
    older: int = 0
    forgotten: int = 0
    left_out: int = 0
    unreadable: list[UnreadableRow] = field(default_factory=list[UnreadableRow])
    masked: list[str] = field(default_factory=list[str])


class PluginTarget(Value):
    """Target of an import: memories of a session with one of these `folders` into its project, others into `main`."""

    user: RecordStore
    projects: Mapping[str, RecordStore]  # by name
    main: str
    folders: Mapping[str, str] = field(default_factory=dict[str, str])  # names of projects by the path of a folder


async def import_plugin(
    database: PluginDatabase,
    target: PluginTarget,
    clock: Clock,
    progress: Progress,
    *,
    mask: bool = True,
    dry_run: bool = False,
) -> PluginImport:
    """Import all rows. Entities and links go where the memories are that use them.

    A second run adds what is new and updates what has changed there. What was changed later here stays.
    """
    run = _PluginRun(database, target, clock, progress, mask=mask, dry_run=dry_run)
    return await run.import_all()


class _PluginRun:
    """One import. It has the entities and links in memory, and reads the memories in chunks."""

    def __init__(
        self,
        database: PluginDatabase,
        target: PluginTarget,
        clock: Clock,
        progress: Progress,
        *,
        mask: bool,
        dry_run: bool,
    ) -> None:
        self._database = database
        self._target = target
        self._stores = stores = {**target.projects, USER: target.user}
        self._progress = progress
        self._rows = _RowReader(Masker(enabled=mask), clock())
        self._counts = ExportImport()
        self._outcome = PluginImport(database.shown, dry_run, sorted(target.projects))
        self._imports = {
            name: StoreImport(store, clock, self._counts, mask=mask, dry_run=dry_run) for name, store in stores.items()
        }
        self._done = self._total = 0
        self._folders: dict[str, str] = {}  # the store of each session that has a folder
        self._entities: dict[str, Row] = {}  # by their ids in the plugin
        self._brought: dict[str, set[str]] = {place: set() for place in stores}  # ids of the entities in each store
        self._places: dict[str, str] = {}  # the store of each memory
        self._forgotten: set[str] = set()  # memories whose links are imported with them

    async def import_all(self) -> PluginImport:
        ids = await self._database.list_ids()
        self._total = sum(map(len, ids.values()))
        await self._import_sessions(ids.get(SESSIONS, []))
        for row in await self._read_all(ids.get(ENTITIES, [])):
            if self._rows.is_readable(row, "name"):
                self._entities[_get_key(row["id"])] = row
        links = await self._read_links(ids.get(MEMORY_LINKS, []))
        links += await self._import_memories(ids[MEMORIES], links)
        relations = await self._read_links(ids.get(ENTITY_LINKS, []))
        await self._import_entities(relations)
        await self._import_links(links, relations)
        return self._build_outcome()

    async def _import_sessions(self, ids: Sequence[Any]) -> None:
        used = await self._database.list_session_ids() if ids else set[str]()
        before = self._counts.records
        for chunk in split_chunks(ids):
            by_place: dict[str, list[Record]] = {}
            for row in await self._database.read(chunk):
                place = self._target.folders.get(row.get("project_path") or "", self._target.main)
                self._folders |= dict.fromkeys((_get_id(row["id"]), _get_key(row["id"])), place)
                by_place.setdefault(place, []).append(self._rows.build_session(row, used))
            for place, sessions in by_place.items():
                await self._imports[place].add_records(sessions)
            await self._report(len(chunk))
        self._outcome.sessions = self._counts.records - before

    async def _import_entities(self, relations: "Sequence[_Edge]") -> None:
        """Import the neighbors of each project's entities into it, and what belongs to no project into the main one."""
        main, projects = self._target.main, [self._brought[name] for name in self._target.projects]
        for place in self._target.projects:
            brought = self._brought[place]
            near = [each.keys for each in relations if not brought.isdisjoint(each.keys)]
            await self._bring_entities(place, set[str]().union(*near))
        apart = [each.keys for each in relations if not any(brought.issuperset(each.keys) for brought in projects)]
        await self._bring_entities(main, (self._entities.keys() - set[str]().union(*projects)).union(*apart))

    async def _bring_entities(self, place: str, wanted: Collection[str]) -> None:
        """Import these entities into a store, unless it has them."""
        keys = sorted(self._entities.keys() & set(wanted) - self._brought[place])
        self._brought[place].update(keys)
        for chunk in split_chunks(keys):
            before = self._counts.records
            records = [self._rows.build_entity(self._entities[key], place) for key in chunk]
            await self._imports[place].add_records(records)
            if place != USER:
                self._outcome.entities += self._counts.records - before
            await self._report(len(chunk))

    async def _read_links(self, ids: Sequence[Any]) -> "list[_Edge]":
        return [_Edge.from_row(row, self._rows) for row in await self._read_all(ids)]

    async def _import_memories(self, ids: Sequence[Any], links: "Sequence[_Edge]") -> "list[_Edge]":
        """Import the memories, and return the links to those that they are derived from."""
        by_source: dict[str, list[_Edge]] = {}
        for link in links:
            by_source.setdefault(link.source, []).append(link)
        derived: list[_Edge] = []
        for chunk in split_chunks(ids):
            rows = [row for row in await self._database.read(chunk) if self._rows.is_readable(row, "content")]
            derived += [edge for row in rows for edge in _list_origins(row, self._rows)]
            by_place: dict[str, list[Row]] = {}
            for row in rows:
                place = (
                    USER
                    if _get_scope(row) == USER_SCOPE
                    else self._folders.get(row.get("session_id") or "", self._target.main)
                )
                self._places[_get_id(row["id"])] = place
                by_place.setdefault(place, []).append(row)
            for place, here in by_place.items():
                await self._import_chunk(place, here, by_source)
            await self._report(len(chunk))
        return derived

    async def _import_chunk(self, place: str, rows: Sequence[Row], by_source: "Mapping[str, list[_Edge]]") -> None:
        records = [self._rows.build_memory(row) for row in rows]
        # A memory may have changed its scope since, here or there.
        ids, moved = [record.id for record in records], set[str]()
        for other, store in self._stores.items():
            if other != place:
                moved |= {record.id for record in await store.get(ids, include_deleted=True)}
        self._counts.unchanged += len(moved)
        records = [record for record in records if record.id not in moved]
        links = [link for record in records for link in by_source.get(record.id, ())]
        await self._bring_entities(place, {_get_key(link.target) for link in links})
        self._forgotten |= {record.id for record in records if record.deleted_at is not None}
        before = self._counts.records
        await self._imports[place].add_records(records, [self._build_link(place, link) for link in links])
        self._outcome.memories += self._counts.records - before
        if not self._outcome.dry_run:
            await self._note_accesses(place, [row for row in rows if row.get("access_count")])

    async def _note_accesses(self, place: str, rows: Sequence[Row]) -> None:
        """Note how often memories were recalled there, unless they were recalled here already."""
        store, renamed = self._stores[place], self._imports[place].here
        counts = {renamed.get(each, each): row for row in rows for each in [MEMORY_PREFIX + _get_key(row["id"])]}
        ids = [each for each in counts if each is not None]
        known = await store.get_accesses(ids)
        present = [record.id for record in await store.get(ids) if record.id not in known]
        by_hour: dict[int, dict[str, int]] = {}
        for each in present:
            row = counts[each]
            last = self._rows.read_time(row.get("last_accessed"), row.get("updated_at"))
            hour = last - last % HOUR_MICROSECONDS
            by_hour.setdefault(hour, {})[each] = int(row["access_count"])
        for hour, noted in by_hour.items():
            await store.note_accesses(noted, hour)

    async def _import_links(self, links: "Sequence[_Edge]", relations: "Sequence[_Edge]") -> None:
        wanted: dict[str, list[_Edge]] = {place: [] for place in self._stores}
        for link in links:
            place = self._places.get(link.source, self._target.main)
            if link.source in self._forgotten:
                continue
            if self._places.get(link.target, place) == place:
                wanted[place].append(link)
            else:
                self._counts.left_out += 1
        for place in self._target.projects:
            wanted[place] += [each for each in relations if self._brought[place].issuperset(each.keys)]
        for place, edges in wanted.items():
            for chunk in split_chunks(edges):
                await self._imports[place].add_links([self._build_link(place, edge) for edge in chunk])
                await self._report(len(chunk))

    def _build_link(self, place: str, edge: "_Edge") -> RecordLink:
        return RecordLink(
            _build_id(edge.id, place),
            _get_end(edge.source, place),
            edge.verb,
            _get_end(edge.target, place),
            edge.at,
            {} if edge.weight in (None, 1) else {"weight": edge.weight},
        )

    async def _read_all(self, ids: Sequence[Any]) -> list[Row]:
        return [row for chunk in split_chunks(ids) for row in await self._database.read(chunk)]

    async def _report(self, done: int) -> None:
        self._done = min(self._done + done, self._total)
        self._progress(self._done, self._total)
        await asyncio.sleep(PAUSE_SECONDS)

    def _build_outcome(self) -> PluginImport:
        self._progress(self._total, self._total)
        counted, outcome = self._counts, self._outcome
        outcome.links = counted.links
        for name in ("updated", "unchanged", "older", "forgotten", "left_out"):
            setattr(outcome, name, getattr(counted, name))
        outcome.unreadable = self._rows.unreadable
        outcome.masked = sorted({*counted.masked, *self._rows.masking.kinds})
        return outcome


class _Edge(Value):
    """A link between two rows, by their ids in the plugin: `memory:...` or `entity:...`."""

    id: str
    source: str
    verb: str
    target: str
    at: int
    weight: float | None = None

    @property
    def keys(self) -> tuple[str, str]:
        return _get_key(self.source), _get_key(self.target)

    @classmethod
    def from_row(cls, row: Row, rows: "_RowReader") -> "_Edge":
        verb = rows.clean_name(row.get("relationship") or "relates_to")
        ends = (_get_id(row["in"]), _get_id(row["out"]))
        return cls(_get_id(row["id"]), ends[0], verb, ends[1], rows.read_time(row.get("created_at")), row.get("weight"))


def _list_origins(row: Row, rows: "_RowReader") -> list[_Edge]:
    source, at = _get_id(row["id"]), rows.read_time(row.get("created_at"))
    origins = [_get_id(each) for each in row.get("derived_from") or ()]
    return [_Edge(f"{source} {origin}", source, DERIVED_FROM, origin, at) for origin in origins]


def _get_id(found: Any) -> str:
    """Return the id of a row as text: `table:key`."""
    return found if isinstance(found, str) else f"{found.table_name}:{found.id}"


def _get_key(found: Any) -> str:
    return _get_id(found).partition(":")[2]


def _get_end(end: str, place: str) -> str:
    return _build_id(end, place) if end.startswith(f"{ENTITIES}:") else end


def _build_id(end: str, place: str) -> str:
    """Return our id of an entity or a link. A project's store and the user's are read together, so they differ."""
    return str(uuid5(NAMESPACE_URL, f"{PLUGIN} {'project' if place else 'user'} {end}"))


def _get_scope(row: Row) -> str:
    scope = row.get("scope")
    return scope if scope in SCOPES else DEFAULT_SCOPE


class _RowReader(CleanText):
    """Rows as records: with secrets masked, and within the limits of ours."""

    def __init__(self, masking: Masker, at: int) -> None:
        super().__init__(masking)
        self.unreadable: list[UnreadableRow] = []
        self._at = at

    def is_readable(self, row: Row, name: str) -> bool:
        text = row.get(name)
        if isinstance(text, str) and text.strip():
            return True
        self.unreadable.append(UnreadableRow(_get_id(row["id"]), f"`{name}` is empty"))
        return False

    def build_memory(self, row: Row) -> Record:
        scope, text = _get_scope(row), self.clean_text(row["content"])
        kind = row["type"] if row.get("type") in TYPES else TYPES[0]
        created = self.read_time(row.get("created_at"))
        session = self.clean_name(row.get("session_id") or "") or None
        if scope == SESSION_SCOPE and session is None:
            session = PLUGIN
        source = self._clean_object(row.get("source"))
        turn = source.get("conversation_turn")
        forgotten = self.read_time(row.get("forgotten_at"), row.get("updated_at")) if row.get("forgotten") else None
        occurred = created if kind == EVENT_TYPE else None  # the same words at another time are another event
        return Record(
            id=MEMORY_PREFIX + _get_key(row["id"]),
            kind=MEMORY,
            type=kind,
            text=text,
            name_key=compute_text_key(text),
            variant=build_variant(scope, session, get_event_time(kind, occurred)),
            scope=scope,
            session=session,
            position=turn if isinstance(turn, int) and not isinstance(turn, bool) else None,
            importance=_clamp(row.get("importance")),
            occurred_at=occurred,
            tags=self.clean_tags(row.get("tags") or ()),
            facets=self._build_facets(row, source),
            created_at=created,
            updated_at=max(self.read_time(row.get("updated_at"), row.get("created_at")), forgotten or 0),
            deleted_at=forgotten,
        )

    def _build_facets(self, row: Row, source: Mapping[str, Any]) -> dict[str, Any]:
        reason, origins = row.get("forgotten_reason"), [_get_id(each) for each in row.get("derived_from") or ()]
        imported = {"from": PLUGIN, "version": row.get("version") or 1}
        facets = {
            "source": source,
            "metadata": self._clean_object(row.get("metadata")),
            "consolidated": bool(row.get("consolidated")),
            "forgotten_reason": self.clean_text(reason) if isinstance(reason, str) else None,
            DERIVED_FACET: "summary" if origins else None,
            IMPORTED_FACET: {**imported, DERIVED_FROM: origins} if origins else imported,
        }
        return {name: value for name, value in facets.items() if value}

    def build_entity(self, row: Row, place: str) -> Record:
        name = self.clean_name(row["name"])
        kind = self.clean_name(row.get("type") or "") or UNKNOWN_TYPE
        metadata = self._clean_object(row.get("metadata"))
        created = self.read_time(row.get("created_at"))
        return Record(
            id=_build_id(_get_id(row["id"]), place),
            kind=ENTITY,
            name=name,
            type=kind,
            name_key=compute_name_key(name),
            variant=compute_name_key(kind),
            facets={IMPORTED_FACET: {"from": PLUGIN}, **({"metadata": metadata} if metadata else {})},
            created_at=created,
            updated_at=self.read_time(row.get("updated_at"), row.get("created_at")),
        )

    def build_session(self, row: Row, used: set[str]) -> Record:
        """Build a session under the id that its memories have: with or without the name of its table."""
        whole, key = _get_id(row["id"]), _get_key(row["id"])
        session = self.clean_name(key if key in used and whole not in used else whole)
        started = self.read_time(row.get("started_at"))
        path, ended = row.get("project_path"), row.get("ended_at")
        facets = {
            "client": PLUGIN,
            "path": self.clean_text(path) if isinstance(path, str) else None,
            "ended_at": self.read_time(ended) if ended else None,
        }
        return Record(
            id=session,
            kind=SESSION,
            text=self.clean_text(row.get("summary") or ""),
            name_key=session,
            facets={name: value for name, value in facets.items() if value},
            created_at=started,
            updated_at=self.read_time(ended, row.get("started_at")),
        )

    def read_time(self, *candidates: Any) -> int:
        """Return the first of these that is a time, in microseconds; otherwise the time of the import."""
        for value in candidates:
            try:
                if isinstance(value, datetime):
                    return parse_time(value.isoformat())
                if isinstance(value, str):
                    return parse_time(value)
            except (ValueError, OverflowError):
                continue
        return self._at

    def _clean_object(self, value: Any) -> dict[str, Any]:
        return self.masking.mask_json(_to_json(value)) if isinstance(value, dict) and value else {}


def _to_json(value: Any) -> Any:
    """Return the value as JSON has it: SurrealDB has more types."""
    if isinstance(value, dict):
        return {str(name): _to_json(item) for name, item in cast(dict[Any, Any], value).items()}
    if isinstance(value, list | tuple | set):
        return [_to_json(item) for item in cast(list[Any], value)]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _clamp(importance: Any) -> float:
    if isinstance(importance, bool) or not isinstance(importance, int | float):
        return DEFAULT_IMPORTANCE
    return min(max(float(importance), 0.0), 1.0)
