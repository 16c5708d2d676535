"""The two legs of a search: what the words find, and what is near in meaning.

A name dominates the vector of a short text: a question about Caroline finds what was said to her,
not what she said. So names stay in the word query and leave the one for meaning.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Match, Where
from everkept.core.transcripts import ASSISTANT, USER
from everkept.errors import ModelUnavailable
from everkept.language.stop_words import STOP_WORDS
from everkept.language.words import Query, WordQuery
from everkept.retrieval.dates import without_dates
from everkept.retrieval.profile import Place, Profile, Tier
from everkept.values import Value, field

if TYPE_CHECKING:  # a hook loads only what it uses
    import numpy as np
    from numpy.typing import NDArray


CANDIDATES = 100  # of each leg, in each place
LONGEST_QUESTION = 1_000  # characters whose meaning is looked for
LONGEST_SUBSTRING = 1_000
MOST_WORDS = 3  # of a text that is looked for as a part of others; it takes a look at every record
MOST_NAMES = 16  # capitalised words that are looked up

Key = tuple[int, str]  # the number of the place, and the id there
Scores = dict[Key, float]


class WordsFound(Value):
    scores: Scores = field(default_factory=dict[Key, float])
    tier: Tier | None = None


class Question(Value):
    """Who is asked about, and the text whose meaning counts."""

    text: str
    authors: frozenset[str] = frozenset()


async def by_words(places: Sequence[Place], query: Query, profile: Profile) -> WordsFound:
    """The best of what has any of the words, else of what contains the text.

    An expression is taken at its word first where words are all that counts.
    """
    readings: list[tuple[Tier, WordQuery | None]] = [("any", query.any_term())]
    if profile.strategy == "keyword":
        readings.insert(0, ("expression", query.expression))
    for tier, words in readings:
        if words is not None and (found := await _matching(places, words, profile)):
            return WordsFound(found, tier)
    # A text of several words has none that any record has: then none contains all of it either.
    is_short = len(query.text.split()) <= MOST_WORDS and len(query.text) <= LONGEST_SUBSTRING
    if not query.text or not is_short:
        return WordsFound()
    found = await _everywhere(
        places, lambda store, where: store.containing(query.text, where, CANDIDATES)
    )
    return WordsFound(found, "substring" if found else None)


async def by_meaning(
    places: Sequence[Place], model: str, vector: "NDArray[np.float32]", also: Iterable[Key]
) -> Scores:
    """The cosines of the nearest records, and of those that are wanted besides."""
    wanted: list[list[str]] = [[] for _ in places]
    for number, record_id in also:
        wanted[number].append(record_id)
    found = await asyncio.gather(
        *(
            place.store.near(model, vector, place.where, CANDIDATES, also=ids)
            for place, ids in zip(places, wanted, strict=True)
        )
    )
    return _scores(found)


async def understood(places: Sequence[Place], text: str) -> Question:
    """The query without what has a place of its own: dates, authors, words as common as names."""
    asked = text[:LONGEST_QUESTION]
    words = capitalised(asked)[:MOST_NAMES]
    # At once: so both are answered before the longer question, what the words find.
    known, common_names = await asyncio.gather(
        asyncio.gather(*(place.store.authors() for place in places)),
        asyncio.gather(*(_common_in(place, words) for place in places if words)),
    )
    authors = authors_named(asked, chain.from_iterable(known))
    meant = without_names(without_dates(asked), [*authors, *chain.from_iterable(common_names)])
    return Question(meant if tells(meant) else asked, authors)


async def embedded(embedder: Embedder, text: str) -> "NDArray[np.float32] | ModelUnavailable":
    """The vector of a question; a broken model is an answer too."""
    try:
        return (await embedder.embed([text]))[0]
    except ModelUnavailable as error:
        return error


async def _matching(places: Sequence[Place], words: WordQuery, profile: Profile) -> Scores:
    return await _everywhere(
        places, lambda store, where: store.match(words, where, profile.weights, CANDIDATES)
    )


async def _everywhere(
    places: Sequence[Place], ask: Callable[[RecordStore, Where], Awaitable[list[Match]]]
) -> Scores:
    return _scores(await asyncio.gather(*(ask(place.store, place.where) for place in places)))


def _scores(found: Sequence[Sequence[Match]]) -> Scores:
    return {(number, match.id): match.score for number, some in enumerate(found) for match in some}


async def _common_in(place: Place, words: Sequence[str]) -> list[str]:
    names = common(await place.store.frequencies(words))
    if not names:
        return []
    where = Where(kinds=place.where.kinds)
    some = await place.store.scan(where, order="newest", limit=FEWEST_RECORDS)
    return names if len(some) == FEWEST_RECORDS else []


COMMON = 0.08  # of the records: a capitalised word that stands in more is a name to all intents
FEWEST_RECORDS = 50  # below, one record is a share too large to say anything
ROLES = frozenset((USER, ASSISTANT))  # authors without a name: "user" is a word of many questions
FEWEST_WORDS = 2  # that tell something, for a question to be left of it

_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")


def capitalised(text: str) -> list[str]:
    """The words that may be names, each once, as they would stand in the index."""
    words = (_bare(word) for word in _WORD.findall(text))
    named = (w for w in words if w[:1].isupper() and w.lower() not in STOP_WORDS)
    return list(dict.fromkeys(word.lower() for word in named))


def common(shares: Mapping[str, float]) -> list[str]:
    """Those of the words that stand in so many records that they tell them badly apart."""
    return [word for word, share in shares.items() if share > COMMON]


def authors_named(text: str, authors: Iterable[str]) -> frozenset[str]:
    """The authors whose name, or a part of it, is a word of the text.

    A name that is an ordinary word too, as Will is, counts as one only where it is capitalised.
    """
    typed = {_bare(word) for word in _WORD.findall(text)}
    lowered = {word.lower() for word in typed if word.lower() not in STOP_WORDS}

    def is_named(author: str) -> bool:
        return any(
            (word.lower() in lowered) or (word in typed and word.istitle() and len(word) > 1)
            for word in _WORD.findall(author)
        )

    return frozenset(author for author in authors if author not in ROLES and is_named(author))


def without_names(text: str, names: Sequence[str]) -> str:
    """The text without the words of these names."""
    unwanted = {word.lower() for name in names for word in _WORD.findall(name)}
    left = _WORD.sub(lambda found: "" if _bare(found[0]).lower() in unwanted else found[0], text)
    return " ".join(left.split())


def tells(text: str) -> bool:
    """Whether there is enough in a text to ask for its meaning."""
    telling = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    return len(telling) >= FEWEST_WORDS


def _bare(word: str) -> str:
    return _POSSESSIVE.sub("", word)
