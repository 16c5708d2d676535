"""Search for similar problems and features, with the turns that solved them."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.core.text import compute_name_key
from everkept.core.transcripts import USER
from everkept.families.history.relevance import (
    SIMILAR_PROFILE,
    QueryContext,
    drop_low_scores,
    find_turns,
    get_score_key,
)
from everkept.families.history.search_results import read_exchanges, read_turns_between
from everkept.retrieval.profile import SearchHit, SearchPage
from everkept.values import Value, replace

PROBLEM_FACET, FIX_FACET = "problem", "fix"  # facets of turns
MAX_TURNS_TO_FIX = 40  # turns after a problem that are searched for its solution
MAX_TURNS_TO_CONFIRM = 3  # turns after a problem in which a report of success refers to it
MAX_COMPARED_HITS = 60  # hits whose solutions are looked up
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


async def find_similar(store: RecordStore, description: str, code: str | None, asking: QueryContext) -> SimilarProblems:
    """Find turns similar to the problem or feature. Turns that name an error and were solved later come first."""
    query = build_problem_query(description, code)
    answer = await find_turns(
        store,
        query,
        profile=SIMILAR_PROFILE,
        asking=asking,
        repeated=True,  # the same problem may be solved in one conversation only
    )
    compared = answer.hits[:MAX_COMPARED_HITS]
    turns = [hit.record for hit in compared]
    resolutions = await _find_answers(store, description, turns) | await _find_resolutions(store, turns)
    judged = sorted((_adjust_score(hit, resolutions) for hit in compared), key=get_score_key)
    hits = drop_low_scores(_remove_duplicates(_keep_best_per_conversation(judged)))
    is_lower_bound = answer.is_lower_bound or len(answer.hits) > MAX_COMPARED_HITS
    return SimilarProblems(replace(answer, hits=hits, total=len(hits), is_lower_bound=is_lower_bound), resolutions)


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


async def _find_answers(store: RecordStore, query: str, turns: Sequence[Record]) -> dict[str, Record]:
    """Map each turn of the user that reports no error, such as a wish for a feature, to its answer."""
    asking = [turn for turn in turns if not turn.facets.get(PROBLEM_FACET)]
    exchanges = await read_exchanges(store, asking)
    return {turn.id: answer for turn in asking if (answer := exchanges.find_answer(turn, query)) is not None}


async def _find_resolutions(store: RecordStore, turns: Sequence[Record]) -> dict[str, Record]:
    """Map each turn to the next one that reports a solution, or to the answer that the user confirms."""
    conversations: dict[tuple[str, str], list[Record]] = {}
    for turn in turns:
        may_ask = turn.author == USER or turn.facets.get(PROBLEM_FACET)
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
    answers = {turn.position: turn for turn in after if turn.author != USER}
    return [
        FixTurn(turn, answers.get((turn.position or 0) - 1) if turn.author == USER else None)
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
