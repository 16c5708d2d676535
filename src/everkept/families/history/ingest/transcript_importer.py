"""Import of transcripts portion by portion, and sorting of turns that came late."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from everkept.core.commits import MAX_ATTEMPTS, retry
from everkept.core.paths import FolderExclusion
from everkept.core.ports import RecordStore
from everkept.core.projects import OffPeriod
from everkept.core.records import Delete, Record, RecordFilter, Step, Update
from everkept.core.runtime import wait_finished
from everkept.core.secrets import mask_json
from everkept.core.times import Clock
from everkept.core.transcripts import ASSISTANT, Mark, Portion, Transcript, Turn
from everkept.errors import Conflict, EverkeptError
from everkept.families.history.ingest import plan, removal, writer
from everkept.families.history.ingest.checkpoints import (
    GATE_ID,
    Checkpoint,
    ImportCounts,
    ImportReport,
    TranscriptFailure,
    build_gate_check,
    parse_transcript_tag,
    read_gate,
)
from everkept.families.history.ingest.conversations import (
    PURGING_TAG,
    UNSORTED_TAG,
    ConversationDraft,
    TurnTotals,
    build_tombstone_id,
    get_own_text,
)
from everkept.families.history.ingest.plan import ImportPlan, ImportRules, PreparedEvent, StoredTurns
from everkept.families.history.ingest.prepared_turns import PreparedTurn, TextCleaner, build_default_title, prepare_turn
from everkept.families.history.ingest.writer import ImportDraft, commit_import
from everkept.families.history.model import CODE, CONVERSATION, SUMMARY, TURN, HistoryOptions
from everkept.families.history.off_folders import OffFolders
from everkept.values import Value, replace

SORT_PAGE_RECORDS = 200  # records per read and per move


class _TurnPosition(NamedTuple):
    at: int
    sequence: int
    id: str
    position: int
    version: int


async def sort_conversations(store: RecordStore, clock: Clock) -> None:
    """Sort all conversations with late or removed turns."""
    for conversation in await store.scan(RecordFilter(kinds=(CONVERSATION,), tags=(UNSORTED_TAG,))):
        one = conversation.id
        with suppress(Conflict):  # another import keeps adding turns, and sorts them later
            await retry(lambda one=one: _sort_conversation(store, clock, one), f"conversation {one}")


async def _sort_conversation(store: RecordStore, clock: Clock, conversation_id: str) -> None:
    found = await store.get([conversation_id])
    if not found or UNSORTED_TAG not in found[0].tags:
        return
    [conversation] = found
    places: list[_TurnPosition] = []
    gist = TurnTotals()
    first: Record | None = None
    async for turn in _iter_turns(store, conversation.id):
        place = _build_position(turn)
        places.append(place)
        gist.add(turn.effective_at, place.sequence, turn.scope, turn.facets.get("branch"))
        is_human = turn.author != ASSISTANT and turn.type != SUMMARY and turn.text.strip()
        if is_human and (first is None or place < _build_position(first)):
            first = turn
    places.sort()
    moved = [(new, old) for new, old in enumerate(places) if new != old.position]
    for start in range(0, len(moved), SORT_PAGE_RECORDS):
        at = clock()
        some = dict(moved[start : start + SORT_PAGE_RECORDS])
        steps: list[Step] = [Update(conversation.id, {}, conversation.version)]
        steps += [Update(old.id, {"position": new}, old.version) for new, old in some.items()]
        steps += await _build_code_moves(store, {old.id: new for new, old in some.items()})
        await commit_import(store, steps, at)
    talk = ConversationDraft.from_record(conversation)
    talk.tags.discard(UNSORTED_TAG)
    if not talk.exclusion_reason:
        talk.settle(gist)
        talk.facets["turns"] = len(places)
        _reset_title(talk, places, first)
    await commit_import(store, [talk.build_step(clock())], clock())


def _build_position(turn: Record) -> _TurnPosition:
    sequence = turn.facets.get("sequence", 0)
    return _TurnPosition(turn.effective_at, sequence, turn.id, turn.position or 0, turn.version)


def _reset_title(talk: ConversationDraft, places: list[_TurnPosition], first: Record | None) -> None:
    if talk.name is not None and "named" not in talk.facets:
        return  # the program set the title
    talk.name = None
    talk.facets.pop("named", None)
    if first is not None:
        talk.set_default_title(build_default_title(get_own_text(first)), [place.id for place in places].index(first.id))


async def _build_code_moves(store: RecordStore, positions: dict[str, int]) -> list[Step]:
    found = await store.scan(RecordFilter(kinds=(CODE,), parents=tuple(positions)))
    return [
        Update(code.id, {"facets": {**code.facets, "turn_position": new}}, code.version)
        for code in found
        if code.facets.get("turn_position") != (new := positions[code.parent or ""])
    ]


async def _iter_turns(store: RecordStore, conversation: str) -> AsyncIterator[Record]:
    where = RecordFilter(kinds=(TURN,), parents=(conversation,))
    async for page in store.scan_pages(where, SORT_PAGE_RECORDS):
        for turn in page:
            yield turn


DELETE_PAGE_TURNS = 200  # turns per commit


async def delete_missing_turns(store: RecordStore, clock: Clock, checkpoint: Checkpoint, counts: ImportCounts) -> None:
    """Delete turns that are no longer in the transcript, unless another transcript contains them.

    Raise Conflict if another process was faster. The caller can try again if the checkpoint has not moved.
    """
    assert checkpoint.stored is not None
    guard = Update(checkpoint.id, {}, checkpoint.stored.version)
    where = RecordFilter(kinds=(TURN,), tags=checkpoint.old_tags)
    while where.tags and (page := await store.scan(where, limit=DELETE_PAGE_TURNS)):
        lonely = [turn for turn in page if not any(map(parse_transcript_tag, _select_other_tags(turn, checkpoint)))]
        steps: list[Step] = [guard]
        steps += [Update(t.id, {"tags": _select_other_tags(t, checkpoint)}, t.version) for t in page]
        steps += [Delete(turn.ref) for turn in lonely]
        owners = sorted({turn.parent for turn in lonely if turn.parent})
        for conversation in await store.get(owners):
            talk = ConversationDraft.from_record(conversation)
            talk.tags.add(UNSORTED_TAG)
            steps.append(talk.build_step(clock()))
        await commit_import(store, steps, clock())
        counts.turns_removed += len(lonely)


def _select_other_tags(turn: Record, checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the tags that are not from this transcript."""
    return tuple(tag for tag in turn.tags if parse_transcript_tag(tag) != checkpoint.id)


ReportProgress = Callable[[int, int], None]
# Folders, or a function called before each commit, because folders may be excluded during an import.
ExcludedFolders = Sequence[str] | Callable[[], Awaitable[Sequence[str]]]
# Periods when projects were off, or a function called before each commit.
OffPeriods = Sequence[OffPeriod] | Callable[[], Awaitable[Sequence[OffPeriod]]]

# Errors that a reader may raise on bad input. One transcript must not stop the others.
_READ_ERRORS = (
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


class _UnreadableTranscript(Exception):
    """A transcript that its reader cannot read."""


class _PreparedPortion(Value):
    portion: Portion
    events: list[PreparedEvent]
    mark: Mark | None  # None if it cannot be stored

    @property
    def has_turns(self) -> bool:
        return any(isinstance(event, PreparedTurn) for event in self.events)


class _FileStamp(Value):
    """State of a transcript before it is read. Later additions change it."""

    size: int = 0
    modified: int = 0
    fault: _UnreadableTranscript | None = None

    @classmethod
    def from_transcript(cls, transcript: Transcript) -> "_FileStamp":
        try:
            return cls(transcript.size, transcript.modified)
        except _READ_ERRORS as error:
            return cls(fault=_UnreadableTranscript(str(error) or type(error).__name__))


class _RuleSource:
    """Import rules that follow the current settings."""

    def __init__(
        self, since: int | None, options: HistoryOptions, excluded: ExcludedFolders, silences: OffPeriods
    ) -> None:
        self._options = options
        self._excluded = excluded
        self._silences = silences
        self._rules = ImportRules(since, FolderExclusion(options.excluded), options.mask_secrets)

    @property
    def is_masking(self) -> bool:
        return self._rules.masks

    async def read_rules(self) -> ImportRules:
        named = await self._excluded() if callable(self._excluded) else self._excluded
        exclusion = FolderExclusion([*self._options.excluded, *named])
        if exclusion.patterns != self._rules.exclusion.patterns:
            self._rules = replace(self._rules, exclusion=exclusion)
        silences = await self._silences() if callable(self._silences) else self._silences
        if tuple(silences) != self._rules.off_folders.silences:
            self._rules = replace(self._rules, off_folders=OffFolders(silences, self._options.workspace))
        return self._rules


class TranscriptImporter:
    """Imports transcripts. Each turn is stored once, even if imports repeat or run concurrently."""

    def __init__(self, store: RecordStore, clock: Clock, options: HistoryOptions) -> None:
        self._store = store
        self._clock = clock
        self._options = options

    async def import_transcripts(
        self,
        transcripts: Sequence[Transcript],
        *,
        since: int | None = None,
        excluded: ExcludedFolders = (),
        silences: OffPeriods = (),
        report: ReportProgress = lambda done, total: None,
    ) -> ImportReport:
        """Import new turns in the given order. If turns are copies, the first one stays.

        Skips turns before `since`, and turns in `excluded` folders or that touched files there. Skips turns said in a
        folder during one of its `silences`, and all new turns while it lasts. `report` receives the amount that is done
        and the total. If the import is canceled, committed turns stay and the next import continues there.
        """
        rules = _RuleSource(since, self._options, excluded, silences)
        seen = await asyncio.to_thread(lambda: [_FileStamp.from_transcript(each) for each in transcripts])
        progress = _ImportProgress(report, sum(each.size for each in seen))
        imported = ImportReport()
        await read_gate(self._store, self._clock)
        # Finish the work of interrupted imports and removals.
        await removal.finish_removal(self._store, self._clock)
        await sort_conversations(self._store, self._clock)
        for transcript, known in zip(transcripts, seen, strict=True):
            counts = ImportCounts(transcripts=1)
            try:
                await _TranscriptRun(self._store, self._clock, transcript, rules).run(counts, progress)
            except (_UnreadableTranscript, Conflict) as error:
                counts.failed = 1
                imported.failures.append(TranscriptFailure(transcript.source, transcript.name, str(error)))
            finally:
                imported.get_counts(transcript.source).add(counts)
            progress.finish(known.size)
        return imported


class _ImportProgress(Value, frozen=False):
    report: ReportProgress
    total: int
    before: int = 0  # size of finished transcripts

    def update(self, done: int, size: int) -> None:
        self.report(self.before + min(done, size), self.total)

    def finish(self, size: int) -> None:
        self.before += size
        self.report(self.before, self.total)


class _TranscriptRun:
    """Import of one transcript, from its checkpoint to its end."""

    def __init__(self, store: RecordStore, clock: Clock, transcript: Transcript, rules: _RuleSource) -> None:
        self._store = store
        self._clock = clock
        self._transcript = transcript
        self._rules = rules
        self._seen = _FileStamp()
        self._is_unsorted = False

    async def run(self, counts: ImportCounts, progress: _ImportProgress) -> None:
        self._seen = await asyncio.to_thread(_FileStamp.from_transcript, self._transcript)
        if self._seen.fault is not None:
            raise self._seen.fault
        checkpoint = await self._read_checkpoint()
        if self._is_up_to_date(checkpoint):
            counts.unchanged = 1
            return
        counts.read = 1
        left = MAX_ATTEMPTS
        while not await self._read_to_end(checkpoint, counts, progress):
            # Another import reads the same transcript and moved the checkpoint.
            left -= 1
            if not left:
                raise Conflict("Another import is reading this transcript.", hint="Import again when it has finished.")
            checkpoint = await self._read_checkpoint()
            if self._is_up_to_date(checkpoint):
                break
        if self._is_unsorted:
            await sort_conversations(self._store, self._clock)
        counts.left_out = int(counts.turns_left_out > 0 and not counts.turns)

    def _is_up_to_date(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.matches_file(self._seen.size, self._seen.modified)

    async def _read_checkpoint(self) -> Checkpoint:
        empty = Checkpoint.from_record(self._transcript, None)
        found = await self._store.get([empty.id])
        checkpoint = Checkpoint.from_record(self._transcript, found[0]) if found else empty
        rules = await self._rules.read_rules()
        if checkpoint.covers(rules.since, rules.exclusion, rules.off_folders.off):
            return checkpoint
        return checkpoint.restart()

    async def _read_to_end(self, checkpoint: Checkpoint, counts: ImportCounts, progress: _ImportProgress) -> bool:
        """Read to the end. Return False if another import moved the checkpoint."""
        is_unmarked = checkpoint.is_unmarked
        portions = self._transcript.read_portions(checkpoint.mark)
        try:
            read = await self._read_next(portions)
            if read is None:
                mark = checkpoint.mark or {}
                read = _PreparedPortion(Portion((), mark, self._seen.size), [], mark)
            while isinstance(read, _PreparedPortion):
                # Only the last portion marks the transcript as complete, so the next portion is read first.
                following = await self._read_next(portions)
                if read.portion.is_anew or (is_unmarked and read.has_turns):
                    checkpoint, is_unmarked = checkpoint.restart(), False
                store = self._store_last if following is None else self._store_portion
                moved = await store(checkpoint, read, counts)
                if moved is None:
                    return False
                checkpoint = moved
                progress.update(read.portion.done, self._seen.size)
                read = following
            if read is not None:
                raise read
        finally:
            close = getattr(portions, "close", None)
            if close is not None:
                close()
        return True

    async def _read_next(self, portions: Iterator[Portion]) -> "_PreparedPortion | _UnreadableTranscript | None":
        return await wait_finished(asyncio.to_thread(self._prepare_next, portions))

    def _prepare_next(self, portions: Iterator[Portion]) -> "_PreparedPortion | _UnreadableTranscript | None":
        """Read and prepare the next portion. This blocks. Return None at the end."""
        try:
            portion = next(portions, None)
        except _READ_ERRORS as error:
            if not isinstance(error, EverkeptError):
                log.exception("transcript %s cannot be read", self._transcript.name)
            return _UnreadableTranscript(str(error) or type(error).__name__)
        if portion is None:
            return None
        source, masks = self._transcript.source, self._rules.is_masking
        events: list[PreparedEvent] = [
            prepare_turn(event, source, masks=masks) if isinstance(event, Turn) else event for event in portion.events
        ]
        return _PreparedPortion(portion, events, _check_mark(portion.mark, masks=masks))

    async def _store_last(
        self, checkpoint: Checkpoint, read: _PreparedPortion, counts: ImportCounts
    ) -> Checkpoint | None:
        """Store the last portion. The transcript is complete once the missing turns are deleted."""
        seen = (self._seen.size, self._seen.modified)
        if not read.portion.is_last or not checkpoint.old_tags:
            return await self._store_portion(checkpoint, read, counts, seen)
        moved = await self._store_portion(checkpoint, read, counts)
        if moved is None:
            return None

        async def attempt() -> Checkpoint | None:
            try:
                await delete_missing_turns(self._store, self._clock, moved, counts)
                return await self._commit(moved.settle(seen), [], self._clock())
            except Conflict:
                if await self._is_current(moved):
                    raise
                return None

        self._is_unsorted = True
        return await retry(attempt, "the conversations of this transcript")

    async def _store_portion(
        self, checkpoint: Checkpoint, read: _PreparedPortion, counts: ImportCounts, seen: tuple[int, int] | None = None
    ) -> Checkpoint | None:
        """Commit the portion, and try again if another process was faster.

        Return None if another import moved the checkpoint. Pass `seen` if the transcript is complete.
        """

        async def attempt() -> tuple[Checkpoint, ImportPlan, ImportCounts] | None:
            at = self._clock()
            known, gate = await self._read_stored(read.events)
            # After the gate, because forgetting excludes folders before it closes the gate.
            rules = await self._rules.read_rules()
            planned, draft = await wait_finished(
                asyncio.to_thread(self._build_draft, checkpoint, read, known, rules, at)
            )
            there = await writer.read_stored_code(self._store, draft)
            steps, done = writer.build_steps(planned, draft, there, at)
            moved = planned.checkpoint.advance(read.mark, read.portion.skipped, seen)
            try:
                moved = await self._commit(moved, [build_gate_check(gate), *steps], at)
            except Conflict:
                if await self._is_current(checkpoint):
                    raise
                return None
            return moved, planned, done

        stored = await retry(attempt, "the conversations of this transcript")
        if stored is None:
            return None
        moved, planned, done = stored
        done.skipped.update(read.portion.skipped)
        counts.add(done)
        tags = {tag for talk in planned.talks.values() if talk.is_kept for tag in talk.tags}
        self._is_unsorted = self._is_unsorted or UNSORTED_TAG in tags
        if PURGING_TAG in tags:
            await removal.finish_removal(self._store, self._clock)
        return moved

    async def _commit(self, checkpoint: Checkpoint, steps: Sequence[Step], at: int) -> Checkpoint:
        name = TextCleaner(self._rules.is_masking).clean_name(self._transcript.name)
        own = checkpoint.build_step(self._transcript.source, name, at)
        await writer.commit_import(self._store, [own, *steps], at)
        return checkpoint.with_stored(own)

    async def _read_stored(self, events: Sequence[PreparedEvent]) -> tuple[StoredTurns, Record]:
        """Read the stored records with one query, or more if turns are copies or a conversation is rewound."""
        source = self._transcript.source
        conversations = plan.collect_conversation_ids(events, source)
        turns = plan.collect_turn_ids(events, source)
        tombstones = {build_tombstone_id(turn): turn for turn in turns}
        asked = sorted({GATE_ID, *conversations, *turns, *tombstones})
        found = {each.id: each for each in await self._store.get(asked, include_deleted=True)}
        known = StoredTurns(
            {i: found[i] for i in conversations if i in found},
            {i: found[i] for i in turns if i in found},
            {turn: found[tombstone] for tombstone, turn in tombstones.items() if tombstone in found},
        )
        owners = {turn.parent for turn in known.turns.values() if turn.parent} - conversations
        if owners:
            copied = await self._store.get(sorted(owners))
            known.conversations |= {each.id: each for each in copied}
        if grown := sorted(plan.collect_grown_ids(events, known.turns)):
            for code in await self._store.scan(RecordFilter(kinds=(CODE,), parents=tuple(grown))):
                known.code.setdefault(code.parent or "", []).append(code)
        for conversation in plan.collect_rewound_ids(events, source) & known.conversations.keys():
            async for turn in _iter_turns(self._store, conversation):
                known.turns.setdefault(turn.id, replace(turn, text=""))  # texts are not needed
        return known, found[GATE_ID]

    def _build_draft(
        self, checkpoint: Checkpoint, read: _PreparedPortion, known: StoredTurns, rules: ImportRules, at: int
    ) -> tuple[ImportPlan, ImportDraft]:
        planned = ImportPlan(self._transcript.source, checkpoint, known, rules, self._seen.modified)
        planned.apply(read.events)
        return planned, writer.build_draft(planned, at)

    async def _is_current(self, checkpoint: Checkpoint) -> bool:
        found = await self._store.get([checkpoint.id])
        stored = checkpoint.stored
        return [each.version for each in found] == ([stored.version] if stored else [])


def _check_mark(mark: Mark, *, masks: bool) -> Mark | None:
    """Return the mark, or None if it cannot be stored unchanged."""
    try:
        json.dumps(mark, ensure_ascii=False).encode()
    except ValueError:  # an unpaired surrogate
        return None
    return None if masks and mask_json(mark)[1] else mark
