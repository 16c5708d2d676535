"""Taking conversations out for good, in steps that a crash may part."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.core.ports import RecordStore
from recollect.core.records import (
    Batch,
    Record,
    Ref,
    Step,
    Update,
    Where,
)
from recollect.core.times import Clock
from recollect.errors import Conflict, InvalidInput
from recollect.families.history.importing.conversations import PURGING, LeftOut, Talk, part_tag
from recollect.families.history.importing.exclusion import is_within
from recollect.families.history.importing.graves import FORGOTTEN, buried
from recollect.families.history.model import (
    CODE,
    CONVERSATION,
    DECISION,
    FORGET,
    SAID,
    SUMMARY,
    SYMBOL,
    TRANSCRIPT,
    TURN,
)

STEP = 10_000  # turns of one purge; each rewrites the word index
PAGE = 500  # conversations, symbols or transcripts that are read at once
ATTEMPTS = 20  # an import may change what is being forgotten

# Graves are of another type.
_TURNS = Where(kinds=(TURN,), types=(SAID, DECISION, SUMMARY), deleted=None)

log = logging.getLogger(__name__)

Report = Callable[[int, int], None]


@dataclass(slots=True)
class Forgotten:
    """What was removed; `complete` is False while a reader keeps old pages alive."""

    conversations: int = 0
    turns: int = 0
    code: int = 0
    symbols: int = 0
    complete: bool = True


def _silent(done: int, total: int) -> None:
    """Nobody watches."""


async def forget(
    store: RecordStore,
    clock: Clock,
    *,
    projects: Sequence[str] = (),
    conversations: Sequence[str] = (),
    report: Report = _silent,
) -> Forgotten:
    """Removes conversations by their ids, and those of folders with all below them.

    They stay forgotten when their transcripts are read again. Turns that were in such a folder go
    from other conversations too. `report` is told how many turns are gone, and of how many.
    """
    work = Forgetting(store, clock, report)
    if projects:
        await work.forget_projects(projects)
    if conversations:
        await work.forget_conversations(conversations)
    return work.done


async def finish(store: RecordStore, clock: Clock) -> Forgotten:
    """Removes what is left of conversations that were left out."""
    work = Forgetting(store, clock, _silent)
    await work.purge_left_out()
    return work.done


class Forgetting:
    """One act of it, and what it has done so far."""

    def __init__(self, store: RecordStore, clock: Clock, report: Report) -> None:
        self._store = store
        self._clock = clock
        self._report = report
        self._total = 0
        self.done = Forgotten()

    async def forget_projects(self, folders: Sequence[str]) -> None:
        tallies = await self._store.tally((CONVERSATION, TURN, SYMBOL))
        scopes = sorted({t.scope for t in tallies if is_within(t.scope, folders)})
        # Before anything is purged: that also removes the old words of what only changed.
        await self._forget_places(lambda previous: is_within(previous.get("project"), folders))
        if scopes:
            where = replace(_TURNS, scopes=tuple(scopes))
            self._total = await self._store.how_many(where)
            while page := await self._conversations(Where(scopes=tuple(scopes))):
                await self._leave_out(page)
            await self.purge_left_out()
            await self._purge_turns(where)
            await self._purge_symbols(scopes)

    async def forget_conversations(self, ids: Sequence[str]) -> None:
        found = {each.id: each for each in await self._store.get(ids)}
        wrong = [i for i in ids if i not in found or found[i].kind != CONVERSATION]
        if wrong:
            raise InvalidInput(
                f"There is no conversation {', '.join(wrong)}; nothing was forgotten.",
                hint="A conversation's id begins with conv_.",
                conversations=wrong,
            )
        sessions = {each.session for each in found.values()}
        for each in found.values():
            self._total += each.facets.get("turns", 0)
        await self._forget_places(lambda previous: previous.get("session") in sessions)
        await self._leave_out([each for each in found.values() if not _is_forgotten(each)])
        await self.purge_left_out()

    async def purge_left_out(self) -> None:
        """Also what agents did for them; they are found by their tags, after a crash too."""
        while page := await self._store.scan(
            Where(kinds=(CONVERSATION,), tags=(PURGING,)), limit=PAGE
        ):
            for conversation in page:
                why = conversation.facets.get("left_out")
                if why in ("marker", "forgotten"):
                    agents = Where(tags=(part_tag(conversation.id),))
                    while sent := await self._conversations(agents):
                        await self._leave_out(sent, why)
                await self._purge_turns(replace(_TURNS, parents=(conversation.id,)))
                await self._settle(conversation)

    async def _conversations(self, where: Where) -> list[Record]:
        """Some of those that are not left out yet."""
        wanted = Where(kinds=(CONVERSATION,), scopes=where.scopes, tags=where.tags)
        after: str | None = None
        while page := await self._store.scan(wanted, after=after, limit=PAGE):
            if found := [each for each in page if not _is_forgotten(each)]:
                return found
            after = page[-1].id
        return []

    async def _leave_out(self, conversations: Sequence[Record], why: LeftOut = "forgotten") -> None:
        """Conflicts are met one by one: an import that goes on must not keep the others in."""
        for conversation in conversations:
            if await self._changed(conversation, lambda talk: talk.leave_out(why)):
                self.done.conversations += 1

    async def _settle(self, conversation: Record) -> None:
        await self._changed(conversation, lambda talk: talk.tags.discard(PURGING))

    async def _changed(self, record: Record, change: Callable[[Talk], None]) -> bool:
        for _ in range(ATTEMPTS):
            talk = Talk.of(record)
            change(talk)
            try:
                await self._commit([talk.step(self._clock())])
            except Conflict:
                found = await self._store.get([record.id])
                if not found:
                    return False
                [record] = found
            else:
                return True
        raise Conflict(
            f"The conversation {record.id} is being changed all the time.",
            hint="Stop the import that is running, and call again.",
        )

    async def _purge_turns(self, where: Where) -> None:
        while turns := await self._store.scan(where, limit=STEP):
            ids = tuple(turn.id for turn in turns)
            code = await self._store.scan(Where(kinds=(CODE,), parents=ids, deleted=None))
            symbols = await self._orphans([each.id for each in code])
            await self._purge([*(turn.ref for turn in turns), *symbols])
            self.done.turns += len(turns)
            self.done.code += len(code)
            self.done.symbols += len(symbols)
            self._report(self.done.turns, max(self._total, self.done.turns))
            at = self._clock()
            graves = [_grave(turn, at) for turn in turns]
            await self._try([step for grave in graves for step in grave])

    async def _orphans(self, code: Sequence[str]) -> list[Ref]:
        """The symbols that only this code speaks of."""
        links = await self._store.links(code, direction="out") if code else []
        spoken = Counter(link.target for link in links)
        found: list[Ref] = []
        for symbol, count in spoken.items():
            others = await self._store.links([symbol], direction="in", limit=count + 1)
            if len(others) <= count:
                found.append(Ref("record", symbol))
        return found

    async def _purge_symbols(self, scopes: Sequence[str]) -> None:
        """What code that was taken back has left."""
        after: str | None = None
        where = Where(kinds=(SYMBOL,), scopes=tuple(scopes))
        while page := await self._store.scan(where, after=after, limit=PAGE):
            ids = [symbol.id for symbol in page]
            spoken = {link.target for link in await self._store.links(ids, direction="in")}
            lonely = [symbol.ref for symbol in page if symbol.id not in spoken]
            kept = [symbol.id for symbol in page if symbol.id in spoken]
            await self._purge(lonely)
            self.done.symbols += len(lonely)
            if kept:
                after = kept[-1]

    async def _forget_places(self, is_meant: Callable[[dict[str, Any]], bool]) -> None:
        """Transcripts say where a project is; they are read again should they ever change."""
        after: str | None = None
        while page := await self._store.scan(Where(kinds=(TRANSCRIPT,)), after=after, limit=PAGE):
            for record in page:
                if is_meant(record.facets.get("previous") or {}):
                    kept = {
                        name: value
                        for name, value in record.facets.items()
                        if name not in ("mark", "previous", "title")
                    }
                    values = {"name": None, "facets": kept}
                    await self._try([Update(record.id, values, record.version)])
            after = page[-1].id

    async def _try(self, steps: Sequence[Step]) -> None:
        try:
            await self._commit(steps)
        except Conflict as conflict:  # an import that runs beside has made them anew
            log.debug("changed meanwhile: %s", conflict)

    async def _purge(self, refs: Sequence[Ref]) -> None:
        if refs:
            purged = await self._store.purge(refs)
            self.done.complete = self.done.complete and purged.complete

    async def _commit(self, steps: Sequence[Step]) -> None:
        await self._store.commit(Batch(tuple(steps), self._clock(), FORGET, derived=True))


def _is_forgotten(conversation: Record) -> bool:
    return conversation.facets.get("left_out") in ("marker", "forgotten")


def _grave(turn: Record, at: int) -> list[Step]:
    return buried(turn.id, turn.parent or "", turn.session or "", turn.at, FORGOTTEN, at)
