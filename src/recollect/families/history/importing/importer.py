"""Reading transcripts portion by portion, each stored together with how far it reaches."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.core.finishing import finished
from recollect.core.ports import Indexing, RecordStore
from recollect.core.records import Record, Where
from recollect.core.times import Clock
from recollect.core.transcripts import Portion, Transcript, Turn
from recollect.errors import Conflict, RecollectError
from recollect.families.history.importing import forgetting, ordering, plan, writing
from recollect.families.history.importing.checkpoints import Checkpoint
from recollect.families.history.importing.conversations import PURGING, UNSORTED
from recollect.families.history.importing.counts import Counts, Failure, Imported
from recollect.families.history.importing.exclusion import Exclusion
from recollect.families.history.importing.plan import Known, Plan, Prepared, Rules
from recollect.families.history.importing.turns import made_ready
from recollect.families.history.importing.writing import Draft
from recollect.families.history.model import TURN, HistoryOptions

ATTEMPTS = 100  # of others that commit between our reading and our writing
PAGE = 500  # turns that are read at once

Report = Callable[[int, int], None]

# What a reader stumbles over shows in many forms, and one transcript must not stop the others.
_STUMBLES = (
    RecollectError,
    OSError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    RecursionError,
)

log = logging.getLogger(__name__)


class _Unreadable(Exception):
    """A transcript that its reader cannot read."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A portion whose turns are made ready."""

    portion: Portion
    events: list[Prepared]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a transcript was like before it was read: what is added meanwhile makes it another."""

    size: int = 0
    modified: int = 0
    fault: _Unreadable | None = None

    @classmethod
    def of(cls, transcript: Transcript) -> "_Seen":
        try:
            return cls(transcript.size, transcript.modified)
        except _STUMBLES as error:
            return cls(fault=_Unreadable(str(error) or type(error).__name__))


class Importer:
    """Takes transcripts in, each turn once, however often and by however many it is run."""

    def __init__(
        self,
        store: RecordStore,
        clock: Clock,
        options: HistoryOptions,
        indexing: Indexing | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._options = options
        self._indexing = indexing

    async def take_in(
        self,
        transcripts: Sequence[Transcript],
        *,
        since: int | None = None,
        excluded: Sequence[str] = (),
        report: Report = lambda done, total: None,
    ) -> Imported:
        """Reads what is new, in the order given: of copies the first stays.

        Turns before `since` and those in `excluded` folders are left out. `report` is told how
        much of the transcripts is done, and of how much. What is committed when it is cancelled
        stays, and the next import goes on there.
        """
        rules = Rules(
            since, Exclusion([*self._options.excluded, *excluded]), self._options.mask_secrets
        )
        seen = await asyncio.to_thread(lambda: [_Seen.of(each) for each in transcripts])
        progress = _Progress(report, sum(each.size for each in seen))
        imported = Imported()
        await self._tidy()
        for transcript, known in zip(transcripts, seen, strict=True):
            counts = Counts(transcripts=1)
            try:
                await _Reading(self._store, self._clock, transcript, rules).run(counts, progress)
            except (_Unreadable, Conflict) as error:
                counts.failed = 1
                reason = str(error)
                imported.failures.append(Failure(transcript.source, transcript.name, reason))
            finally:
                imported.of(transcript.source).add(counts)
            progress.finish(known.size)
            if self._indexing is not None and (counts.turns or counts.turns_changed):
                self._indexing.wake(self._store)
        return imported

    async def _tidy(self) -> None:
        """Ends what an import or a forgetting had to leave undone."""
        await forgetting.finish(self._store, self._clock)
        await ordering.put_in_order(self._store, self._clock)


@dataclass(slots=True)
class _Progress:
    report: Report
    total: int
    before: int = 0  # of transcripts that are done with

    def reach(self, done: int, size: int) -> None:
        self.report(self.before + min(done, size), self.total)

    def finish(self, size: int) -> None:
        self.before += size
        self.report(self.before, self.total)


class _Reading:
    """One transcript, from its checkpoint to its end."""

    def __init__(
        self, store: RecordStore, clock: Clock, transcript: Transcript, rules: Rules
    ) -> None:
        self._store = store
        self._clock = clock
        self._transcript = transcript
        self._rules = rules
        self._seen = _Seen()
        self._is_unsorted = False

    async def run(self, counts: Counts, progress: _Progress) -> None:
        self._seen = await asyncio.to_thread(_Seen.of, self._transcript)
        if self._seen.fault is not None:
            raise self._seen.fault
        checkpoint = await self._checkpoint()
        if self._is_read(checkpoint):
            counts.unchanged = 1
            return
        counts.read = 1
        left = ATTEMPTS
        while not await self._read_on(checkpoint, counts, progress):
            # Another import reads the same transcript; it has told how far it came.
            left -= 1
            if not left:
                raise Conflict("Another import reads it at the same time, and is faster.")
            checkpoint = await self._checkpoint()
            if self._is_read(checkpoint):
                break
        counts.left_out = int(counts.turns_left_out > 0 and not counts.turns)

    def _is_read(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.is_of(self._seen.size, self._seen.modified)

    async def _checkpoint(self) -> Checkpoint:
        empty = Checkpoint.of(self._transcript, None)
        found = await self._store.get([empty.id])
        checkpoint = Checkpoint.of(self._transcript, found[0]) if found else empty
        if checkpoint.covers(self._rules.since, self._rules.exclusion):
            return checkpoint
        return checkpoint.from_start()

    async def _read_on(self, checkpoint: Checkpoint, counts: Counts, progress: _Progress) -> bool:
        """To the end; False where another import has moved the checkpoint."""
        portions = self._transcript.portions(checkpoint.mark)
        try:
            read = await self._next(portions)
            if read is None:
                read = _Read(Portion((), checkpoint.mark or {}, self._seen.size), [])
            while isinstance(read, _Read):
                # Only the last one says that all was read: so the next is fetched before.
                following = await self._next(portions)
                moved = await self._store_portion(
                    checkpoint, read, counts, is_last=following is None
                )
                if moved is None:
                    return False
                checkpoint = moved
                progress.reach(read.portion.done, self._seen.size)
                read = following
            if read is not None:
                raise read
        finally:
            close = getattr(portions, "close", None)
            if close is not None:
                close()
        return True

    async def _next(self, portions: Iterator[Portion]) -> "_Read | _Unreadable | None":
        return await finished(asyncio.to_thread(self._read, portions))

    def _read(self, portions: Iterator[Portion]) -> "_Read | _Unreadable | None":
        """Blocks while it reads, and makes ready what was read; None at the end."""
        try:
            portion = next(portions, None)
        except _STUMBLES as error:
            if not isinstance(error, RecollectError):
                log.exception("%s cannot be read", self._transcript.name)
            return _Unreadable(str(error) or type(error).__name__)
        if portion is None:
            return None
        source, masks = self._transcript.source, self._rules.masks
        events: list[Prepared] = [
            made_ready(event, source, masks=masks) if isinstance(event, Turn) else event
            for event in portion.events
        ]
        return _Read(portion, events)

    async def _store_portion(
        self, checkpoint: Checkpoint, read: _Read, counts: Counts, *, is_last: bool
    ) -> Checkpoint | None:
        """Commits until nobody was faster; None where the checkpoint is no longer ours."""
        for _ in range(ATTEMPTS):
            at = self._clock()
            known = await self._known(read.events)
            planned, draft = await finished(
                asyncio.to_thread(self._drafted, checkpoint, read, known, at)
            )
            there = await writing.looked_up(self._store, draft)
            steps, done = writing.steps_of(planned, draft, there, at)
            whole = (self._seen.size, self._seen.modified) if is_last else None
            moved = planned.checkpoint.moved(read.portion.mark, read.portion.skipped, whole)
            own = moved.step(self._transcript.source, self._transcript.name, at)
            try:
                await writing.commit(self._store, [own, *steps], at)
            except Conflict as conflict:
                log.debug("another import was faster: %s", conflict)
                if not await self._is_ours(checkpoint):
                    return None
                continue
            done.skipped.update(read.portion.skipped)
            counts.add(done)
            await self._settle(planned, is_last=is_last)
            return moved.committed(own)
        raise Conflict("Others change all the time what it belongs to.")

    async def _known(self, events: Sequence[Prepared]) -> Known:
        """One look at the store; more where a conversation is rewound."""
        source = self._transcript.source
        conversations = plan.conversations_in(events, source)
        turns = plan.turns_in(events, source)
        found = await self._store.get(sorted(conversations | turns), include_deleted=True)
        known = Known(
            {each.id: each for each in found if each.id in conversations},
            {each.id: each for each in found if each.id in turns},
        )
        for conversation in plan.rewound_in(events, source) & known.conversations.keys():
            for turn in await self._all_turns(conversation):
                known.turns.setdefault(turn.id, turn)
        return known

    async def _all_turns(self, conversation: str) -> list[Record]:
        """Where they stand and when they were; their texts stay where they are."""
        found: list[Record] = []
        where = Where(kinds=(TURN,), parents=(conversation,))
        while page := await self._store.scan(
            where, after=found[-1].id if found else None, limit=PAGE
        ):
            found += [replace(turn, text="") for turn in page]
        return found

    def _drafted(
        self, checkpoint: Checkpoint, read: _Read, known: Known, at: int
    ) -> tuple[Plan, Draft]:
        planned = Plan(self._transcript.source, checkpoint, known, self._rules, self._seen.modified)
        planned.play(read.events)
        return planned, writing.drafted(planned, at)

    async def _is_ours(self, checkpoint: Checkpoint) -> bool:
        found = await self._store.get([checkpoint.id])
        stored = checkpoint.stored
        return [each.version for each in found] == ([stored.version] if stored else [])

    async def _settle(self, planned: Plan, *, is_last: bool) -> None:
        tags = {tag for talk in planned.talks.values() if talk.is_kept for tag in talk.tags}
        self._is_unsorted = self._is_unsorted or UNSORTED in tags
        if PURGING in tags:
            await forgetting.finish(self._store, self._clock)
        if is_last and self._is_unsorted:
            await ordering.put_in_order(self._store, self._clock)
