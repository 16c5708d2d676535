"""The bank's `graph/graph.jsonl` as a mirror of the records, and the tools that care for it.

The log follows the records, which take in what other programs put there.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal

from everkept.core.commits import commit, retry
from everkept.core.files import FileInfo
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch
from everkept.core.secrets import Masking
from everkept.core.sessions import Call, Report
from everkept.core.times import Clock
from everkept.errors import Conflict, EverkeptError, InvalidInput, MarkerMismatch, ReadOnly
from everkept.families.bank.banks import Bank, BankRecords, Banks
from everkept.families.bank.graph.events import (
    LOG,
    Own,
    glimpsed,
    moved,
    read_log,
    snapshot_written,
)
from everkept.families.bank.graph.graph_folder import LOCK, Cursor, noted_banks, summary, whole_log
from everkept.families.bank.graph.graph_records import GraphRecords, Index, Taken, loaded
from everkept.families.bank.graph.log_merge import restoring
from everkept.families.bank.graph.log_sync import Ahead, Sync, Synced, has_graph
from everkept.families.bank.graph.model import GraphState, replayed
from everkept.families.bank.model import StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value

log = logging.getLogger(__name__)

NOT_TAKEN_IN = (
    f"{LOG} was changed outside, as by git, and this answer is without what it brought: only "
    "reading is allowed here. A server or command that may write takes it in."
)


class Rebuilt(Value):
    state: GraphState
    taken: Taken
    skipped: int
    warnings: list[Warned]


class Compacted(Value):
    """Lines before and after, and where the log of before is kept."""

    before: int
    after: int
    copy: str | None
    warnings: list[Warned]


class _Seen(Value):
    """A log as it was when there was nothing more to do about it, and what is to be said of it."""

    info: FileInfo | None
    warnings: tuple[Warned, ...] = ()


class Mirror:
    """Keeps log and records together. What fails is made up for by the next call.

    The records are the truth of this machine; the log is how they travel.
    """

    def __init__(
        self,
        records: BankRecords,
        library: Library,
        clock: Clock,
        *,
        mask: bool,
        read_only: bool,
    ) -> None:
        self._records = records
        self._library = library
        self._clock = clock
        self._mask = mask
        self._read_only = read_only
        self._cursors: dict[str, Cursor] = {}
        self._odd: dict[str, _Seen] = {}
        self._summaries: dict[str, tuple[str, int, str | None]] = {}
        self._viewed: dict[str, tuple[str, int]] = {}

    async def meet(self, bank: Bank) -> list[Warned]:
        """Takes in what others put into the log, which stays as it is; one look where none did."""
        try:
            info = await bank.files.info(LOG)
            if info is None:
                return []
            project = await self._records.project_id(bank)
            if await self._is_met(bank, project, info):
                return []
            odd = self._odd_as_before(bank, info)
            if odd is not None:
                return odd
            if self._read_only:
                return await self._not_taken_in(bank, info)
            store = await self._records.to_read(bank)
            return await self._synced(bank, lambda sync: sync.met(project, store))
        except EverkeptError as error:
            return [_behind(error)]

    async def follow(
        self, bank: Bank, store: RecordStore | None = None, own: Own | None = None
    ) -> list[Warned]:
        """Appends to the log what changed in the records, whoever changed it.

        `store` are the records, where the caller has them at hand, and `own` what it changed.
        """
        return await self._followed(bank, store, own)

    def followed(self, bank: Bank) -> int | None:
        """The number of the change up to which the log says all, where this process knows it."""
        cursor = self._cursors.get(bank.address)
        return None if cursor is None else cursor.seq

    async def keep_up(self, bank: Bank) -> bool:
        """Meets and follows when nobody wrote here; says whether anything came of it.

        What would only correct the log waits for a change: whoever just reads wants to find the
        file as it was.
        """
        before = self._cursors.get(bank.address) or await self._sync(bank).files.cursor()
        await self.meet(bank)
        await self._followed(bank, None, None, corrects=False)
        return self._cursors.get(bank.address, before) != before

    async def project_of(self, bank: Bank) -> str | None:
        return await self._records.project_id(bank)

    async def mirrored(self) -> dict[str, str]:
        """The addresses of all banks that ever had a log, each with the id of its project."""
        return await noted_banks(self._library)

    async def rebuild(self, bank: Bank, report: Report | None = None) -> Rebuilt:
        """Compares the whole log with the records, and writes what is derived from it anew."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._sync(bank)
            done = self._kept(bank, await sync.compared(report=report))
            if done.lines:
                await sync.files.write_derived(done.state, done.lines, self._clock())
        return Rebuilt(done.state, done.taken, done.skipped, done.warnings)

    async def compact(self, bank: Bank, report: Report | None = None) -> Compacted:
        """Writes the log anew as the shortest one; a copy of the old one is kept."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._sync(bank)
            at = self._clock()
            copy: str | None = None
            try:
                done = self._kept(bank, await sync.compared(report=report))
            except MarkerMismatch:
                done = await sync.anew(*await self._reached(bank))
                copy = await sync.files.set_aside(at)
            if not done.lines:
                return Compacted(0, 0, None, done.warnings)
            if done.cursor is None:
                raise Conflict(f"{LOG} was changed at the same time.", hint="Try again.")
            copy = copy or await sync.files.keep_copy(await sync.files.read() or b"")
            new = whole_log(done.state, done.drops) + snapshot_written(done.state.stats(), at)
            done.cursor = await sync.files.write(done.cursor, new)
            self._kept(bank, done)
            after = new.count(b"\n")
            await sync.files.write_derived(done.state, after, at)
        return Compacted(done.lines, after, copy, done.warnings)

    async def state(self, bank: Bank) -> GraphState:
        """The graph as the records have it."""
        return (await loaded(await self._records.to_read(bank))).live()

    def state_of(self, data: bytes) -> GraphState:
        """The graph that a log tells. Raises MarkerMismatch, and InvalidInput for broken lines."""
        found = read_log(data)
        if found.skipped:
            raise InvalidInput(f"{LOG} has {found.skipped} lines that are no event, or broken.")
        return replayed(found.events)

    async def set_state(self, bank: Bank, state: GraphState, call: Call) -> Taken:
        """Makes the records tell this graph and nothing else, in one change; then the log."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._sync(bank)
            try:
                # What others put into the log is in the past before it goes.
                await sync.run(*await self._reached(bank))
            except MarkerMismatch:
                await sync.files.set_aside(self._clock())
            store = await self._records.to_write(bank)
            taken = await self._set(store, state, call)
            self._kept(bank, await sync.run(*await self._reached(bank)))
        return taken

    async def summary(self, bank: Bank) -> str | None:
        """A short overview; None without a graph."""
        if not self._read_only:
            await self.meet(bank)
        project = await self._records.project_id(bank)
        if project is None:
            return None
        store = await self._records.to_read(bank)
        revision = await store.revision()
        known = self._summaries.get(bank.address)
        if known is None or known[:2] != (project, revision):
            text = known[2] if known and await _is_quiet(store, project, known[:2]) else None
            text = text or await asyncio.to_thread(_summary_of, await loaded(store))
            self._summaries[bank.address] = known = (project, revision, text)
        return known[2]

    async def refresh_view(self, bank: Bank) -> None:
        """Writes the view for people anew where the graph is another one than it shows."""
        project = None if self._read_only else await self._records.project_id(bank)
        if project is None:
            return
        store = await self._records.to_read(bank)
        viewed = self._viewed.get(bank.address)
        revision = await store.revision()
        if viewed != (project, revision) and not (
            viewed and await _is_quiet(store, project, viewed)
        ):
            files = self._sync(bank).files
            state = await asyncio.to_thread((await loaded(store)).live)
            there = await files.read_view()
            if there is not None or not state.is_empty:
                await files.refresh_view(state, there, self._clock())
        self._viewed[bank.address] = (project, revision)

    def _sync(self, bank: Bank) -> Sync:
        return Sync(bank, self._records, self._library, self._clock, mask=self._mask)

    async def _reached(self, bank: Bank) -> tuple[str | None, RecordStore]:
        return await self._records.project_id(bank), await self._records.to_read(bank)

    async def _followed(
        self, bank: Bank, store: RecordStore | None, own: Own | None, *, corrects: bool = True
    ) -> list[Warned]:
        if self._read_only:
            return []
        try:
            project = await self._records.project_id(bank)
            records = store or await self._records.to_read(bank)
            ahead = await self._ahead(bank, project, records, own)
            if await self._is_told(bank, records, ahead, corrects=corrects):
                return []
            info = await bank.files.info(LOG) if bank.address in self._odd else None
            odd = self._odd_as_before(bank, info)
            if odd is not None:
                return odd
            return await self._synced(bank, lambda sync: sync.run(project, records, ahead))
        except EverkeptError as error:
            return [_behind(error)]

    async def _ahead(
        self, bank: Bank, project: str | None, store: RecordStore, own: Own | None
    ) -> Ahead:
        known = self._cursors.get(bank.address)
        cursor = known or await self._sync(bank).files.cursor()
        if cursor is None or cursor.project != project:
            return Ahead()
        if known is not None and own is not None and own.after == cursor.seq:
            return Ahead(cursor, own.news, is_exact=True)
        return Ahead(cursor, await glimpsed(store, cursor.seq, cursor.mark))

    async def _is_told(
        self, bank: Bank, store: RecordStore, ahead: Ahead, *, corrects: bool
    ) -> bool:
        """Whether there is nothing to follow; found out without a lock, and so without a trace."""
        cursor, news = ahead.cursor, ahead.news
        if cursor is None:
            return not await has_graph(store) and await bank.files.info(LOG) is None
        if news is None or news.seq != cursor.seq or (cursor.owes and corrects):
            return False
        return cursor.fits(await bank.files.info(LOG))

    async def _is_met(self, bank: Bank, project: str | None, info: FileInfo) -> bool:
        """Whether the log is as we left it, or as another process did and noted."""
        cursor = self._cursors.get(bank.address)
        if cursor is None or not cursor.stands(project, info):
            store = await self._records.to_read(bank)
            cursor = await self._sync(bank).cursor(project, store)
            if cursor is None or not cursor.fits(info):
                return False
            self._cursors[bank.address] = cursor
        return True

    async def _not_taken_in(self, bank: Bank, info: FileInfo) -> list[Warned]:
        """For who may not write; a log that was only touched has nothing new."""
        sync = self._sync(bank)
        cursor, data = await sync.cursor(*await self._reached(bank)), await sync.files.read()
        same = cursor is not None and cursor.is_of(data or b"")
        found = () if same else (Warned("graph_file_not_taken_in", NOT_TAKEN_IN),)
        self._odd[bank.address] = _Seen(info, found)
        return list(found)

    async def _synced(self, bank: Bank, work: Callable[[Sync], Awaitable[Synced]]) -> list[Warned]:
        async with bank.files.lock(LOCK):
            try:
                done = await work(self._sync(bank))
            except MarkerMismatch as error:
                warning = Warned(error.code, str(error))
                self._odd[bank.address] = _Seen(await bank.files.info(LOG), (warning,))
                return [warning]
        return self._kept(bank, done).warnings

    def _kept(self, bank: Bank, done: Synced) -> Synced:
        self._odd.pop(bank.address, None)
        if done.cursor is None:
            self._cursors.pop(bank.address, None)
        else:
            self._cursors[bank.address] = done.cursor
        return done

    def _odd_as_before(self, bank: Bank, info: FileInfo | None) -> list[Warned] | None:
        odd = self._odd.get(bank.address)
        return list(odd.warnings) if odd is not None and odd.info == info else None

    async def _set(self, store: RecordStore, state: GraphState, call: Call) -> Taken:
        async def attempt() -> Taken:
            graph = await loaded(store)
            placing = restoring(state, Index(graph), Masking(enabled=self._mask))
            if placing.steps:
                batch = Batch(
                    tuple(placing.steps),
                    self._clock(),
                    call.tool,
                    call.session.client,
                    revision=graph.revision,
                )
                await commit(store, batch)
            return placing.taken

        return await retry(attempt)

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnly(f"Nothing may be written here, {LOG} included.")


def _summary_of(graph: GraphRecords) -> str | None:
    return summary(graph.live())


async def _is_quiet(store: RecordStore, project: str, known: tuple[str, int]) -> bool:
    """Whether no change since was one of the graph's."""
    if known[0] != project:
        return False
    steps = await moved(store, known[1])
    return steps is not None and not steps.events


def _behind(error: EverkeptError) -> Warned:
    log.warning("%s is behind: %s", LOG, error)
    message = f"{LOG} could not be brought up to date and follows later: {error}"
    return Warned("graph_file_behind", message)


class Stats(Value):
    entity_count: Annotated[int, Field(name="entityCount")]
    observation_count: Annotated[int, Field(name="observationCount")]
    relation_count: Annotated[int, Field(name="relationCount")]
    entity_types: Annotated[list[str], Field(name="entityTypes")]
    relation_types: Annotated[list[str], Field(name="relationTypes")]

    @classmethod
    def of(cls, state: GraphState) -> "Stats":
        stats: dict[str, Any] = state.stats()
        return cls(*stats.values())


class RebuiltGraph(Value):
    success: bool
    message: str
    stats: Stats
    taken_in: Annotated[int, Field(name="takenIn")]
    skipped_lines: Annotated[int, Field(name="skippedLines")]
    warnings: list[Warned] | None = None

    @classmethod
    def of(cls, done: Rebuilt) -> "RebuiltGraph":
        taken = done.taken.total
        message = "Graph rebuilt." if not taken else f"Graph rebuilt; {taken} parts were taken in."
        return cls(True, message, Stats.of(done.state), taken, done.skipped, done.warnings or None)


class CompactedGraph(Value):
    success: bool
    message: str
    before: int
    after: int
    copy: str | None = None
    warnings: list[Warned] | None = None

    @classmethod
    def of(cls, done: Compacted) -> "CompactedGraph":
        message = (
            f"Graph compacted; the old log is kept as {done.copy}."
            if done.copy
            else "There is no graph to compact."
        )
        return cls(True, message, done.before, done.after, done.copy, done.warnings or None)


class MaintainedGraph(Value):
    success: bool
    operation: str
    stats: Stats | None = None
    before: int | None = None
    after: int | None = None
    copy: str | None = None
    warnings: list[Warned] | None = None


class MirrorTools(Family):
    """Taking in what came with git, and making the log short."""

    def __init__(self, banks: Banks, mirror: Mirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.REPEATABLE)
    async def graph_rebuild(self, call: Call, store_id: StoreId | None = None) -> RebuiltGraph:
        """Merge graph/graph.jsonl into the graph; rewrite snapshot, index and graph.md."""
        bank = await self._banks.existing(call, store_id)
        return RebuiltGraph.of(await self._mirror.rebuild(bank, call.report))

    @tool(Effect.DESTROYS)
    async def graph_compact(self, call: Call, store_id: StoreId | None = None) -> CompactedGraph:
        """Rewrite graph/graph.jsonl without its history; a copy is kept beside it."""
        bank = await self._banks.existing(call, store_id)
        return CompactedGraph.of(await self._mirror.compact(bank, call.report))


class MirrorExtras(Family):
    """The same behind one name."""

    def __init__(self, banks: Banks, mirror: Mirror) -> None:
        self._banks = banks
        self._mirror = mirror

    @tool(Effect.DESTROYS)
    async def graph_maintain(
        self,
        call: Call,
        operation: Annotated[
            Literal["rebuild", "compact", "stats"],
            Field("As graph_rebuild, graph_compact; counts."),
        ],
        store_id: StoreId | None = None,
    ) -> MaintainedGraph:
        """Rebuild or compact the graph's log, or count the graph."""
        bank = await self._banks.existing(call, store_id)
        if operation == "compact":
            short = await self._mirror.compact(bank, call.report)
            return MaintainedGraph(
                True,
                operation,
                before=short.before,
                after=short.after,
                copy=short.copy,
                warnings=short.warnings or None,
            )
        if operation == "rebuild":
            done = await self._mirror.rebuild(bank, call.report)
            return MaintainedGraph(
                True, operation, Stats.of(done.state), warnings=done.warnings or None
            )
        warnings = await self._mirror.meet(bank)
        state = await self._mirror.state(bank)
        return MaintainedGraph(True, operation, Stats.of(state), warnings=warnings or None)
