"""One search over everything that is remembered, and the sentences that say how it went."""

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
    scale_results,
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
from everkept.families.history.searches import get_no_history_message
from everkept.families.history.unified_conversations import ConversationResults, ConversationSearch, find_relations
from everkept.language.telling_words import list_stems
from everkept.retrieval.dates import remove_dates
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.intent import UNSURE_CONFIDENCE, PrimaryIntent, QuestionIntent, analyze_question
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field, replace

HISTORY_PART = "history"  # the part that past conversations answer
MAX_SUGGESTIONS = 4
MIN_SUGGESTION_SHARE = 0.5  # share of the best score, from which something leads on to more
MAX_REPEATED_CHARACTERS = 120  # characters of a question that a suggestion repeats
MAX_NAME_CHARACTERS = 60  # characters of a name in a sentence
MAX_NAMES = 3

_INTENT_PHRASES: dict[PrimaryIntent, str] = {
    "find_code": "a search for code",
    "recall_discussion": "a question about what was said before",
    "trace_dependencies": "a question about what depends on what",
    "understand_structure": "a question about how something is built",
}
_PART_PHRASES = {
    HISTORY_PART: "past conversations and their code",
    "graph": "the words of the knowledge graph",
    "bank": "the memory bank",
}


class SearchReport(Value):
    """How a search went: by which ways, and in which parts that could be searched.

    `relations` are those of the code that the question names, shown or not.
    """

    question: str
    intent: QuestionIntent
    ways: Sequence[SearchType]
    parts: Sequence[str]
    recalled: ConversationResults | None
    relations: Sequence[UnifiedResult]
    zone: tzinfo


def format_explanation(course: SearchReport, found: Sequence[UnifiedResult] = ()) -> str:
    """What the question was taken for, what was searched and how."""
    taken = f"I took this for {_INTENT_PHRASES[course.intent.primary_intent]}"
    if course.intent.confidence <= UNSURE_CONFIDENCE:
        taken += ", as nothing points to anything else"
    if not course.parts:
        return f"{taken}, but nothing could be searched."
    searched = _join_phrases([_format_part(part) for part in course.parts])
    sentence = f"{taken}, and searched {searched}, {_format_ways(course)}."
    return " ".join((sentence, *_explain_times(course), *_explain_no_words(course, found)))


def _format_part(part: str) -> str:
    peer = parse_source(part)
    return _PART_PHRASES.get(part, part) if peer is None else f"the peer {peer}"


def _explain_no_words(course: SearchReport, found: Sequence[UnifiedResult]) -> Iterator[str]:
    """A search by meaning always finds something; where it keeps to a time, that is meant."""
    asked = list_stems(remove_dates(course.question))
    of_a_time = course.recalled is not None and course.recalled.within is not None
    has_words = any(_has_words(asked, result) for result in found)
    if found and asked and not of_a_time and not has_words:
        yield "No result has a word of the question: they are only near it in meaning."


def _has_words(asked: frozenset[str], result: UnifiedResult) -> bool:
    shown = f"{result.title or ''}\n{result.file or ''}\n{result.content}"
    return compute_coverage(asked, shown) > 0


def _format_ways(course: SearchReport) -> str:
    recalled = course.recalled
    by_words = recalled is not None and recalled.strategy == "keyword"
    ways = ["by words alone" if by_words else "by meaning and words"]
    entities = course.intent.entities
    names = (*entities.functions, *entities.files) or entities.concepts
    if "keyword" in course.ways and names:
        ways.append(f"for {_format_names(names)} as typed")
    if "graph" in course.ways:
        ways.append("by the relations between things")
    return _join_phrases(ways)


def _explain_times(course: SearchReport) -> Iterator[str]:
    recalled = course.recalled
    if recalled is None:
        return
    if recalled.within is not None:
        days = recalled.within.format_days(course.zone)
        yield f'Of conversations only those {days} count ("{recalled.within.said}").'
    elif recalled.beyond is not None:
        days = recalled.beyond.format_days(course.zone)
        yield f'No conversation {days} ("{recalled.beyond.said}") fits, so all of them count.'


def list_suggestions(course: SearchReport, found: Sequence[UnifiedResult]) -> list[str]:
    """Questions and calls that follow from the best of what was found here; none finds nothing."""
    found = [result for result in found if result.source == LOCAL_SOURCE]
    best = max((result.relevance_score for result in found), default=0.0)
    found = [result for result in found if result.relevance_score >= MIN_SUGGESTION_SHARE * best]
    return list(islice(dict.fromkeys(_iter_suggestions(course, found)), MAX_SUGGESTIONS))


def _iter_suggestions(course: SearchReport, found: Sequence[UnifiedResult]) -> Iterator[str]:
    said = [r for r in found if r.found_in in (CONVERSATIONS_PART, CODE_PART) and r.type != RELATION_TYPE]
    if said:
        yield (f"read_conversation {_format_arguments(id=said[0].id)}: what was said around the best match.")
    yield from _suggest_names(course)
    if len(course.question) <= MAX_REPEATED_CHARACTERS:
        yield from _suggest_narrower(course, said)
        if any(result.type == "memory" for result in found):
            yield (f"recall_memories {_format_arguments(query=course.question)}: all memories about it.")
    for result in found:
        if result.type == "entity" and result.title:
            yield (f"open_nodes {_format_arguments(names=[result.title])}: all that the graph knows of it.")
        elif result.type == "section":
            file = result.id.rpartition(":")[0]
            yield f"read_memory_bank_file {_format_arguments(filename=file)}: the whole file."
    if course.recalled is not None and course.recalled.is_empty and get_acting_account() is None:
        yield "everkept import history, on the command line: takes in past conversations."


def _suggest_names(course: SearchReport) -> Iterator[str]:
    """Of names whose relations are known, so that there is an answer."""
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
        yield f"recall_previous_discussions {call}: the decisions alone."
    languages = [result.language for result in said if result.language]
    if languages and len(types) > 1:
        call = _format_arguments(query=asked, language=languages[0])
        yield f"search_code_history {call}: the code alone."
    projects = dict.fromkeys(r.context.project_path for r in said if r.context.project_path)
    if len(projects) > 1:
        call = _format_arguments(query=asked, project_filter=next(iter(projects)))
        yield f"recall_previous_discussions {call}: this project alone."


def _format_arguments(**values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


def _format_names(names: Sequence[str]) -> str:
    return _join_phrases([f"`{clip_text(name, MAX_NAME_CHARACTERS)}`" for name in names[:MAX_NAMES]])


def _join_phrases(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


A = TypeVar("A")

MIN_PART_RESULTS = 10  # that each part is asked for, so that there is something to choose from
# Whoever keeps to the limit answers then with what there is; a little later that has arrived.
GRACE_FACTOR = 1.25
RELATIONS_PART = "relations of code"
NON_RELATION_FACTOR = 0.85  # what words count, to whom asks for relations where there are some


class _SearchedPart(Value):
    """What one part of the search has come to; `is_searched` is False where it could not be."""

    name: str
    results: list[UnifiedResult] = field(default_factory=list[UnifiedResult])
    warnings: list[ToolWarning] = field(default_factory=list[ToolWarning])
    is_searched: bool = True


class UnifiedSearch:
    """Asks past conversations and every other family at once, and makes one answer of it."""

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
    ) -> UnifiedAnswer:
        """The best of all parts. One that fails or is late is a warning, and never an error.

        With `peers` the servers of others are asked too.
        """
        intent = analyze_question(query)
        ways = tuple[SearchType, ...](way for way in intent.search_types if include_graph or way != "graph")
        wanted = max(limit, MIN_PART_RESULTS)
        asked = [self._ask_finder(finder, call, query, ways, wanted) for finder in self._finders]
        (history, recalled), related, others, elsewhere = await asyncio.gather(
            self._search_history(query, intent, ways, wanted),
            self._search_relations(intent, ways, wanted, include_graph=include_graph),
            asyncio.gather(*asked),
            _ask_peers(peers, query, wanted),
        )
        parts = [history, *others, *elsewhere]
        comparable = scale_results(query, {part.name: part.results for part in parts})
        results = [discount_peer_score(result) for some in comparable.values() for result in some]
        if "graph" in ways:
            if intent.primary_intent == "trace_dependencies" and related.results:
                results = [_discount_result(result) for result in results]
            results += related.results
        page = merge_results(results, limit) if merge else []
        groups = None if merge else group_results(results, limit)
        searched = [part.name for part in parts if part.is_searched]
        zone = self._options.zone
        course = SearchReport(query, intent, ways, searched, recalled, related.results, zone)
        answer = UnifiedAnswer(page, intent, "", [], groups)
        return replace(
            answer,
            explanation=format_explanation(course, answer.all_results),
            suggestions=list_suggestions(course, answer.all_results),
            # Both are in one store: where that cannot be read, one sentence says it.
            warnings=_merge_warnings([*parts, related] if history.is_searched else parts),
        )

    async def read_stamp(self, call: ToolCall) -> object:
        """Another value once an answer may be another."""
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
        """Those of names that a question has are known, even where they are not asked for: they
        say what can be asked next."""
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
        self, finder: Finder, call: ToolCall, query: str, ways: Sequence[SearchType], limit: int
    ) -> _SearchedPart:
        found = await self._run_within_limit(finder.name, finder.find(call, query, ways, limit))
        if isinstance(found, ToolWarning):
            return _SearchedPart(finder.name, warnings=[found], is_searched=False)
        warnings = [ToolWarning("partial_results", notice) for notice in found.notices]
        return _SearchedPart(finder.name, [_build_result(finder.name, hit) for hit in found.hits], warnings)

    async def _run_within_limit(self, name: str, work: Coroutine[Any, Any, A]) -> A | ToolWarning:
        limit = self._options.time_limit
        try:
            found = await Deadline.from_seconds(None if limit is None else GRACE_FACTOR * limit).run(work)
        except EverkeptError as error:
            code = f"{name.replace(' ', '_')}_unavailable"
            return ToolWarning(code, f"Without {name}: {error.message}")
        if found is None:
            message = f"Without {name}: no answer within {limit:g} seconds."
            return ToolWarning("partial_results", message)
        return found


async def _ask_peers(peers: Peers | None, query: str, limit: int) -> list[_SearchedPart]:
    """What other servers have; those that failed are one part, which found nothing."""
    if peers is None:
        return []
    asked = await peers.ask(PeerQuestion(query, (), limit))
    answered = [_SearchedPart(format_source(answer.peer), build_unified_results(answer)) for answer in asked.answers]
    warnings = list_peer_warnings(asked)
    return [*answered, _SearchedPart("", warnings=warnings, is_searched=False)] if warnings else answered


def _discount_result(result: UnifiedResult) -> UnifiedResult:
    return replace(result, relevance_score=round(NON_RELATION_FACTOR * result.relevance_score, 3))


def _merge_warnings(parts: Sequence[_SearchedPart]) -> list[ToolWarning] | None:
    """Each once, whoever says it."""
    said = {warning.message: warning for part in parts for warning in part.warnings}
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
        return object()  # equal to no other: what cannot be known is not taken for unchanged
