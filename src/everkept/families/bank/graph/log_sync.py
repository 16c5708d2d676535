"""The synchronization of a graph's log with the project's records, under the log's lock."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from everkept.core.commits import commit, retry
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Step
from everkept.core.secrets import Masking
from everkept.core.sessions import Report
from everkept.core.times import Clock
from everkept.errors import MarkerMismatch
from everkept.families.bank.banks import Bank, BankRecords
from everkept.families.bank.graph.events import (
    LOG,
    MARKER_LINE,
    Log,
    Moved,
    erased_since,
    former_ids,
    mark_at,
    moved,
    read_log,
    written,
)
from everkept.families.bank.graph.graph_folder import Cursor, GraphFiles, whole_log
from everkept.families.bank.graph.graph_records import (
    MILLISECOND,
    Former,
    GraphRecords,
    Index,
    Placing,
    Taken,
    loaded,
)
from everkept.families.bank.graph.log_merge import Base, Merge, Touches, aligned, is_newer, touches
from everkept.families.bank.graph.model import (
    DropEntity,
    DropObservation,
    DropRelation,
    EntityState,
    Event,
    GraphState,
    Heard,
    ObservationState,
    Put,
    RelationState,
    heard,
    owners_of,
    replayed,
)
from everkept.families.bank.model import TAKE_IN
from everkept.graph.entities import ENTITY
from everkept.tools.tool import Warned, masking_warnings
from everkept.values import Value, field, replace

# Microseconds for which a short log remembers what was deleted: who pulls it may have it still.
REMEMBERED = 90 * 24 * 3600 * 1_000_000
LARGE = 100_000  # bytes of a log, of which a comparison would hold everybody else up
LARGE_GRAPH = 500  # entities, likewise
STEPS_AT_ONCE = 1_000  # more in one commit would hold everybody else up

R = TypeVar("R")


class Synced(Value, frozen=False):
    """How log and records stand after they were brought together."""

    cursor: Cursor | None = None
    taken: Taken = field(default_factory=Taken)
    skipped: int = 0
    warnings: list[Warned] = field(default_factory=list[Warned])
    state: GraphState = field(default_factory=GraphState)  # of a whole comparison alone
    lines: int = 0  # likewise
    drops: list[Event] = field(default_factory=list[Event])  # likewise: the recent ones


class Ahead(Value):
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
        self._is_large = False
        self.files = GraphFiles(bank, library)

    async def run(
        self, project: str | None, store: RecordStore, ahead: Ahead | None = None
    ) -> Synced:
        """`store` is the project's, to read; `ahead` is what is known already."""
        if ahead is not None and (done := await self._continued(store, ahead)) is not None:
            return done
        cursor = await self.cursor(project, store)
        if cursor is None or not cursor.fits(await self.files.info()):
            return await self.compared()
        news = await moved(store, cursor.seq, cursor.mark)
        if news is None or not cursor.can_grow(news.events):
            # The log is as we left it: what it has and the records lack was erased from them.
            return await self.compared(merging=False)
        return Synced(await self._appended(cursor, news))

    async def cursor(self, project: str | None, store: RecordStore) -> Cursor | None:
        """None where the log was last written for another project, or for one that is gone."""
        cursor = await self.files.cursor()
        if cursor is None or cursor.project != project or not await cursor.is_known_to(store):
            return None
        return cursor

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
        cursor = await self.cursor(project, store)
        if cursor is not None and cursor.fits(await self.files.info()):
            return Synced(cursor)
        news = None if cursor is None else await moved(store, cursor.seq, cursor.mark)
        both = await self._read_both()
        if isinstance(both, Synced):
            return both
        left = both.left
        if both.erased or both.events:
            # What only corrects the log goes along with the next change. What changed is still
            # to be told, as the number says up to which it was.
            left = replace(left, owes=True)
            if cursor is not None and (news is None or news.events):
                left = left.told(cursor.seq, cursor.mark)
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
        result.drops = await self._apart(lambda: both.recent_drops(told=True))
        if both.erased and await self._forgotten(both):
            return result
        events = both.events
        if not events:
            result.cursor = await self.files.note(left)
            return result
        lines = both.log.beginning + written(events)
        left = left.with_times_of(events)
        if both.data is None:
            result.cursor = await self.files.write(left, lines)
        else:
            result.cursor = await self.files.append(left, lines)
        result.lines += len(events) + (both.log.lines == 0)
        return result

    async def anew(self, project: str | None, store: RecordStore) -> Synced:
        """As after a comparison with a log that says nothing. Raises MarkerMismatch if all would.

        For a file that is no log; the only thing that tells of a graph must not go.
        """
        data = await self.files.read() or b""
        graph = await loaded(store)
        state = graph.live()
        if state.is_empty:
            _read(data)
        cursor = Cursor.of(
            project or "", graph.revision, await mark_at(store, graph.revision) or ""
        )
        result = Synced(cursor, state=state, lines=len(data.splitlines()))
        both = _Both(_read(b""), data, cursor, graph, Heard(), False, result, self._clock())
        result.drops = both.recent_drops()
        return result

    async def _read_both(
        self, *, merging: bool = True, report: Report | None = None
    ) -> "_Both | Synced":
        """All is said and done where there is neither a log nor a project."""
        info = await self.files.info()
        data = await self.files.read()
        self._is_large = len(data or b"") > LARGE
        log = await self._apart(lambda: _read(data or b""))
        result = Synced(skipped=log.skipped, lines=log.lines)
        if log.skipped:
            result.warnings.append(_skipped(log.skipped))
        if await self._records.project_id(self._bank) is None and not log.events:
            return result
        store = await self._records.to_write(self._bank)
        project = await self._records.project_id(self._bank) or ""
        cursor = await self.cursor(project, store)
        base = await self._apart(lambda: cursor.base(data or b"", log)) if cursor else None
        word = await self._apart(lambda: heard(log.events))
        graph = await self._take_in(store, word, base, result, report) if merging else None
        graph = graph or await self._loaded(store)
        left = Cursor.of(project, graph.revision, await mark_at(store, graph.revision) or "")
        if data is not None:
            left = left.holding(data, info.modified_at if info else 0)
        erased = base is not None and await erased_since(store, base.seq)
        both = _Both(log, data, left, graph, word, erased, result, self._clock())
        await self._apart(lambda: both.compare(Masking(enabled=self._mask)))
        return both

    async def _loaded(self, store: RecordStore) -> GraphRecords:
        graph = await loaded(store)
        self._is_large = self._is_large or len(graph.entities) > LARGE_GRAPH
        return graph

    async def _apart(self, work: Callable[[], R]) -> R:
        """What takes long and touches nothing else leaves the others their turns."""
        return await asyncio.to_thread(work) if self._is_large else work()

    async def _appended(self, cursor: Cursor, news: Moved) -> Cursor | None:
        if news.events:
            events = news.events
            if cursor.is_ahead_of(events):
                events = _restamped(events, heard(_read(await self.files.read() or b"").events))
            data = (b"" if cursor.ends_line else b"\n") + written(events)
            left = cursor.told(news.seq, news.mark).with_times_of(events)
            return await self.files.append(left, data)
        if news.seq == cursor.seq:
            return cursor
        return await self.files.note(cursor.told(news.seq, news.mark))

    async def _take_in(
        self,
        store: RecordStore,
        word: Heard,
        base: Base | None,
        result: Synced,
        report: Report | None,
    ) -> GraphRecords | None:
        """Gives the records where they are as they were read."""
        masking = Masking(enabled=self._mask)

        async def attempt() -> GraphRecords | None:
            graph = await self._loaded(store)
            seq = base.seq if base else 0
            former = await former_ids(store, graph.entities.values(), seq)
            merge = await self._apart(_merge_of(word, base, graph, former, masking))
            known = await touches(store, merge.disputed(), seq)
            placing = await self._apart(_plan_of(merge, known))
            if not placing.steps:
                return graph
            await self._commit(store, placing.steps, graph.revision, report)
            result.taken = placing.taken
            return None

        read = await retry(attempt)
        result.warnings += masking_warnings(masking.kinds)
        return read

    async def _commit(
        self, store: RecordStore, steps: Sequence[Step], revision: int, report: Report | None
    ) -> None:
        for start in range(0, len(steps), STEPS_AT_ONCE):
            part = tuple(steps[start : start + STEPS_AT_ONCE])
            batch = Batch(part, self._clock(), TAKE_IN, revision=revision)
            change = await commit(store, batch)
            revision = change.seq or revision
            if report is not None:
                await report(start + len(part), len(steps), "Taking in the graph")

    async def _forgotten(self, both: "_Both") -> bool:
        """What is purged must not stay in the log's past, nor in what was made of it.

        Says whether the log had to be written anew.
        """
        state, left, result = both.result.state, both.left, both.result
        is_known = await self._apart(both.is_known)
        if not is_known:
            data = whole_log(state, both.recent_drops())
            result.cursor = await self.files.write(left, data)
            result.lines = data.count(b"\n")
            message = f"{LOG} was written anew, without what was purged; its past is gone."
            result.warnings.append(Warned("graph_file_rewritten", message))
        await self.files.forget(state, result.lines, both.now)
        return not is_known


class _Both(Value, frozen=False):
    """A log beside the records, which have taken it in."""

    log: Log
    data: bytes | None
    left: Cursor  # says that the log is complete as it is
    graph: GraphRecords
    word: Heard
    erased: bool  # something was, since both agreed last
    result: Synced
    now: int
    events: list[Event] = field(default_factory=list[Event])  # that the log lacks

    def compare(self, masking: Masking) -> None:
        self.result.state = state = self.graph.live()
        told = aligned(replayed(self.log.events), state, masking)
        left = replace(self.left, has_doubles=told.has_doubles)
        self.left = left.with_times_of(self.log.events)
        self.events = told.lacks(state, self.times(state))

    def is_known(self) -> bool:
        """Whether the records hold every word of the log, if only as deleted."""
        states = (self.graph.live(), self.graph.deleted())
        return not self.log.skipped and all(
            any(_holds(state, event) for state in states) for event in self.log.events
        )

    def recent_drops(self, *, told: bool = False) -> list[Event]:
        """What was deleted lately; with what only the log tells of where it is `told`."""
        live, deleted, at = self.result.state, self.graph.deleted(), self.times(self.result.state)
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
        since = self.now - REMEMBERED
        recent = [drop for key, drop in found.items() if key not in alive and drop.at >= since]
        return sorted(recent, key=lambda drop: drop.at)

    def times(self, state: GraphState) -> Callable[[str], int]:
        deleted = self.graph.deleted()
        word = self.word

        def at(key: str) -> int:
            own = state.times.get(key) or deleted.times.get(key) or self.now
            thing = state.observations.get(key) or state.relations.get(key)
            return _later(own, word, key, owners_of(thing) if thing else [])

        return at


def _later(own: int, word: Heard, key: str, owners: Sequence[str]) -> int:
    """Later than what it contradicts, so that others take it for the last word."""
    said = max(
        word.at(key),
        word.added.get(key, 0),
        *(word.drops.get(part, 0) for part in (key, *owners)),
    )
    return own if is_newer(own, said) or not said else said + MILLISECOND


def _restamped(events: Sequence[Event], word: Heard) -> list[Event]:
    return [replace(event, at=_later(event.at, word, event.id, _owners(event))) for event in events]


def _owners(event: Event) -> list[str]:
    return owners_of(event.thing) if isinstance(event, Put) else []


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


def _merge_of(
    word: Heard,
    base: Base | None,
    graph: GraphRecords,
    former: Mapping[str, Sequence[Former]],
    masking: Masking,
) -> Callable[[], Merge]:
    return lambda: Merge(word, base, Index(graph, former), masking)


def _plan_of(merge: Merge, known: Touches) -> Callable[[], Placing]:
    return lambda: merge.plan(known)


def _read(data: bytes) -> Log:
    try:
        return read_log(data)
    except MarkerMismatch as error:
        raise MarkerMismatch(
            f"{error.message} It is left as it is; the graph is safe in the store.",
            hint="Move the file away or call graph_compact, and it is written anew; or restore "
            "its first line: " + MARKER_LINE.decode().strip(),
            path=LOG,
        ) from error


def _skipped(count: int) -> Warned:
    what = "1 line was" if count == 1 else f"{count} lines were"
    return Warned("graph_lines_skipped", f"{what} skipped in {LOG}: no event, or a broken one.")


async def has_graph(store: RecordStore) -> bool:
    return bool((await store.count()).get(ENTITY))
