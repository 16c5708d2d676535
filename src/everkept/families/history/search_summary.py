"""Summaries of search results: their number, topics, projects and time, and what was decided."""

import re
from collections.abc import Mapping, Sequence

from everkept.core.ports import RecordStore
from everkept.core.text import clip_text, format_count
from everkept.core.times import format_ago
from everkept.families.history.relevance import blank_masks
from everkept.language.sentences import has_block, is_decision, remove_blocks, split_sentences
from everkept.language.telling_words import COMMON_WORDS, compute_rarity, find_key_topics, list_spoken_words, list_stems
from everkept.values import Value

MAX_SUMMARY_TOPICS = 3  # topics in the summary
MAX_TOPICS = 5
SURE_SCORE = 0.9  # score from which the summary mentions the best result
LONG_SPAN_DAYS = 30  # span from which the summary mentions it
MAX_CANDIDATES = 30  # topics of which the rarest are chosen
MAX_ACTION_CHARACTERS = 160  # of a decision in the summary
MAX_QUERY_CHARACTERS = 80  # of the question in the summary

_NUMBERS = frozenset(
    (
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "twenty",
        "hundred",
        "hundreds",
        "thousand",
    )
)
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
    decision: str | None = None  # the sentence that states it


class MatchExtent(Value):
    """All matches, of which the results are a page."""

    total: int
    oldest: int
    newest: int
    projects: int
    first: int = 0  # number of matches before the page
    is_lower_bound: bool = False  # more may match


def format_summary(
    query: str,
    results: Sequence[SummaryFacts],
    topics: Sequence[str],
    now: int,
    noun: ResultNoun = DISCUSSIONS,
    within: str = "",
    *,
    extent: MatchExtent | None = None,
    is_all: bool = True,
    is_mentioned: bool = False,
) -> str:
    """Return a sentence with the number of matches and their topics.

    It says if there are no results, or if none contains a word of the question. `within` describes the filter. `is_all`
    is False if some conversations could not be searched, so they may contain results. `is_mentioned` is True if a
    search of all conversations would find something.
    """
    asked = f'"{clip_text(query, MAX_QUERY_CHARACTERS)}"'
    if not results:
        none = f"I couldn't find any {noun.many.removeprefix('relevant ')} about {asked}{within}."
        return f"{none}{_format_way_on(within, is_all=is_all, is_mentioned=is_mentioned)}"
    all_ = extent or _measure_extent(results)
    sentence = f"I found {_format_total(all_, noun)} about {asked}"
    if not any(result.has_words for result in results):
        near = ResultNoun(noun.one.removeprefix("relevant "), noun.many.removeprefix("relevant "))
        sentence = f"I found no words of {asked}, but {_format_total(all_, near)} with a similar meaning"
    if len(results) < all_.total:
        last = all_.first + len(results)
        sentence += f", showing {f'{all_.first + 1:,} to {last:,}' if all_.first else f'{last:,}'}"
    if topics:
        sentence += f"{',' if len(results) < all_.total else ''} covering {', '.join(topics[:MAX_SUMMARY_TOPICS])}"
    if all_.projects > 1:
        sentence += f" across {format_count(all_.projects, 'project')}"
    days = (all_.newest - all_.oldest) / _DAY_MICROSECONDS
    if days > LONG_SPAN_DAYS:
        sentence += f" spanning {format_count(max(round(days / 30), 1), 'month')}"
    best = max(results, key=lambda result: result.score)
    if best.score > SURE_SCORE or best.decision:
        action = f", where {_format_decision(best.decision)}" if best.decision else "."
        return f"{sentence}. The most relevant one was {format_ago(best.at, now)}{action}"
    return f"{sentence}."


def _format_way_on(within: str, *, is_all: bool, is_mentioned: bool) -> str:
    if is_mentioned:
        return " Past conversations mention it: search all of them with recall_previous_discussions."
    if not is_all:
        return ""
    return " A search without the filter may find some." if within else " This might be a new topic."


def _measure_extent(results: Sequence[SummaryFacts]) -> MatchExtent:
    times = [result.at for result in results]
    projects = {result.project for result in results if result.project}
    return MatchExtent(len(results), min(times), max(times), len(projects))


def _format_total(extent: MatchExtent, noun: ResultNoun) -> str:
    return f"{'at least ' if extent.is_lower_bound else ''}{noun.format_count(extent.total)}"


def find_decision(text: str) -> str | None:
    """Return the first sentence of a turn that states a decision."""
    sentences = split_sentences(remove_blocks(text))
    return next((sentence for sentence in sentences if is_decision(sentence)), None)


def _format_decision(sentence: str) -> str:
    """Return the decision as a clause: `we chose alembic.`, otherwise in quotation marks."""
    said = clip_text(sentence, MAX_ACTION_CHARACTERS)
    if said.startswith("We "):
        return f"we {said[3:].rstrip('.')}."
    return f'this was decided: "{said}"'


async def find_topics(store: RecordStore, texts: Sequence[str], query: str) -> list[str]:
    """Return the topics of the results, of which those that few records have come first."""
    topics = _list_topics(texts, query)
    words = {word for topic in topics for word in list_spoken_words(topic)}
    return _choose_topics(topics, texts, await store.measure_words(sorted(words)) if words else {})


def extract_topics(texts: Sequence[str], query: str) -> list[str]:
    """Return the topics of the results if the rarity of their words is unknown."""
    return _choose_topics(_list_topics(texts, query), texts, {})


def _list_topics(texts: Sequence[str], query: str) -> list[str]:
    """Return possible topics other than the words of the question. Code blocks are ignored."""
    asked = list_stems(query)
    found = find_key_topics([(_blank_code(text), ()) for text in texts], limit=MAX_CANDIDATES)
    return [
        topic
        for topic in found
        if not list_stems(topic) <= asked and topic.lower() not in COMMON_WORDS and topic.lower() not in _NUMBERS
    ]


def _choose_topics(topics: Sequence[str], texts: Sequence[str], shares: Mapping[str, float]) -> list[str]:
    """Return the topics that are rare in all records and frequent in these texts, in the order of the texts."""
    plain = [_blank_code(text) for text in texts]
    said = [list_stems(text) for text in plain]
    first = "\n".join(plain).lower()

    def weigh(topic: str) -> float:
        rarity = max((compute_rarity(shares.get(word, 1.0)) for word in list_spoken_words(topic)), default=1.0)
        return rarity * sum(list_stems(topic) <= stems for stems in said)

    best = sorted(topics, key=lambda topic: (-weigh(topic), first.find(topic.lower())))[: 2 * MAX_TOPICS]
    return _join_adjacent(best, first)[:MAX_TOPICS]


def _join_adjacent(topics: Sequence[str], text: str) -> list[str]:
    """Join two topics that follow each other in the text, such as `token` and `bucket`."""
    left = list(topics)
    joined: list[str] = []
    while left:
        topic = left.pop(0)
        pairs = ((f"{a} {b}", other) for other in left for a, b in ((topic, other), (other, topic)))
        pair, other = next((pair for pair in pairs if pair[0].lower() in text), (topic, None))
        joined.append(pair)
        if other is not None:
            left.remove(other)
    return joined


def _blank_code(text: str) -> str:
    return blank_masks(_CODE_BLOCK.sub(" ", text) if has_block(text) else text)
