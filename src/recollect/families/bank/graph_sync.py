"""Bringing a graph's log and the project's records together, by whoever holds the log's lock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.entities import ENTITY
from recollect.core.ports import Library, RecordStore
from recollect.core.records import Batch, Step
from recollect.core.sessions import Report
from recollect.core.times import Clock
from recollect.errors import Conflict
from recollect.families.bank.banks import Bank, BankRecords
from recollect.families.bank.graph_changes import erased_since, former_ids, moved
from recollect.families.bank.graph_events import LOG, Log, read_log, written
from recollect.families.bank.graph_file import Cursor, GraphFiles, whole_log
from recollect.families.bank.graph_merge import (
    Base,
    Merge,
    is_newer,
    touches,
)
from recollect.families.bank.graph_model import masking_warnings
from recollect.families.bank.graph_placing import MILLISECOND, Index, Masking, Taken
from recollect.families.bank.graph_records import GraphRecords, loaded
from recollect.families.bank.graph_state import (
    Event,
    GraphState,
    Heard,
    difference,
    heard,
    replayed,
)
from recollect.families.bank.model import TAKE_IN
from recollect.tools.tool import Warned

ATTEMPTS = 20  # others may commit between our reading and our writing
STEPS_AT_ONCE = 1_000  # more in one commit would hold everybody else up


@dataclass(slots=True)
class Synced:
    """How log and records stand after they were brought together."""

    cursor: Cursor | None = None
    taken: Taken = field(default_factory=Taken)
    skipped: int = 0
    warnings: list[Warned] = field(default_factory=list[Warned])
    state: GraphState = field(default_factory=GraphState)  # of a whole comparison alone
    lines: int = 0  # likewise
    data: bytes = b""  # likewise: the log as it was read


class Sync:
    """Follows where nobody else touched the log, else compares all of it with the records."""

    def __init__(
        self, bank: Bank, records: BankRecords, library: Library, clock: Clock, *, mask: bool
    ) -> None:
        self._bank = bank
        self._records = records
        self._clock = clock
        self._mask = mask
        self.files = GraphFiles(bank, library)

    async def run(self, project: str | None, store: RecordStore) -> Synced:
        """`store` is the project's, to read."""
        cursor = await self.files.cursor()
        if cursor is None or cursor.project != project:
            return await self.compared()
        if not cursor.fits(await self.files.info()):
            return await self.compared()
        steps = await moved(store, cursor.seq)
        if steps is None or (steps.events and cursor.size < 0):
            # The log is as we left it: what it has and the records lack was erased from them.
            return await self.compared(merging=False)
        return Synced(await self._appended(cursor, steps.events, steps.seq))

    async def compared(self, *, merging: bool = True, report: Report | None = None) -> Synced:
        """Reads all of the log and all of the graph. Raises MarkerMismatch."""
        info = await self.files.info()
        data = await self.files.read()
        log = read_log(data or b"")
        result = Synced(skipped=log.skipped, lines=log.lines, data=data or b"")
        if log.skipped:
            result.warnings.append(_skipped(log.skipped))
        project = await self._records.project_id(self._bank)
        if project is None and not log.events:
            return result
        store = await self._records.to_write(self._bank)
        project = await self._records.project_id(self._bank) or ""
        cursor = await self.files.cursor()
        base = cursor.base(data or b"", log, project) if cursor else None
        word = heard(log.events)
        graph: GraphRecords | None = None
        if merging:
            graph = await self._take_in(store, word, base, result, report)
        graph = graph or await loaded(store)
        result.state = graph.live()
        erased = base is not None and await erased_since(store, base.seq)
        if erased and not _knows(graph, log):
            await self._rewritten(project, graph, result)
            return result
        told = replayed(log.events)
        events = difference(told, result.state, self._times(graph, result.state, word))
        left = Cursor.of(project, graph.revision, data, info.modified_at if info else 0)
        if not events:
            result.cursor = await self.files.note(left)
            return result
        lines = log.beginning + written(events)
        if data is None:
            result.cursor = await self.files.write(project, graph.revision, lines)
        else:
            result.cursor = await self.files.append(left, graph.revision, lines)
        result.lines += len(events) + (log.lines == 0)
        return result

    async def _appended(self, cursor: Cursor, events: Sequence[Event], seq: int) -> Cursor | None:
        if events:
            data = (b"" if cursor.ends_line else b"\n") + written(events)
            return await self.files.append(cursor, seq, data)
        return cursor if seq == cursor.seq else await self.files.note(replace(cursor, seq=seq))

    async def _take_in(
        self,
        store: RecordStore,
        word: Heard,
        base: Base | None,
        result: Synced,
        report: Report | None,
    ) -> GraphRecords | None:
        """Gives the records where they are as they were read."""
        masking = Masking(self._mask)
        for attempt in range(1, ATTEMPTS + 1):
            graph = await loaded(store)
            seq = base.seq if base else 0
            former = await former_ids(store, graph.entities.values(), seq)
            merge = Merge(word, base, Index(graph, former), masking)
            known = await touches(store, merge.disputed(), seq)
            placing = merge.plan(known)
            if not placing.steps:
                result.warnings += masking_warnings(masking.kinds)
                return graph
            try:
                await self._commit(store, placing.steps, graph.revision, report)
            except Conflict:
                if attempt == ATTEMPTS:
                    raise
                continue
            result.taken = placing.taken
            result.warnings += masking_warnings(masking.kinds)
            return None
        return None

    async def _commit(
        self, store: RecordStore, steps: Sequence[Step], revision: int, report: Report | None
    ) -> None:
        for start in range(0, len(steps), STEPS_AT_ONCE):
            part = tuple(steps[start : start + STEPS_AT_ONCE])
            batch = Batch(part, self._clock(), TAKE_IN, revision=revision)
            change = await store.commit(batch)
            revision = change.seq or revision
            if report is not None:
                await report(start + len(part), len(steps), "Taking in the graph")

    async def _rewritten(self, project: str, graph: GraphRecords, result: Synced) -> None:
        """What is purged must not stay in the log's past, nor in copies of it."""
        data = whole_log(result.state)
        await self.files.remove_copies()
        result.cursor = await self.files.write(project, graph.revision, data)
        result.lines = data.count(b"\n")
        message = f"{LOG} was written anew, without what was purged; its past is gone."
        result.warnings.append(Warned("graph_file_rewritten", message))

    def _times(self, graph: GraphRecords, state: GraphState, word: Heard) -> Callable[[str], int]:
        deleted = graph.deleted()
        now = self._clock()

        def at(key: str) -> int:
            """Later than what it contradicts, so that others take it for the last word."""
            own = state.times.get(key) or deleted.times.get(key) or now
            words = [word.drops.get(part, 0) for part in _with_owners(state, key)]
            said = max(word.at(key), word.added.get(key, 0), *words)
            return own if is_newer(own, said) or not said else said + MILLISECOND

        return at


def _with_owners(state: GraphState, key: str) -> list[str]:
    if observation := state.observations.get(key):
        return [key, observation.entity_id]
    if relation := state.relations.get(key):
        return [key, relation.from_id, relation.to_id]
    return [key]


def _knows(graph: GraphRecords, log: Log) -> bool:
    """Whether the records hold all that the log ever told, if only as deleted."""
    live, deleted = graph.live(), graph.deleted()
    known = {
        key
        for state in (live, deleted)
        for kind in (state.entities, state.observations, state.relations)
        for key in kind
    }
    return all(event.id in known for event in log.events)


def _skipped(count: int) -> Warned:
    what = "1 line was" if count == 1 else f"{count} lines were"
    return Warned("graph_lines_skipped", f"{what} skipped in {LOG}: no event, or a broken one.")


async def has_graph(store: RecordStore) -> bool:
    return bool((await store.count()).get(ENTITY))
