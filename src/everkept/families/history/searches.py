"""The three searches of past conversations, and the sentence that sums one up."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.core.sessions import acting
from everkept.core.text import clipped, normalised
from everkept.core.times import ago, parsed
from everkept.families.history.code_languages import named_language
from everkept.families.history.model import CODE, CONVERSATION, DECISION, TURN
from everkept.families.history.relevance import (
    SIMILAR,
    Asking,
    asks_for_decisions,
    code_like,
    decisions_first,
    found,
    in_order,
    languages,
    near_the_best,
    said_in,
    sought_by,
    what_is_asked,
    without_masks,
)
from everkept.families.history.search_answers import MemoryResult, MemorySearchResult
from everkept.families.history.search_filters import (
    TimeRange,
    bounds,
    nearest_project,
    projects_meant,
)
from everkept.families.history.search_results import (
    presented,
    stats_of,
    surroundings,
    turns_between,
)
from everkept.language.sentences import has_block
from everkept.language.telling_words import key_topics, stems
from everkept.retrieval.profile import Found, Hit, Notice
from everkept.tools.tool import Warned
from everkept.values import Value, field, replace

PROBLEM, FIX = "problem", "fix"  # facets of turns
USER = "user"  # author of turns, in the transcripts of programs
AHEAD = 40  # turns after a problem in which its solution is looked for
SOON = 3  # turns after one in which a word that something works is about it
POOL = 3  # times the results that are wanted, as one of a conversation is shown
LONGEST_DESCRIPTION = 600  # characters, where code comes with it: both are to be heard
# What is left of the score of a turn that is no problem, and of one that nobody solved.
NO_PROBLEM, UNSOLVED = 0.85, 0.85
# Elsewhere this may be said of anything; after a problem it says that it is solved.
_WORKS = re.compile(
    r"\b(?:works?|(?:runs?|goes|went) through|pass(?:es)?|(?:is|are) green)"
    r"(?:\W+(?:fine|well))?\W+(?:now|again)\b|\b(?:now|again)\W+(?:works|passes|runs through)\b"
    r"|^\W*(?:\w+\W+){0,2}works\W+(?:thanks|thank you)",
    re.IGNORECASE,
)


class Solved(Value):
    """What was found, best first, and the turn that solved each by its id, where one did."""

    found: Found
    resolutions: Mapping[str, Record]


class Fix(Value):
    """A turn that says that something is solved, and the answer that the user says it of."""

    turn: Record
    answer: Record | None


async def similar(
    store: RecordStore, description: str, code: str | None, limit: int, asking: Asking
) -> Solved:
    """Turns that are like the problem; those first that name an error and were solved later."""
    query = question(description, code)
    answer = await found(
        store,
        query,
        profile=SIMILAR,
        limit=max(limit * POOL, 20),
        asking=asking,
        repeated=True,  # the same problem may be solved in one place and not in another
    )
    resolutions = await _resolutions(store, [hit.record for hit in answer.hits])
    judged = sorted(
        (_judged(hit, resolutions) for hit in answer.hits),
        key=lambda hit: (-hit.score, -hit.record.at, hit.record.id),
    )
    hits = near_the_best(_each_text_once(_one_for_a_conversation(judged)))[:limit]
    return Solved(replace(answer, hits=hits), resolutions)


def question(description: str, code: str | None) -> str:
    """The problem with its code: of what is long, the beginning of both."""
    if not code or not code.strip():
        return description
    return f"{description[:LONGEST_DESCRIPTION]}\n{code.strip()}"


def _judged(hit: Hit, resolutions: Mapping[str, Record]) -> Hit:
    facets = hit.record.facets
    score = hit.score
    if not _names_a_problem(hit):
        score *= NO_PROBLEM
    if not facets.get(FIX) and hit.record.id not in resolutions:
        score *= UNSOLVED
    return replace(hit, score=score)


def _one_for_a_conversation(hits: Sequence[Hit]) -> list[Hit]:
    """A problem is spoken of in many turns: the best one that names it is shown, with the score of
    the best of all. They come best first."""
    conversations: dict[str, list[Hit]] = {}
    for hit in hits:
        conversations.setdefault(hit.record.parent or hit.record.id, []).append(hit)
    return [
        replace(next(filter(_names_a_problem, some), some[0]), score=some[0].score)
        for some in conversations.values()
    ]


def _each_text_once(hits: Sequence[Hit]) -> list[Hit]:
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(normalised(hit.record.text), hit)
    return list(best.values())


def _names_a_problem(hit: Hit) -> bool:
    return bool(hit.record.facets.get(PROBLEM))


async def _resolutions(store: RecordStore, turns: Sequence[Record]) -> dict[str, Record]:
    """For each turn the first one after it in its conversation that says that it is solved; where
    the user says so, the answer just before tells how."""
    conversations: dict[tuple[str, str], list[Record]] = {}
    for turn in turns:
        may_ask = turn.author == USER or turn.facets.get(PROBLEM)
        if may_ask and turn.parent and turn.session is not None and turn.position is not None:
            conversations.setdefault((turn.parent, turn.session), []).append(turn)
    found_fixes = await asyncio.gather(
        *(_fixes(store, *place, some) for place, some in conversations.items())
    )
    return {
        turn.id: fix
        for some, fixes in zip(conversations.values(), found_fixes, strict=True)
        for turn in some
        if (fix := _first_after(turn, fixes)) is not None
    }


def _says_it_works(turn: Record) -> bool:
    return bool(_WORKS.search(turn.text))


async def _fixes(
    store: RecordStore, conversation: str, session: str, turns: Sequence[Record]
) -> list[Fix]:
    positions = [turn.position or 0 for turn in turns]
    first, last = min(positions) + 1, max(positions) + AHEAD
    after = await turns_between(store, conversation, session, first, last)
    answers = {turn.position: turn for turn in after if turn.author != USER}
    return [
        Fix(turn, answers.get((turn.position or 0) - 1) if turn.author == USER else None)
        for turn in after
        if turn.facets.get(FIX) or _says_it_works(turn)
    ]


def _first_after(turn: Record, fixes: Sequence[Fix]) -> Record | None:
    place = turn.position or 0
    is_open = turn.facets.get(PROBLEM) and not turn.facets.get(FIX)
    soon = SOON if is_open else 0
    ahead = AHEAD if turn.facets.get(PROBLEM) else SOON
    for fix in fixes:
        is_said = bool(fix.turn.facets.get(FIX))
        if place < (fix.turn.position or 0) <= place + (ahead if is_said else soon):
            tells_how = fix.answer is not None and place < (fix.answer.position or 0)
            return fix.answer if tells_how else fix.turn
    return None


MOST_NAMED = 3  # topics in the sentence
MOST_TOPICS = 5
SURE = 0.9  # score from which the best result is spoken of
LONG_SPAN = 30  # days, from which the results' span is told
LONGEST_QUERY = 80  # characters of the question that are repeated

_DAY = 86_400 * 1_000_000
_CODE = re.compile(r"(```|~~~).*?(?:\1|\Z)", re.DOTALL)


class Noun(Value):
    """What is searched for, one and many."""

    one: str
    many: str

    def counted(self, count: int) -> str:
        return f"1 {self.one}" if count == 1 else f"{count} {self.many}"


DISCUSSIONS = Noun("relevant discussion", "relevant discussions")
DECISIONS = Noun("decision", "decisions")
CODE_PIECES = Noun("piece of code", "pieces of code")
PROBLEMS = Noun("similar problem", "similar problems")


class Told(Value):
    """What the sentence needs to know of a result."""

    score: float
    at: int
    project: str
    has_words: bool = True  # of the question


def summary(
    query: str,
    results: Sequence[Told],
    topics: Sequence[str],
    now: int,
    noun: Noun = DISCUSSIONS,
    within: str = "",
    *,
    is_all: bool = True,
) -> str:
    """How many were found about what; where there are none, that there are none, and where not a
    word of the question is in them, that they are only near it. `within` tells what the search was
    narrowed to: there may be something elsewhere, as there may be where it is not `is_all` that
    could be searched."""
    asked = f'"{clipped(query, LONGEST_QUERY)}"'
    if not results:
        none = f"I couldn't find any {noun.many.removeprefix('relevant ')} about {asked}{within}."
        if not is_all:
            return none
        if within:
            return f"{none} Without that filter there may be some."
        return f"{none} This might be a new topic that we haven't explored together yet."
    sentence = f"I found {noun.counted(len(results))} about {asked}"
    if not any(result.has_words for result in results):
        near = Noun(noun.one.removeprefix("relevant "), noun.many.removeprefix("relevant "))
        sentence = f"I found no word of {asked}, but {near.counted(len(results))} near in meaning"
    if topics:
        sentence += f" covering {', '.join(topics[:MOST_NAMED])}"
    projects = {result.project for result in results if result.project}
    if len(projects) > 1:
        sentence += f" across {len(projects)} projects"
    times = [result.at for result in results]
    days = (max(times) - min(times)) / _DAY
    if days > LONG_SPAN:
        sentence += f" spanning {_months(days)}"
    best = max(results, key=lambda result: result.score)
    if best.score > SURE:
        return f"{sentence}. The most relevant one was {ago(best.at, now)}."
    return f"{sentence}."


def topics_of(texts: Sequence[str], query: str) -> list[str]:
    """What the results speak of besides the words of the question; code speaks of nothing."""
    asked = stems(query)
    spoken = [(without_masks(_without_code(text)), ()) for text in texts]
    found = key_topics(spoken, limit=MOST_TOPICS + len(asked))
    return [topic for topic in found if not stems(topic) <= asked][:MOST_TOPICS]


def _without_code(text: str) -> str:
    return _CODE.sub(" ", text) if has_block(text) else text


def _months(days: float) -> str:
    count = max(round(days / 30), 1)
    return "1 month" if count == 1 else f"{count} months"


Kind = Literal["all", "conversation", "code", "decision"]

NO_HISTORY = "No past conversations are here yet. `everkept import history` reads them in."
NO_HISTORY_OF_ACCOUNT = (
    "This account has no past conversations: those on the server's machine are its owner's, who is "
    "to be asked for what they say."
)
MOST_LISTED = 10  # languages in a sentence
GOOD = 0.5  # share of the best score, from which a result tells what all are about
SPANS: dict[TimeRange, str] = {
    "today": " of today",
    "week": " of the last seven days",
    "month": " of the last month",
    "all": "",
}
KINDS: dict[Kind, tuple[str, ...]] = {
    "all": (TURN, CODE),
    "conversation": (TURN,),
    "code": (CODE,),
    "decision": (TURN,),
}
NOUNS: dict[Kind, Noun] = {
    "all": DISCUSSIONS,
    "conversation": DISCUSSIONS,
    "code": CODE_PIECES,
    "decision": DECISIONS,
}


class Answered(Value):
    """What was found; the sentence about it is made when it is told, as it speaks of now.

    What is not `lasting` was found in a hurry, and another try may find more.
    """

    results: list[MemoryResult] = field(default_factory=list[MemoryResult])
    topics: list[str] = field(default_factory=list[str])
    warnings: tuple[Warned, ...] = ()
    noun: Noun = DISCUSSIONS
    lasting: bool = True
    within: str = ""  # what the search was narrowed to

    def told(self, query: str, now: int, *more: Warned, is_all: bool = True) -> MemorySearchResult:
        """Where it is not `is_all` that could be searched, nothing is said to be new."""
        results = [
            Told(
                result.relevance_score,
                parsed(result.context.timestamp),
                result.context.project_path,
                has_words=bool(result.highlights) or _is_named(result, query),
            )
            for result in self.results
        ]
        return MemorySearchResult(
            results=self.results,
            summary=summary(
                query, results, self.topics, now, self.noun, self.within, is_all=is_all
            ),
            stats=stats_of(self.results),
            topics=self.topics,
            warnings=[*self.warnings, *more] or None,
        )


async def recalled(
    store: RecordStore,
    query: str,
    kind: Kind,
    project: str | None,
    time_range: TimeRange,
    limit: int,
    asking: Asking,
) -> Answered:
    scopes: Sequence[str] = ()
    if project is not None:
        known = [tally.scope for tally in await store.tally((CONVERSATION,))]
        scopes = projects_meant(project, known)
        if not scopes:
            none = await _none(store, NOUNS[kind], _unknown_project(project, known))
            return replace(none, within=_within(project, time_range))
    after, before = bounds(time_range, asking.now, asking.zone)
    asked = what_is_asked(query)
    answer = await found(
        store,
        asked,
        kinds=KINDS[kind],
        types=(DECISION,) if kind == "decision" else (),
        scopes=scopes,
        after=after,
        before=before,
        limit=limit,
        asking=asking,
    )
    hits = in_order(decisions_first(query, answer.hits), _decisions(query, answer))
    around = await surroundings(store, [hit.record for hit in hits])
    results = presented(hits, asked, around, decisions=kind != "conversation")
    within = _within(project, time_range)
    return replace(await _answered(store, asked, answer, results, NOUNS[kind]), within=within)


async def solved(
    store: RecordStore, description: str, code: str | None, limit: int, asking: Asking
) -> Answered:
    answer = await similar(store, description, code, limit, asking)
    hits = in_order(answer.found.hits, answer.resolutions)
    around = await surroundings(store, [hit.record for hit in hits])
    query = question(description, code)
    results = presented(hits, query, around, resolutions=answer.resolutions)
    return await _answered(store, description, answer.found, results, PROBLEMS)


async def coded(
    store: RecordStore,
    query: str,
    language: str | None,
    limit: int,
    asking: Asking,
    *,
    with_context: bool,
) -> Answered:
    meant = named_language(language) if language is not None else None
    if language is not None:
        known = await languages(store)
        if meant not in known:
            none = await _none(store, CODE_PIECES, _unknown_language(language, known))
            return replace(none, within=_in_language(language))
    answer = await code_like(store, query, meant, limit, asking)
    hits = in_order(answer.hits)
    around = await surroundings(store, [hit.record for hit in hits], beside=with_context)
    results = presented(hits, query, around, with_context=with_context)
    told = await _answered(store, query, answer, results, CODE_PIECES)
    return replace(told, within=_in_language(language))


async def _answered(
    store: RecordStore, query: str, answer: Found, results: list[MemoryResult], noun: Noun
) -> Answered:
    if not results and await is_empty(store):
        return Answered(warnings=(Warned("no_history", no_history()),), noun=noun)
    return Answered(
        results,
        topics_of([result.content for result in good(results) if result.type != "code"], query),
        _warned(answer.notices),
        noun,
        lasting=not answer.notices,
    )


def good(results: Sequence[MemoryResult]) -> list[MemoryResult]:
    best = max((result.relevance_score for result in results), default=0.0)
    return [result for result in results if result.relevance_score >= GOOD * best]


def _decisions(query: str, answer: Found) -> set[str]:
    """Those that come first among equals, to whom asks for them."""
    if not asks_for_decisions(query):
        return set()
    return {hit.record.id for hit in answer.hits if hit.record.type == DECISION}


def _is_named(result: MemoryResult, query: str) -> bool:
    """Whether the file of code is what was asked for."""
    return bool(result.file and said_in(result.file, sought_by(query)))


def _within(project: str | None, time_range: TimeRange) -> str:
    place = "" if project is None else f" in project `{clipped(project)}`"
    return place + SPANS[time_range]


def _in_language(language: str | None) -> str:
    return "" if language is None else f" in {clipped(language)}"


async def _none(store: RecordStore, noun: Noun, reason: Warned) -> Answered:
    """Where a filter leaves nothing; a store that is empty has a better reason for it."""
    if await is_empty(store):
        reason = Warned("no_history", no_history())
    return Answered(warnings=(reason,), noun=noun)


def no_history() -> str:
    """What whoever is acting can do about it: only the owner has a command to run."""
    return NO_HISTORY if acting() is None else NO_HISTORY_OF_ACCOUNT


async def is_empty(store: RecordStore) -> bool:
    """Of what may not be given out, too."""
    return not (await store.count()).get(TURN)


def _warned(notices: Sequence[Notice]) -> tuple[Warned, ...]:
    return tuple(Warned(notice.code, notice.message) for notice in notices)


def _unknown_project(project: str, known: Sequence[str]) -> Warned:
    near = nearest_project(project, known)
    hint = f" The nearest is `{near}`." if near else ""
    return Warned(
        "unknown_project", f"No conversation is about a project `{clipped(project)}`.{hint}"
    )


def _unknown_language(language: str, known: Sequence[str]) -> Warned:
    listed = ", ".join(known[:MOST_LISTED])
    there = f" There is code in {listed}." if listed else ""
    return Warned("unknown_language", f"No code is in `{clipped(language)}`.{there}")
