"""Recalling: memories of every scope that fit a query, ranked by the one search."""

import asyncio
from collections.abc import Mapping, Sequence
from time import perf_counter

from everkept.core.accounts import acting
from everkept.core.ports import Access, AccessBook, Indexing, RecordStore
from everkept.core.records import SESSION_SCOPE, Record, Where
from everkept.core.search_ports import SectionHit, SectionSearch
from everkept.errors import EverkeptError, NotFound, Unavailable
from everkept.families.memories.model import (
    MEMORIES,
    MEMORY,
    SCOPES,
    MemoryView,
    Options,
    RecalledMemories,
    Strategy,
    TimeRange,
)
from everkept.families.memories.sessions import NO_SESSION
from everkept.families.memories.stores import Stores
from everkept.retrieval.profile import Found, Hit, Place
from everkept.retrieval.search import search
from everkept.tools.tool import Warned
from everkept.values import Value, replace

OF_PROJECT = (SESSION_SCOPE, "project")
USERS = ("user",)
NO_BANK = "There is no memory bank, so that memories alone were searched."


class Wanted(Value):
    """What is to be recalled; an empty field does not restrict."""

    query: str
    session: str | None = None  # whose own memories are seen; None sees those of no session
    scopes: Sequence[str] = ()
    types: Sequence[str] = ()
    strategy: Strategy = "hybrid"
    limit: int = 10
    min_importance: float = 0.0
    tags: Sequence[str] = ()
    time_range: TimeRange | None = None
    include_forgotten: bool = False
    as_of: int | None = None
    explain: bool = False
    include_bank: bool = False


class Recall:
    """Asks the project's store and the user's, as the scopes say; the bank, where it is wanted."""

    def __init__(
        self,
        stores: Stores,
        indexing: Indexing,
        accesses: AccessBook,
        options: Options,
        bank: SectionSearch | None = None,
    ) -> None:
        self._bank = bank
        self._stores = stores
        self._indexing = indexing
        self._accesses = accesses
        self._options = options
        self.warnings: dict[Warned, None] = {}  # of all that was asked so far, each once
        self._known: dict[RecordStore, dict[str, Access | None]] = {}  # by the ranking

    async def recall(self, wanted: Wanted) -> RecalledMemories:
        started = perf_counter()
        places = await self._places(wanted)
        found = await self._found(places, wanted)
        memories = await self._views(places, found.hits, explain=wanted.explain)
        sections = await self._sections(wanted) if wanted.include_bank else None
        return RecalledMemories(
            memories=memories,
            total_matched=found.total,
            strategy_used=found.strategy or wanted.strategy,
            query_time_ms=round((perf_counter() - started) * 1000, 1),
            bank=sections,
            warnings=list(self.warnings) or None,
        )

    async def records(self, wanted: Wanted) -> list[Record]:
        """What fits, as it is stored, best first; nothing is counted as given out."""
        places = await self._places(wanted, or_none=True)
        return [hit.record for hit in (await self._found(places, wanted)).hits] if places else []

    async def newest(self, where: Where, session: str | None, limit: int) -> list[Record]:
        """What fits, whatever its words; the newest first."""
        wanted = Wanted("", session, where.scopes, where.types)
        places = await self._places(wanted, or_none=True)
        traits = {"pinned": where.pinned, "min_importance": where.min_importance}
        found = await asyncio.gather(
            *(
                place.store.scan(replace(place.where, **traits), order="newest", limit=limit)
                for place in places
            )
        )
        once = {record.id: record for records in found for record in records}  # the user's win
        return sorted(once.values(), key=lambda record: -record.at)[:limit]

    async def note(self, given: Sequence[Record]) -> None:
        """Counts memories as given out, each where it lives."""
        of_user = {record.id for record in given if record.scope == "user"}
        if acting() is not None:
            own = [record.id for record in given if record.scope == SESSION_SCOPE]
            of_user |= {record.id for record in await (await self._stores.user()).get(own)}
        others = [record.id for record in given if record.id not in of_user]
        if of_user:
            self._accesses.note(await self._stores.user(), sorted(of_user))
        if others:
            self._accesses.note(await self._stores.project(), others)

    async def _sections(self, wanted: Wanted) -> list[SectionHit]:
        """A bank that is missing or out of reach must not hide the memories."""
        if self._bank is None:
            self.warnings[Warned("no_memory_bank", NO_BANK)] = None
            return []
        try:
            found = await self._bank.sections(self._stores.call, wanted.query, wanted.limit)
        except NotFound:
            self.warnings[Warned("no_memory_bank", NO_BANK)] = None
            return []
        except EverkeptError as error:
            self.warnings[Warned("memory_bank_unavailable", error.message)] = None
            return []
        self.warnings |= {Warned("partial_results", notice): None for notice in found.notices}
        return found.hits

    async def _found(self, places: Sequence[Place], wanted: Wanted) -> Found:
        found = await search(
            places,
            wanted.query,
            replace(MEMORIES, strategy=wanted.strategy),
            limit=wanted.limit,
            embedder=self._indexing.embedder,
            now=self._stores.clock(),
            zone=self._options.zone,
            as_of=wanted.as_of,
            time_limit=self._options.time_limit,
            accesses=lambda place, ids: self._accesses_of(places[place].store, ids),
        )
        self.warnings |= {Warned(notice.code, notice.message): None for notice in found.notices}
        return found

    async def _accesses_of(self, store: RecordStore, ids: Sequence[str]) -> Mapping[str, Access]:
        found = await self._accesses.of(store, ids)
        self._known.setdefault(store, {}).update((i, found.get(i)) for i in ids)
        return found

    async def _places(self, wanted: Wanted, *, or_none: bool = False) -> list[Place]:
        """A user's store that cannot be read must not hide the project's memories.

        With `or_none`, not even where this question is about the user's alone.
        """
        where = where_of(wanted)
        scopes = tuple(wanted.scopes) or SCOPES
        of_project = tuple(scope for scope in scopes if scope in OF_PROJECT)
        # An account keeps those of a session itself where it may not write.
        of_user = USERS if acting() is None else (*USERS, SESSION_SCOPE)
        of_user = tuple(scope for scope in scopes if scope in of_user)
        places: list[Place] = []
        if of_project:
            store = await self._stores.project()
            places.append(Place(store, replace(where, scopes=of_project)))
        if of_user:
            try:
                store = await self._stores.user()
                places.append(Place(store, replace(where, scopes=of_user)))
            except Unavailable as error:
                if not places and not or_none:
                    raise
                self.warnings[Warned("user_scope_unavailable", error.message)] = None
        return places

    async def _views(
        self, places: Sequence[Place], hits: Sequence[Hit], *, explain: bool
    ) -> list[MemoryView]:
        known: dict[str, Access] = {}
        for number, place in enumerate(places):
            ids = [hit.record.id for hit in hits if hit.place == number]
            known |= await self._given_out(place.store, ids)
        return [
            MemoryView.of(
                hit.record, hit.score, known.get(hit.record.id), hit.why if explain else None
            )
            for hit in hits
        ]

    async def _given_out(self, store: RecordStore, ids: Sequence[str]) -> dict[str, Access]:
        """The ranking has asked already how often these were given out, as a rule."""
        known = self._known.get(store, {})
        if not all(i in known for i in ids):
            return await given_out(self._accesses, store, ids)
        self._accesses.note(store, ids)
        return {i: access for i in ids if (access := known[i]) is not None}


async def given_out(
    accesses: AccessBook, store: RecordStore, ids: Sequence[str]
) -> dict[str, Access]:
    """How often these were given out before; now they are once more."""
    if not ids:
        return {}
    known = dict(await accesses.of(store, ids))
    accesses.note(store, ids)
    return known


def where_of(wanted: Wanted) -> Where:
    span = wanted.time_range or TimeRange()
    return Where(
        kinds=(MEMORY,),
        types=tuple(wanted.types),
        visible_to=wanted.session or NO_SESSION,
        tags=tuple(tag.strip() for tag in wanted.tags),
        min_importance=wanted.min_importance or None,
        after=span.after,
        before=span.before,
        deleted=None if wanted.include_forgotten else False,
    )
