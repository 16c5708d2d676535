"""One search over all stored data, with sentences that explain the search."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from datetime import tzinfo
from itertools import islice
from typing import Any, TypeVar

from everkept.core.answers import Finder, SearchFinding, SearchType
from everkept.core.peers import PeerQuestion, Peers, format_source, parse_source
from everkept.core.ports import Library, VectorIndexer
from everkept.core.sessions import ToolCall, get_acting_account
from everkept.core.text import clip_text
from everkept.core.times import Clock, format_iso
from everkept.errors import EverkeptError
from everkept.families.history.merged_results import (
    build_unified_results,
    discount_peer_score,
    group_results,
    list_peer_warnings,
    merge_results,
)
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import open_visible_history
from everkept.families.history.search_answers import (
    CODE_PART,
    CONVERSATIONS_PART,
    LOCAL_SOURCE,
    NO_HISTORY_CODE,
    RELATION_TYPE,
    ResultContext,
    UnifiedAnswer,
    UnifiedResult,
)
from everkept.families.history.searches import get_no_history_message, list_warnings
from everkept.families.history.unified_conversations import ConversationResults, ConversationSearch, find_relations
from everkept.language.telling_words import list_stems
from everkept.retrieval.dates import remove_dates
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.intent import UNSURE_CONFIDENCE, PrimaryIntent, QuestionIntent, analyze_question
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import ELSEWHERE_CODE, ToolWarning
from everkept.values import Value, field, replace

HISTORY_PART = "history"  # the part with past conversations
GRAPH_PART = "graph"  # the part with the knowledge graph
MAX_SUGGESTIONS = 4
MIN_SUGGESTION_SHARE = 0.5  # share of the best score from which a result leads to suggestions
MAX_REPEATED_CHARACTERS = 120  # of a question that a suggestion repeats
MAX_NAME_CHARACTERS = 60  # of a name in a sentence
MAX_NAMES = 3

_INTENT_PHRASES: dict[PrimaryIntent, str] = {
    "find_code": "a search for code",
    "recall_discussion": "a question about past conversations",
    "trace_dependencies": "a question about dependencies",
    "understand_structure": "a question about structure",
}
_PART_PHRASES = {
    HISTORY_PART: "past conversations and their code",
    GRAPH_PART: "the knowledge graph",
    "bank": "the memory bank",
}


class SearchReport(Value):
    """The course of a search: its search types and the parts that could be searched."""

    question: str
    intent: QuestionIntent
    ways: Sequence[SearchType]
    parts: Sequence[str]
    recalled: ConversationResults | None
    relations: Sequence[UnifiedResult]  # of the code that the question names, shown or not
    zone: tzinfo


def format_explanation(course: SearchReport, found: Sequence[UnifiedResult] = ()) -> str:
    """Explain how the question was understood, which parts were searched, and by which means."""
    taken = f"I understood this as {_INTENT_PHRASES[course.intent.primary_intent]}"
    if course.intent.confidence <= UNSURE_CONFIDENCE:
        taken += " (no other intent was recognized)"
    if not course.parts:
        return f"{taken}, but nothing could be searched."
    searched = _join_phrases([_format_part(part) for part in course.parts])
    sentence = f"{taken}, and searched {searched}, {_format_ways(course)}."
    return " ".join((sentence, *_explain_times(course), *_explain_no_words(course, found)))


def _format_part(part: str) -> str:
    peer = parse_source(part)
    return _PART_PHRASES.get(part, part) if peer is None else f"the peer {peer}"


def _explain_no_words(course: SearchReport, found: Sequence[UnifiedResult]) -> Iterator[str]:
    """Say if no result contains a word of the question, unless the search was limited to a time."""
    asked = list_stems(remove_dates(course.question))
    of_a_time = course.recalled is not None and course.recalled.within is not None
    texts = (f"{result.title or ''}\n{result.file or ''}\n{result.content}" for result in found)
    has_words = any(compute_coverage(asked, text) > 0 for text in texts)
    if found and asked and not of_a_time and not has_words:
        yield "No result contains a word of the question. They are only similar in meaning."


def _format_ways(course: SearchReport) -> str:
    recalled = course.recalled
    by_words = recalled is not None and recalled.strategy == "keyword"
    ways = ["by words only" if by_words else "by meaning and words"]
    entities = course.intent.entities
    names = (*entities.functions, *entities.files) or entities.concepts
    if "keyword" in course.ways and names:
        shown = [f"`{clip_text(name, MAX_NAME_CHARACTERS)}`" for name in names[:MAX_NAMES]]
        ways.append(f"for {_join_phrases(shown)} as typed")
    if "graph" in course.ways:
        ways.append("through relations")
    return _join_phrases(ways)


def _explain_times(course: SearchReport) -> Iterator[str]:
    recalled = course.recalled
    if recalled is None:
        return
    if recalled.within is not None:
        days = recalled.within.format_days(course.zone)
        yield f'Only conversations {days} are included ("{recalled.within.said}").'
    elif recalled.beyond is not None:
        days = recalled.beyond.format_days(course.zone)
        yield f'No conversation {days} ("{recalled.beyond.said}") matches, so all times are included.'


def list_suggestions(course: SearchReport, found: Sequence[UnifiedResult]) -> list[str]:
    """Return questions and calls that follow from the best local results and would find something."""
    found = [result for result in found if result.source == LOCAL_SOURCE]
    best = max((result.relevance_score for result in found), default=0.0)
    found = [result for result in found if result.relevance_score >= MIN_SUGGESTION_SHARE * best]
    return list(islice(dict.fromkeys(_iter_suggestions(course, found)), MAX_SUGGESTIONS))


def _iter_suggestions(course: SearchReport, found: Sequence[UnifiedResult]) -> Iterator[str]:
    said = [r for r in found if r.found_in in (CONVERSATIONS_PART, CODE_PART) and r.type != RELATION_TYPE]
    if said:
        yield f"read_conversation {_format_arguments(id=said[0].id)}: read around the best match."
    yield from _suggest_names(course)
    if len(course.question) <= MAX_REPEATED_CHARACTERS:
        yield from _suggest_narrower(course, said)
        if any(result.type == "memory" for result in found):
            yield f"recall_memories {_format_arguments(query=course.question)}: search only memories."
    for result in found:
        if result.type == "entity" and result.title:
            yield f"open_nodes {_format_arguments(names=[result.title])}: read the whole entity."
        elif result.type == "section":
            file = result.id.rpartition(":")[0]
            yield f"read_memory_bank_file {_format_arguments(filename=file)}: read the whole file."
    if course.recalled is not None and course.recalled.is_empty and get_acting_account() is None:
        yield "everkept import history, on the command line: import past conversations."


def _suggest_names(course: SearchReport) -> Iterator[str]:
    """Yield questions about names with known relations, so that they have an answer."""
    intent = course.intent.primary_intent
    told = [result.content for result in course.relations]
    for name in course.intent.entities.functions[:MAX_NAMES]:
        if intent != "trace_dependencies" and any(f"calls `{name}`" in each for each in told):
            yield f"What calls `{name}`?"
        if intent != "find_code" and any(each.startswith(f"`{name}` is defined") for each in told):
            yield f"Where is `{name}` defined?"


def _suggest_narrower(course: SearchReport, said: Sequence[UnifiedResult]) -> Iterator[str]:
    asked = course.question
    types = {result.type for result in said}
    if "decision" in types and len(types) > 1:
        call = _format_arguments(query=asked, type="decision")
        yield f"recall_previous_discussions {call}: search only decisions."
    languages = [result.language for result in said if result.language]
    if languages and len(types) > 1:
        call = _format_arguments(query=asked, language=languages[0])
        yield f"search_code_history {call}: search only code."
    projects = dict.fromkeys(r.context.project_path for r in said if r.context.project_path)
    if len(projects) > 1:
        call = _format_arguments(query=asked, project_filter=next(iter(projects)))
        yield f"recall_previous_discussions {call}: search only this project."


def _format_arguments(**values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


def _join_phrases(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


A = TypeVar("A")

MIN_PART_RESULTS = 10  # minimum that each part returns, so that there is a choice
# Extra time, because a part that stops at the limit returns its partial results a little later.
GRACE_FACTOR = 1.25
RELATIONS_PART = "relations of code"
NON_RELATION_FACTOR = 0.85  # factor for other results if the question asks for relations and some were found


class _SearchedPart(Value):
    """The result of one searched part. `is_searched` is False if it could not be searched."""

    name: str
    results: list[UnifiedResult] = field(default_factory=list[UnifiedResult])
    warnings: list[ToolWarning] = field(default_factory=list[ToolWarning])
    is_searched: bool = True


class UnifiedSearch:
    """Concurrent search of past conversations and all other families, merged into one answer."""

    def __init__(
        self,
        library: Library,
        finders: Sequence[Finder],
        indexing: VectorIndexer,
        clock: Clock,
        options: HistoryOptions,
    ) -> None:
        self._library = library
        self._finders = finders
        self._indexing = indexing
        self._conversations = ConversationSearch(indexing, clock, options)
        self._options = options

    async def search(
        self,
        call: ToolCall,
        query: str,
        *,
        limit: int = 10,
        merge: bool = True,
        include_graph: bool = True,
        peers: Peers | None = None,
        all_projects: bool = False,
    ) -> UnifiedAnswer:
        """Return the best results of all parts. A part that fails or is late gives a warning, never an error."""
        intent = analyze_question(query)
        ways = tuple[SearchType, ...](way for way in intent.search_types if include_graph or way != "graph")
        wanted = max(limit, MIN_PART_RESULTS)
        finders = [finder for finder in self._finders if include_graph or finder.name != GRAPH_PART]
        asked = [self._ask_finder(finder, call, query, ways, wanted, all_projects=all_projects) for finder in finders]
        (history, recalled), related, others, elsewhere = await asyncio.gather(
            self._search_history(query, intent, ways, wanted),
            self._search_relations(intent, ways, wanted, include_graph=include_graph),
            asyncio.gather(*asked),
            _ask_peers(peers, query, wanted),
        )
        parts = [history, *others, *elsewhere]
        results = [discount_peer_score(result) for part in parts for result in part.results]
        if "graph" in ways:
            results += related.results
            if intent.primary_intent == "trace_dependencies":
                results = _prefer_relations(results)
        page = merge_results(results, limit) if merge else []
        groups = None if merge else group_results(results, limit)
        searched = [part.name for part in parts if part.is_searched]
        zone = self._options.zone
        course = SearchReport(query, intent, ways, searched, recalled, related.results, zone)
        answer = UnifiedAnswer(page, intent, "", [], groups)
        used = dict.fromkeys((*ways, *(result.search_type for result in answer.all_results)))
        answer = replace(answer, intent=replace(intent, search_types=tuple(used)))
        return replace(
            answer,
            explanation=format_explanation(course, answer.all_results),
            suggestions=list_suggestions(course, answer.all_results),
            # Both parts are in one store, so if it cannot be read, one warning is enough.
            warnings=_merge_warnings(
                list_warnings((), query, self._indexing.embedder), [*parts, related] if history.is_searched else parts
            ),
        )

    async def read_stamp(self, call: ToolCall) -> object:
        """Return a value that changes whenever an answer may change."""
        stamps = [self._read_history_stamp(), *(finder.get_stamp(call) for finder in self._finders)]
        return tuple(await asyncio.gather(*map(_await_stamp, stamps)))

    async def _read_history_stamp(self) -> object:
        return await (await open_visible_history(self._library, self._options)).read_stamp()

    async def _search_history(
        self, query: str, intent: QuestionIntent, ways: Sequence[SearchType], limit: int
    ) -> tuple[_SearchedPart, ConversationResults | None]:
        async def find() -> ConversationResults:
            past = await open_visible_history(self._library, self._options)
            return await self._conversations.find(past.store, query, intent, ways, limit)

        found = await self._run_within_limit(HISTORY_PART, find())
        if isinstance(found, ToolWarning):
            return _SearchedPart(HISTORY_PART, warnings=[found], is_searched=False), None
        warnings = [ToolWarning(notice.code, notice.message) for notice in found.notices]
        if found.is_empty:
            warnings.append(ToolWarning(NO_HISTORY_CODE, get_no_history_message()))
        return _SearchedPart(HISTORY_PART, found.results, warnings), found

    async def _search_relations(
        self, intent: QuestionIntent, ways: Sequence[SearchType], limit: int, *, include_graph: bool
    ) -> _SearchedPart:
        """Find the relations of the names in the question, which also decide what is suggested."""
        if not include_graph:
            return _SearchedPart(RELATIONS_PART)

        async def find() -> list[UnifiedResult]:
            past = await open_visible_history(self._library, self._options)
            return await find_relations(past.store, intent.entities, limit, words_too="graph" in ways)

        found = await self._run_within_limit(RELATIONS_PART, find())
        if isinstance(found, ToolWarning):
            return _SearchedPart(RELATIONS_PART, warnings=[found], is_searched=False)
        return _SearchedPart(RELATIONS_PART, found)

    async def _ask_finder(
        self, finder: Finder, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int, *, all_projects: bool
    ) -> _SearchedPart:
        asked = finder.find(call, query, ways, limit, all_projects=all_projects)
        found = await self._run_within_limit(finder.name, asked)
        if isinstance(found, ToolWarning):
            return _SearchedPart(finder.name, warnings=[found], is_searched=False)
        warnings = [ToolWarning("partial_results", notice) for notice in found.notices]
        warnings += [ToolWarning(ELSEWHERE_CODE, hint) for hint in found.hints]
        return _SearchedPart(finder.name, [_build_result(finder.name, hit) for hit in found.hits], warnings)

    async def _run_within_limit(self, name: str, work: Coroutine[Any, Any, A]) -> A | ToolWarning:
        limit = self._options.time_limit
        try:
            found = await Deadline.from_seconds(None if limit is None else GRACE_FACTOR * limit).run(work)
        except EverkeptError as error:
            code = f"{name.replace(' ', '_')}_unavailable"
            return ToolWarning(code, f"Results do not include {name}. {error.message}")
        if found is None:
            message = f"Results do not include {name}: no answer within {limit:g} s."
            return ToolWarning("partial_results", message)
        return found


def _prefer_relations(results: Sequence[UnifiedResult]) -> list[UnifiedResult]:
    """Lower all other results if there are relations."""
    if not any(result.type == RELATION_TYPE for result in results):
        return list(results)
    return [
        result
        if result.type == RELATION_TYPE
        else replace(result, relevance_score=round(NON_RELATION_FACTOR * result.relevance_score, 3))
        for result in results
    ]


async def _ask_peers(peers: Peers | None, query: str, limit: int) -> list[_SearchedPart]:
    """Ask the other servers. All failures form one part without results."""
    if peers is None:
        return []
    asked = await peers.ask(PeerQuestion(query, (), limit))
    answered = [_SearchedPart(format_source(answer.peer), build_unified_results(answer)) for answer in asked.answers]
    warnings = list_peer_warnings(asked)
    return [*answered, _SearchedPart("", warnings=warnings, is_searched=False)] if warnings else answered


def _merge_warnings(general: Sequence[ToolWarning], parts: Sequence[_SearchedPart]) -> list[ToolWarning] | None:
    told = [*general, *(warning for part in parts for warning in part.warnings)]
    if any(part.results for part in parts):
        told = [warning for warning in told if warning.code != ELSEWHERE_CODE]
    said = {warning.message: warning for warning in told}
    return list(said.values()) or None


def _build_result(part: str, hit: SearchFinding) -> UnifiedResult:
    return UnifiedResult(
        id=hit.id,
        type=hit.type,
        content=hit.content,
        relevance_score=round(min(max(hit.score, 0.0), 1.0), 3),
        search_type=hit.search_type,
        found_in=part,
        context=ResultContext(hit.project, None if hit.at is None else format_iso(hit.at)),
        title=hit.title,
    )


async def _await_stamp(work: Coroutine[Any, Any, object]) -> object:
    try:
        return await work
    except EverkeptError:
        return object()  # equal to no other value, so that an unknown state never counts as unchanged
