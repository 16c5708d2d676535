"""Bringing a graph's log and the project's records together, by whoever holds the log's lock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from recollect.core.entities import ENTITY
from recollect.core.ports import Library, RecordStore
from recollect.core.records import Batch, Step
from recollect.core.sessions import Report
from recollect.core.times import Clock
from recollect.errors import Conflict, MarkerMismatch
from recollect.families.bank.banks import Bank, BankRecords
from recollect.families.bank.graph_changes import Moved, erased_since, former_ids, moved
from recollect.families.bank.graph_events import LOG, MARKER_LINE, Log, read_log, written
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
    EntityState,
    Event,
    GraphState,
    Heard,
    ObservationState,
    Put,
    RelationState,
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


@dataclass(frozen=True, slots=True)
class Ahead:
    """From where the log goes on and with what, as far as that is known before its lock is ours."""

    cursor: Cursor | None = None
    news: Moved | None = None
    is_exact: bool = False  # else they were glimpsed


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

    async def run(
        self, project: str | None, store: RecordStore, ahead: Ahead | None = None
    ) -> Synced:
        """`store` is the project's, to read; `ahead` is what is known already."""
        if ahead is not None and (done := await self._continued(store, ahead)) is not None:
            return done
        cursor = await self.files.cursor()
        if cursor is None or not cursor.stands(project, await self.files.info()):
            return await self.compared()
        news = await moved(store, cursor.seq)
        if news is None or not cursor.can_grow(news.events):
            # The log is as we left it: what it has and the records lack was erased from them.
            return await self.compared(merging=False)
        return Synced(await self._appended(cursor, news))

    async def _continued(self, store: RecordStore, ahead: Ahead) -> Synced | None:
        """None where what was known before the lock was ours is not enough.

        As long as the log is as the cursor says, nobody has told any of it.
        """
        cursor, news = ahead.cursor, ahead.news
        if cursor is None or news is None or not cursor.can_grow(news.events):
            return None
        if not cursor.fits(await self.files.info()):
            return None
        if not ahead.is_exact and await store.revision() != news.seq:
            return None
        return Synced(await self._appended(cursor, news))

    async def met(self, project: str | None, store: RecordStore) -> Synced:
        """Takes in what the log has, and leaves it as it is. Raises MarkerMismatch."""
        cursor = await self.files.cursor()
        if cursor is not None and cursor.stands(project, await self.files.info()):
            return Synced(cursor)
        told = cursor.seq if cursor is not None and cursor.project == project else None
        news = None if told is None else await moved(store, told)
        both = await self._read_both()
        if isinstance(both, Synced):
            return both
        left = both.left
        if both.erased or both.events():
            # What only corrects the log goes along with the next change. What changed is still
            # to be told, as the number says up to which it was.
            is_quiet = told is None or (news is not None and not news.events)
            left = replace(left, seq=left.seq if is_quiet else told, owes=True)
        both.result.cursor = await self.files.note(left)
        return both.result

    async def compared(self, *, merging: bool = True, report: Report | None = None) -> Synced:
        """Reads all of the log and all of the graph, and adds what the log lacks.

        Raises MarkerMismatch.
        """
        both = await self._read_both(merging=merging, report=report)
        if isinstance(both, Synced):
            return both
        result, left = both.result, both.left
        if both.erased and await self._forgotten(both):
            return result
        events = both.events()
        if not events:
            result.cursor = await self.files.note(left)
            return result
        lines = both.log.beginning + written(events)
        if both.data is None:
            result.cursor = await self.files.write(left.project, left.seq, lines)
        else:
            result.cursor = await self.files.append(left, left.seq, lines)
        result.lines += len(events) + (both.log.lines == 0)
        return result

    async def _read_both(
        self, *, merging: bool = True, report: Report | None = None
    ) -> "_Both | Synced":
        """All is said and done where there is neither a log nor a project."""
        info = await self.files.info()
        data = await self.files.read()
        log = _read(data or b"")
        result = Synced(skipped=log.skipped, lines=log.lines)
        if log.skipped:
            result.warnings.append(_skipped(log.skipped))
        if await self._records.project_id(self._bank) is None and not log.events:
            return result
        store = await self._records.to_write(self._bank)
        project = await self._records.project_id(self._bank) or ""
        cursor = await self.files.cursor()
        base = cursor.base(data or b"", log, project) if cursor else None
        word = heard(log.events)
        graph = await self._take_in(store, word, base, result, report) if merging else None
        graph = graph or await loaded(store)
        result.state = graph.live()
        left = Cursor.of(project, graph.revision, data, info.modified_at if info else 0)
        erased = base is not None and await erased_since(store, base.seq)
        return _Both(log, data, left, graph, word, erased, result, self._clock())

    async def _appended(self, cursor: Cursor, news: Moved) -> Cursor | None:
        if news.events:
            data = (b"" if cursor.ends_line else b"\n") + written(news.events)
            return await self.files.append(cursor, news.seq, data)
        if news.seq == cursor.seq:
            return cursor
        return await self.files.note(replace(cursor, seq=news.seq))

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

    async def _forgotten(self, both: "_Both") -> bool:
        """What is purged must not stay in the log's past, nor in what was made of it.

        Says whether the log had to be written anew.
        """
        state, left, result = both.result.state, both.left, both.result
        is_known = both.is_known()
        if not is_known:
            data = whole_log(state)
            result.cursor = await self.files.write(left.project, left.seq, data)
            result.lines = data.count(b"\n")
            message = f"{LOG} was written anew, without what was purged; its past is gone."
            result.warnings.append(Warned("graph_file_rewritten", message))
        await self.files.forget(state, result.lines, both.now)
        return not is_known


@dataclass(slots=True)
class _Both:
    """A log beside the records, which have taken it in."""

    log: Log
    data: bytes | None
    left: Cursor  # says that the log is complete as it is
    graph: GraphRecords
    word: Heard
    erased: bool  # something was, since both agreed last
    result: Synced
    now: int

    def events(self) -> list[Event]:
        """What the log lacks."""
        state = self.result.state
        return difference(replayed(self.log.events), state, self._times(state))

    def is_known(self) -> bool:
        """Whether the records hold every word of the log, if only as deleted."""
        states = (self.graph.live(), self.graph.deleted())
        return not self.log.skipped and all(
            any(_holds(state, event) for state in states) for event in self.log.events
        )

    def _times(self, state: GraphState) -> Callable[[str], int]:
        deleted = self.graph.deleted()
        word = self.word

        def at(key: str) -> int:
            """Later than what it contradicts, so that others take it for the last word."""
            own = state.times.get(key) or deleted.times.get(key) or self.now
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


def _holds(state: GraphState, event: Event) -> bool:
    """Whether what the event tells stands there in the same words."""
    if not isinstance(event, Put):
        return any(
            event.id in kind for kind in (state.entities, state.observations, state.relations)
        )
    match event.thing:
        case EntityState() as told:
            entity = state.entities.get(told.id)
            return entity is not None and entity.says_the_same(told)
        case ObservationState() as told:
            observation = state.observations.get(told.id)
            return observation is not None and replace(observation, at=told.at) == told
        case RelationState() as told:
            relation = state.relations.get(told.id)
            return relation is not None and relation.type == told.type


def _read(data: bytes) -> Log:
    try:
        return read_log(data)
    except MarkerMismatch as error:
        raise MarkerMismatch(
            f"{error.message} It is left as it is; the graph is safe in the store.",
            hint="Move the file away, and it is written anew, or restore its first line: "
            + MARKER_LINE.decode().strip(),
            path=LOG,
        ) from error


def _skipped(count: int) -> Warned:
    what = "1 line was" if count == 1 else f"{count} lines were"
    return Warned("graph_lines_skipped", f"{what} skipped in {LOG}: no event, or a broken one.")


async def has_graph(store: RecordStore) -> bool:
    return bool((await store.count()).get(ENTITY))
