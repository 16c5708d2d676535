"""Those sentences of many texts that say most of what they share."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

from everkept.core.text import clipped
from everkept.families.memories.likeness import telling_stems
from everkept.language.sentences import sentences
from everkept.values import Value

REPEATED = 0.6  # share of a sentence's words that others have said before it
FULL_SENTENCE = 4  # telling words; what has fewer is an exclamation or a heading
COVERED = 0.3  # what a word still counts when a chosen sentence has it

_ENDS_OPEN = re.compile(r"[^\W_]$")


class Said(Value):
    """A sentence of one of several texts, and how much that text counts among them."""

    text: str
    words: frozenset[str]
    place: tuple[int, int]  # its text, and its place there
    weight: float


def central_sentences(
    texts: Sequence[str],
    weights: Sequence[float],
    rarity: Mapping[str, float],
    *,
    most: int,
    length: int,
) -> str:
    """What the texts have in common, in their own sentences and in their order.

    At most so many sentences and characters, and nothing twice. The first one may be clipped.
    """
    said: list[Said] = [*_said(texts, weights)]
    words = {(sentence.place[0], word) for sentence in said for word in sentence.words}
    shared = Counter(word for _, word in words)
    worth = {word: count * rarity.get(word, 1.0) for word, count in shared.items()}
    said = _to_the_point(said, {word for word, count in shared.items() if count > 1})
    chosen: list[Said] = []
    room = length
    while said and len(chosen) < most:
        best = max(said, key=lambda s: (_centrality(s, worth), (-s.place[0], -s.place[1])))
        said.remove(best)
        if chosen and len(best.text) + 2 > room:
            continue
        chosen.append(best)
        room -= len(best.text) + 2
        worth |= {word: worth[word] * COVERED for word in best.words}
        told = frozenset[str]().union(*(s.words for s in chosen))
        said = [s for s in said if not _is_repetition(s, told)]
    return clipped_to(_joined(sorted(chosen, key=lambda s: s.place)), length)


def clipped_to(text: str, length: int) -> str:
    return text if len(text) <= length else clipped(text, length)


def _said(texts: Sequence[str], weights: Sequence[float]) -> Iterator[Said]:
    for number, (text, weight) in enumerate(zip(texts, weights, strict=True)):
        for place, sentence in enumerate(sentences(text) or [text.strip()]):
            yield Said(sentence, frozenset(telling_stems(sentence)), (number, place), weight)


def _to_the_point(said: Sequence[Said], shared: Set[str]) -> list[Said]:
    """Statements; and of each text those that have a word of the others, if any have."""
    stated = [s for s in said if len(s.words) > 1 and not s.text.endswith(("?", "？"))] or said
    pointed = [s for s in stated if not s.words.isdisjoint(shared)]
    texts = {s.place[0] for s in pointed}
    return [*pointed, *(s for s in stated if s.place[0] not in texts)]


def _centrality(said: Said, worth: Mapping[str, float]) -> float:
    """Long sentences have more words, but not all that count: hence the root."""
    if not said.words:
        return 0.0
    central = sum(worth[word] for word in sorted(said.words)) / len(said.words) ** 0.5
    return said.weight * central * min(len(said.words) / FULL_SENTENCE, 1.0)


def _is_repetition(said: Said, told: frozenset[str]) -> bool:
    return len(said.words & told) >= REPEATED * len(said.words)


def _joined(chosen: Sequence[Said]) -> str:
    text = ""
    for said in chosen:
        if text:
            is_block = "\n" in said.text or "\n" in text
            text += "\n" if is_block else " "
        text += said.text + ("." if len(chosen) > 1 and _ENDS_OPEN.search(said.text) else "")
    return text
