"""Permanent removal of conversations, in steps that can continue after a crash."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from everkept.core.commits import commit, retry
from everkept.core.paths import is_within
from everkept.core.ports import RecordStore
from everkept.core.records import Batch, Record, RecordFilter, Ref, Step, Update
from everkept.core.times import Clock
from everkept.errors import InvalidInput
from everkept.families.history.ingest import checkpoints
from everkept.families.history.ingest.checkpoints import NAMING_FACETS, parse_transcript_tag
from everkept.families.history.ingest.conversations import (
    PERMANENT_REASONS,
    PURGING_TAG,
    SEALED_TAG,
    ConversationDraft,
    ExclusionReason,
    TurnSlot,
    build_growth_tag,
    build_part_tag,
    build_tombstone,
    build_tombstone_id,
    get_exclusion,
)
from everkept.families.history.ingest.writer import rewrite_turn
from everkept.families.history.model import (
    CODE,
    CONVERSATION,
    DECISION,
    FORGET_TOOL,
    SAID,
    SUMMARY,
    SYMBOL,
    TRANSCRIPT,
    TURN,
)
from everkept.values import Value, replace

PURGE_TURNS = 10_000  # per purge, which rewrites many pages
PAGE_RECORDS = 500  # records per read

# Tombstones have another type.
_ALL_TURNS = RecordFilter(kinds=(TURN,), types=(SAID, DECISION, SUMMARY), deleted=None)

ReportProgress = Callable[[int, int], None]


class RemovalReport(Value, frozen=False):
    """Counts of removed items. `complete` is False while a reader keeps old pages alive."""

    conversations: int = 0
    turns: int = 0
    code: int = 0
    symbols: int = 0
    complete: bool = True


async def forget_conversations(
    store: RecordStore,
    clock: Clock,
    *,
    projects: Sequence[str] = (),
    conversations: Sequence[str] = (),
    report: ReportProgress = lambda done, total: None,
) -> RemovalReport:
    """Permanently remove conversations by id, and those of folders including all folders below them.

    They stay forgotten when their transcripts are read again. To keep new conversations of a folder out, exclude the
    folder before this call. Turns in such a folder are also removed from other conversations. `report` receives the
    number of removed turns and the total.
    """
    work = ConversationRemoval(store, clock, report)
    named = await work.read_conversations(conversations)
    if projects:
        await checkpoints.close_gate(store, clock, projects)
        await work.forget_projects(projects)
        await checkpoints.reopen_gate(store, clock, projects)
    if named:
        await work.forget_conversations(named)
    return work.done


async def finish_removal(store: RecordStore, clock: Clock) -> RemovalReport:
    """Finish interrupted removals of forgotten or excluded conversations."""
    work = ConversationRemoval(store, clock, lambda done, total: None)
    if folders := checkpoints.list_unfinished_folders(await checkpoints.read_gate(store, clock)):
        await work.forget_projects(folders)
        await checkpoints.reopen_gate(store, clock, folders)
    await work.purge_excluded()
    return work.done


class ConversationRemoval:
    def __init__(self, store: RecordStore, clock: Clock, report: ReportProgress) -> None:
        self._store = store
        self._clock = clock
        self._report = report
        self._total = 0
        self.done = RemovalReport()

    async def read_conversations(self, ids: Sequence[str]) -> list[Record]:
        """Return the conversations with these ids. Raise InvalidInput if any is missing."""
        found = {each.id: each for each in await self._store.get(ids)}
        wrong = [i for i in ids if i not in found or found[i].kind != CONVERSATION]
        if wrong:
            raise InvalidInput(
                f"Conversation not found: {', '.join(wrong)}. Nothing was forgotten.",
                hint="Use ids of conversations, which begin with conv_.",
                conversations=wrong,
            )
        return list(found.values())

    async def forget_projects(self, folders: Sequence[str]) -> None:
        tallies = await self._store.tally((CONVERSATION, TURN, SYMBOL))
        scopes = sorted({t.scope for t in tallies if is_within(t.scope, folders)})
        within = RecordFilter(kinds=(CONVERSATION,), scopes=tuple(scopes))
        ids = [each.id for each in await self._list_stored(within)] if scopes else []
        sessions = await self._read_sessions(ids)
        await self._remove_mentions({*ids, *sessions}, folders)
        if scopes:
            where = replace(_ALL_TURNS, scopes=tuple(scopes))
            self._total += await self._store.count_records(where)
            await self._exclude(ids)
            await self.purge_excluded()
            await self._purge_turns(where)
            await self._purge_symbols(scopes)

    async def forget_conversations(self, conversations: Sequence[Record]) -> None:
        self._total += sum(each.facets.get("turns", 0) for each in conversations)
        ids = [each.id for each in conversations if get_exclusion(each) != "forgotten"]
        await self._remove_mentions({*ids, *await self._read_sessions(ids)}, ())
        await self._exclude(ids)
        await self.purge_excluded()

    async def purge_excluded(self) -> None:
        """Purge the excluded conversations and those of their agents. Their tags identify them, even after a crash."""
        where = RecordFilter(kinds=(CONVERSATION,), tags=(PURGING_TAG,))
        while page := await self._store.scan(where, limit=PAGE_RECORDS):
            for conversation in page:
                await self._exclude_agents(conversation)
                await self._revert_growth(conversation.id)
            forgotten = tuple(each.id for each in page if get_exclusion(each) == "forgotten")
            others = tuple(each.id for each in page if get_exclusion(each) != "forgotten")
            await self._purge_turns(replace(_ALL_TURNS, parents=forgotten))
            await self._purge_turns(replace(_ALL_TURNS, parents=others), is_forgotten=False)
            for each in page:
                await self._change_conversation(each.id, lambda talk: talk.tags.discard(PURGING_TAG))

    async def _exclude_agents(self, conversation: Record) -> None:
        why = get_exclusion(conversation)
        sent = await self._list_stored(RecordFilter(kinds=(CONVERSATION,), tags=(build_part_tag(conversation.id),)))
        ids = [each.id for each in sent]
        if ids and why == "forgotten":
            await self._remove_mentions({*ids, *await self._read_sessions(ids)}, ())
        if why in PERMANENT_REASONS:
            await self._exclude(ids, cast(ExclusionReason, why))

    async def _revert_growth(self, conversation: str) -> None:
        """Revert the text that the conversation added to turns of other conversations.

        The turns keep its tag until all of that text is removed, so that a crash does not hide them.
        """
        tag = build_growth_tag(conversation)

        def shrink(slot: TurnSlot) -> None:
            slot.shrink(conversation)
            slot.tags |= {SEALED_TAG, tag}

        def settle(slot: TurnSlot) -> None:
            slot.tags -= {tag}

        turns = await self._store.scan(RecordFilter(kinds=(TURN,), tags=(tag,)))
        if not turns:
            return
        ids = tuple(turn.id for turn in turns)
        for turn in ids:
            await self._change_turn(turn, shrink)
        await self._purge_symbols(sorted({turn.scope for turn in turns}))
        code = await self._store.scan(RecordFilter(kinds=(CODE,), parents=ids, deleted=True))
        # Even without code, because a purge also erases the old text of changed records.
        await self._purge([each.ref for each in code], always=True)
        for turn in ids:
            await self._change_turn(turn, settle)

    async def _change_turn(self, turn: str, change: Callable[[TurnSlot], None]) -> None:
        async def attempt() -> None:
            for record in await self._store.get([turn]):
                slot = TurnSlot.from_record(record)
                change(slot)
                await rewrite_turn(self._store, turn, slot, self._clock())

        await retry(attempt, f"turn {turn}")

    async def _list_stored(self, where: RecordFilter) -> list[Record]:
        """Return the conversations that are not permanently excluded."""
        found: list[Record] = []
        async for page in self._store.scan_pages(where, PAGE_RECORDS):
            found += [each for each in page if get_exclusion(each) not in PERMANENT_REASONS]
        return found

    async def _read_sessions(self, ids: Sequence[str]) -> set[str]:
        return {each.session for each in await self._store.get(ids) if each.session}

    async def _exclude(self, ids: Sequence[str], why: ExclusionReason = "forgotten") -> None:
        """Exclude the conversations one by one, so that a running import of one does not block the others."""
        for each in ids:
            await self._change_conversation(each, lambda talk: talk.exclude(why))
        self.done.conversations += len(ids)

    async def _change_conversation(self, conversation: str, change: Callable[[ConversationDraft], None]) -> None:
        async def attempt() -> None:
            for record in await self._store.get([conversation]):
                talk = ConversationDraft.from_record(record)
                change(talk)
                await self._commit([talk.build_step(self._clock())])

        await retry(attempt, f"conversation {conversation}")

    async def _purge_turns(self, where: RecordFilter, *, is_forgotten: bool = True) -> None:
        while turns := await self._read_batch(where):
            if is_forgotten:
                turns = [replace(turn, session=None) for turn in turns]
            await self._write_tombstones(turns)
            tags = {tag for turn in turns for tag in turn.tags}
            transcripts = set(filter(None, map(parse_transcript_tag, tags)))
            for transcript in sorted(transcripts) if is_forgotten else ():
                await self._reset_transcript(transcript)
            ids = tuple(turn.id for turn in turns)
            code = await self._store.scan(RecordFilter(kinds=(CODE,), parents=ids, deleted=None))
            symbols = await self._find_orphans([each.id for each in code])
            await self._purge([*(turn.ref for turn in turns), *symbols])
            self.done.turns += len(turns)
            self.done.code += len(code)
            self.done.symbols += len(symbols)
            self._report(self.done.turns, max(self._total, self.done.turns))

    async def _read_batch(self, where: RecordFilter) -> list[Record]:
        """Read the turns of one purge, without their texts."""
        found: list[Record] = []
        while page := await self._store.scan(
            where, after=found[-1].id if found else None, limit=min(PAGE_RECORDS, PURGE_TURNS - len(found))
        ):
            found += [replace(turn, text="") for turn in page]
            if len(found) == PURGE_TURNS:
                break
        return found

    async def _write_tombstones(self, turns: Sequence[Record]) -> None:
        """Write tombstones before the turns are purged, so that an import never treats a copy as a new turn."""

        async def attempt() -> None:
            ids = [build_tombstone_id(turn.id) for turn in turns]
            found = {each.id for each in await self._store.get(ids, include_deleted=True)}
            at = self._clock()
            await self._commit(
                [
                    step
                    for turn in turns
                    if build_tombstone_id(turn.id) not in found
                    for step in build_tombstone(turn.id, turn.parent or "", turn.session, turn.effective_at, at)
                ]
            )

        await retry(attempt, "the conversations to forget")

    async def _find_orphans(self, code: Sequence[str]) -> list[Ref]:
        """Return the symbols that only this code mentions."""
        links = await self._store.find_links(code, direction="out") if code else []
        spoken = Counter(link.target for link in links)
        found: list[Ref] = []
        for symbol, count in spoken.items():
            others = await self._store.find_links([symbol], direction="in", limit=count + 1)
            if len(others) <= count:
                found.append(Ref("record", symbol))
        return found

    async def _purge_symbols(self, scopes: Sequence[str]) -> None:
        """Purge the symbols that no code mentions."""
        lonely: list[Ref] = []
        async for page in self._store.scan_pages(RecordFilter(kinds=(SYMBOL,), scopes=tuple(scopes)), PAGE_RECORDS):
            ids = [symbol.id for symbol in page]
            spoken = {link.target for link in await self._store.find_links(ids, direction="in")}
            lonely += [symbol.ref for symbol in page if symbol.id not in spoken]
        await self._purge(lonely)
        self.done.symbols += len(lonely)

    async def _remove_mentions(self, names: set[str], folders: Sequence[str]) -> None:
        """Remove the sessions and folders from transcripts and other conversations that name them.

        This happens before any purge, because a purge also erases the old text of changed records.
        """
        if not names and not folders:
            return
        async for page in self._store.scan_pages(RecordFilter(kinds=(TRANSCRIPT,)), PAGE_RECORDS):
            for record in page:
                told = _iter_strings([record.facets.get(name) for name in NAMING_FACETS])
                if any(_is_named(each, names) or is_within(each, folders) for each in told):
                    await self._reset_transcript(record.id)
        async for page in self._store.scan_pages(RecordFilter(kinds=(CONVERSATION,)), PAGE_RECORDS):
            for record in page:
                if record.facets.get("continues") in names:
                    await self._change_conversation(record.id, lambda talk: talk.facets.pop("continues", None))

    async def _reset_transcript(self, transcript: str) -> None:
        """Remove the mark and names from a transcript's record. If the transcript changes, all of it is read again."""

        async def attempt() -> None:
            for record in await self._store.get([transcript]):
                kept = {name: v for name, v in record.facets.items() if name not in NAMING_FACETS}
                values = {"name": None, "facets": kept}
                await self._commit([Update(record.id, values, record.version)])

        await retry(attempt, "the transcript")

    async def _purge(self, refs: Sequence[Ref], *, always: bool = False) -> None:
        if refs or always:
            purged = await self._store.purge(refs)
            self.done.complete = self.done.complete and purged.complete

    async def _commit(self, steps: Sequence[Step]) -> None:
        if steps:
            await commit(self._store, Batch(tuple(steps), self._clock(), FORGET_TOOL, derived=True))


def _iter_strings(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, below in cast(Mapping[str, Any], value).items():
            yield key
            yield from _iter_strings(below)
    elif isinstance(value, list):
        for below in cast(list[Any], value):
            yield from _iter_strings(below)


def _is_named(text: str, names: set[str]) -> bool:
    """Return whether the text is one of the names, or has one between colons."""
    return text in names or not names.isdisjoint(text.split(":"))
