"""The bank's `graph/graph.jsonl` as a mirror of the records, and the tools that maintain it.

Changes of the records are appended to the log. Changes that other programs made to the log are merged into the records.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from everkept.core.commits import commit, retry
from everkept.core.files import FileInfo
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch
from everkept.core.secrets import Masker
from everkept.core.sessions import Report, ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, InvalidInput, MarkerMismatch, ReadOnly
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.graph.graph_events import (
    LOG_PATH,
    OwnChange,
    encode_snapshot_event,
    parse_log,
    peek_events_since,
    read_events_since,
)
from everkept.families.bank.graph.graph_folder import (
    LOCK,
    LogCursor,
    encode_whole_log,
    read_mirrored_banks,
    summarize_graph,
)
from everkept.families.bank.graph.graph_records import GraphIndex, MergeCounts, load_graph
from everkept.families.bank.graph.log_merge import plan_restore
from everkept.families.bank.graph.log_sync import LogSync, LogSyncResult, SyncHint, has_graph
from everkept.families.bank.graph.model import GraphState, replay_events
from everkept.families.bank.model import StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value

log = logging.getLogger(__name__)

NOT_MERGED_NOTICE = (
    f"Another program, for example git, changed {LOG_PATH}. This answer lacks these changes, because Everkept is "
    "read-only here. A server or command that can write imports them."
)


class RebuildResult(Value):
    state: GraphState
    taken: MergeCounts
    skipped: int
    warnings: list[ToolWarning]


class CompactResult(Value):
    """Number of lines before and after, and the path of the copy of the old log."""

    before: int
    after: int
    copy: str | None
    warnings: list[ToolWarning]


class _SeenLog(Value):
    """A log that needs no further work, with the warnings about it."""

    info: FileInfo | None
    warnings: tuple[ToolWarning, ...] = ()


class GraphMirror:
    """Keeps log and records in sync. The next call makes up for a failed one.

    The records are authoritative on this machine; the log carries them to other machines.
    """

    def __init__(self, records: BankRecords, library: Library, clock: Clock, *, mask: bool, read_only: bool) -> None:
        self._records = records
        self._library = library
        self._clock = clock
        self._mask = mask
        self._read_only = read_only
        self._cursors: dict[str, LogCursor] = {}
        self._odd: dict[str, _SeenLog] = {}
        self._summaries: dict[str, tuple[str, int, str | None]] = {}
        self._viewed: dict[str, tuple[str, int]] = {}

    async def merge_log(self, bank: Bank) -> list[ToolWarning]:
        """Merge other programs' changes of the log into the records. An unchanged log costs one look at the file."""
        try:
            info = await bank.files.read_info(LOG_PATH)
            if info is None:
                return []
            project = await self._records.find_project_id(bank)
            if await self._is_merged(bank, project, info):
                return []
            odd = self._find_known_warnings(bank, info)
            if odd is not None:
                return odd
            if self._read_only:
                return await self._find_unmerged_warnings(bank, info)
            store = await self._records.open_to_read(bank)
            return await self._run_sync(bank, lambda sync: sync.merge_log(project, store))
        except EverkeptError as error:
            return [_build_behind_warning(error)]

    async def append_changes(
        self, bank: Bank, store: RecordStore | None = None, own: OwnChange | None = None
    ) -> list[ToolWarning]:
        """Append all changes of the records to the log. `store` and `own` save reads if the caller has them."""
        return await self._append_to_log(bank, store, own)

    def get_appended_seq(self, bank: Bank) -> int | None:
        """Return the number of the last change in the log, if this process knows it."""
        cursor = self._cursors.get(bank.address)
        return None if cursor is None else cursor.seq

    async def sync(self, bank: Bank) -> bool:
        """Merge the log and append changes when no tool writes. Return whether anything changed.

        Mere corrections of the log wait for a change: people who only read expect an unchanged file.
        """
        before = self._cursors.get(bank.address) or await self._build_sync(bank).files.read_cursor()
        await self.merge_log(bank)
        await self._append_to_log(bank, None, None, corrects=False)
        return self._cursors.get(bank.address, before) != before

    async def find_project_id(self, bank: Bank) -> str | None:
        return await self._records.find_project_id(bank)

    async def read_mirrored_banks(self) -> dict[str, str]:
        """Map the address of each bank that ever had a log to the id of its project."""
        return await read_mirrored_banks(self._library)

    async def rebuild(self, bank: Bank, report: Report | None = None) -> RebuildResult:
        """Compare the whole log with the records, and rewrite the files derived from it."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._build_sync(bank)
            done = self._remember_cursor(bank, await sync.compare(report=report))
            if done.lines:
                await sync.files.write_derived(done.state, done.lines, self._clock())
        return RebuildResult(done.state, done.taken, done.skipped, done.warnings)

    async def compact(self, bank: Bank, report: Report | None = None) -> CompactResult:
        """Rewrite the log in its shortest form, and keep a copy of the old one."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._build_sync(bank)
            at = self._clock()
            copy: str | None = None
            try:
                done = self._remember_cursor(bank, await sync.compare(report=report))
            except MarkerMismatch:
                done = await sync.start_over(*await self._open_project(bank))
                copy = await sync.files.rename_foreign_log(at)
            if not done.lines:
                return CompactResult(0, 0, None, done.warnings)
            if done.cursor is None:
                raise Conflict(f"{LOG_PATH} was changed at the same time.", hint="Try again.")
            copy = copy or await sync.files.write_copy(await sync.files.read() or b"")
            new = encode_whole_log(done.state, done.drops) + encode_snapshot_event(done.state.compute_stats(), at)
            done.cursor = await sync.files.write(done.cursor, new)
            self._remember_cursor(bank, done)
            after = new.count(b"\n")
            await sync.files.write_derived(done.state, after, at)
        return CompactResult(done.lines, after, copy, done.warnings)

    async def read_state(self, bank: Bank) -> GraphState:
        """Read the graph from the records."""
        return (await load_graph(await self._records.open_to_read(bank))).build_live()

    def parse_state(self, data: bytes) -> GraphState:
        """Return the graph in a log. Raise MarkerMismatch, or InvalidInput for invalid lines."""
        found = parse_log(data)
        if found.skipped:
            raise InvalidInput(
                f"{LOG_PATH} has {format_count(found.skipped, 'invalid line')}.",
                hint="Fix or remove them, then try again.",
            )
        return replay_events(found.events)

    async def set_state(self, bank: Bank, state: GraphState, call: ToolCall) -> MergeCounts:
        """Replace the graph in the records with this state in one change, then update the log."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._build_sync(bank)
            try:
                # Merge other programs' changes of the log first, so that the change log has them.
                await sync.run(*await self._open_project(bank))
            except MarkerMismatch:
                await sync.files.rename_foreign_log(self._clock())
            store = await self._records.open_to_write(bank)
            taken = await self._set_records(store, state, call)
            self._remember_cursor(bank, await sync.run(*await self._open_project(bank)))
        return taken

    async def read_summary(self, bank: Bank) -> str | None:
        """Return a short overview, or None if there is no graph."""
        if not self._read_only:
            await self.merge_log(bank)
        project = await self._records.find_project_id(bank)
        if project is None:
            return None
        store = await self._records.open_to_read(bank)
        revision = await store.get_revision()
        known = self._summaries.get(bank.address)
        if known is None or known[:2] != (project, revision):
            text = known[2] if known and await _is_graph_unchanged(store, project, known[:2]) else None
            if text is None:
                graph = await load_graph(store)
                text = await asyncio.to_thread(lambda: summarize_graph(graph.build_live()))
            self._summaries[bank.address] = known = (project, revision, text)
        return known[2]

    async def refresh_view(self, bank: Bank) -> None:
        """Write the Markdown view if the graph has changed since it was written."""
        project = None if self._read_only else await self._records.find_project_id(bank)
        if project is None:
            return
        store = await self._records.open_to_read(bank)
        viewed = self._viewed.get(bank.address)
        revision = await store.get_revision()
        if viewed != (project, revision) and not (viewed and await _is_graph_unchanged(store, project, viewed)):
            files = self._build_sync(bank).files
            state = await asyncio.to_thread((await load_graph(store)).build_live)
            there = await files.read_view()
            if there is not None or not state.is_empty:
                await files.refresh_view(state, there, self._clock())
        self._viewed[bank.address] = (project, revision)

    def _build_sync(self, bank: Bank) -> LogSync:
        return LogSync(bank, self._records, self._library, self._clock, mask=self._mask)

    async def _open_project(self, bank: Bank) -> tuple[str | None, RecordStore]:
        return await self._records.find_project_id(bank), await self._records.open_to_read(bank)

    async def _append_to_log(
        self, bank: Bank, store: RecordStore | None, own: OwnChange | None, *, corrects: bool = True
    ) -> list[ToolWarning]:
        if self._read_only:
            return []
        try:
            project = await self._records.find_project_id(bank)
            records = store or await self._records.open_to_read(bank)
            ahead = await self._prepare_hint(bank, project, records, own)
            if await self._is_up_to_date(bank, records, ahead, corrects=corrects):
                return []
            info = await bank.files.read_info(LOG_PATH) if bank.address in self._odd else None
            odd = self._find_known_warnings(bank, info)
            if odd is not None:
                return odd
            return await self._run_sync(bank, lambda sync: sync.run(project, records, ahead))
        except EverkeptError as error:
            return [_build_behind_warning(error)]

    async def _prepare_hint(
        self, bank: Bank, project: str | None, store: RecordStore, own: OwnChange | None
    ) -> SyncHint:
        known = self._cursors.get(bank.address)
        cursor = known or await self._build_sync(bank).files.read_cursor()
        if cursor is None or cursor.project != project:
            return SyncHint()
        if known is not None and own is not None and own.after == cursor.seq:
            return SyncHint(cursor, own.news, is_exact=True)
        return SyncHint(cursor, await peek_events_since(store, cursor.seq, cursor.mark))

    async def _is_up_to_date(self, bank: Bank, store: RecordStore, ahead: SyncHint, *, corrects: bool) -> bool:
        """Return whether there is nothing to append. Takes no lock, so it leaves no files behind."""
        cursor, news = ahead.cursor, ahead.news
        if cursor is None:
            return not await has_graph(store) and await bank.files.read_info(LOG_PATH) is None
        if news is None or news.seq != cursor.seq or (cursor.owes and corrects):
            return False
        return cursor.is_unchanged(await bank.files.read_info(LOG_PATH))

    async def _is_merged(self, bank: Bank, project: str | None, info: FileInfo) -> bool:
        """Return whether the log is as this process, or another one that saved its cursor, left it."""
        cursor = self._cursors.get(bank.address)
        if cursor is None or not cursor.is_current(project, info):
            store = await self._records.open_to_read(bank)
            cursor = await self._build_sync(bank).find_cursor(project, store)
            if cursor is None or not cursor.is_unchanged(info):
                return False
            self._cursors[bank.address] = cursor
        return True

    async def _find_unmerged_warnings(self, bank: Bank, info: FileInfo) -> list[ToolWarning]:
        """Warn a read-only caller about an unmerged log, unless only its file time changed."""
        sync = self._build_sync(bank)
        cursor, data = (await sync.find_cursor(*await self._open_project(bank)), await sync.files.read())
        same = cursor is not None and cursor.has_content(data or b"")
        found = () if same else (ToolWarning("graph_file_not_taken_in", NOT_MERGED_NOTICE),)
        self._odd[bank.address] = _SeenLog(info, found)
        return list(found)

    async def _run_sync(self, bank: Bank, work: Callable[[LogSync], Awaitable[LogSyncResult]]) -> list[ToolWarning]:
        async with bank.files.lock(LOCK):
            try:
                done = await work(self._build_sync(bank))
            except MarkerMismatch as error:
                warning = ToolWarning(error.code, str(error))
                self._odd[bank.address] = _SeenLog(await bank.files.read_info(LOG_PATH), (warning,))
                return [warning]
        return self._remember_cursor(bank, done).warnings

    def _remember_cursor(self, bank: Bank, done: LogSyncResult) -> LogSyncResult:
        self._odd.pop(bank.address, None)
        if done.cursor is None:
            self._cursors.pop(bank.address, None)
        else:
            self._cursors[bank.address] = done.cursor
        return done

    def _find_known_warnings(self, bank: Bank, info: FileInfo | None) -> list[ToolWarning] | None:
        odd = self._odd.get(bank.address)
        return list(odd.warnings) if odd is not None and odd.info == info else None

    async def _set_records(self, store: RecordStore, state: GraphState, call: ToolCall) -> MergeCounts:
        async def attempt() -> MergeCounts:
            graph = await load_graph(store)
            # A state can have thousands of texts to mask.
            placing = await asyncio.to_thread(
                lambda: plan_restore(state, GraphIndex(graph), Masker(enabled=self._mask))
            )
            if placing.steps:
                batch = Batch(
                    tuple(placing.steps), self._clock(), call.tool, call.session.client, revision=graph.revision
                )
                await commit(store, batch)
            return placing.taken

        return await retry(attempt)

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnly(f"Everkept is read-only here, so {LOG_PATH} cannot be written.")


async def _is_graph_unchanged(store: RecordStore, project: str, known: tuple[str, int]) -> bool:
    """Return whether no later change touched the graph."""
    if known[0] != project:
        return False
    steps = await read_events_since(store, known[1])
    return steps is not None and not steps.events


def _build_behind_warning(error: EverkeptError) -> ToolWarning:
    log.warning("%s is behind: %s", LOG_PATH, error)
    return ToolWarning("graph_file_behind", f"{LOG_PATH} could not be updated; the next call tries again. {error}")


class BankGraphStats(Value):
    entity_count: Annotated[int, Field(name="entityCount")]
    observation_count: Annotated[int, Field(name="observationCount")]
    relation_count: Annotated[int, Field(name="relationCount")]
    entity_types: Annotated[list[str], Field(name="entityTypes")]
    relation_types: Annotated[list[str], Field(name="relationTypes")]

    @classmethod
    def from_state(cls, state: GraphState) -> "BankGraphStats":
        return cls(*state.compute_stats().values())


class RebuiltGraph(Value):
    success: bool
    message: str
    stats: BankGraphStats
    taken_in: Annotated[int, Field(name="takenIn")]
    skipped_lines: Annotated[int, Field(name="skippedLines")]
    warnings: list[ToolWarning] | None = None

    @classmethod
    def from_result(cls, done: RebuildResult) -> "RebuiltGraph":
        taken = done.taken.total
        message = "Rebuilt the graph."
        if taken:
            message = f"Rebuilt the graph with {format_count(taken, 'update')} from {LOG_PATH}."
        return cls(True, message, BankGraphStats.from_state(done.state), taken, done.skipped, done.warnings or None)


class CompactedGraph(Value):
    success: bool
    message: str
    before: int
    after: int
    copy: str | None = None
    warnings: list[ToolWarning] | None = None

    @classmethod
    def from_result(cls, done: CompactResult) -> "CompactedGraph":
        message = "There is no graph to compact."
        if done.copy:
            message = f"Compacted the graph. The old log is kept as {done.copy}."
        return cls(True, message, done.before, done.after, done.copy, done.warnings or None)


class MaintainedGraph(Value):
    success: bool
    operation: str
    stats: BankGraphStats | None = None
    before: int | None = None
    after: int | None = None
    copy: str | None = None
    warnings: list[ToolWarning] | None = None


class MirrorTools(ToolFamily):
    """Tools that merge and compact the log."""

    def __init__(self, banks: Banks, mirror: GraphMirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.REPEATABLE)
    async def graph_rebuild(self, call: ToolCall, store_id: StoreId | None = None) -> RebuiltGraph:
        """Merge graph/graph.jsonl into the graph and rewrite snapshot, index and graph.md."""
        bank = await self._banks.require_bank(call, store_id)
        return RebuiltGraph.from_result(await self._mirror.rebuild(bank, call.report))

    @tool(Effect.DESTROYS)
    async def graph_compact(self, call: ToolCall, store_id: StoreId | None = None) -> CompactedGraph:
        """Rewrite graph/graph.jsonl without its history. Keeps a copy next to it."""
        bank = await self._banks.require_bank(call, store_id)
        return CompactedGraph.from_result(await self._mirror.compact(bank, call.report))


class MirrorMaintenanceTools(ToolFamily):
    """The tools of MirrorTools behind one name."""

    def __init__(self, banks: Banks, mirror: GraphMirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.DESTROYS)
    async def graph_maintain(
        self,
        call: ToolCall,
        operation: Annotated[
            Literal["rebuild", "compact", "stats"],
            Field("rebuild: merge the log; compact: drop its history; stats: count entities, observations, relations"),
        ],
        store_id: StoreId | None = None,
    ) -> MaintainedGraph:
        """Rebuild or compact the bank's graph, or count what it holds."""
        bank = await self._banks.require_bank(call, store_id)
        if operation == "compact":
            short = await self._mirror.compact(bank, call.report)
            return MaintainedGraph(True, operation, None, short.before, short.after, short.copy, short.warnings or None)
        if operation == "rebuild":
            done = await self._mirror.rebuild(bank, call.report)
            return MaintainedGraph(
                True, operation, BankGraphStats.from_state(done.state), warnings=done.warnings or None
            )
        warnings = await self._mirror.merge_log(bank)
        state = await self._mirror.read_state(bank)
        return MaintainedGraph(True, operation, BankGraphStats.from_state(state), warnings=warnings or None)
