"""The import of transcripts portion by portion, and the order of the turns that it leaves."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from everkept.core.commits import ATTEMPTS, retry
from everkept.core.paths import Exclusion
from everkept.core.ports import RecordStore
from everkept.core.projects import Silence
from everkept.core.records import Delete, Record, Step, Update, Where
from everkept.core.runtime import finished
from everkept.core.secrets import masked_json
from everkept.core.times import Clock
from everkept.core.transcripts import ASSISTANT, Mark, Portion, Transcript, Turn
from everkept.errors import Conflict, EverkeptError
from everkept.families.history.ingest import plan, removal, writer
from everkept.families.history.ingest.checkpoints import (
    GATE,
    Checkpoint,
    Counts,
    Failure,
    Imported,
    gate_of,
    passed,
    transcript_of,
)
from everkept.families.history.ingest.conversations import (
    PURGING,
    UNSORTED,
    Gist,
    Talk,
    grave_id,
    own_text,
)
from everkept.families.history.ingest.plan import Known, Plan, Prepared, Rules
from everkept.families.history.ingest.prepared_turns import Cleaner, Said, made_ready, opening
from everkept.families.history.ingest.writer import Draft, commit
from everkept.families.history.model import CODE, CONVERSATION, SUMMARY, TURN, HistoryOptions
from everkept.families.history.off_folders import Quiet
from everkept.values import Value, replace

ORDERED_PAGE = 200  # records that are read, or moved, at once


class _Place(NamedTuple):
    at: int
    sequence: int
    id: str
    position: int
    version: int


async def put_in_order(store: RecordStore, clock: Clock) -> None:
    """All conversations to which a turn came late, or from which one went."""
    for conversation in await store.scan(Where(kinds=(CONVERSATION,), tags=(UNSORTED,))):
        one = conversation.id
        with suppress(Conflict):  # another import adds to it all the time, and will do this
            await retry(lambda one=one: _order(store, clock, one), f"the conversation {one}")


async def _order(store: RecordStore, clock: Clock, conversation_id: str) -> None:
    found = await store.get([conversation_id])
    if not found or UNSORTED not in found[0].tags:
        return
    [conversation] = found
    places: list[_Place] = []
    gist = Gist()
    first: Record | None = None
    async for turn in _pages(store, conversation.id):
        place = _place(turn)
        places.append(place)
        gist.add(turn.at, place.sequence, turn.scope, turn.facets.get("branch"))
        is_human = turn.author != ASSISTANT and turn.type != SUMMARY and turn.text.strip()
        if is_human and (first is None or place < _place(first)):
            first = turn
    places.sort()
    moved = [(new, old) for new, old in enumerate(places) if new != old.position]
    for start in range(0, len(moved), ORDERED_PAGE):
        at = clock()
        some = dict(moved[start : start + ORDERED_PAGE])
        steps: list[Step] = [Update(conversation.id, {}, conversation.version)]
        steps += [Update(old.id, {"position": new}, old.version) for new, old in some.items()]
        steps += await _code_moves(store, {old.id: new for new, old in some.items()})
        await commit(store, steps, at)
    talk = Talk.of(conversation)
    talk.tags.discard(UNSORTED)
    if not talk.left_out:
        talk.settle(gist)
        talk.facets["turns"] = len(places)
        _rename(talk, places, first)
    await commit(store, [talk.step(clock())], clock())


def _place(turn: Record) -> _Place:
    sequence = turn.facets.get("sequence", 0)
    return _Place(turn.at, sequence, turn.id, turn.position or 0, turn.version)


def _rename(talk: Talk, places: list[_Place], first: Record | None) -> None:
    if talk.name is not None and "named" not in talk.facets:
        return  # its program has named it
    talk.name = None
    talk.facets.pop("named", None)
    if first is not None:
        talk.call(opening(own_text(first)), [place.id for place in places].index(first.id))


async def _code_moves(store: RecordStore, positions: dict[str, int]) -> list[Step]:
    found = await store.scan(Where(kinds=(CODE,), parents=tuple(positions)))
    return [
        Update(code.id, {"facets": {**code.facets, "turn_position": new}}, code.version)
        for code in found
        if code.facets.get("turn_position") != (new := positions[code.parent or ""])
    ]


async def _pages(store: RecordStore, conversation: str) -> AsyncIterator[Record]:
    where = Where(kinds=(TURN,), parents=(conversation,))
    after: str | None = None
    while page := await store.scan(where, after=after, limit=ORDERED_PAGE):
        for turn in page:
            yield turn
        after = page[-1].id


REREAD_PAGE = 200  # turns that go at once


async def take_back(
    store: RecordStore, clock: Clock, checkpoint: Checkpoint, counts: Counts
) -> None:
    """Deletes such turns; what another transcript has told too stays.

    Raises Conflict where somebody was faster: then it may go on, if the checkpoint is still ours.
    """
    assert checkpoint.stored is not None
    guard = Update(checkpoint.id, {}, checkpoint.stored.version)
    where = Where(kinds=(TURN,), tags=checkpoint.old_tags)
    while where.tags and (page := await store.scan(where, limit=REREAD_PAGE)):
        lonely = [turn for turn in page if not any(map(transcript_of, _others(turn, checkpoint)))]
        steps: list[Step] = [guard]
        steps += [Update(t.id, {"tags": _others(t, checkpoint)}, t.version) for t in page]
        steps += [Delete(turn.ref) for turn in lonely]
        owners = sorted({turn.parent for turn in lonely if turn.parent})
        for conversation in await store.get(owners):
            talk = Talk.of(conversation)
            talk.tags.add(UNSORTED)
            steps.append(talk.step(clock()))
        await commit(store, steps, clock())
        counts.turns_removed += len(lonely)


def _others(turn: Record, checkpoint: Checkpoint) -> tuple[str, ...]:
    """The tags that it does not have from this transcript."""
    return tuple(tag for tag in turn.tags if transcript_of(tag) != checkpoint.id)


IMPORTED_PAGE = 500  # turns that are read at once

Report = Callable[[int, int], None]
# Folders, or who is asked for them before each commit: more may be excluded while it runs.
Excluded = Sequence[str] | Callable[[], Awaitable[Sequence[str]]]
# Likewise, when projects were switched off.
Silences = Sequence[Silence] | Callable[[], Awaitable[Sequence[Silence]]]

# What a reader stumbles over shows in many forms, and one transcript must not stop the others.
_STUMBLES = (
    EverkeptError,
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


class _Read(Value):
    """A portion whose turns are made ready."""

    portion: Portion
    events: list[Prepared]
    mark: Mark | None  # where it can be kept

    @property
    def has_turns(self) -> bool:
        return any(isinstance(event, Said) for event in self.events)


class _Seen(Value):
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


class _Rulebook:
    """What is to be taken in, as it is wished at the moment."""

    def __init__(
        self,
        since: int | None,
        options: HistoryOptions,
        excluded: Excluded,
        silences: Silences,
    ) -> None:
        self._options = options
        self._excluded = excluded
        self._silences = silences
        self._rules = Rules(since, Exclusion(options.excluded), options.mask_secrets)

    @property
    def masks(self) -> bool:
        return self._rules.masks

    async def now(self) -> Rules:
        named = await self._excluded() if callable(self._excluded) else self._excluded
        exclusion = Exclusion([*self._options.excluded, *named])
        if exclusion.patterns != self._rules.exclusion.patterns:
            self._rules = replace(self._rules, exclusion=exclusion)
        silences = await self._silences() if callable(self._silences) else self._silences
        if tuple(silences) != self._rules.quiet.silences:
            self._rules = replace(self._rules, quiet=Quiet(silences, self._options.workspace))
        return self._rules


class Importer:
    """Takes transcripts in, each turn once, however often and by however many it is run."""

    def __init__(self, store: RecordStore, clock: Clock, options: HistoryOptions) -> None:
        self._store = store
        self._clock = clock
        self._options = options

    async def take_in(
        self,
        transcripts: Sequence[Transcript],
        *,
        since: int | None = None,
        excluded: Excluded = (),
        silences: Silences = (),
        report: Report = lambda done, total: None,
    ) -> Imported:
        """Reads what is new, in the order given: of copies the first stays.

        Turns before `since` are left out, and those in `excluded` folders: whoever worked there,
        or touched a file there. So is what was said in a folder during one of its `silences`, and
        while one lasts, all that is new there. `report` is told how much of the transcripts is
        done, and of how much. What is committed when it is cancelled stays, and the next import
        goes on there.
        """
        rules = _Rulebook(since, self._options, excluded, silences)
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
        return imported

    async def _tidy(self) -> None:
        """Ends what an import or a forgetting had to leave undone."""
        await gate_of(self._store, self._clock)
        await removal.finish(self._store, self._clock)
        await put_in_order(self._store, self._clock)


class _Progress(Value, frozen=False):
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
        self, store: RecordStore, clock: Clock, transcript: Transcript, rules: _Rulebook
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
        if self._is_unsorted:
            await put_in_order(self._store, self._clock)
        counts.left_out = int(counts.turns_left_out > 0 and not counts.turns)

    def _is_read(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.is_of(self._seen.size, self._seen.modified)

    async def _checkpoint(self) -> Checkpoint:
        empty = Checkpoint.of(self._transcript, None)
        found = await self._store.get([empty.id])
        checkpoint = Checkpoint.of(self._transcript, found[0]) if found else empty
        rules = await self._rules.now()
        if checkpoint.covers(rules.since, rules.exclusion, rules.quiet.off):
            return checkpoint
        return checkpoint.from_start()

    async def _read_on(self, checkpoint: Checkpoint, counts: Counts, progress: _Progress) -> bool:
        """To the end; False where another import has moved the checkpoint."""
        is_unmarked = checkpoint.is_unmarked
        portions = self._transcript.portions(checkpoint.mark)
        try:
            read = await self._next(portions)
            if read is None:
                mark = checkpoint.mark or {}
                read = _Read(Portion((), mark, self._seen.size), [], mark)
            while isinstance(read, _Read):
                # Only the last one says that all was read: so the next is fetched before.
                following = await self._next(portions)
                if read.portion.is_anew or (is_unmarked and read.has_turns):
                    checkpoint, is_unmarked = checkpoint.from_start(), False
                store = self._store_last if following is None else self._store_portion
                moved = await store(checkpoint, read, counts)
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
            if not isinstance(error, EverkeptError):
                log.exception("%s cannot be read", self._transcript.name)
            return _Unreadable(str(error) or type(error).__name__)
        if portion is None:
            return None
        source, masks = self._transcript.source, self._rules.masks
        events: list[Prepared] = [
            made_ready(event, source, masks=masks) if isinstance(event, Turn) else event
            for event in portion.events
        ]
        return _Read(portion, events, _storable(portion.mark, masks=masks))

    async def _store_last(
        self, checkpoint: Checkpoint, read: _Read, counts: Counts
    ) -> Checkpoint | None:
        """All was read once that is gone which did not come again."""
        seen = (self._seen.size, self._seen.modified)
        if not read.portion.is_last or not checkpoint.old_tags:
            return await self._store_portion(checkpoint, read, counts, seen)
        moved = await self._store_portion(checkpoint, read, counts)
        if moved is None:
            return None

        async def attempt() -> Checkpoint | None:
            try:
                await take_back(self._store, self._clock, moved, counts)
                return await self._commit(moved.settled(seen), [], self._clock())
            except Conflict:
                if await self._is_ours(moved):
                    raise
                return None

        self._is_unsorted = True
        return await retry(attempt, "what it belongs to")

    async def _store_portion(
        self,
        checkpoint: Checkpoint,
        read: _Read,
        counts: Counts,
        seen: tuple[int, int] | None = None,
    ) -> Checkpoint | None:
        """Commits until nobody was faster; None where the checkpoint is no longer ours.

        `seen` is given where all was read.
        """

        async def attempt() -> tuple[Checkpoint, Plan, Counts] | None:
            at = self._clock()
            known, gate = await self._known(read.events)
            rules = await self._rules.now()  # after the gate, which is closed after an exclusion
            planned, draft = await finished(
                asyncio.to_thread(self._drafted, checkpoint, read, known, rules, at)
            )
            there = await writer.looked_up(self._store, draft)
            steps, done = writer.steps_of(planned, draft, there, at)
            moved = planned.checkpoint.moved(read.mark, read.portion.skipped, seen)
            try:
                moved = await self._commit(moved, [passed(gate), *steps], at)
            except Conflict:
                if await self._is_ours(checkpoint):
                    raise
                return None
            return moved, planned, done

        stored = await retry(attempt, "what it belongs to")
        if stored is None:
            return None
        moved, planned, done = stored
        done.skipped.update(read.portion.skipped)
        counts.add(done)
        await self._settle(planned)
        return moved

    async def _commit(self, checkpoint: Checkpoint, steps: Sequence[Step], at: int) -> Checkpoint:
        name = Cleaner(self._rules.masks).name(self._transcript.name)
        own = checkpoint.step(self._transcript.source, name, at)
        await writer.commit(self._store, [own, *steps], at)
        return checkpoint.committed(own)

    async def _known(self, events: Sequence[Prepared]) -> tuple[Known, Record]:
        """One look at the store; more where a turn is a copy, or a conversation is rewound."""
        source = self._transcript.source
        conversations = plan.conversations_in(events, source)
        turns = plan.turns_in(events, source)
        graves = {grave_id(turn): turn for turn in turns}
        asked = sorted({GATE, *conversations, *turns, *graves})
        found = {each.id: each for each in await self._store.get(asked, include_deleted=True)}
        known = Known(
            {i: found[i] for i in conversations if i in found},
            {i: found[i] for i in turns if i in found},
            {turn: found[grave] for grave, turn in graves.items() if grave in found},
        )
        owners = {turn.parent for turn in known.turns.values() if turn.parent} - conversations
        if owners:
            copied = await self._store.get(sorted(owners))
            known.conversations |= {each.id: each for each in copied}
        if grown := sorted(plan.grown_in(events, known.turns)):
            for code in await self._store.scan(Where(kinds=(CODE,), parents=tuple(grown))):
                known.code.setdefault(code.parent or "", []).append(code)
        for conversation in plan.rewound_in(events, source) & known.conversations.keys():
            for turn in await self._all_turns(conversation):
                known.turns.setdefault(turn.id, turn)
        return known, found[GATE]

    async def _all_turns(self, conversation: str) -> list[Record]:
        """Where they stand and when they were; their texts stay where they are."""
        found: list[Record] = []
        where = Where(kinds=(TURN,), parents=(conversation,))
        while page := await self._store.scan(
            where, after=found[-1].id if found else None, limit=IMPORTED_PAGE
        ):
            found += [replace(turn, text="") for turn in page]
        return found

    def _drafted(
        self, checkpoint: Checkpoint, read: _Read, known: Known, rules: Rules, at: int
    ) -> tuple[Plan, Draft]:
        planned = Plan(self._transcript.source, checkpoint, known, rules, self._seen.modified)
        planned.play(read.events)
        return planned, writer.drafted(planned, at)

    async def _is_ours(self, checkpoint: Checkpoint) -> bool:
        found = await self._store.get([checkpoint.id])
        stored = checkpoint.stored
        return [each.version for each in found] == ([stored.version] if stored else [])

    async def _settle(self, planned: Plan) -> None:
        tags = {tag for talk in planned.talks.values() if talk.is_kept for tag in talk.tags}
        self._is_unsorted = self._is_unsorted or UNSORTED in tags
        if PURGING in tags:
            await removal.finish(self._store, self._clock)


def _storable(mark: Mark, *, masks: bool) -> Mark | None:
    """A mark is its reader's own: one that cannot be kept as it is is not kept."""
    try:
        json.dumps(mark, ensure_ascii=False).encode()
    except ValueError:  # half a character
        return None
    return None if masks and masked_json(mark)[1] else mark
