"""The synchronization of a graph's log with the project's records, under the log's lock."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from everkept.core.commits import commit, retry
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Step
from everkept.core.secrets import Masker
from everkept.core.sessions import Report
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import MarkerMismatch
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.graph.graph_events import (
    LOG_PATH,
    MARKER_LINE,
    EventsSince,
    GraphLog,
    encode_events,
    has_erased_since,
    parse_log,
    read_events_since,
    read_former_ids,
    read_mark,
)
from everkept.families.bank.graph.graph_folder import GraphFiles, LogCursor, encode_whole_log
from everkept.families.bank.graph.graph_records import (
    MILLISECOND_MICROSECONDS,
    GraphIndex,
    GraphRecords,
    MergeCounts,
    is_newer,
    load_graph,
)
from everkept.families.bank.graph.log_merge import LogMerge, MergeBase, align_log, read_local_edits
from everkept.families.bank.graph.model import (
    DropEntity,
    DropObservation,
    DropRelation,
    EntityState,
    Event,
    GraphState,
    LatestEvents,
    ObservationState,
    Put,
    RelationState,
    collect_latest,
    compute_difference,
    list_owners,
    replay_events,
)
from everkept.families.bank.model import MERGE_GRAPH_FILE
from everkept.graph.entities import ENTITY
from everkept.tools.tool import ToolWarning, build_masking_warnings
from everkept.values import Value, field, replace

# How long a compacted log keeps deletions, for programs that still have the deleted parts and pull the log.
DROP_RETENTION_MICROSECONDS = 90 * 24 * 3600 * 1_000_000
# From these sizes on, a comparison runs in a thread to keep the event loop free.
LARGE_LOG_BYTES, LARGE_GRAPH_ENTITIES = 100_000, 500
STEPS_PER_COMMIT = 1_000  # a larger commit would block other writers

R = TypeVar("R")


class LogSyncResult(Value, frozen=False):
    """State of log and records after a synchronization."""

    cursor: LogCursor | None = None
    taken: MergeCounts = field(default_factory=MergeCounts)
    skipped: int = 0
    warnings: list[ToolWarning] = field(default_factory=list[ToolWarning])
    state: GraphState = field(default_factory=GraphState)  # only after a whole comparison
    lines: int = 0  # only after a whole comparison
    drops: list[Event] = field(default_factory=list[Event])  # recent deletions, only after a whole comparison


class SyncHint(Value):
    """The position of the log and the events to append, as known before taking the log's lock."""

    cursor: LogCursor | None = None
    news: EventsSince | None = None
    is_exact: bool = False  # otherwise from peek_events_since()


class LogSync:
    """Appends events if no other program changed the log, otherwise compares the whole log with the records."""

    def __init__(self, bank: Bank, records: BankRecords, library: Library, clock: Clock, *, mask: bool) -> None:
        self._bank = bank
        self._records = records
        self._clock = clock
        self._mask = mask
        self._is_large = False
        self.files = GraphFiles(bank, library)

    async def run(self, project: str | None, store: RecordStore, ahead: SyncHint | None = None) -> LogSyncResult:
        """Synchronize both. `store` is the project's store for reading; `ahead` is what the caller already knows."""
        if ahead is not None and (done := await self._try_append(store, ahead)) is not None:
            return done
        cursor = await self.find_cursor(project, store)
        if cursor is None or not cursor.is_unchanged(await self.files.read_info()):
            return await self.compare()
        news = await read_events_since(store, cursor.seq, cursor.mark)
        if news is None or not cursor.can_grow(news.events):
            # The log is as we left it, so parts that only it has were erased from the records.
            return await self.compare(merging=False)
        return LogSyncResult(await self._append(cursor, news))

    async def find_cursor(self, project: str | None, store: RecordStore) -> LogCursor | None:
        """Return None if the log was last written for another project, or for one that was replaced."""
        cursor = await self.files.read_cursor()
        if cursor is None or cursor.project != project or not await cursor.is_known_to(store):
            return None
        return cursor

    async def _try_append(self, store: RecordStore, ahead: SyncHint) -> LogSyncResult | None:
        """Append the known events if no other process has changed the log. Return None if they are not enough."""
        cursor, news = ahead.cursor, ahead.news
        if cursor is None or news is None or not cursor.can_grow(news.events):
            return None
        if not cursor.is_unchanged(await self.files.read_info()):
            return None
        if not ahead.is_exact and await store.get_revision() != news.seq:
            return None
        return LogSyncResult(await self._append(cursor, news))

    async def merge_log(self, project: str | None, store: RecordStore) -> LogSyncResult:
        """Merge the log into the records without changing the log. Raise MarkerMismatch."""
        cursor = await self.find_cursor(project, store)
        if cursor is not None and cursor.is_unchanged(await self.files.read_info()):
            return LogSyncResult(cursor)
        news = None if cursor is None else await read_events_since(store, cursor.seq, cursor.mark)
        both = await self._read_both()
        if isinstance(both, LogSyncResult):
            return both
        left = both.left
        if both.erased or both.events:
            # The next change also writes corrections of the log. The cursor stays at its change if later ones are not
            # in the log yet.
            left = replace(left, owes=True)
            if cursor is not None and (news is None or news.events):
                left = left.with_change(cursor.seq, cursor.mark)
        both.result.cursor = await self.files.write_cursor(left)
        return both.result

    async def compare(self, *, merging: bool = True, report: Report | None = None) -> LogSyncResult:
        """Compare the whole log with the whole graph, and add what the log lacks. Raise MarkerMismatch."""
        both = await self._read_both(merging=merging, report=report)
        if isinstance(both, LogSyncResult):
            return both
        result, left = both.result, both.left
        result.drops = await self._run_apart(lambda: both.list_recent_drops(told=True))
        if both.erased and await self._erase_purged(both):
            return result
        events = both.events
        if not events:
            result.cursor = await self.files.write_cursor(left)
            return result
        lines = both.log.beginning + encode_events(events)
        left = left.with_times(events)
        if both.data is None:
            result.cursor = await self.files.write(left, lines)
        else:
            result.cursor = await self.files.append(left, lines)
        result.lines += len(events) + (both.log.lines == 0)
        return result

    async def start_over(self, project: str | None, store: RecordStore) -> LogSyncResult:
        """Return the result of a comparison with an empty log, for a file that is not a log.

        Raise MarkerMismatch if the records have no graph: then the file may be its only copy.
        """
        data = await self.files.read() or b""
        graph = await load_graph(store)
        state = graph.build_live()
        if state.is_empty:
            _parse_log(data)
        cursor = LogCursor.from_change(project or "", graph.revision, await read_mark(store, graph.revision) or "")
        result = LogSyncResult(cursor, state=state, lines=len(data.splitlines()))
        both = _LogAndRecords(_parse_log(b""), data, cursor, graph, LatestEvents(), False, result, self._clock())
        result.drops = both.list_recent_drops()
        return result

    async def _read_both(
        self, *, merging: bool = True, report: Report | None = None
    ) -> "_LogAndRecords | LogSyncResult":
        """Read log and records, and merge them. Return only a result if there is neither a log nor a project."""
        info = await self.files.read_info()
        data = await self.files.read()
        self._is_large = len(data or b"") > LARGE_LOG_BYTES
        log = await self._run_apart(lambda: _parse_log(data or b""))
        result = LogSyncResult(skipped=log.skipped, lines=log.lines)
        if log.skipped:
            message = f"Skipped {format_count(log.skipped, 'invalid line')} of {LOG_PATH}."
            result.warnings.append(ToolWarning("graph_lines_skipped", message))
        if await self._records.find_project_id(self._bank) is None and not log.events:
            return result
        store = await self._records.open_to_write(self._bank)
        project = await self._records.find_project_id(self._bank) or ""
        cursor = await self.find_cursor(project, store)
        base = await self._run_apart(lambda: cursor.find_base(data or b"", log)) if cursor else None
        word = await self._run_apart(lambda: collect_latest(log.events))
        graph = await self._merge(store, word, base, result, report) if merging else None
        graph = graph or await self._load_graph(store)
        left = LogCursor.from_change(project, graph.revision, await read_mark(store, graph.revision) or "")
        if data is not None:
            left = left.with_data(data, info.modified_at if info else 0)
        erased = base is not None and await has_erased_since(store, base.seq)
        both = _LogAndRecords(log, data, left, graph, word, erased, result, self._clock())
        await self._run_apart(lambda: both.compare(Masker(enabled=self._mask)))
        return both

    async def _load_graph(self, store: RecordStore) -> GraphRecords:
        graph = await load_graph(store)
        self._is_large = self._is_large or len(graph.entities) > LARGE_GRAPH_ENTITIES
        return graph

    async def _run_apart(self, work: Callable[[], R]) -> R:
        """Run long work in a thread, so that other tasks can proceed."""
        return await asyncio.to_thread(work) if self._is_large else work()

    async def _append(self, cursor: LogCursor, news: EventsSince) -> LogCursor | None:
        if news.events:
            events = news.events
            if cursor.is_newer_than(events):
                events = _restamp_events(events, collect_latest(_parse_log(await self.files.read() or b"").events))
            data = (b"" if cursor.ends_line else b"\n") + encode_events(events)
            left = cursor.with_change(news.seq, news.mark).with_times(events)
            return await self.files.append(left, data)
        if news.seq == cursor.seq:
            return cursor
        return await self.files.write_cursor(cursor.with_change(news.seq, news.mark))

    async def _merge(
        self,
        store: RecordStore,
        word: LatestEvents,
        base: MergeBase | None,
        result: LogSyncResult,
        report: Report | None,
    ) -> GraphRecords | None:
        """Merge the log into the records. Return the records if the merge changed nothing."""
        masking = Masker(enabled=self._mask)

        async def attempt() -> GraphRecords | None:
            graph = await self._load_graph(store)
            seq = base.seq if base else 0
            former = await read_former_ids(store, graph.entities.values(), seq)
            merge = await self._run_apart(lambda: LogMerge(word, base, GraphIndex(graph, former), masking))
            known = await read_local_edits(store, merge.list_disputed(), seq)
            placing = await self._run_apart(lambda: merge.plan(known))
            if not placing.steps:
                return graph
            await self._commit(store, placing.steps, graph.revision, report)
            result.taken = placing.taken
            return None

        read = await retry(attempt)
        result.warnings += build_masking_warnings(masking.kinds)
        return read

    async def _commit(self, store: RecordStore, steps: Sequence[Step], revision: int, report: Report | None) -> None:
        for start in range(0, len(steps), STEPS_PER_COMMIT):
            part = tuple(steps[start : start + STEPS_PER_COMMIT])
            batch = Batch(part, self._clock(), MERGE_GRAPH_FILE, revision=revision)
            change = await commit(store, batch)
            revision = change.seq or revision
            if report is not None:
                await report(start + len(part), len(steps), "Importing the graph")

    async def _erase_purged(self, both: "_LogAndRecords") -> bool:
        """Erase purged data from the log and from the files derived from it. Return whether the log was rewritten."""
        state, left, result = both.result.state, both.left, both.result
        is_known = await self._run_apart(both.is_log_known)
        if not is_known:
            data = encode_whole_log(state, both.list_recent_drops())
            result.cursor = await self.files.write(left, data)
            result.lines = data.count(b"\n")
            message = f"{LOG_PATH} was rewritten without the purged data, and its history is gone."
            result.warnings.append(ToolWarning("graph_file_rewritten", message))
        await self.files.erase_history(state, result.lines, both.now)
        return not is_known


class _LogAndRecords(Value, frozen=False):
    """A log and the records that it was merged into."""

    log: GraphLog
    data: bytes | None
    left: LogCursor  # states that the log is complete
    graph: GraphRecords
    word: LatestEvents
    erased: bool  # data was erased since both last agreed
    result: LogSyncResult
    now: int
    events: list[Event] = field(default_factory=list[Event])  # events that the log lacks

    def compare(self, masking: Masker) -> None:
        self.result.state = state = self.graph.build_live()
        told = align_log(replay_events(self.log.events), state, masking)
        left = replace(self.left, has_doubles=told.has_doubles)
        self.left = left.with_times(self.log.events)
        self.events = compute_difference(told.state, state, self.build_time_lookup(state))

    def is_log_known(self) -> bool:
        """Return whether the records have every event of the log, including deleted parts."""
        states = (self.graph.build_live(), self.graph.build_deleted())
        return not self.log.skipped and all(
            any(_has_event(state, event) for state in states) for event in self.log.events
        )

    def list_recent_drops(self, *, told: bool = False) -> list[Event]:
        """List recent deletions. With `told`, include those that only the log has."""
        live, deleted, at = (self.result.state, self.graph.build_deleted(), self.build_time_lookup(self.result.state))
        found: dict[str, Event] = {}
        if told:
            gone = self.word.dropped
            found = {e.id: e for e in self.log.events if not isinstance(e, Put) and e.id in gone}
        found |= {key: DropEntity(key, at(key)) for key in deleted.entities}
        for key, one in deleted.observations.items():
            if one.entity_id in live.entities:
                found[key] = DropObservation(key, one.entity_id, at(key))
        for key, one in deleted.relations.items():
            if {one.from_id, one.to_id} <= live.entities.keys():
                found[key] = DropRelation(one.from_id, one.to_id, one.type, at(key))
        alive = live.entities.keys() | live.observations.keys() | live.relations.keys()
        since = self.now - DROP_RETENTION_MICROSECONDS
        recent = [drop for key, drop in found.items() if key not in alive and drop.at >= since]
        return sorted(recent, key=lambda drop: drop.at)

    def build_time_lookup(self, state: GraphState) -> Callable[[str], int]:
        deleted = self.graph.build_deleted()
        word = self.word

        def at(key: str) -> int:
            own = state.times.get(key) or deleted.times.get(key) or self.now
            thing = state.observations.get(key) or state.relations.get(key)
            return _compute_later_time(own, word, key, list_owners(thing) if thing else [])

        return at


def _compute_later_time(own: int, word: LatestEvents, key: str, owners: Sequence[str]) -> int:
    """Return a time later than the events it contradicts, so that other programs treat it as the newest."""
    said = max(word.get_time(key), word.added.get(key, 0), *(word.drops.get(part, 0) for part in (key, *owners)))
    return own if is_newer(own, said) or not said else said + MILLISECOND_MICROSECONDS


def _restamp_events(events: Sequence[Event], word: LatestEvents) -> list[Event]:
    def restamp(event: Event) -> Event:
        owners = list_owners(event.thing) if isinstance(event, Put) else []
        return replace(event, at=_compute_later_time(event.at, word, event.id, owners))

    return [restamp(event) for event in events]


def _has_event(state: GraphState, event: Event) -> bool:
    """Return whether the state has the part of the event with the same content."""
    if not isinstance(event, Put):
        return any(event.id in kind for kind in (state.entities, state.observations, state.relations))
    match event.thing:
        case EntityState() as told:
            entity = state.entities.get(told.id)
            return entity is not None and entity.is_same_as(told)
        case ObservationState() as told:
            observation = state.observations.get(told.id)
            return observation is not None and replace(observation, at=told.at) == told
        case RelationState() as told:
            relation = state.relations.get(told.id)
            return relation is not None and relation.type == told.type


def _parse_log(data: bytes) -> GraphLog:
    try:
        return parse_log(data)
    except MarkerMismatch as error:
        raise MarkerMismatch(
            f"{error.message} The file was not changed; the graph is safe in the store.",
            hint="Move the file to another folder or call graph_compact to write a new one. "
            f"Or restore its first line: {MARKER_LINE.decode().strip()}",
            path=LOG_PATH,
        ) from error


async def has_graph(store: RecordStore) -> bool:
    return bool((await store.count_live()).get(ENTITY))
