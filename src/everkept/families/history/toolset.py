"""Tools that search and read past conversations."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from time import perf_counter
from typing import Annotated, Any, Literal
from weakref import WeakSet

from everkept.core.answers import SearchLog, SearchRecord, decode_cursor, encode_cursor
from everkept.core.peers import NoPeers, Peers
from everkept.core.ports import Library, RecordStore, VectorIndexer
from everkept.core.secrets import mask_json, mask_text
from everkept.core.sessions import ToolCall, choose_conversation
from everkept.core.text import clip_text, compute_digest
from everkept.core.times import Clock, to_datetime
from everkept.errors import EverkeptError, InvalidInput, NotFound, ProjectOff
from everkept.families.history import search_answers
from everkept.families.history.conversation_reader import ConversationTarget, build_page, read_turns, resolve_target
from everkept.families.history.merged_results import SearchFilter, merge_peer_answers
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import VisibleHistory, find_off_project, open_visible_history
from everkept.families.history.relevance import QueryContext
from everkept.families.history.search_answers import (
    CACHE_MICROSECONDS,
    AnswerCache,
    ConversationPage,
    MemorySearchResult,
    UnifiedAnswer,
    format_unified_answer,
)
from everkept.families.history.searches import (
    HistoryAnswer,
    SearchKind,
    TimeRangeName,
    compute_bounds,
    find_solved_problems,
    recall_discussions,
    search_code,
)
from everkept.families.history.unified_search import UnifiedSearch
from everkept.retrieval.search import wait_for_embeddings
from everkept.tools.schema import Field
from everkept.tools.tool import ToolFamily, ToolWarning, tool
from everkept.values import Value, replace

QUERY_LIMIT = 10_000  # characters
CODE_LIMIT = 50_000
NAME_LIMIT = 1_000
MAX_RESULTS, DEFAULT_RESULTS = 50, 10
MAX_TURNS, DEFAULT_TURNS = 100, 20
MAX_LOGGED_CHARACTERS = 500  # of a question, kept in the log

_RESULTS_CURSOR = "results"  # kind of a cursor

Query = Annotated[str, Field("Question in plain words", max_length=QUERY_LIMIT, blank=False)]
Limit = Annotated[int, Field("Maximum results, 1 to 50, default 10", listed=False)]
Cursor = Annotated[str, Field("next_cursor of an answer", max_length=NAME_LIMIT, listed=False)]
Format = Annotated[Literal["json", "markdown"], Field("Form of the text: json or markdown; default json", listed=False)]


class UnifiedOptions(Value):
    limit: Limit | None = None
    merge_results: Annotated[bool, Field("false: group results by source; default true")] | None = None
    include_graph: Annotated[bool, Field("false: skip the knowledge graph; default true")] | None = None
    include_peers: Annotated[bool, Field("true: search peer servers too; default false", listed=False)] | None = None
    all_projects: (
        Annotated[bool, Field("true: memories and graph of all projects; default false", listed=False)] | None
    ) = None


class HistoryTools(ToolFamily):
    """Past conversations of all projects and programs."""

    def __init__(
        self,
        library: Library,
        indexing: VectorIndexer,
        searches: SearchLog,
        clock: Clock,
        options: HistoryOptions,
        unified: UnifiedSearch,
        peers: Peers | None = None,
    ) -> None:
        """Create the tools. Without `peers`, no other servers are asked."""
        self._peers = peers or NoPeers()
        self._library = library
        self._indexing = indexing
        self._searches = searches
        self._clock = clock
        self._options = options
        self._unified = unified
        self._met: WeakSet[RecordStore] = WeakSet()
        self._answers: AnswerCache[HistoryAnswer] = AnswerCache(
            clock, lambda answer: 1 + len(answer.results) if answer.lasting else None
        )
        self._everything: AnswerCache[UnifiedAnswer] = AnswerCache(
            clock, lambda answer: 1 + len(answer.all_results) if answer.is_lasting else None
        )

    @tool(aliases=("search_memory", "find_past_conversations"), view="past")
    async def recall_previous_discussions(
        self,
        call: ToolCall,
        query: Query,
        type: Annotated[SearchKind, Field("What to find; default: all")] | None = None,
        project_filter: Annotated[str, Field("Folder or its last part", max_length=NAME_LIMIT)] | None = None,
        time_range: Annotated[TimeRangeName, Field("How far back; default: all")] | None = None,
        include_peers: Annotated[bool, Field("true: search peer servers too; default false", listed=False)]
        | None = None,
        limit: Limit | None = None,
        cursor: Cursor | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Search past conversations of all projects and assistants. Use when the user refers to earlier work.
        read_conversation opens a result."""
        form, most = format or "json", _check_result_limit(limit)
        wanted, when = type or "all", time_range or "all"
        _check_not_empty(project_filter, "project_filter")
        asking = self._build_context()

        filters = {"type": wanted, "project_filter": project_filter, "time_range": when, "limit": most}
        asked = _SearchRequest(query, filters, period=self._get_cache_period(when)).at(cursor)

        async def make(store: RecordStore) -> HistoryAnswer:
            return await recall_discussions(store, query, wanted, project_filter, when, most, asking, asked.start)

        if not include_peers:
            return self._format_answer(await self._get_answer(call, asked, make), asked, form)
        if cursor is not None:
            raise InvalidInput(
                "`cursor` continues a search of this server only.",
                hint="Omit `include_peers`, or ask for more results with `limit`.",
                argument="cursor",
                value=cursor,
            )
        after, before = compute_bounds(when, asking.now, asking.zone)
        meant = SearchFilter(query, wanted, most, project_filter, after, before)
        own, elsewhere = await asyncio.gather(self._get_answer(call, asked, make), self._peers.ask(meant.peer_question))
        return self._format_answer(replace(own, answer=merge_peer_answers(own.answer, elsewhere, meant)), asked, form)

    @tool()
    async def find_similar_problems(
        self,
        call: ToolCall,
        problem_description: Annotated[
            str, Field("Error message and what you were doing", max_length=QUERY_LIMIT, blank=False)
        ],
        code_context: Annotated[str, Field("Code the problem is about", max_length=CODE_LIMIT, listed=False)]
        | None = None,
        limit: Limit | None = None,
        cursor: Cursor | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Find past conversations about a similar problem, solved ones first. Use before you debug."""
        form, most = format or "json", _check_result_limit(limit)
        asking = self._build_context()

        filters = {"with_code": True if code_context else None, "limit": most}
        asked = _SearchRequest(problem_description, filters, code_context or "", self._get_cache_period()).at(cursor)

        async def make(store: RecordStore) -> HistoryAnswer:
            return await find_solved_problems(store, problem_description, code_context, most, asking, asked.start)

        return self._format_answer(await self._get_answer(call, asked, make), asked, form)

    @tool()
    async def search_code_history(
        self,
        call: ToolCall,
        query: Annotated[str, Field("Name or description of the code", max_length=QUERY_LIMIT, blank=False)],
        language: Annotated[
            str, Field("Programming language, such as python; default: any", max_length=NAME_LIMIT, listed=False)
        ]
        | None = None,
        include_context: Annotated[bool, Field("false: omit what was said with the code; default true", listed=False)]
        | None = None,
        limit: Limit | None = None,
        cursor: Cursor | None = None,
        format: Format | None = None,
    ) -> MemorySearchResult:
        """Find code from past conversations by name, file or idea."""
        form, most = format or "json", _check_result_limit(limit)
        with_context = include_context is not False
        _check_not_empty(language, "language")
        asking = self._build_context()

        filters = {"language": language, "include_context": with_context, "limit": most}
        asked = _SearchRequest(query, filters, period=self._get_cache_period()).at(cursor)

        async def make(store: RecordStore) -> HistoryAnswer:
            return await search_code(store, query, language, most, asking, with_context=with_context, start=asked.start)

        return self._format_answer(await self._get_answer(call, asked, make), asked, form)

    @tool()
    async def unified_memory_search(
        self,
        call: ToolCall,
        query: Query,
        options: Annotated[UnifiedOptions, Field("Search options", listed=False)] | None = None,
        format: Format | None = None,
    ) -> UnifiedAnswer:
        """Search memories, graph, conversations and memory bank together.
        Use for everything about a topic, or when unsure where to look."""
        started = perf_counter()
        await self._open_history(waits=True)
        off = await self._options.switched_off(call)
        given = options or UnifiedOptions()
        form, limit = format or "json", _check_result_limit(given.limit, "options.limit")
        merge, graph = given.merge_results is not False, given.include_graph is not False
        filters = {"limit": limit, "merge_results": merge, "include_graph": graph}
        # Which memories and graph items are visible depends on the caller.
        asker = (call.session.id, call.session.project, call.session.bank)
        asked = _SearchRequest(query, filters, period=(*self._get_cache_period(), *asker))
        peers, everywhere = self._peers if given.include_peers else None, bool(given.all_projects)

        async def make() -> UnifiedAnswer:
            return await self._unified.search(
                call, query, limit=limit, merge=merge, include_graph=graph, peers=peers, all_projects=everywhere
            )

        # Not cached with peers or other projects, because their data may change at any time.
        answer = (
            await self._everything.get_or_make(asked.build_key(call.tool), lambda: self._unified.read_stamp(call), make)
            if peers is None and not everywhere
            else await make()
        )
        if off is None:
            self._log_search(call, asked, len(answer.all_results), started)
        if form == "json":
            return answer
        return answer.with_text(format_unified_answer(answer, query, self._clock()))

    @tool(aliases=("retrieve_memory_chunk",))
    async def read_conversation(
        self,
        call: ToolCall,
        id: Annotated[
            str,
            Field(
                "Id of a result",
                aliases=("chunk_id", "conversation_id", "session_id"),
                max_length=NAME_LIMIT,
                blank=False,
            ),
        ],
        limit: Annotated[int, Field("Turns per page, 1 to 100, default 20", listed=False)] | None = None,
        cursor: Annotated[str, Field("next_cursor or previous_cursor", max_length=NAME_LIMIT)] | None = None,
        include_adjacent: Annotated[bool, Field("false: return only the turn itself; default true", listed=False)]
        | None = None,
        format: Format | None = None,
    ) -> ConversationPage:
        """Read the conversation around a search result."""
        form, most = format or "json", _check_limit(limit, DEFAULT_TURNS, MAX_TURNS, "limit")
        past = await self._open_history()
        store = past.store
        place = await self._resolve_target(past, id)
        # A caller of the alias expects one turn, unless it asks for the adjacent ones.
        wants_one = place.is_chunk or call.alias is not None
        is_alone = include_adjacent is False or (include_adjacent is None and limit is None and wants_one)
        reading = await read_turns(store, place, 1 if is_alone else most, cursor)
        answer = build_page(place, reading)
        return answer if form == "json" else answer.with_text(search_answers.format_conversation(answer))

    async def _get_answer(
        self, call: ToolCall, asked: "_SearchRequest", make: Callable[[RecordStore], Awaitable[HistoryAnswer]]
    ) -> "_ProjectAnswer":
        """Return the answer from the cache or from a new search, and log the search."""
        started = perf_counter()
        past = await self._open_history(waits=True)
        off = await self._options.switched_off(call)
        key = asked.build_key(call.tool)
        answer = await self._answers.get_or_make(key, past.read_stamp, lambda: make(past.store))
        if off is None:
            self._log_search(call, asked, len(answer.results), started)
        return _ProjectAnswer(answer, off)

    async def _open_history(self, *, waits: bool = False) -> VisibleHistory:
        """Open the history. On first use, start to compute embeddings that an import left pending.

        With `waits`, wait briefly for those of a few turns that were just added.
        """
        past = await open_visible_history(self._library, self._options)
        if past.whole not in self._met:
            self._met.add(past.whole)
            self._indexing.wake(past.whole)
        if waits:
            await wait_for_embeddings(self._indexing, [past.whole], self._options.time_limit)
        return past

    async def _resolve_target(self, past: VisibleHistory, name: str) -> ConversationTarget:
        """Find the target of an id. Raise ProjectOff, without details, if its project is off."""
        try:
            return await resolve_target(past.store, name)
        except NotFound:
            if off := await self._find_off_project(past, name):
                raise ProjectOff(off) from None
            raise

    async def _find_off_project(self, past: VisibleHistory, name: str) -> str | None:
        """Return the name of the project that hides the conversation because it is off."""
        if past.hidden:
            with suppress(EverkeptError):
                hidden = await resolve_target(past.whole, name)
                folder = hidden.conversation.scope
                return await find_off_project(self._library, self._options, folder)
        return None

    def _log_search(self, call: ToolCall, asked: "_SearchRequest", results: int, started: float) -> None:
        """Log a search. The caller skips this if the project is off."""
        milliseconds = round((perf_counter() - started) * 1000, 1)
        query, _ = mask_text(asked.query)
        filters, _ = mask_json({k: v for k, v in asked.filters.items() if v is not None})
        self._searches.note(
            SearchRecord(
                at=self._clock(),
                tool=call.tool,
                query=clip_text(query, MAX_LOGGED_CHARACTERS),
                results=results,
                milliseconds=milliseconds,
                session=choose_conversation(call.session, None, self._options.session_id),
                filters=filters,
            )
        )

    def _format_answer(self, given: "_ProjectAnswer", asked: "_SearchRequest", form: str) -> MemorySearchResult:
        now = self._clock()
        off: list[ToolWarning] = []
        if given.off is not None:
            error = ProjectOff(given.off)
            off.append(ToolWarning(error.code, str(error)))
        cursor = asked.build_cursor(given.answer.next_start)
        told = given.answer.to_result(asked.query, now, *off, is_all=not off, cursor=cursor)
        return told if form == "json" else told.with_text(search_answers.format_search_answer(told, now))

    def _build_context(self) -> QueryContext:
        options = self._options
        return QueryContext(self._indexing.embedder, self._clock(), options.zone, options.time_limit)

    def _get_cache_period(self, time_range: TimeRangeName = "all") -> tuple[object, ...]:
        """Return a key for the time to which the question refers: the day, and the minutes for a time range."""
        now = self._clock()
        day = to_datetime(now).astimezone(self._options.zone).date()
        moves = time_range != "all"
        return (day.isoformat(), now // CACHE_MICROSECONDS if moves else 0)


class _ProjectAnswer(Value):
    """An answer, and the name of the caller's project if it is off."""

    answer: HistoryAnswer
    off: str | None


class _SearchRequest(Value):
    """A question with everything that its answer depends on, except the stored data."""

    query: str
    filters: Mapping[str, Any]
    code: str = ""
    period: tuple[object, ...] = ()
    start: int = 0  # number of results on the pages before

    def build_key(self, tool: str) -> str:
        """Return the cache key. It includes the case of the question, which distinguishes names and months."""
        parts = [tool, self._build_digest(), self.period, self.filters.get("limit"), self.start]
        return compute_digest(json.dumps(parts, sort_keys=True))

    def at(self, cursor: str | None) -> "_SearchRequest":
        """Return the request for the page at a cursor. Raise InvalidInput if it belongs to another question."""
        if cursor is None:
            return self
        kind, digest, start = decode_cursor(cursor, str, str, int)
        if kind != _RESULTS_CURSOR or digest != self._build_digest() or start < 0:
            raise InvalidInput(
                "`cursor` does not belong to this question.",
                hint="Pass next_cursor with the same arguments, or omit it to start again.",
                argument="cursor",
                value=cursor[:100],
            )
        return replace(self, start=start)

    def build_cursor(self, start: int | None) -> str | None:
        return None if start is None else encode_cursor(_RESULTS_CURSOR, self._build_digest(), start)

    def _build_digest(self) -> str:
        """Return a digest of the question, without the size of a page."""
        filters = {name: value for name, value in self.filters.items() if name != "limit"}
        return compute_digest(json.dumps([self.query.strip(), self.code.strip(), filters], sort_keys=True))


def _check_not_empty(given: str | None, argument: str) -> None:
    if given is not None and not given.strip():
        raise InvalidInput(
            f"`{argument}` is empty.", hint="Omit it to search everything.", argument=argument, value=given
        )


def _check_result_limit(given: int | None, argument: str = "limit") -> int:
    return _check_limit(given, DEFAULT_RESULTS, MAX_RESULTS, argument)


def _check_limit(given: int | None, default: int, most: int, argument: str) -> int:
    if given is None:
        return default
    if not 1 <= given <= most:
        raise InvalidInput(f"`{argument}` is {given}; it must be from 1 to {most}.", argument=argument, value=given)
    return given
