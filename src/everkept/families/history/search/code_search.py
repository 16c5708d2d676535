"""Code of past conversations: by name, by file and by what it does."""

import re
from collections.abc import Sequence

from everkept.core.ports import RecordStore
from everkept.core.records import Where
from everkept.families.history.model import CODE, DEFINES, SYMBOL
from everkept.families.history.search.ranking import CODE_SEARCH, Asking, found
from everkept.language.stop_words import STOP_WORDS
from everkept.retrieval.profile import Found, Hit
from everkept.values import replace

DEFINED = 0.6  # of what is missing to 1 that code gains which defines what is asked for
USED = 0.7  # what is left of the score of the other code, where some defines it
FEW_WORDS = 3  # in a question of so many any word may be meant as a name
MOST_NAMES = 16
MOST_LINKS = 500
POOL = 2

_NAME = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::)[A-Za-z_$][\w$]*)*")
_SHORTEST = 3  # characters of a name


async def code_like(
    store: RecordStore, query: str, language: str | None, limit: int, asking: Asking
) -> Found:
    """The best code; what defines a name of the question stands before what uses it."""
    answer = await found(
        store,
        query,
        profile=CODE_SEARCH,
        types=(language,) if language else (),
        limit=limit * POOL,
        asking=asking,
    )
    return replace(answer, hits=(await definitions_first(store, query, answer.hits))[:limit])


async def definitions_first(store: RecordStore, query: str, hits: Sequence[Hit]) -> list[Hit]:
    """Best first, with code that defines a name of the question before other code."""
    defining = await _defining(store, query)
    if any(hit.record.id in defining for hit in hits):
        hits = [_judged(hit, defining) if hit.record.kind == CODE else hit for hit in hits]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.record.at, hit.record.id))


async def languages(store: RecordStore) -> list[str]:
    """Those that code of past conversations is written in, the most frequent first."""
    counts: dict[str, int] = {}
    for tally in await store.tally((CODE,)):
        if tally.type and not tally.is_deleted:
            counts[tally.type] = counts.get(tally.type, 0) + tally.count
    return sorted(counts, key=lambda name: (-counts[name], name))


def _judged(hit: Hit, defining: frozenset[str]) -> Hit:
    is_defining = hit.record.id in defining
    gained = hit.score + DEFINED * (1 - hit.score)
    return replace(hit, score=gained if is_defining else USED * hit.score)


async def _defining(store: RecordStore, query: str) -> frozenset[str]:
    """The code that defines something whose name is in the question."""
    wanted = tuple(dict.fromkeys(_names(query)))[:MOST_NAMES]
    if not wanted:
        return frozenset()
    symbols = await store.scan(Where(kinds=(SYMBOL,), name_keys=wanted))
    if not symbols:
        return frozenset()
    links = await store.links(
        [symbol.id for symbol in symbols], direction="in", sources=(CODE,), limit=MOST_LINKS
    )
    return frozenset(link.source for link in links if link.verb == DEFINES)


def _names(query: str) -> list[str]:
    """What may be the name of something in code: in a longer question only what looks like one."""
    words = [word for word in _NAME.findall(query) if word.lower() not in STOP_WORDS]
    long_enough = [word for word in words if len(word) >= _SHORTEST]
    if len(words) <= FEW_WORDS:
        return long_enough
    return [word for word in long_enough if not (word.isalpha() and word[1:].islower())]
