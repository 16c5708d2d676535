"""Similar problems: turns in which something went wrong, and those that say how it was solved."""

import asyncio
import re
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Record
from everkept.core.text import normalised
from everkept.families.history.search.presentation import turns_between
from everkept.families.history.search.ranking import SIMILAR, Asking, found, near_the_best
from everkept.retrieval.profile import Found, Hit
from everkept.values import Value, replace

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
