"""The part of a search over everything that past conversations answer."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from recollect.core.ports import Indexing, RecordStore
from recollect.core.records import Where
from recollect.core.searching import SearchType
from recollect.core.times import Clock
from recollect.families.history.model import CODE, DECISION, TURN, HistoryOptions
from recollect.families.history.search.answers import MemoryResult
from recollect.families.history.search.presenting import presented
from recollect.families.history.search.profiles import CODE_SEARCH, RECALL
from recollect.families.history.search.recalling import Asking, found
from recollect.families.history.search.surroundings import surroundings
from recollect.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    UnifiedResult,
    Whereabouts,
)
from recollect.families.history.unified.period import Period, period
from recollect.retrieval.dates import without_dates
from recollect.retrieval.intent import Entities, Intent
from recollect.retrieval.profile import Found, Hit, Notice, Profile, Strategy, Tier

LITERAL = Profile(kinds=(TURN, CODE), reading="tiers")
AS_TYPED: tuple[Tier, ...] = ("expression", "all")  # readings that take the words at their word
ABOUT_CODE = 0.8  # what a turn that speaks about code counts, to whom looks for the code itself
UNDECIDED = 0.85  # what a turn that decides nothing counts, to whom asks for a decision
NAMES_FOUND = 0.9  # score of the best that has the very names that were asked for
WORDS_FOUND = 0.75  # likewise for ordinary words

_DECIDING = re.compile(
    r"\b(?:decid|decision|choose|chose|agree|settle|go with|went with|why (?:did|do) we)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Recalled:
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
        if meant is not None and not searched.results:
            searched = await self._search(store, question, intent, ways, limit, now, None)
            searched = replace(searched, beyond=meant)
        if searched.results:
            return searched
        return replace(searched, is_empty=not await store.scan(Where(kinds=(TURN,)), limit=1))

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
        asked = (without_dates(question) if within else "") or question

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
            answers = [said, coded]
        else:
            answers = [await by(RECALL, asked)]
        hits = _decisions_first(asked, [hit for answer in answers for hit in answer.hits])
        results = await _results(store, asked, hits, "semantic")
        literal = as_typed(intent.entities) if "keyword" in ways else None
        if literal is not None:
            typed = _typed_hits(await by(LITERAL, literal), intent.entities)
            results += await _results(store, asked, typed, "keyword")
        notices = dict.fromkeys(notice for answer in answers for notice in answer.notices)
        return Recalled(results, answers[0].strategy, list(notices), within=within)


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


def _decisions_first(question: str, hits: list[Hit]) -> list[Hit]:
    """To whom asks what was decided: the question that led to it is worded like his."""
    if not _DECIDING.search(question) or all(hit.record.type != DECISION for hit in hits):
        return hits
    return [
        hit if hit.record.type == DECISION else replace(hit, score=UNDECIDED * hit.score)
        for hit in hits
    ]


def _about_code(hit: Hit) -> Hit:
    return replace(hit, score=ABOUT_CODE * hit.score)


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
