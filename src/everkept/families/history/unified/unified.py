"""One search over everything that is remembered, by the ways that the question asks for."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from everkept.core.peers import PeerQuestion, Peers, source_of
from everkept.core.ports import Indexing, Library
from everkept.core.search_ports import Finder, Finding, SearchType
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError
from everkept.families.history.model import HistoryOptions
from everkept.families.history.search.folder_filter import reachable
from everkept.families.history.search.peer_results import warnings_of
from everkept.families.history.search.searches import no_history
from everkept.families.history.unified.answers import (
    NO_HISTORY,
    UnifiedAnswer,
    UnifiedResult,
    Whereabouts,
)
from everkept.families.history.unified.conversations import ConversationSearch, Recalled, relations
from everkept.families.history.unified.explanation import (
    HISTORY,
    Course,
    explanation,
    suggestions,
)
from everkept.families.history.unified.results import (
    counted,
    grouped,
    merged,
    on_one_scale,
    results_of,
)
from everkept.retrieval.intent import Intent, analysed
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import Warned
from everkept.values import Value, field, replace

A = TypeVar("A")

FEWEST = 10  # that each part is asked for, so that there is something to choose from
# Whoever keeps to the limit answers then with what there is; a little later that has arrived.
GRACE = 1.25
RELATIONS = "relations of code"
ABOUT_RELATIONS = 0.85  # what words count, to whom asks for relations where there are some


class _Part(Value):
    """What one part of the search has come to; `is_searched` is False where it could not be."""

    name: str
    results: list[UnifiedResult] = field(default_factory=list[UnifiedResult])
    warnings: list[Warned] = field(default_factory=list[Warned])
    is_searched: bool = True


class UnifiedSearch:
    """Asks past conversations and every other family at once, and makes one answer of it."""

    def __init__(
        self,
        library: Library,
        finders: Sequence[Finder],
        indexing: Indexing,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        self._library = library
        self._finders = finders
        self._conversations = ConversationSearch(indexing, clock, options)
        self._options = options

    async def search(
        self,
        call: Call,
        query: str,
        *,
        limit: int = 10,
        merge: bool = True,
        include_graph: bool = True,
        peers: Peers | None = None,
    ) -> UnifiedAnswer:
        """The best of all parts. One that fails or is late is a warning, and never an error.

        With `peers` the servers of others are asked too.
        """
        intent = analysed(query)
        ways = tuple[SearchType, ...](
            way for way in intent.search_types if include_graph or way != "graph"
        )
        wanted = max(limit, FEWEST)
        asked = [self._asked(finder, call, query, ways, wanted) for finder in self._finders]
        (history, recalled), related, others, elsewhere = await asyncio.gather(
            self._history(query, intent, ways, wanted),
            self._related(intent, ways, wanted, include_graph=include_graph),
            asyncio.gather(*asked),
            _elsewhere(peers, query, wanted),
        )
        parts = [history, *others, *elsewhere]
        comparable = on_one_scale(query, {part.name: part.results for part in parts})
        results = [counted(result) for some in comparable.values() for result in some]
        if "graph" in ways:
            if intent.primary_intent == "trace_dependencies" and related.results:
                results = [_about_relations(result) for result in results]
            results += related.results
        page = merged(results, limit) if merge else []
        groups = None if merge else grouped(results, limit)
        searched = [part.name for part in parts if part.is_searched]
        zone = self._options.zone
        course = Course(query, intent, ways, searched, recalled, related.results, zone)
        answer = UnifiedAnswer(page, intent, "", [], groups)
        return replace(
            answer,
            explanation=explanation(course, answer.found),
            suggestions=suggestions(course, answer.found),
            # Both are in one store: where that cannot be read, one sentence says it.
            warnings=_warnings([*parts, related] if history.is_searched else parts),
        )

    async def stamp(self, call: Call) -> object:
        """Another value once an answer may be another."""
        stamps = [self._history_stamp(), *(finder.stamp(call) for finder in self._finders)]
        return tuple(await asyncio.gather(*map(_known_stamp, stamps)))

    async def _history_stamp(self) -> object:
        return await (await reachable(self._library, self._options)).stamp()

    async def _history(
        self, query: str, intent: Intent, ways: Sequence[SearchType], limit: int
    ) -> tuple[_Part, Recalled | None]:
        async def find() -> Recalled:
            past = await reachable(self._library, self._options)
            return await self._conversations.find(past.store, query, intent, ways, limit)

        found = await self._within_time(HISTORY, find())
        if isinstance(found, Warned):
            return _Part(HISTORY, warnings=[found], is_searched=False), None
        warnings = [Warned(notice.code, notice.message) for notice in found.notices]
        if found.is_empty:
            warnings.append(Warned(NO_HISTORY, no_history()))
        return _Part(HISTORY, found.results, warnings), found

    async def _related(
        self, intent: Intent, ways: Sequence[SearchType], limit: int, *, include_graph: bool
    ) -> _Part:
        """Those of names that a question has are known, even where they are not asked for: they
        say what can be asked next."""
        if not include_graph:
            return _Part(RELATIONS)

        async def find() -> list[UnifiedResult]:
            past = await reachable(self._library, self._options)
            return await relations(past.store, intent.entities, limit, words_too="graph" in ways)

        found = await self._within_time(RELATIONS, find())
        if isinstance(found, Warned):
            return _Part(RELATIONS, warnings=[found], is_searched=False)
        return _Part(RELATIONS, found)

    async def _asked(
        self, finder: Finder, call: Call, query: str, ways: Sequence[SearchType], limit: int
    ) -> _Part:
        found = await self._within_time(finder.name, finder.find(call, query, ways, limit))
        if isinstance(found, Warned):
            return _Part(finder.name, warnings=[found], is_searched=False)
        warnings = [Warned("partial_results", notice) for notice in found.notices]
        return _Part(finder.name, [_result(finder.name, hit) for hit in found.hits], warnings)

    async def _within_time(self, name: str, work: Coroutine[Any, Any, A]) -> A | Warned:
        limit = self._options.time_limit
        try:
            found = await Deadline.within(None if limit is None else GRACE * limit).one(work)
        except EverkeptError as error:
            code = f"{name.replace(' ', '_')}_unavailable"
            return Warned(code, f"Without {name}: {error.message}")
        if found is None:
            message = f"Without {name}: no answer within {limit:g} seconds."
            return Warned("partial_results", message)
        return found


async def _elsewhere(peers: Peers | None, query: str, limit: int) -> list[_Part]:
    """What other servers have; those that failed are one part, which found nothing."""
    if peers is None:
        return []
    asked = await peers.ask(PeerQuestion(query, (), limit))
    answered = [_Part(source_of(answer.peer), results_of(answer)) for answer in asked.answers]
    warnings = warnings_of(asked)
    return [*answered, _Part("", warnings=warnings, is_searched=False)] if warnings else answered


def _about_relations(result: UnifiedResult) -> UnifiedResult:
    return replace(result, relevance_score=round(ABOUT_RELATIONS * result.relevance_score, 3))


def _warnings(parts: Sequence[_Part]) -> list[Warned] | None:
    """Each once, whoever says it."""
    said = {warning.message: warning for part in parts for warning in part.warnings}
    return list(said.values()) or None


def _result(part: str, hit: Finding) -> UnifiedResult:
    return UnifiedResult(
        id=hit.id,
        type=hit.type,
        content=hit.content,
        relevance_score=round(min(max(hit.score, 0.0), 1.0), 3),
        search_type=hit.search_type,
        found_in=part,
        context=Whereabouts(hit.project, None if hit.at is None else iso(hit.at)),
        title=hit.title,
    )


async def _known_stamp(work: Coroutine[Any, Any, object]) -> object:
    try:
        return await work
    except EverkeptError:
        return object()  # equal to no other: what cannot be known is not taken for unchanged
