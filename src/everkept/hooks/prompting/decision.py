"""Whether what was found is given, hinted at in a line or two, or kept to ourselves."""

from collections.abc import Sequence
from typing import NamedTuple

from everkept.core.text import counted
from everkept.core.times import ago
from everkept.families.history.model import CODE, TURN
from everkept.hooks.prompting.judgement import SAME_ERROR_LINE, Asked, Find
from everkept.hooks.prompting.lookup import Found
from everkept.hooks.prompting.prompts import (
    SAME_DOMAIN,
    SAME_ERROR,
    Reading,
    Reason,
    Signals,
    asks_how_to,
    complexity,
    reason_to_suggest,
    wants_new_feature,
)
from everkept.language.forms import Wanted
from everkept.language.telling_words import Word, is_commonplace

CONFIDENT = 0.6  # share of the words, where the prompt asks for the past or hints at it
UNASKED = 0.8  # likeness, where nothing in it does
SOME = 0.4  # share of the words from which a record is worth a search

FEWEST_HINTED = 2  # words that the record and the prompt share
FEWEST_KNOWN = 2  # telling words of a prompt that the past must know for a search to be worth it
MOST_GIVEN = 4  # records
MOST_UNASKED = 2
BETTER = 0.2  # what a record gains that is of the kind which is asked for

_KINDS: dict[Wanted, tuple[str, ...]] = {
    "implementation": (CODE, TURN),
    "memory": (TURN,),
    "last work": (TURN, CODE),
    "discussion": (TURN,),
    "overview": (TURN,),
}


class Given(NamedTuple):
    """These are shown, the best first; `briefly` where nobody asked for them."""

    finds: tuple[Find, ...]
    briefly: bool = False


class Hinted(NamedTuple):
    """A search is worth it; `reason` is None where the prompt itself asks for the past."""

    reason: Reason | None
    finds: tuple[Find, ...]


def asked_of(reading: Reading) -> Asked:
    if reading.trigger is None:
        return Asked(
            reading.words,
            error=reading.error,
            error_lines=reading.error_lines,
            is_foreign=reading.is_foreign,
        )
    return Asked(
        reading.words,
        reading.around,
        kinds=_KINDS[reading.trigger.wanted],
        everywhere=not all(map(is_commonplace, reading.words)),
        is_foreign=reading.is_foreign,
    )


def decided(reading: Reading, found: Found) -> Given | Hinted | None:
    """None is the answer to most prompts."""
    if reading.trigger is not None:
        return _for_trigger(reading.trigger.wanted, found)
    if reading.has_indicator and (sure := _sure(found, CONFIDENT, FEWEST_HINTED)):
        return Given(sure[:MOST_GIVEN])
    if same := tuple(filter(_is_the_same, found.finds)):
        return Given(same[:MOST_UNASKED], briefly=True)
    like = tuple(find for find in found.finds if find.error_likeness > SAME_ERROR)
    some = like or _sure(found, SOME, FEWEST_HINTED)
    reason = reason_to_suggest(signals_of(reading, found)) if some else None
    return Hinted(reason, some) if reason else None


def signals_of(reading: Reading, found: Found) -> Signals:
    """What is measured; a number that only counts with another sign is 0 without it."""
    asking_how_to = asks_how_to(reading.prompt)
    return Signals(
        similarity_to_past=found.likeness,
        asking_how_to=asking_how_to,
        complexity=complexity(reading.prompt) if asking_how_to else 0.0,
        debugging=reading.is_debugging,
        error_similarity=found.error_likeness,
        new_feature=found.overlap > SAME_DOMAIN and wants_new_feature(reading.prompt),
        domain_overlap=found.overlap,
    )


def _for_trigger(wanted: Wanted, found: Found) -> Given | Hinted | None:
    if sure := tuple(filter(_may_be_given, _sure(found, CONFIDENT, 1))):
        return Given(tuple(_ranked(sure, wanted))[:MOST_GIVEN])
    # Other words may have been used for it, and a search knows those too.
    telling = [word for word in found.known if not is_commonplace(word)]
    if len(telling) < FEWEST_KNOWN:
        return None
    own = tuple(find for find in found.finds if find.words and not find.is_elsewhere)
    return Hinted(None, tuple(find for find in own if find.share >= SOME) or own)


def _may_be_given(find: Find) -> bool:
    """One word alone may mean anything in another project."""
    return not find.is_elsewhere or find.shared >= FEWEST_HINTED


def _is_the_same(find: Find) -> bool:
    return find.likeness >= UNASKED or find.error_likeness >= SAME_ERROR_LINE


def _sure(found: Found, share: float, shared: int) -> tuple[Find, ...]:
    return tuple(find for find in found.finds if find.share >= share and find.shared >= shared)


def _ranked(finds: Sequence[Find], wanted: Wanted) -> list[Find]:
    if wanted == "last work":
        return sorted(finds, key=lambda find: -find.record.at)
    best = {"implementation": _is_code, "memory": _is_memory}.get(wanted, _is_turn)
    return sorted(finds, key=lambda find: -(find.share + BETTER * best(find)))


def _is_code(find: Find) -> bool:
    return find.record.kind == CODE or "```" in find.record.text


def _is_turn(find: Find) -> bool:
    return find.record.kind == TURN


def _is_memory(find: Find) -> bool:
    return find.is_memory


MOST_WORDS = 8  # of the query that is proposed

_REASONS: dict[Reason | None, str] = {
    "similar work": "This is close to earlier work",
    "how to": "Something like this was worked on before",
    "similar error": "An error like this one came up before",
    "related feature": "Related things were built before",
    None: "The prompt asks about earlier work",
}


def suggestion(reason: Reason | None, finds: Sequence[Find], query: str, now: int) -> str:
    """What the assistant is told; no stored text is in it."""
    told = _REASONS[reason]
    if finds:
        newest = max(find.record.at for find in finds)
        told += f" ({counted(len(finds), 'record')}, the newest {ago(newest, now)})"
    tool, argument = _tool(reason, finds)
    return f'Everkept: {told}. If it would help, call {tool} with {argument} "{query}".'


def query_of(words: Sequence[Word]) -> str:
    return " ".join(word.text for word in words[:MOST_WORDS])


def fits(text: str, budget: int) -> bool:
    """Whether it takes no more tokens."""
    if len(text.encode("utf-8")) <= budget:  # no token is shorter than a byte
        return True
    from everkept.core.tokens import token_count

    return token_count(text) <= budget


def _tool(reason: Reason | None, finds: Sequence[Find]) -> tuple[str, str]:
    """That which finds what was found; of memories no search of conversations knows anything."""
    if finds and all(find.is_memory for find in finds):
        return "recall_memories", "query"
    if reason == "similar error":
        return "find_similar_problems", "problem_description"
    if any(find.is_memory for find in finds):
        return "recall_memories or recall_previous_discussions", "query"
    return "recall_previous_discussions", "query"
