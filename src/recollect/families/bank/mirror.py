"""The bank's `graph/graph.jsonl`: it follows the records, which take in what others put there."""

import logging
from dataclasses import dataclass

from recollect.core.files import FileInfo
from recollect.core.ports import Library, RecordStore
from recollect.core.records import Batch
from recollect.core.sessions import Call, Report
from recollect.core.times import Clock
from recollect.errors import Conflict, MarkerMismatch, ReadOnly, RecollectError
from recollect.families.bank.banks import Bank, BankRecords
from recollect.families.bank.graph_changes import moved
from recollect.families.bank.graph_events import (
    LOG,
    read_log,
    snapshot_written,
)
from recollect.families.bank.graph_file import LOCK, Cursor, whole_log
from recollect.families.bank.graph_markdown import summary
from recollect.families.bank.graph_merge import restoring
from recollect.families.bank.graph_placing import Index, Masking, Taken
from recollect.families.bank.graph_records import loaded
from recollect.families.bank.graph_state import GraphState, replayed
from recollect.families.bank.graph_sync import ATTEMPTS, Sync, Synced, has_graph
from recollect.tools.tool import Warned

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    state: GraphState
    taken: Taken
    skipped: int
    warnings: list[Warned]


@dataclass(frozen=True, slots=True)
class Compacted:
    """Lines before and after, and where the log of before is kept."""

    before: int
    after: int
    copy: str | None
    warnings: list[Warned]


@dataclass(frozen=True, slots=True)
class _Seen:
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
        """Takes in what others put into the log; one look at it where nobody did."""
        if self._read_only:
            return []
        try:
            info = await bank.files.info(LOG)
            if info is None:
                return []
            if odd := self._odd_as_before(bank, info):
                return odd
            cursor = self._cursors.get(bank.address) or await self._sync(bank).files.cursor()
            if cursor is not None and cursor.fits(info):
                self._cursors[bank.address] = cursor
                return []
            return await self._synced(bank, *await self._reached(bank))
        except RecollectError as error:
            return [_behind(error)]

    async def follow(self, bank: Bank) -> list[Warned]:
        """Appends to the log what changed in the records, whoever changed it."""
        if self._read_only:
            return []
        try:
            project, store = await self._reached(bank)
            if await self._is_done(bank, project, store):
                return []
            info = await bank.files.info(LOG) if bank.address in self._odd else None
            if odd := self._odd_as_before(bank, info):
                return odd
            return await self._synced(bank, project, store)
        except RecollectError as error:
            return [_behind(error)]

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
            done = self._kept(bank, await sync.compared(report=report))
            if not done.lines:
                return Compacted(0, 0, None, done.warnings)
            if done.cursor is None:
                raise Conflict(f"{LOG} was changed at the same time.", hint="Try again.")
            at = self._clock()
            copy = await sync.files.keep_copy(await sync.files.read() or b"", at)
            new = whole_log(done.state) + snapshot_written(done.state.stats(), at)
            seq, project = done.cursor.seq, done.cursor.project
            done.cursor = await sync.files.write(project, seq, new)
            self._kept(bank, done)
            after = new.count(b"\n")
            await sync.files.write_derived(done.state, after, at)
        return Compacted(done.lines, after, copy, done.warnings)

    async def state(self, bank: Bank) -> GraphState:
        """The graph as the records have it."""
        return (await loaded(await self._records.to_read(bank))).live()

    def state_of(self, data: bytes) -> GraphState:
        """The graph that a log tells. Raises MarkerMismatch."""
        return replayed(read_log(data).events)

    async def set_state(self, bank: Bank, state: GraphState, call: Call) -> Taken:
        """Makes the records tell this graph and nothing else, in one change; then the log."""
        self._check_writable()
        async with bank.files.lock(LOCK):
            sync = self._sync(bank)
            try:
                # What others put into the log is in the past before it goes.
                await sync.run(*await self._reached(bank))
            except MarkerMismatch:
                await sync.files.keep_copy(await sync.files.read() or b"", self._clock())
                await bank.files.remove(LOG)
            store = await self._records.to_write(bank)
            taken = await self._set(store, state, call)
            self._kept(bank, await sync.run(*await self._reached(bank)))
        return taken

    async def summary(self, bank: Bank) -> str | None:
        """A short overview; None without a graph."""
        project = await self._records.project_id(bank)
        if project is None:
            return None
        store = await self._records.to_read(bank)
        revision = await store.revision()
        known = self._summaries.get(bank.address)
        if known is None or known[:2] != (project, revision):
            text = known[2] if known and await _is_quiet(store, project, known[:2]) else None
            text = text or summary((await loaded(store)).live())
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
            state = (await loaded(store)).live()
            there = await files.read_view()
            if there is not None or not state.is_empty:
                await files.refresh_view(state, there, self._clock())
        self._viewed[bank.address] = (project, revision)

    def _sync(self, bank: Bank) -> Sync:
        return Sync(bank, self._records, self._library, self._clock, mask=self._mask)

    async def _reached(self, bank: Bank) -> tuple[str | None, RecordStore]:
        return await self._records.project_id(bank), await self._records.to_read(bank)

    async def _synced(self, bank: Bank, project: str | None, store: RecordStore) -> list[Warned]:
        async with bank.files.lock(LOCK):
            try:
                done = await self._sync(bank).run(project, store)
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

    async def _is_done(self, bank: Bank, project: str | None, store: RecordStore) -> bool:
        """Whether there is nothing to follow; without a lock, and so without a trace."""
        cursor = self._cursors.get(bank.address)
        if cursor is not None and cursor.project == project:
            if await store.revision() != cursor.seq:
                return False
            return cursor.fits(await bank.files.info(LOG))
        return not await has_graph(store) and await bank.files.info(LOG) is None

    def _odd_as_before(self, bank: Bank, info: FileInfo | None) -> list[Warned]:
        odd = self._odd.get(bank.address)
        return list(odd.warnings) if odd is not None and odd.info == info else []

    async def _set(self, store: RecordStore, state: GraphState, call: Call) -> Taken:
        attempt = 0
        while True:
            attempt += 1
            graph = await loaded(store)
            placing = restoring(state, Index(graph), Masking(self._mask))
            if not placing.steps:
                return placing.taken
            batch = Batch(
                tuple(placing.steps),
                self._clock(),
                call.tool,
                call.session.client,
                revision=graph.revision,
            )
            try:
                await store.commit(batch)
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
            else:
                return placing.taken

    def _check_writable(self) -> None:
        if self._read_only:
            raise ReadOnly(f"Nothing may be written here, {LOG} included.")


async def _is_quiet(store: RecordStore, project: str, known: tuple[str, int]) -> bool:
    """Whether no change since was one of the graph's."""
    if known[0] != project:
        return False
    steps = await moved(store, known[1])
    return steps is not None and not steps.events


def _behind(error: RecollectError) -> Warned:
    log.warning("%s is behind: %s", LOG, error)
    message = f"{LOG} could not be brought up to date and follows later: {error}"
    return Warned("graph_file_behind", message)
