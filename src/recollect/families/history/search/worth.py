"""Which hits are worth showing: what something of its own speaks for, and each text once."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recollect.core.folding import fold
from recollect.core.records import Record
from recollect.core.text import normalised
from recollect.families.history.model import CODE, DECISION, TURN
from recollect.families.history.search.wording import asked_stems, said_stems, telling_words
from recollect.retrieval.excerpts import excerpt
from recollect.retrieval.profile import Hit

# Cosines that say something where no word does; those of a single word say less.
NEAR, NEAR_A_WORD = 0.3, 0.4
LEAST = 0.25  # share of the best score
FEWEST_WORDS = 3  # that tell something: with less a turn says little by itself
MOST_OF_THEM = 0.5  # share of the asked words that such a turn needs
SHORT = 200  # characters of a turn that may say little
FEW_TYPED = 2  # words of a question that may be meant literally
RARE = 5  # hits that have a word, at most, for it to be a rare one

_TYPED = re.compile(r"\S*\w\S*")
_EDGES = re.compile(r"^\W+|\W+$")


@dataclass(frozen=True, slots=True)
class _Read:
    """A hit with what it says itself."""

    hit: Hit
    said: frozenset[str]


def worthwhile(hits: Sequence[Hit], query: str) -> list[Hit]:
    """Best first. What only stands beside a hit is left out, and what is far behind the best."""
    asked = asked_stems(query)
    read = [_Read(hit, said_stems(_telling(hit.record, query))) for hit in hits]
    near = NEAR if len(asked) > 1 else NEAR_A_WORD
    kept = [one.hit for one in read if _speaks(one, asked, near)]
    ranked = sorted(_literally(kept, query), key=_best_first)
    return near_the_best(ranked)


def near_the_best(hits: Sequence[Hit]) -> list[Hit]:
    """Without what is far behind."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= LEAST * best]


def _says_little(text: str) -> bool:
    return len(text) <= SHORT and telling_words(text) < FEWEST_WORDS


def newest_of_equals(hits: Sequence[Hit]) -> list[Hit]:
    """Of equal texts the newest, with the best score of all. They come best first."""
    kept: dict[str, Hit] = {}
    for hit in hits:
        text = normalised(hit.record.text)
        other = kept.setdefault(text, hit)
        newest = max(hit, other, key=lambda one: (one.record.at, one.record.id))
        kept[text] = replace(newest, score=max(hit.score, other.score))
    return list(kept.values())


def one_for_a_turn(hits: Sequence[Hit], turns: Mapping[str, Record]) -> list[Hit]:
    """A turn and its code are one thing, with the best score of all. The turn stands for it, if it
    is known, unless the best is code that its text does not show. They come best first."""
    best: dict[str, Hit] = {}
    for hit in hits:
        turn = turns.get(turn_of(hit))
        if hit.record.kind == CODE and turn is not None and hit.record.text.strip() in turn.text:
            hit = replace(hit, record=turn)
        best.setdefault(turn_of(hit), hit)
    return list(best.values())


def turn_of(hit: Hit) -> str:
    """The id of the turn that a hit belongs to."""
    record = hit.record
    return record.parent if record.kind == CODE and record.parent else record.id


def _telling(record: Record, query: str) -> str:
    """As much of a text as tells whether it says what was asked: all of it takes long to read."""
    return f"{record.name or ''}\n{excerpt(record.text, query).text}"


def _text(record: Record) -> str:
    return f"{record.name}\n{record.text}" if record.name else record.text


def _speaks(one: _Read, asked: frozenset[str], near: float) -> bool:
    """A word of the question, a meaning that is near, its author or its date. A decision may get
    the words from what stands beside it: it tends to be short."""
    hit = one.hit
    if hit.record.type == DECISION and hit.record.kind == TURN and hit.why.get("keyword"):
        return True
    has = len(asked & one.said)
    if hit.record.kind == TURN and _says_little(hit.record.text):
        return has > 0 and has >= MOST_OF_THEM * len(asked)
    if has:
        return True
    is_near = hit.cosine is not None and hit.cosine >= near
    return is_near or any(hit.why.get(sign) for sign in ("author", "date"))


def _literally(hits: Sequence[Hit], query: str) -> list[Hit]:
    """To a question of a word or two: what has the rare ones of them stands above what has not."""
    typed = [_EDGES.sub("", fold(word).lower()) for word in _TYPED.findall(query)]
    if not 0 < len(typed) <= FEW_TYPED:
        return list(hits)
    texts = [fold(_text(hit.record)).lower() for hit in hits]
    rare = [word for word in typed if 0 < sum(word in text for text in texts) <= RARE]
    return [
        replace(hit, score=(sum(word in text for word in rare) + hit.score) / (len(rare) + 1))
        for hit, text in zip(hits, texts, strict=True)
    ]


def _best_first(hit: Hit) -> tuple[float, int, str]:
    return -hit.score, -hit.record.at, hit.record.id
