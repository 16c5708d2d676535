"""The results of past conversations and their code in a unified search."""

import asyncio
import re
from collections.abc import Sequence
from datetime import tzinfo

from everkept.core.answers import SearchType
from everkept.core.ports import RecordStore, VectorIndexer
from everkept.core.text import compute_digest
from everkept.core.times import Clock, format_iso, to_datetime
from everkept.families.history.call_trace import CodeRelation, trace_calls
from everkept.families.history.code_search import find_code, is_phrase, prefer_definitions, show_code
from everkept.families.history.model import CODE, TURN, HistoryOptions
from everkept.families.history.relevance import (
    RECALL_PROFILE,
    QueryContext,
    find_turns,
    prefer_decisions,
    strip_decision_words,
)
from everkept.families.history.search_answers import (
    CODE_PART,
    CONVERSATIONS_PART,
    RELATION_MARK,
    RELATION_TYPE,
    MemoryResult,
    ResultContext,
    UnifiedResult,
)
from everkept.families.history.search_results import build_results, lead_with_answers, read_nearby_turns
from everkept.families.history.searches import is_empty
from everkept.language.telling_words import list_stems
from everkept.retrieval.dates import find_date_phrases, find_spans, remove_dates
from everkept.retrieval.excerpts import compute_coverage
from everkept.retrieval.intent import QuestionEntities, QuestionIntent
from everkept.retrieval.profile import SearchHit, SearchNotice, SearchPage, SearchProfile, Strategy, Tier
from everkept.retrieval.scores import calibrate_hits
from everkept.values import Value, field, replace

# In "talk about Monday", "about" does not mean "around".
_TALK_ABOUT = re.compile(
    r"\b(?:talk|speak|spoke|discuss|ask|say|said|decid|learn|thought|think)\w*\s+about\s+$", re.IGNORECASE
)
_TIME_CUE = re.compile(r"(since|after|before|until|till|by|around|about|near|between)\s+(?:the\s+)?$", re.IGNORECASE)


class NamedPeriod(Value):
    """A period between two moments, in the words of the question. None means open."""

    said: str
    after: int | None
    before: int | None

    def format_days(self, zone: tzinfo) -> str:
        """Return the period in the words of an answer."""
        first = None if self.after is None else _format_day(self.after, zone)
        last = None if self.before is None else _format_day(self.before, zone)
        if first is None:
            return f"until {last}"
        if last is None:
            return f"since {first}"
        return f"on {first}" if first == last else f"from {first} to {last}"


def parse_period(question: str, now: int, zone: tzinfo) -> NamedPeriod | None:
    """Return the period of a question. Return None if it names no time, several times or an approximate one."""
    mentions = find_date_phrases(question)
    sure = [span for span in find_spans(question, now, zone) if span.strength == 1.0]
    if len(mentions) != 1 or not sure:
        return None
    words = mentions[0]
    start, end = min(span.start for span in sure), max(span.end for span in sure)
    match _find_cue(question, words):
        case "since":
            return NamedPeriod(words, start, None)
        case "after":
            return NamedPeriod(words, end, None)
        case "before":
            return NamedPeriod(words, None, start - 1)
        case "until" | "till" | "by":
            return NamedPeriod(words, None, end - 1)
        case "in":
            return NamedPeriod(words, start, end - 1)
        case _:
            return None


def _find_cue(question: str, words: str) -> str:
    """Return the word that says how a time limits the period, before the time or as its first word."""
    before = question[: question.find(words)]
    if _TALK_ABOUT.search(before):
        return "in"
    found = _TIME_CUE.search(before) or _TIME_CUE.match(f"{words.split()[0]} ")
    if found is not None:
        return found[1].lower()
    return "around" if words.split()[0].lower() in ("early", "late", "mid") else "in"


def _format_day(at: int, zone: tzinfo) -> str:
    return to_datetime(at).astimezone(zone).date().isoformat()


LITERAL_PROFILE = SearchProfile(kinds=(TURN, CODE), reading="tiers")
LITERAL_TIERS: tuple[Tier, ...] = ("expression", "all")  # readings that require the typed words
ABOUT_CODE_FACTOR = 0.8  # factor for turns that talk about code, if the question asks for the code itself
NAMES_SCORE = 0.9  # score of the best match of the exact names
WORDS_SCORE = 0.75  # score of the best match of ordinary words


class ConversationResults(Value):
    """Search results, best first for each search type."""

    results: list[UnifiedResult]
    strategy: Strategy | None = None
    notices: list[SearchNotice] = field(default_factory=list[SearchNotice])
    within: NamedPeriod | None = None  # the period to which the search was limited
    beyond: NamedPeriod | None = None  # a period without matches, so that all times were searched
    is_empty: bool = False  # no conversation was ever imported


class ConversationSearch:
    """Search of turns and code by meaning, and by the typed words if the intent asks for it."""

    def __init__(self, indexing: VectorIndexer, clock: Clock, options: HistoryOptions) -> None:
        self._indexing = indexing
        self._clock = clock
        self._options = options

    async def find(
        self, store: RecordStore, question: str, intent: QuestionIntent, ways: Sequence[SearchType], limit: int
    ) -> ConversationResults:
        now = self._clock()
        meant = parse_period(question, now, self._options.zone)
        searched = await self._search(store, question, intent, ways, limit, now, meant)
        named = intent.entities
        asked = list_stems(" ".join((*named.concepts, *named.functions, *named.files)))
        if meant is not None and not _has_query_words(asked, searched.results):
            timeless = remove_dates(question) or question
            anywhere = await self._search(store, timeless, intent, ways, limit, now, None)
            if not searched.results or _has_query_words(asked, anywhere.results):
                searched = replace(anywhere, beyond=meant)
        if searched.results:
            return searched
        return replace(searched, is_empty=await is_empty(store))

    async def _search(
        self,
        store: RecordStore,
        question: str,
        intent: QuestionIntent,
        ways: Sequence[SearchType],
        limit: int,
        now: int,
        within: NamedPeriod | None,
    ) -> ConversationResults:
        asking = QueryContext(self._indexing.embedder, now, self._options.zone, self._options.time_limit)
        after, before = (within.after, within.before) if within else (None, None)
        # The words of the period are removed, because they would only match themselves.
        asked = strip_decision_words((remove_dates(question) if within else "") or question)

        async def by(profile: SearchProfile, text: str, kinds: Sequence[str] = ()) -> SearchPage:
            found = await find_turns(
                store, text, asking=asking, profile=profile, kinds=kinds, after=after, before=before
            )
            return replace(found, hits=found.hits[: 2 * limit])

        if intent.primary_intent == "find_code":
            said, coded = await asyncio.gather(
                by(RECALL_PROFILE, asked, (TURN,)), find_code(store, asked, asking, after=after, before=before)
            )
            said = replace(said, hits=[_discount_turn(hit) for hit in said.hits])
            answers = [said, coded]
        else:
            answers = [await by(RECALL_PROFILE, asked)]
        ranked = prefer_decisions(question, [hit for answer in answers for hit in answer.hits])
        led = (await lead_with_answers(store, asked, ranked)).hits[:limit]
        fits = [answer.fit for answer in answers if answer.fit is not None]
        hits = calibrate_hits(led, max(fits, key=lambda fit: fit.compute_probability(1.0), default=None))
        if is_phrase(question):
            hits = await show_code(store, hits)
        results = await _build_unified_results(store, asked, hits, "semantic")
        literal = build_literal_query(intent.entities) if "keyword" in ways else None
        if literal is not None:
            typed = _select_literal_hits(await by(LITERAL_PROFILE, literal), intent.entities)[:limit]
            typed = await prefer_definitions(store, asked, list(map(_discount_turn, typed)))
            results += await _build_unified_results(store, asked, typed, "keyword")
        notices = dict.fromkeys(notice for answer in answers for notice in answer.notices)
        strategy = "keyword" if _is_mostly_unembedded(hits) else answers[0].strategy
        return ConversationResults(results, strategy, list(notices), within=within)


def _has_query_words(asked: frozenset[str], results: Sequence[UnifiedResult]) -> bool:
    """Return whether any result contains a word of the question. Without words, every result of the time matches."""
    return bool(results) and (not asked or any(compute_coverage(asked, result.content) for result in results))


def build_literal_query(entities: QuestionEntities) -> str | None:
    """Build a word query for the names of a question, otherwise for all its words. Return None if it has none."""
    if names := (*entities.functions, *entities.files):
        return " OR ".join(_quote(name) for name in names)
    if entities.concepts:
        return " AND ".join(_quote(concept) for concept in entities.concepts)
    return None


def _quote(words: str) -> str:
    return f'"{words.replace(chr(34), " ")}"'


def _select_literal_hits(answer: SearchPage, entities: QuestionEntities) -> list[SearchHit]:
    """Return the hits that contain the typed words, with scores for literal matches."""
    if answer.tier not in LITERAL_TIERS or not answer.hits:
        return []
    most = NAMES_SCORE if entities.functions or entities.files else WORDS_SCORE
    best = max(hit.score for hit in answer.hits)
    return [replace(hit, score=most * (0.5 + 0.5 * (hit.score / best if best > 0 else 1.0))) for hit in answer.hits]


def _is_mostly_unembedded(hits: Sequence[SearchHit]) -> bool:
    """Return whether most hits have no embedding yet."""
    return 2 * sum(hit.nearness is None for hit in hits) > len(hits)


def _discount_turn(hit: SearchHit) -> SearchHit:
    return replace(hit, score=ABOUT_CODE_FACTOR * hit.score) if hit.record.kind == TURN else hit


async def _build_unified_results(
    store: RecordStore, question: str, hits: Sequence[SearchHit], way: SearchType
) -> list[UnifiedResult]:
    if not hits:
        return []
    around = await read_nearby_turns(store, [hit.record for hit in hits], beside=False)
    return [_to_unified_result(shown, way) for shown in build_results(hits, question, around, with_context=False)]


def _to_unified_result(shown: MemoryResult, way: SearchType) -> UnifiedResult:
    return UnifiedResult(
        id=shown.id,
        type=shown.type,
        content=shown.content,
        relevance_score=shown.relevance_score,
        search_type=way,
        found_in=CODE_PART if shown.type == "code" else CONVERSATIONS_PART,
        source=shown.source,
        context=ResultContext(
            shown.context.project_path or None, shown.context.timestamp, shown.context.session_id or None
        ),
        title=shown.title,
        language=shown.language,
        file=shown.file,
    )


MAX_TRIED_WORDS = 5  # words tried as names of code if a question names none
WORD_FACTOR = 0.8  # factor for relations found through a plain word


async def find_relations(
    store: RecordStore, entities: QuestionEntities, limit: int, *, words_too: bool
) -> list[UnifiedResult]:
    """Return the relations of the names in the question, best first. With `words_too`, try plain words otherwise."""
    names = (*entities.functions, *entities.files)
    words = dict.fromkeys(word for concept in entities.concepts for word in concept.split())
    tried = names or (tuple(words)[:MAX_TRIED_WORDS] if words_too else ())
    if not tried:
        return []
    traced = await trace_calls(store, tried, limit=limit)
    return [_relation_to_result(relation, 1.0 if names else WORD_FACTOR) for relation in traced.relations]


def _relation_to_result(relation: CodeRelation, factor: float) -> UnifiedResult:
    code = relation.code
    return UnifiedResult(
        id=f"{code.id}{RELATION_MARK}{compute_digest(relation.sentence)[:8]}",  # code may show many relations
        type=RELATION_TYPE,
        content=relation.sentence,
        relevance_score=round(min(factor * relation.score, 1.0), 3),
        search_type="graph",
        found_in=CODE_PART,
        context=ResultContext(code.scope or None, format_iso(code.effective_at), code.session),
        language=code.type,
        file=code.name,
    )
