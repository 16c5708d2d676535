"""The part of a search over everything that past conversations and their code answer."""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from everkept.core.answers import SearchType
from everkept.core.ports import Indexing, RecordStore
from everkept.core.times import Clock, iso
from everkept.families.history.call_trace import Relation, trace
from everkept.families.history.model import CODE, TURN, HistoryOptions
from everkept.families.history.relevance import (
    CODE_SEARCH,
    RECALL,
    Asking,
    decisions_first,
    definitions_first,
    found,
    what_is_asked,
)
from everkept.families.history.search_answers import (
    CODE_PIECES,
    CONVERSATIONS,
    RELATION,
    MemoryResult,
    UnifiedResult,
    Whereabouts,
)
from everkept.families.history.search_results import presented, surroundings
from everkept.families.history.searches import is_empty
from everkept.language.telling_words import stems
from everkept.retrieval.dates import said, spans, without_dates
from everkept.retrieval.excerpts import coverage
from everkept.retrieval.intent import Entities, Intent
from everkept.retrieval.profile import Found, Hit, Notice, Profile, Strategy, Tier
from everkept.values import Value, field, replace

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Who talks about a time is not near it.
_TALKING = re.compile(
    r"\b(?:talk|speak|spoke|discuss|ask|say|said|decid|learn|thought|think)\w*\s+about\s+$",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"(since|after|before|until|till|by|around|about|near|between)\s+(?:the\s+)?$", re.IGNORECASE
)


class Period(Value):
    """From the first moment to the last one, as somebody has `said` it; None is open."""

    said: str
    after: int | None
    before: int | None

    def days(self, zone: tzinfo) -> str:
        """In the words of an answer."""
        first = None if self.after is None else _day(self.after, zone)
        last = None if self.before is None else _day(self.before, zone)
        if first is None:
            return f"until {last}"
        if last is None:
            return f"since {first}"
        return f"on {first}" if first == last else f"from {first} to {last}"


def period(question: str, now: int, zone: tzinfo) -> Period | None:
    """None where a question names no time, or several, or one that is only near what is meant."""
    mentions = said(question)
    sure = [span for span in spans(question, now, zone) if span.strength == 1.0]
    if len(mentions) != 1 or not sure:
        return None
    words = mentions[0]
    start, end = min(span.start for span in sure), max(span.end for span in sure)
    match _cue(question, words):
        case "since":
            return Period(words, start, None)
        case "after":
            return Period(words, end, None)
        case "before":
            return Period(words, None, start - 1)
        case "until" | "till" | "by":
            return Period(words, None, end - 1)
        case "in":
            return Period(words, start, end - 1)
        case _:
            return None


def _cue(question: str, words: str) -> str:
    """The word that says how a time is meant, in front of it or as its first one."""
    before = question[: question.find(words)]
    if _TALKING.search(before):
        return "in"
    found = _CUE.search(before) or _CUE.match(f"{words.split()[0]} ")
    if found is not None:
        return found[1].lower()
    return "around" if words.split()[0].lower() in ("early", "late", "mid") else "in"


def _day(at: int, zone: tzinfo) -> str:
    return (_EPOCH + timedelta(microseconds=at)).astimezone(zone).date().isoformat()


LITERAL = Profile(kinds=(TURN, CODE), reading="tiers")
AS_TYPED: tuple[Tier, ...] = ("expression", "all")  # readings that take the words at their word
ABOUT_CODE = 0.8  # what a turn that speaks about code counts, to whom looks for the code itself
NAMES_FOUND = 0.9  # score of the best that has the very names that were asked for
WORDS_FOUND = 0.75  # likewise for ordinary words


class Recalled(Value):
    """What was found, best first for each way, and how it was looked for.

    `within` is the time that conversations were narrowed to, and `beyond` one in which there is
    nothing, so that all were searched.
    """

    results: list[UnifiedResult]
    strategy: Strategy | None = None
    notices: list[Notice] = field(default_factory=list[Notice])
    within: Period | None = None
    beyond: Period | None = None
    is_empty: bool = False  # no conversation was ever taken in


class ConversationSearch:
    """Turns and code, by meaning, and as they were typed where the intent asks for it."""

    def __init__(self, indexing: Indexing, clock: Clock, options: HistoryOptions) -> None:
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def find(
        self,
        store: RecordStore,
        question: str,
        intent: Intent,
        ways: Sequence[SearchType],
        limit: int,
    ) -> Recalled:
        now = self._clock()
        meant = period(question, now, self._options.zone)
        searched = await self._search(store, question, intent, ways, limit, now, meant)
        named = intent.entities
        asked = stems(" ".join((*named.concepts, *named.functions, *named.files)))
        if meant is not None and not _has_words(asked, searched.results):
            timeless = without_dates(question) or question
            anywhere = await self._search(store, timeless, intent, ways, limit, now, None)
            if not searched.results or _has_words(asked, anywhere.results):
                searched = replace(anywhere, beyond=meant)
        if searched.results:
            return searched
        return replace(searched, is_empty=await is_empty(store))

    async def _search(
        self,
        store: RecordStore,
        question: str,
        intent: Intent,
        ways: Sequence[SearchType],
        limit: int,
        now: int,
        within: Period | None,
    ) -> Recalled:
        asking = Asking(self._indexing.embedder, now, self._options.zone, self._options.time_limit)
        after, before = (within.after, within.before) if within else (None, None)
        # Where the time is kept to, its words would only find themselves.
        asked = what_is_asked((without_dates(question) if within else "") or question)

        async def by(profile: Profile, text: str, kinds: Sequence[str] = ()) -> Found:
            return await found(
                store,
                text,
                limit=limit,
                asking=asking,
                profile=profile,
                kinds=kinds,
                after=after,
                before=before,
            )

        if intent.primary_intent == "find_code":
            said, coded = await asyncio.gather(by(RECALL, asked, (TURN,)), by(CODE_SEARCH, asked))
            said = replace(said, hits=[_about_code(hit) for hit in said.hits])
            coded = replace(coded, hits=await definitions_first(store, asked, coded.hits))
            answers = [said, coded]
        else:
            answers = [await by(RECALL, asked)]
        hits = decisions_first(question, [hit for answer in answers for hit in answer.hits])
        results = await _results(store, asked, hits, "semantic")
        literal = as_typed(intent.entities) if "keyword" in ways else None
        if literal is not None:
            typed = _typed_hits(await by(LITERAL, literal), intent.entities)
            typed = await definitions_first(store, asked, list(map(_about_code, typed)))
            results += await _results(store, asked, typed, "keyword")
        notices = dict.fromkeys(notice for answer in answers for notice in answer.notices)
        strategy = "keyword" if _by_words_alone(hits) else answers[0].strategy
        return Recalled(results, strategy, list(notices), within=within)


def _has_words(asked: frozenset[str], results: Sequence[UnifiedResult]) -> bool:
    """Whether any is about the question, as far as its words tell; one that names nothing is about
    a time alone, and everything of that time is."""
    return bool(results) and (
        not asked or any(coverage(asked, result.content) for result in results)
    )


def as_typed(entities: Entities) -> str | None:
    """A word query for the very names of a question, else for all of its words; None for none."""
    if names := (*entities.functions, *entities.files):
        return " OR ".join(_quoted(name) for name in names)
    if entities.concepts:
        return " AND ".join(_quoted(concept) for concept in entities.concepts)
    return None


def _quoted(words: str) -> str:
    return f'"{words.replace(chr(34), " ")}"'


def _typed_hits(answer: Found, entities: Entities) -> list[Hit]:
    """Those that have it as it was typed, with scores that say so."""
    if answer.tier not in AS_TYPED or not answer.hits:
        return []
    most = NAMES_FOUND if entities.functions or entities.files else WORDS_FOUND
    best = max(hit.score for hit in answer.hits)
    return [
        replace(hit, score=most * (0.5 + 0.5 * (hit.score / best if best > 0 else 1.0)))
        for hit in answer.hits
    ]


def _by_words_alone(hits: Sequence[Hit]) -> bool:
    """Whether the meaning of most is not known, as they have no vectors yet."""
    return 2 * sum(hit.cosine is None for hit in hits) > len(hits)


def _about_code(hit: Hit) -> Hit:
    return replace(hit, score=ABOUT_CODE * hit.score) if hit.record.kind == TURN else hit


async def _results(
    store: RecordStore, question: str, hits: Sequence[Hit], way: SearchType
) -> list[UnifiedResult]:
    if not hits:
        return []
    around = await surroundings(store, [hit.record for hit in hits], beside=False)
    return [_result(shown, way) for shown in presented(hits, question, around, with_context=False)]


def _result(shown: MemoryResult, way: SearchType) -> UnifiedResult:
    return UnifiedResult(
        id=shown.id,
        type=shown.type,
        content=shown.content,
        relevance_score=shown.relevance_score,
        search_type=way,
        found_in=CODE_PIECES if shown.type == "code" else CONVERSATIONS,
        source=shown.source,
        context=Whereabouts(
            shown.context.project_path or None,
            shown.context.timestamp,
            shown.context.session_id or None,
        ),
        title=shown.title,
        language=shown.language,
        file=shown.file,
    )


MOST_WORDS = 5  # of a question that names no code, that are tried as names of it
A_WORD = 0.8  # what a relation counts that a plain word has led to


async def relations(
    store: RecordStore, entities: Entities, limit: int, *, words_too: bool
) -> list[UnifiedResult]:
    """Who calls, defines, imports and extends what the question names, best first.

    With `words_too` ordinary words are tried where it names nothing.
    """
    names = (*entities.functions, *entities.files)
    tried = names or (_tried_words(entities.concepts) if words_too else ())
    if not tried:
        return []
    traced = await trace(store, tried, limit=limit)
    return [_related(relation, 1.0 if names else A_WORD) for relation in traced.relations]


def _tried_words(concepts: Sequence[str]) -> tuple[str, ...]:
    words = dict.fromkeys(word for concept in concepts for word in concept.split())
    return tuple(words)[:MOST_WORDS]


def _related(relation: Relation, factor: float) -> UnifiedResult:
    code = relation.code
    return UnifiedResult(
        id=code.id,
        type=RELATION,
        content=relation.sentence,
        relevance_score=round(min(factor * relation.score, 1.0), 3),
        search_type="graph",
        found_in=CODE_PIECES,
        context=Whereabouts(code.scope or None, iso(code.at), code.session),
        language=code.type,
        file=code.name,
    )
