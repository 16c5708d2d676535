"""One search over everything that is remembered, and the sentences that say how it went."""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from datetime import tzinfo
from itertools import islice
from typing import Any, TypeVar

from everkept.core.answers import Finder, Finding, SearchType
from everkept.core.peers import PeerQuestion, Peers, peer_of, source_of
from everkept.core.ports import Indexing, Library
from everkept.core.sessions import Call, acting
from everkept.core.text import clipped
from everkept.core.times import Clock, iso
from everkept.errors import EverkeptError
from everkept.families.history.merged_results import (
    counted,
    grouped,
    merged,
    on_one_scale,
    results_of,
    warnings_of,
)
from everkept.families.history.model import HistoryOptions
from everkept.families.history.off_folders import reachable
from everkept.families.history.search_answers import (
    CODE_PIECES,
    CONVERSATIONS,
    LOCAL,
    NO_HISTORY,
    RELATION,
    UnifiedAnswer,
    UnifiedResult,
    Whereabouts,
)
from everkept.families.history.searches import no_history
from everkept.families.history.unified_conversations import ConversationSearch, Recalled, relations
from everkept.language.telling_words import stems
from everkept.retrieval.dates import without_dates
from everkept.retrieval.excerpts import coverage
from everkept.retrieval.intent import UNSURE, Intent, PrimaryIntent, analysed
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import Warned
from everkept.values import Value, field, replace

HISTORY = "history"  # the part that past conversations answer
MOST_SUGGESTIONS = 4
TELLING = 0.5  # share of the best score, from which something leads on to more
LONGEST_REPEATED = 120  # characters of a question that a suggestion repeats
LONGEST_NAMED = 60  # characters of a name in a sentence
MOST_NAMED = 3

_TAKEN_FOR: dict[PrimaryIntent, str] = {
    "find_code": "a search for code",
    "recall_discussion": "a question about what was said before",
    "trace_dependencies": "a question about what depends on what",
    "understand_structure": "a question about how something is built",
}
_PARTS = {
    HISTORY: "past conversations and their code",
    "graph": "the words of the knowledge graph",
    "bank": "the memory bank",
}


class Course(Value):
    """How a search went: by which ways, and in which parts that could be searched.

    `relations` are those of the code that the question names, shown or not.
    """

    question: str
    intent: Intent
    ways: Sequence[SearchType]
    parts: Sequence[str]
    recalled: Recalled | None
    relations: Sequence[UnifiedResult]
    zone: tzinfo


def explanation(course: Course, found: Sequence[UnifiedResult] = ()) -> str:
    """What the question was taken for, what was searched and how."""
    taken = f"I took this for {_TAKEN_FOR[course.intent.primary_intent]}"
    if course.intent.confidence <= UNSURE:
        taken += ", as nothing points to anything else"
    if not course.parts:
        return f"{taken}, but nothing could be searched."
    searched = _row([_named_part(part) for part in course.parts])
    sentence = f"{taken}, and searched {searched}, {_by(course)}."
    return " ".join((sentence, *_times(course), *_only_near(course, found)))


def _named_part(part: str) -> str:
    peer = peer_of(part)
    return _PARTS.get(part, part) if peer is None else f"the peer {peer}"


def _only_near(course: Course, found: Sequence[UnifiedResult]) -> Iterator[str]:
    """A search by meaning always finds something; where it keeps to a time, that is meant."""
    asked = stems(without_dates(course.question))
    of_a_time = course.recalled is not None and course.recalled.within is not None
    has_words = any(_has_words(asked, result) for result in found)
    if found and asked and not of_a_time and not has_words:
        yield "No result has a word of the question: they are only near it in meaning."


def _has_words(asked: frozenset[str], result: UnifiedResult) -> bool:
    shown = f"{result.title or ''}\n{result.file or ''}\n{result.content}"
    return coverage(asked, shown) > 0


def _by(course: Course) -> str:
    recalled = course.recalled
    by_words = recalled is not None and recalled.strategy == "keyword"
    ways = ["by words alone" if by_words else "by meaning and words"]
    entities = course.intent.entities
    names = (*entities.functions, *entities.files) or entities.concepts
    if "keyword" in course.ways and names:
        ways.append(f"for {_named(names)} as typed")
    if "graph" in course.ways:
        ways.append("by the relations between things")
    return _row(ways)


def _times(course: Course) -> Iterator[str]:
    recalled = course.recalled
    if recalled is None:
        return
    if recalled.within is not None:
        days = recalled.within.days(course.zone)
        yield f'Of conversations only those {days} count ("{recalled.within.said}").'
    elif recalled.beyond is not None:
        days = recalled.beyond.days(course.zone)
        yield f'No conversation {days} ("{recalled.beyond.said}") fits, so all of them count.'


def suggestions(course: Course, found: Sequence[UnifiedResult]) -> list[str]:
    """Questions and calls that follow from the best of what was found here; none finds nothing."""
    found = [result for result in found if result.source == LOCAL]
    best = max((result.relevance_score for result in found), default=0.0)
    found = [result for result in found if result.relevance_score >= TELLING * best]
    return list(islice(dict.fromkeys(_suggested(course, found)), MOST_SUGGESTIONS))


def _suggested(course: Course, found: Sequence[UnifiedResult]) -> Iterator[str]:
    said = [r for r in found if r.found_in in (CONVERSATIONS, CODE_PIECES) and r.type != RELATION]
    if said:
        yield f"read_conversation {_arguments(id=said[0].id)}: what was said around the best match."
    yield from _about_names(course)
    if len(course.question) <= LONGEST_REPEATED:
        yield from _narrower(course, said)
        if any(result.type == "memory" for result in found):
            yield f"recall_memories {_arguments(query=course.question)}: all memories about it."
    for result in found:
        if result.type == "entity" and result.title:
            yield f"open_nodes {_arguments(names=[result.title])}: all that the graph knows of it."
        elif result.type == "section":
            file = result.id.rpartition(":")[0]
            yield f"read_memory_bank_file {_arguments(filename=file)}: the whole file."
    if course.recalled is not None and course.recalled.is_empty and acting() is None:
        yield "everkept import history, on the command line: takes in past conversations."


def _about_names(course: Course) -> Iterator[str]:
    """Of names whose relations are known, so that there is an answer."""
    intent = course.intent.primary_intent
    told = [result.content for result in course.relations]
    for name in course.intent.entities.functions[:MOST_NAMED]:
        if intent != "trace_dependencies" and any(f"calls `{name}`" in each for each in told):
            yield f"What calls `{name}`?"
        if intent != "find_code" and any(each.startswith(f"`{name}` is defined") for each in told):
            yield f"Where is `{name}` defined?"


def _narrower(course: Course, said: Sequence[UnifiedResult]) -> Iterator[str]:
    asked = course.question
    types = {result.type for result in said}
    if "decision" in types and len(types) > 1:
        call = _arguments(query=asked, type="decision")
        yield f"recall_previous_discussions {call}: the decisions alone."
    languages = [result.language for result in said if result.language]
    if languages and len(types) > 1:
        call = _arguments(query=asked, language=languages[0])
        yield f"search_code_history {call}: the code alone."
    projects = dict.fromkeys(r.context.project_path for r in said if r.context.project_path)
    if len(projects) > 1:
        call = _arguments(query=asked, project_filter=next(iter(projects)))
        yield f"recall_previous_discussions {call}: this project alone."


def _arguments(**values: object) -> str:
    return json.dumps(values, ensure_ascii=False)


def _named(names: Sequence[str]) -> str:
    return _row([f"`{clipped(name, LONGEST_NAMED)}`" for name in names[:MOST_NAMED]])


def _row(items: Sequence[str]) -> str:
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


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
