"""The three searches of past conversations, and the summary of their results."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.core.sessions import get_acting_account
from everkept.core.text import clip_text, compute_name_key, format_count
from everkept.core.times import format_ago, parse_time
from everkept.families.history.code_languages import normalize_language
from everkept.families.history.model import CODE, CONVERSATION, DECISION, SAID, SUMMARY, TURN
from everkept.families.history.relevance import (
    SIMILAR_PROFILE,
    QueryContext,
    blank_masks,
    drop_low_scores,
    find_code,
    find_turns,
    find_words,
    is_decision_question,
    list_languages,
    parse_query,
    prefer_decisions,
    sort_for_display,
    strip_decision_words,
)
from everkept.families.history.search_answers import MemoryResult, MemorySearchResult
from everkept.families.history.search_filters import TimeRangeName, compute_bounds, find_nearest_project, match_projects
from everkept.families.history.search_results import build_results, compute_stats, read_nearby_turns, read_turns_between
from everkept.language.sentences import has_block
from everkept.language.telling_words import find_key_topics, list_stems
from everkept.retrieval.profile import SearchHit, SearchPage
from everkept.tools.tool import ToolWarning
from everkept.values import Value, field, replace

PROBLEM_FACET, FIX_FACET = "problem", "fix"  # facets of turns
USER_AUTHOR = "user"  # author of prompts in transcripts
MAX_TURNS_TO_FIX = 40  # turns after a problem that are searched for its solution
MAX_TURNS_TO_CONFIRM = 3  # turns after a problem in which a report of success refers to it
SEARCH_FACTOR = 3  # times the limit, because only one result per conversation is shown
MAX_DESCRIPTION_CHARACTERS = 600  # if code comes with it, so that both affect the search
# Factors for turns that are not a problem, and for problems without a solution.
NO_PROBLEM_FACTOR, UNSOLVED_FACTOR = 0.85, 0.85
# Phrases that mean "solved" only after a problem.
_SUCCESS_PHRASE = re.compile(
    r"\b(?:works?|(?:runs?|goes|went) through|pass(?:es)?|(?:is|are) green)"
    r"(?:\W+(?:fine|well))?\W+(?:now|again)\b|\b(?:now|again)\W+(?:works|passes|runs through)\b"
    r"|^\W*(?:\w+\W+){0,2}works\W+(?:thanks|thank you)",
    re.IGNORECASE,
)


class SimilarProblems(Value):
    """Similar problems, best first, and the turns that solved them, by the id of the problem."""

    found: SearchPage
    resolutions: Mapping[str, Record]


class FixTurn(Value):
    """A turn that reports a solution, and the answer to which the user refers."""

    turn: Record
    answer: Record | None


async def find_similar(
    store: RecordStore, description: str, code: str | None, limit: int, asking: QueryContext
) -> SimilarProblems:
    """Find turns similar to the problem. Turns that name an error and were solved later come first."""
    query = build_problem_query(description, code)
    answer = await find_turns(
        store,
        query,
        profile=SIMILAR_PROFILE,
        limit=max(limit * SEARCH_FACTOR, 20),
        asking=asking,
        repeated=True,  # the same problem may be solved in one conversation only
    )
    resolutions = await _find_resolutions(store, [hit.record for hit in answer.hits])
    judged = sorted(
        (_adjust_score(hit, resolutions) for hit in answer.hits),
        key=lambda hit: (-hit.score, -hit.record.effective_at, hit.record.id),
    )
    hits = drop_low_scores(_remove_duplicates(_keep_best_per_conversation(judged)))[:limit]
    return SimilarProblems(replace(answer, hits=hits), resolutions)


def build_problem_query(description: str, code: str | None) -> str:
    """Join the description and its code. With code, a long description is cut."""
    if not code or not code.strip():
        return description
    return f"{description[:MAX_DESCRIPTION_CHARACTERS]}\n{code.strip()}"


def _adjust_score(hit: SearchHit, resolutions: Mapping[str, Record]) -> SearchHit:
    facets = hit.record.facets
    score = hit.score
    if not _is_problem(hit):
        score *= NO_PROBLEM_FACTOR
    if not facets.get(FIX_FACET) and hit.record.id not in resolutions:
        score *= UNSOLVED_FACTOR
    return replace(hit, score=score)


def _keep_best_per_conversation(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """Keep one hit per conversation: the best that names the problem, with the conversation's best score."""
    conversations: dict[str, list[SearchHit]] = {}
    for hit in hits:
        conversations.setdefault(hit.record.parent or hit.record.id, []).append(hit)
    return [replace(next(filter(_is_problem, some), some[0]), score=some[0].score) for some in conversations.values()]


def _remove_duplicates(hits: Sequence[SearchHit]) -> list[SearchHit]:
    best: dict[str, SearchHit] = {}
    for hit in hits:
        best.setdefault(compute_name_key(hit.record.text), hit)
    return list(best.values())


def _is_problem(hit: SearchHit) -> bool:
    return bool(hit.record.facets.get(PROBLEM_FACET))


async def _find_resolutions(store: RecordStore, turns: Sequence[Record]) -> dict[str, Record]:
    """Map each turn to the next one that reports a solution, or to the answer that the user confirms."""
    conversations: dict[tuple[str, str], list[Record]] = {}
    for turn in turns:
        may_ask = turn.author == USER_AUTHOR or turn.facets.get(PROBLEM_FACET)
        if may_ask and turn.parent and turn.session is not None and turn.position is not None:
            conversations.setdefault((turn.parent, turn.session), []).append(turn)
    found_fixes = await asyncio.gather(*(_find_fixes(store, *place, some) for place, some in conversations.items()))
    return {
        turn.id: fix
        for some, fixes in zip(conversations.values(), found_fixes, strict=True)
        for turn in some
        if (fix := _find_first_after(turn, fixes)) is not None
    }


async def _find_fixes(store: RecordStore, conversation: str, session: str, turns: Sequence[Record]) -> list[FixTurn]:
    positions = [turn.position or 0 for turn in turns]
    first, last = min(positions) + 1, max(positions) + MAX_TURNS_TO_FIX
    after = await read_turns_between(store, conversation, session, first, last)
    answers = {turn.position: turn for turn in after if turn.author != USER_AUTHOR}
    return [
        FixTurn(turn, answers.get((turn.position or 0) - 1) if turn.author == USER_AUTHOR else None)
        for turn in after
        if turn.facets.get(FIX_FACET) or _SUCCESS_PHRASE.search(turn.text)
    ]


def _find_first_after(turn: Record, fixes: Sequence[FixTurn]) -> Record | None:
    place = turn.position or 0
    is_open = turn.facets.get(PROBLEM_FACET) and not turn.facets.get(FIX_FACET)
    soon = MAX_TURNS_TO_CONFIRM if is_open else 0
    ahead = MAX_TURNS_TO_FIX if turn.facets.get(PROBLEM_FACET) else MAX_TURNS_TO_CONFIRM
    for fix in fixes:
        is_said = bool(fix.turn.facets.get(FIX_FACET))
        if place < (fix.turn.position or 0) <= place + (ahead if is_said else soon):
            tells_how = fix.answer is not None and place < (fix.answer.position or 0)
            return fix.answer if tells_how else fix.turn
    return None


MAX_SUMMARY_TOPICS = 3  # topics in the summary
MAX_TOPICS = 5
SURE_SCORE = 0.9  # score from which the summary mentions the best result
LONG_SPAN_DAYS = 30  # span from which the summary mentions it
MAX_QUERY_CHARACTERS = 80  # of the question in the summary

_DAY_MICROSECONDS = 86_400 * 1_000_000
_CODE_BLOCK = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)


class ResultNoun(Value):
    one: str
    many: str

    def format_count(self, count: int) -> str:
        return format_count(count, self.one, self.many)


DISCUSSIONS = ResultNoun("relevant discussion", "relevant discussions")
DECISIONS = ResultNoun("decision", "decisions")
CODE_PIECES = ResultNoun("piece of code", "pieces of code")
PROBLEMS = ResultNoun("similar problem", "similar problems")


class SummaryFacts(Value):
    score: float
    at: int
    project: str
    has_words: bool = True  # contains words of the question


def format_summary(
    query: str,
    results: Sequence[SummaryFacts],
    topics: Sequence[str],
    now: int,
    noun: ResultNoun = DISCUSSIONS,
    within: str = "",
    *,
    is_all: bool = True,
) -> str:
    """Return a sentence with the number of results and their topics.

    It says if there are no results, or if none contains a word of the question. `within` describes the filter. `is_all`
    is False if some conversations could not be searched, so they may contain results.
    """
    asked = f'"{clip_text(query, MAX_QUERY_CHARACTERS)}"'
    if not results:
        none = f"I couldn't find any {noun.many.removeprefix('relevant ')} about {asked}{within}."
        if not is_all:
            return none
        if within:
            return f"{none} A search without the filter may find some."
        return f"{none} This might be a new topic."
    sentence = f"I found {noun.format_count(len(results))} about {asked}"
    if not any(result.has_words for result in results):
        near = ResultNoun(noun.one.removeprefix("relevant "), noun.many.removeprefix("relevant "))
        sentence = f"I found no words of {asked}, but {near.format_count(len(results))} with a similar meaning"
    if topics:
        sentence += f" covering {', '.join(topics[:MAX_SUMMARY_TOPICS])}"
    projects = {result.project for result in results if result.project}
    if len(projects) > 1:
        sentence += f" across {format_count(len(projects), 'project')}"
    times = [result.at for result in results]
    days = (max(times) - min(times)) / _DAY_MICROSECONDS
    if days > LONG_SPAN_DAYS:
        sentence += f" spanning {format_count(max(round(days / 30), 1), 'month')}"
    best = max(results, key=lambda result: result.score)
    if best.score > SURE_SCORE:
        return f"{sentence}. The most relevant one was {format_ago(best.at, now)}."
    return f"{sentence}."


def extract_topics(texts: Sequence[str], query: str) -> list[str]:
    """Return the topics of the results other than the words of the question. Code blocks are ignored."""
    asked = list_stems(query)
    plain = (_CODE_BLOCK.sub(" ", text) if has_block(text) else text for text in texts)
    spoken = [(blank_masks(text), ()) for text in plain]
    found = find_key_topics(spoken, limit=MAX_TOPICS + len(asked))
    return [topic for topic in found if not list_stems(topic) <= asked][:MAX_TOPICS]


SearchKind = Literal["all", "conversation", "code", "decision"]

NO_HISTORY_MESSAGE = "No conversations are imported yet. To import them, run `everkept import history`."
NO_ACCOUNT_HISTORY_MESSAGE = (
    "This account has no past conversations. Conversations on the server belong to its owner. Ask the owner about them."
)
MAX_LISTED_LANGUAGES = 10  # languages in a message
MIN_GOOD_SHARE = 0.5  # share of the best score from which a result counts for the topics
TIME_RANGE_PHRASES: dict[TimeRangeName, str] = {
    "today": " from today",
    "week": " from the last seven days",
    "month": " from the last month",
    "all": "",
}
RECORD_KINDS: dict[SearchKind, tuple[str, ...]] = {
    "all": (TURN, CODE),
    "conversation": (TURN,),
    "code": (CODE,),
    "decision": (TURN,),
}
TURN_TYPES: dict[SearchKind, tuple[str, ...]] = {
    "all": (),
    "conversation": (SAID, SUMMARY),
    "code": (),
    "decision": (DECISION,),
}
KIND_NOUNS: dict[SearchKind, ResultNoun] = {
    "all": DISCUSSIONS,
    "conversation": DISCUSSIONS,
    "code": CODE_PIECES,
    "decision": DECISIONS,
}


class HistoryAnswer(Value):
    """Search results. The summary is built for each call, because it mentions relative times."""

    results: list[MemoryResult] = field(default_factory=list[MemoryResult])
    topics: list[str] = field(default_factory=list[str])
    warnings: tuple[ToolWarning, ...] = ()
    noun: ResultNoun = DISCUSSIONS
    lasting: bool = True  # False if another try may find more
    within: str = ""  # description of the filter

    def to_result(self, query: str, now: int, *more: ToolWarning, is_all: bool = True) -> MemorySearchResult:
        """Build the result. If `is_all` is False, an empty result is not called a new topic."""
        results = [
            SummaryFacts(
                result.relevance_score,
                parse_time(result.context.timestamp),
                result.context.project_path,
                has_words=bool(result.highlights or (result.file and find_words(result.file, parse_query(query)))),
            )
            for result in self.results
        ]
        return MemorySearchResult(
            results=self.results,
            summary=format_summary(query, results, self.topics, now, self.noun, self.within, is_all=is_all),
            stats=compute_stats(self.results),
            topics=self.topics,
            warnings=[*self.warnings, *more] or None,
        )


async def recall_discussions(
    store: RecordStore,
    query: str,
    kind: SearchKind,
    project: str | None,
    time_range: TimeRangeName,
    limit: int,
    asking: QueryContext,
) -> HistoryAnswer:
    scopes: Sequence[str] = ()
    if project is not None:
        known = [tally.scope for tally in await store.tally((CONVERSATION,))]
        scopes = match_projects(project, known)
        if not scopes:
            none = await _build_empty_answer(store, KIND_NOUNS[kind], _warn_unknown_project(project, known))
            return replace(none, within=_format_restriction(project, time_range))
    after, before = compute_bounds(time_range, asking.now, asking.zone)
    asked = strip_decision_words(query)
    answer = await find_turns(
        store,
        asked,
        kinds=RECORD_KINDS[kind],
        types=TURN_TYPES[kind],
        scopes=scopes,
        after=after,
        before=before,
        limit=limit,
        asking=asking,
    )
    hits = sort_for_display(prefer_decisions(query, answer.hits), _collect_decision_ids(query, answer))
    around = await read_nearby_turns(store, [hit.record for hit in hits])
    results = build_results(hits, asked, around)
    within = _format_restriction(project, time_range)
    return replace(await _build_answer(store, asked, answer, results, KIND_NOUNS[kind]), within=within)


async def find_solved_problems(
    store: RecordStore, description: str, code: str | None, limit: int, asking: QueryContext
) -> HistoryAnswer:
    answer = await find_similar(store, description, code, limit, asking)
    hits = sort_for_display(answer.found.hits, answer.resolutions)
    around = await read_nearby_turns(store, [hit.record for hit in hits])
    query = build_problem_query(description, code)
    results = build_results(hits, query, around, resolutions=answer.resolutions)
    return await _build_answer(store, description, answer.found, results, PROBLEMS)


async def search_code(
    store: RecordStore, query: str, language: str | None, limit: int, asking: QueryContext, *, with_context: bool
) -> HistoryAnswer:
    meant = normalize_language(language) if language is not None else None
    if language is not None:
        known = await list_languages(store)
        if meant not in known:
            none = await _build_empty_answer(store, CODE_PIECES, _warn_unknown_language(language, known))
            return replace(none, within=_format_language(language))
    answer = await find_code(store, query, meant, limit, asking)
    hits = sort_for_display(answer.hits)
    around = await read_nearby_turns(store, [hit.record for hit in hits], beside=with_context)
    results = build_results(hits, query, around, with_context=with_context)
    told = await _build_answer(store, query, answer, results, CODE_PIECES)
    return replace(told, within=_format_language(language))


async def _build_answer(
    store: RecordStore, query: str, answer: SearchPage, results: list[MemoryResult], noun: ResultNoun
) -> HistoryAnswer:
    if not results and await is_empty(store):
        return HistoryAnswer(warnings=(ToolWarning("no_history", get_no_history_message()),), noun=noun)
    return HistoryAnswer(
        results,
        extract_topics([result.content for result in select_good(results) if result.type != "code"], query),
        tuple(ToolWarning(notice.code, notice.message) for notice in answer.notices),
        noun,
        lasting=not answer.notices,
    )


def select_good(results: Sequence[MemoryResult]) -> list[MemoryResult]:
    best = max((result.relevance_score for result in results), default=0.0)
    return [result for result in results if result.relevance_score >= MIN_GOOD_SHARE * best]


def _collect_decision_ids(query: str, answer: SearchPage) -> set[str]:
    """Return the ids of decisions if the question asks for one, to show them first among equals."""
    if not is_decision_question(query):
        return set()
    return {hit.record.id for hit in answer.hits if hit.record.type == DECISION}


def _format_restriction(project: str | None, time_range: TimeRangeName) -> str:
    place = "" if project is None else f" in project `{clip_text(project)}`"
    return place + TIME_RANGE_PHRASES[time_range]


def _format_language(language: str | None) -> str:
    return "" if language is None else f" in {clip_text(language)}"


async def _build_empty_answer(store: RecordStore, noun: ResultNoun, reason: ToolWarning) -> HistoryAnswer:
    """Build the answer for a filter without matches. If the store is empty, say so instead."""
    if await is_empty(store):
        reason = ToolWarning("no_history", get_no_history_message())
    return HistoryAnswer(warnings=(reason,), noun=noun)


def get_no_history_message() -> str:
    """Return the message for the caller. Only the owner can run the import command."""
    return NO_HISTORY_MESSAGE if get_acting_account() is None else NO_ACCOUNT_HISTORY_MESSAGE


async def is_empty(store: RecordStore) -> bool:
    """Return whether no turns are stored, including hidden ones."""
    return not (await store.count_live()).get(TURN)


def _warn_unknown_project(project: str, known: Sequence[str]) -> ToolWarning:
    near = find_nearest_project(project, known)
    hint = f" Did you mean `{near}`?" if near else ""
    return ToolWarning("unknown_project", f"No conversations found for project `{clip_text(project)}`.{hint}")


def _warn_unknown_language(language: str, known: Sequence[str]) -> ToolWarning:
    listed = ", ".join(known[:MAX_LISTED_LANGUAGES])
    there = f" Available languages: {listed}." if listed else ""
    return ToolWarning("unknown_language", f"No code found in `{clip_text(language)}`.{there}")
