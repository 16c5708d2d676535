"""The part of a search over everything that past conversations answer."""

import asyncio
from collections.abc import Sequence

from everkept.core.ports import Indexing, RecordStore
from everkept.core.searching import SearchType
from everkept.core.times import Clock
from everkept.families.history.model import CODE, TURN, HistoryOptions
from everkept.families.history.search.answers import MemoryResult
from everkept.families.history.search.code_search import definitions_first
from everkept.families.history.search.presentation import presented, surroundings
from everkept.families.history.search.ranking import (
    CODE_SEARCH,
    RECALL,
    Asking,
    decisions_first,
    found,
    what_is_asked,
)
from everkept.families.history.search.searches import is_empty
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    UnifiedResult,
    Whereabouts,
)
from everkept.families.history.unified.period import Period, period
from everkept.language.telling_words import stems
from everkept.retrieval.coverage import coverage
from everkept.retrieval.dates import without_dates
from everkept.retrieval.intent import Entities, Intent
from everkept.retrieval.profile import Found, Hit, Notice, Profile, Strategy, Tier
from everkept.values import Value, field, replace

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
