"""Which hits are worth showing: what something of its own speaks for, and each text once."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice

from everkept.core.records import Record
from everkept.core.text import normalised
from everkept.families.history.model import CODE, DECISION, TURN
from everkept.families.history.search.wording import said_in, sought_by
from everkept.language.spellings import fold
from everkept.language.telling_words import has_telling_words
from everkept.retrieval.excerpts import Sought, excerpt
from everkept.retrieval.profile import Hit
from everkept.values import replace

# Cosines that say something where no word does; those of a single word say less.
NEAR, NEAR_A_WORD = 0.3, 0.4
LEAST = 0.25  # share of the best score
FEWEST_WORDS = 3  # that tell something: with less a turn says little by itself
MOST_OF_THEM = 0.5  # share of the asked words that such a turn needs
SHORT, MANY = 200, 16  # characters, and blanks, of a turn that may say little
FEW_TYPED = 2  # words of a question that may be meant literally
RARE = 5  # hits that have a word, at most, for it to be a rare one

_TYPED = re.compile(r"\S*\w\S*")
_EDGES = re.compile(r"^\W+|\W+$")


def worthwhile(hits: Sequence[Hit], query: str, enough: int | None = None) -> list[Hit]:
    """Best first, as they come. What only stands beside a hit is left out, and what is far behind
    the best. After `enough` the others are not looked at, unless they might move up."""
    sought = sought_by(query)
    near = NEAR if len(sought.stems) > 1 else NEAR_A_WORD
    kept = (hit for hit in hits if _speaks(hit, query, sought, near))
    if typed := _typed(query):
        return near_the_best(sorted(_literally(list(kept), typed), key=_best_first))
    return near_the_best(list(islice(kept, enough)))


def near_the_best(hits: Sequence[Hit]) -> list[Hit]:
    """Without what is far behind."""
    best = max((hit.score for hit in hits), default=0.0)
    return [hit for hit in hits if hit.score >= LEAST * best]


def _says_little(text: str) -> bool:
    is_short = len(text) <= SHORT and text.count(" ") < MANY
    return is_short and not has_telling_words(text, FEWEST_WORDS)


def newest_of_equals(hits: Sequence[Hit]) -> list[Hit]:
    """Of equal texts the newest, with the best score of all. They come best first."""
    kept: dict[str, Hit] = {}
    for hit in hits:
        text = normalised(hit.record.text)
        other = kept.setdefault(text, hit)
        if other is not hit:
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


def _said(record: Record, query: str, sought: Sought) -> frozenset[str]:
    """Of a text as much is read as tells whether it says what was asked: all of it takes long."""
    if not sought.may_be_in(_text(record)):
        return frozenset()
    return said_in(f"{record.name or ''}\n{excerpt(record.text, query).text}", sought)


def _text(record: Record) -> str:
    return f"{record.name}\n{record.text}" if record.name else record.text


def _speaks(hit: Hit, query: str, sought: Sought, near: float) -> bool:
    """A word of the question, a meaning that is near, its author or its date. A decision may get
    the words from what stands beside it: it tends to be short."""
    record = hit.record
    if record.type == DECISION and record.kind == TURN and hit.why.get("keyword"):
        return True
    if record.kind == TURN and _says_little(record.text):
        has = len(_said(record, query, sought))
        return has > 0 and has >= MOST_OF_THEM * len(sought.stems)
    if hit.cosine is not None and hit.cosine >= near:
        return True
    if any(hit.why.get(sign) for sign in ("author", "date")):
        return True
    return bool(_said(record, query, sought))  # last: reading takes longest


def _typed(query: str) -> list[str]:
    """The words of a question that has one or two: they may be meant literally."""
    typed = [_EDGES.sub("", fold(word).lower()) for word in _TYPED.findall(query)]
    return typed if len(typed) <= FEW_TYPED else []


def _literally(hits: Sequence[Hit], typed: Sequence[str]) -> list[Hit]:
    """What has the rare ones of these words stands above what has not."""
    texts = [fold(_text(hit.record)).lower() for hit in hits]
    rare = [word for word in typed if 0 < sum(word in text for text in texts) <= RARE]
    return [
        replace(hit, score=(sum(word in text for word in rare) + hit.score) / (len(rare) + 1))
        for hit, text in zip(hits, texts, strict=True)
    ]


def _best_first(hit: Hit) -> tuple[float, int, str]:
    return -hit.score, -hit.record.at, hit.record.id
