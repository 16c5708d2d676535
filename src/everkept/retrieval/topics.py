"""What texts are about: the words, and pairs of them, that most of them share."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from everkept.language.sentences import sentences
from everkept.language.spellings import fold, stem, tokens
from everkept.language.telling_words import CODE_WORDS, dull_stems
from everkept.language.words import FOREIGN_STOP_WORDS, STOP_WORDS

Topic = tuple[str, ...]  # stems
Term = tuple[Topic, str]  # with a spelling of it

MOST_TOPICS = 5
TAG_WEIGHT = 2.0  # somebody chose it as the topic
NAME_WEIGHT = 1.5  # of an entity that the texts are linked to
CACHED_WORDS = 4_096

_WORD = re.compile(r"[^\W_](?:[\w+#'’-]*[\w+#])?")
_SHORTEST = 3  # characters of a word that may be a topic
_LONGEST = 30


def key_topics(
    texts: Iterable[tuple[str, Sequence[str]]],
    names: Sequence[str] = (),
    limit: int = MOST_TOPICS,
) -> list[str]:
    """What most of the texts speak of, spelled as they do, the weightiest first; each text comes
    with its tags."""
    said: list[tuple[list[Term], float]] = []
    for text, tags in texts:
        said.append((list(_terms(text)), 1.0))
        said.append(([(_topic(tag), tag) for tag in tags], TAG_WEIGHT))
    said.append(([(_topic(name), name) for name in names], NAME_WEIGHT))
    counts: defaultdict[Topic, float] = defaultdict(float)
    for terms, weight in said:
        for topic in {topic for topic, _ in terms} - {()}:
            counts[topic] += weight
    spellings: dict[Topic, Counter[str]] = {topic: Counter() for topic in _chosen(counts, limit)}
    for topic, spelled in chain.from_iterable(terms for terms, _ in said):
        if topic in spellings:
            spellings[topic][spelled] += 1
    return [_spelled(counted) for counted in spellings.values()]


def _terms(text: str) -> Iterator[Term]:
    """Telling words, and pairs of them that stand side by side."""
    for sentence in sentences(text):
        before: Term | None = None
        for place, word in enumerate(_WORD.findall(sentence)):
            if not _is_telling(word):
                before = None
                continue
            # A capital that begins a sentence may not be the word's own.
            spelled = word.lower() if place == 0 and word.istitle() else word
            term = _topic(spelled), spelled
            yield term
            if before is not None:
                yield before[0] + term[0], f"{before[1]} {spelled}"
            before = term


@lru_cache(CACHED_WORDS)
def _is_telling(word: str) -> bool:
    folded = word.lower().replace("'", "").replace("’", "")
    is_word = _SHORTEST <= len(folded) <= _LONGEST or (len(folded) == 2 and not folded.isascii())
    return is_word and not folded[0].isdigit() and not _is_dull(folded)


def _is_dull(word: str) -> bool:
    if word in STOP_WORDS or word in FOREIGN_STOP_WORDS or word in CODE_WORDS:
        return True
    return stem(word) in dull_stems()


@lru_cache(CACHED_WORDS)
def _topic(term: str) -> Topic:
    """Equal for the spellings of one topic."""
    return tuple(stem(word) for word in tokens(fold(term.replace("-", " ").replace("_", " "))))


def _chosen(counts: Mapping[Topic, float], limit: int) -> list[Topic]:
    """The words of a pair give way to it where they mostly come together."""
    is_any_shared = max(counts.values(), default=0.0) > 1.0
    strengths = {
        topic: _strength(topic, counts)
        for topic, count in counts.items()
        if count > 1.0 or (not is_any_shared and len(topic) == 1)
    }
    chosen: list[Topic] = []
    said: set[str] = set()
    for topic in sorted(strengths, key=lambda topic: (-strengths[topic], topic)):
        if said.isdisjoint(topic):
            chosen.append(topic)
            said |= {*topic}
    return chosen[:limit]


def _strength(topic: Topic, counts: Mapping[Topic, float]) -> float:
    alone = max(counts.get((word,), 0.0) for word in topic)
    is_one_thing = len(topic) > 1 and 2 * counts[topic] >= alone
    return alone + counts[topic] / 2 if is_one_thing else counts[topic]


def _spelled(spellings: Counter[str]) -> str:
    return min(spellings, key=lambda term: (-spellings[term], len(term), term))
