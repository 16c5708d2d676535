"""The five tools: past conversations, searched and read."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Annotated, Any, Literal
from weakref import WeakSet

from everkept.core.answers import Search, SearchBook
from everkept.core.peers import NoPeers, Peers
from everkept.core.ports import Indexing, Library, RecordStore
from everkept.core.secrets import masked, masked_json
from everkept.core.sessions import Call, conversation_of
from everkept.core.text import clipped, digest
from everkept.core.times import Clock
from everkept.errors import EverkeptError, InvalidInput, NotFound, ProjectOff
from everkept.families.history import search_answers
from everkept.families.history.conversation_reader import Opened, opened, page_of, read
from everkept.families.history.merged_results import Meant, joined
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import Reachable, project_off, reachable
from everkept.families.history.relevance import Asking
from everkept.families.history.search_answers import (
    LIFETIME,
    AnswerCache,
    ConversationPage,
    MemorySearchResult,
    UnifiedAnswer,
    unified_markdown,
)
from everkept.families.history.search_filters import TimeRange, bounds
from everkept.families.history.searches import Answered, Kind, coded, recalled, solved
from everkept.families.history.unified_search import UnifiedSearch
from everkept.tools.schema import Field
from everkept.tools.tool import Family, Warned, tool
from everkept.values import Value, replace

QUERY_LIMIT = 10_000  # characters
CODE_LIMIT = 50_000
NAME_LIMIT = 1_000
MOST_RESULTS, DEFAULT_RESULTS = 50, 10
MOST_TURNS, DEFAULT_TURNS = 100, 20
LONGEST_NOTED = 500  # characters of a question that the log keeps

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Bounds and defaults are checked here and not advertised: the schemas of all tools stand in every
# client's context.
Query = Annotated[str, Field("Question.", max_length=QUERY_LIMIT, blank=False)]
Limit = Annotated[int, Field("Most.")]
Format = Annotated[Literal["json", "markdown"], Field("Text.")]


class UnifiedOptions(Value):
    limit: Limit | None = None
    merge_results: Annotated[bool, Field("Merge.")] | None = None
    include_graph: Annotated[bool, Field("Graph.")] | None = None
    include_peers: Annotated[bool, Field("Peers.")] | None = None


class HistoryTools(Family):
    """Past conversations of all projects and programs."""

    def __init__(
        self,
        library: Library,
        indexing: Indexing,
        searches: SearchBook,
        clock: Clock,
        options: HistoryOptions,
        unified: UnifiedSearch,
        peers: Peers | None = None,
    ) -> None:
        """Without `peers` there is nobody else to be asked."""
        self._peers = peers or NoPeers()
        self._library = library
        self._indexing = indexing
        self._searches = searches
        self._clock = clock
        self._options = options
        self._unified = unified
        self._met: WeakSet[RecordStore] = WeakSet()
        self._answers: AnswerCache[Answered] = AnswerCache(clock, _weight)
        self._everything: AnswerCache[UnifiedAnswer] = AnswerCache(clock, _weight_of_everything)

    @tool(aliases=("search_memory", "find_past_conversations"))
    async def recall_previous_discussions(
        self,
        call: Call,
        query: Query,
        type: Annotated[Kind, Field("Kind.")] | None = None,
        project_filter: Annotated[str, Field("Folder or name.", max_length=NAME_LIMIT)]
        | None = None,
        time_range: Annotated[TimeRange, Field("Span.")] | None = None,
        include_peers: Annotated[bool, Field("Peers.")] | None = None,
        limit: Limit | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Search past conversations when earlier work comes up."""
        form, most = format or "json", _results(limit)
        wanted, when = type or "all", time_range or "all"
        _refuse_blank(project_filter, "project_filter")
        asking = self._asking()

        async def make(store: RecordStore) -> Answered:
            return await recalled(store, query, wanted, project_filter, when, most, asking)

        filters = {
            "type": wanted,
            "project_filter": project_filter,
            "time_range": when,
            "limit": most,
        }
        asked = _Asked(query, filters, period=self._period(when))
        if not include_peers:
            return self._told(await self._answer(call, asked, make), query, form)
        after, before = bounds(when, asking.now, asking.zone)
        meant = Meant(query, wanted, most, project_filter, after, before)
        own, elsewhere = await asyncio.gather(
            self._answer(call, asked, make), self._peers.ask(meant.question)
        )
        return self._told(replace(own, answer=joined(own.answer, elsewhere, meant)), query, form)

    @tool()
    async def find_similar_problems(
        self,
        call: Call,
        problem_description: Annotated[str, Field("Problem.", max_length=QUERY_LIMIT, blank=False)],
        code_context: Annotated[str, Field("Code.", max_length=CODE_LIMIT)] | None = None,
        limit: Limit | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Find how such a problem was solved."""
        form, most = format or "json", _results(limit)
        asking = self._asking()

        async def make(store: RecordStore) -> Answered:
            return await solved(store, problem_description, code_context, most, asking)

        filters = {"with_code": True if code_context else None, "limit": most}
        asked = _Asked(problem_description, filters, code_context or "", self._period())
        return self._told(await self._answer(call, asked, make), problem_description, form)

    @tool()
    async def search_code_history(
        self,
        call: Call,
        query: Annotated[str, Field("Name or idea.", max_length=QUERY_LIMIT, blank=False)],
        language: Annotated[str, Field("Only this.", max_length=NAME_LIMIT)] | None = None,
        include_context: Annotated[bool, Field("Context.")] | None = None,
        limit: Limit | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Search past code."""
        form, most = format or "json", _results(limit)
        with_context = include_context is not False
        _refuse_blank(language, "language")
        asking = self._asking()

        async def make(store: RecordStore) -> Answered:
            return await coded(store, query, language, most, asking, with_context=with_context)

        filters = {"language": language, "include_context": with_context, "limit": most}
        asked = _Asked(query, filters, period=self._period())
        return self._told(await self._answer(call, asked, make), query, form)

    @tool()
    async def unified_memory_search(
        self,
        call: Call,
        query: Query,
        options: Annotated[UnifiedOptions, Field("More.")] | None = None,
        format: Format | None = None,
    ) -> UnifiedAnswer:
        """Search everything remembered."""
        started = perf_counter()
        await self._past()
        off = await self._options.switched_off(call)
        given = options or UnifiedOptions()
        form, limit = format or "json", _results(given.limit, "options.limit")
        merge, graph = given.merge_results is not False, given.include_graph is not False
        filters = {"limit": limit, "merge_results": merge, "include_graph": graph}
        # What is seen of memories and graph depends on who asks.
        asker = (call.session.id, call.session.project, call.session.bank)
        asked = _Asked(query, filters, period=(*self._period(), *asker))
        peers = self._peers if given.include_peers else None

        async def make() -> UnifiedAnswer:
            return await self._unified.search(
                call, query, limit=limit, merge=merge, include_graph=graph, peers=peers
            )

        # What others have may be another thing with each question.
        answer = (
            await self._everything.get(
                asked.key(call.tool), lambda: self._unified.stamp(call), make
            )
            if peers is None
            else await make()
        )
        if off is None:
            self._note(call, asked, len(answer.found), started)
        if form == "json":
            return answer
        return answer.worded(unified_markdown(answer, query, self._clock()))

    @tool(aliases=("retrieve_memory_chunk",))
    async def read_conversation(
        self,
        call: Call,
        id: Annotated[
            str,
            Field(
                "Result.",
                aliases=("chunk_id", "conversation_id", "session_id"),
                max_length=NAME_LIMIT,
                blank=False,
            ),
        ],
        limit: Annotated[int, Field("Turns.")] | None = None,
        cursor: Annotated[str, Field("Page.", max_length=NAME_LIMIT)] | None = None,
        include_adjacent: Annotated[bool, Field("Neighbours.")] | None = None,
        format: Format | None = None,
    ) -> ConversationPage:
        """Read around a result."""
        form, most = format or "json", _within(limit, DEFAULT_TURNS, MOST_TURNS, "limit")
        past = await self._past()
        store = past.store
        place = await self._opened(past, id)
        # Whoever knows the original's tool expects one piece, unless its neighbours are asked for.
        wants_one = place.is_chunk or call.alias is not None
        is_alone = include_adjacent is False or (
            include_adjacent is None and limit is None and wants_one
        )
        reading = await read(store, place, 1 if is_alone else most, cursor)
        answer = page_of(place, reading)
        return answer if form == "json" else answer.worded(search_answers.conversation(answer))

    async def _answer(
        self, call: Call, asked: "_Asked", make: Callable[[RecordStore], Awaitable[Answered]]
    ) -> "_Given":
        """From the cache, or made now; either way somebody has searched."""
        started = perf_counter()
        past = await self._past()
        off = await self._options.switched_off(call)
        key = asked.key(call.tool)
        answer = await self._answers.get(key, past.stamp, lambda: make(past.store))
        if off is None:
            self._note(call, asked, len(answer.results), started)
        return _Given(answer, off)

    async def _past(self) -> Reachable:
        """At its first use, what an import left without vectors begins to get them."""
        past = await reachable(self._library, self._options)
        if past.whole not in self._met:
            self._met.add(past.whole)
            self._indexing.wake(past.whole)
        return past

    async def _opened(self, past: Reachable, name: str) -> Opened:
        """Of what is off, nothing is told but that it is."""
        try:
            return await opened(past.store, name)
        except NotFound:
            if off := await self._off_around(past, name):
                raise ProjectOff(off) from None
            raise

    async def _off_around(self, past: Reachable, name: str) -> str | None:
        """The project that keeps a conversation from being found."""
        if past.hidden:
            with suppress(EverkeptError):
                hidden = await opened(past.whole, name)
                folder = hidden.conversation.scope
                return await project_off(self._library, self._options, folder)
        return None

    def _note(self, call: Call, asked: "_Asked", results: int, started: float) -> None:
        """Log a search, which nobody does for a project that is off."""
        milliseconds = round((perf_counter() - started) * 1000, 1)
        query, _ = masked(asked.query)
        filters, _ = masked_json({k: v for k, v in asked.filters.items() if v is not None})
        self._searches.note(
            Search(
                at=self._clock(),
                tool=call.tool,
                query=clipped(query, LONGEST_NOTED),
                results=results,
                milliseconds=milliseconds,
                session=conversation_of(call.session, None, self._options.session_id),
                filters=filters,
            )
        )

    def _told(self, given: "_Given", query: str, form: str) -> MemorySearchResult:
        now = self._clock()
        off: list[Warned] = []
        if given.off is not None:
            error = ProjectOff(given.off)
            off.append(Warned(error.code, str(error)))
        told = given.answer.told(query, now, *off, is_all=not off)
        return told if form == "json" else told.worded(search_answers.searched(told, now))

    def _asking(self) -> Asking:
        options = self._options
        return Asking(self._indexing.embedder, self._clock(), options.zone, options.time_limit)

    def _period(self, time_range: TimeRange = "all") -> tuple[object, ...]:
        """While it is the same, a question means the same time: words such as `yesterday` mean
        another one after midnight, and now and a week ago move with each moment."""
        now = self._clock()
        day = (_EPOCH + timedelta(microseconds=now)).astimezone(self._options.zone).date()
        moves = time_range != "all"
        return (day.isoformat(), now // LIFETIME if moves else 0)


class _Given(Value):
    """An answer, and the name of the project it was asked from where that is off."""

    answer: Answered
    off: str | None


class _Asked(Value):
    """A question with all that its answer depends on, but for what is stored."""

    query: str
    filters: Mapping[str, Any]
    code: str = ""
    period: tuple[object, ...] = ()

    def key(self, tool: str) -> str:
        """The case of a question counts: names and months are known by it."""
        parts = [tool, self.query.strip(), self.code.strip(), dict(self.filters), self.period]
        return digest(json.dumps(parts, sort_keys=True))


def _weight(answer: Answered) -> int | None:
    return 1 + len(answer.results) if answer.lasting else None


def _weight_of_everything(answer: UnifiedAnswer) -> int | None:
    return 1 + len(answer.found) if answer.is_lasting else None


def _refuse_blank(given: str | None, argument: str) -> None:
    if given is not None and not given.strip():
        raise InvalidInput(
            f"`{argument}` is blank; leave it out to search everything.",
            argument=argument,
            value=given,
        )


def _results(given: int | None, argument: str = "limit") -> int:
    return _within(given, DEFAULT_RESULTS, MOST_RESULTS, argument)


def _within(given: int | None, default: int, most: int, argument: str) -> int:
    if given is None:
        return default
    if not 1 <= given <= most:
        raise InvalidInput(
            f"`{argument}` is {given}; it must be from 1 to {most}.", argument=argument, value=given
        )
    return given
