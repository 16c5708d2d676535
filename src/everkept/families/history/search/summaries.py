"""The sentence that sums up a search, in the first person."""

import re
from collections.abc import Sequence

from everkept.core.text import clipped
from everkept.core.times import ago
from everkept.families.history.search.wording import has_block, without_masks
from everkept.language.telling_words import stems
from everkept.retrieval.topics import key_topics
from everkept.values import Value

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
