"""How a search over everything went, in sentences, and what to ask next."""

import json
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from itertools import islice

from everkept.core.accounts import acting
from everkept.core.peers import peer_of
from everkept.core.search_ports import SearchType
from everkept.core.text import clipped
from everkept.families.history.search.answers import LOCAL
from everkept.families.history.unified.answers import (
    CODE_PIECES,
    CONVERSATIONS,
    RELATION,
    UnifiedResult,
)
from everkept.families.history.unified.conversations import Recalled
from everkept.language.telling_words import stems
from everkept.retrieval.dates import without_dates
from everkept.retrieval.excerpts import coverage
from everkept.retrieval.intent import UNSURE, Intent, PrimaryIntent
from everkept.values import Value

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
