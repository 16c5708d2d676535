"""Turns and code that fit a question, found by the one search: judged, and in the order shown."""

import asyncio
import re
from collections.abc import Container, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from itertools import islice

from everkept.core.ports import Embedder, RecordStore
from everkept.core.records import Record, Weights, Where
from everkept.core.text import normalised
from everkept.families.history.model import CODE, DECISION, DEFINES, SYMBOL, TURN
from everkept.language.spellings import fold, stem
from everkept.language.telling_words import has_telling_words, stems
from everkept.language.words import FOREIGN_STOP_WORDS, STOP_WORDS
from everkept.retrieval.excerpts import Sought, excerpt
from everkept.retrieval.profile import Found, Hit, Notice, Parts, Place, Profile, Strategy
from everkept.retrieval.search import search
from everkept.values import Value, replace

# Tuned on public conversations: who said it and what stands beside it count a little more, and
# less, than for memories.
RECALL = Profile(
    kinds=(TURN, CODE),
    weights=Weights(context=0.5),  # what was said just before and after
    reading="any",
    strategy="hybrid",
    parts=Parts(author=0.25, neighbour=0.3),
)
# An error is known by its words, and a description by its meaning; it is one turn that has it.
SIMILAR = Profile(
    kinds=(TURN,),
    weights=Weights(context=0.5),
    reading="any",
    strategy="hybrid",
    parts=Parts(keyword=0.4, meaning=0.4, author=0.0, date=0.1, neighbour=0.2),
)
# A name in code is that name or another one; who wrote it and when says little about it.
CODE_SEARCH = Profile(
    kinds=(CODE,),
    weights=Weights(name=3.0, context=0.25),
    reading="any",
    strategy="hybrid",
    parts=Parts(keyword=0.5, meaning=0.4, author=0.05, date=0.1, neighbour=0.0),
)


BUCKET = 0.1  # scores that are no further apart count as one
BLOCK = 10  # results that are put in order among themselves
# Times the results that are wanted: a turn and its code are found apart, and a text many times.
SPARE, FEWEST_READ = 4, 128
LOOKED_AT = 3  # times the results that are wanted: equal texts are one, as are code and its turn


class Asking(Value):
    """Who asks when, with what at hand."""

    embedder: Embedder | None = None
    now: int = 0
    zone: tzinfo = UTC
    time_limit: float | None = None


async def found(
    store: RecordStore,
    query: str,
    *,
    limit: int,
    asking: Asking,
    profile: Profile = RECALL,
    kinds: Sequence[str] = (),
    types: Sequence[str] = (),
    scopes: Sequence[str] = (),
    after: int | None = None,
    before: int | None = None,
    strategy: Strategy | None = None,
    repeated: bool = False,
) -> Found:
    """The best by score that are worth it, a turn and its code once; an empty field does not
    restrict.

    Where code alone is asked for, all code of a turn is given. Texts that are `repeated` are given
    once, unless they are wanted.
    """
    profile = replace(
        profile,
        kinds=tuple(kinds) or profile.kinds,
        strategy=strategy or profile.strategy,
    )
    where = Where(types=tuple(types), scopes=tuple(scopes), after=after, before=before)
    searching = search(
        [Place(store, where)],
        query,
        profile,
        limit=max(limit * SPARE, FEWEST_READ),
        embedder=asking.embedder,
        now=asking.now,
        zone=asking.zone,
        time_limit=asking.time_limit,
    )
    answer, pending = await asyncio.gather(searching, waiting(store, asking.embedder))
    # Where nothing was found by meaning, that was said already, or not wanted.
    by_meaning = answer.strategy in ("hybrid", "vector")
    notices = [*answer.notices, pending] if pending and by_meaning else answer.notices
    hits = worthwhile(answer.hits, query, enough=limit * LOOKED_AT)
    if not repeated:
        hits = newest_of_equals(hits)
    if profile.kinds != (CODE,):
        hits = one_for_a_turn(hits, await _turns(store, hits))
    return replace(answer, hits=hits[:limit], next_cursor=None, notices=notices)


async def _turns(store: RecordStore, hits: Sequence[Hit]) -> dict[str, Record]:
    """Those that were found, and those of code that was found."""
    turns = {hit.record.id: hit.record for hit in hits if hit.record.kind == TURN}
    missing = dict.fromkeys(id for hit in hits if (id := turn_of(hit)) not in turns)
    return turns | {turn.id: turn for turn in await store.get(list(missing))} if missing else turns


def in_order(hits: Sequence[Hit], preferred: Container[str] = ()) -> list[Hit]:
    """The order in which hits are shown, given them best first.

    The better ones first, and of those in one bucket of scores the preferred, given by id, and
    the newest. That is done ten by ten: among fifty results a bucket can hold half of them, and
    what is best would drown in what is new.
    """
    return [
        hit
        for start in range(0, len(hits), BLOCK)
        for hit in sorted(hits[start : start + BLOCK], key=lambda hit: _place(hit, preferred))
    ]


def shown_score(score: float) -> float:
    return round(score, 3)


def bucket_of(score: float) -> int:
    """Of what is shown, so that whoever reads the scores finds them in order."""
    return int(shown_score(score) / BUCKET + 1e-9)


def _place(hit: Hit, preferred: Container[str]) -> tuple[int, bool, int, float, str]:
    return (
        -bucket_of(hit.score),
        hit.record.id not in preferred,
        -hit.record.at,
        -hit.score,
        hit.record.id,
    )


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


UNDECIDED = 0.7  # what a turn that decides nothing counts, to whom asks for a decision
LED_TO = 0.95  # of the score of what led to a decision, that it has at least
BEFORE = 3  # turns before a decision that may have led to it

_DECIDING = re.compile(
    r"\b(?:decid|decision|choose|chose|agree|settle|go with|went with|why (?:did|do) we)",
    re.IGNORECASE,
)
_DECIDED = re.compile(
    r"\b(?:decided?|agreed?|settled?|decisions?)\b"
    r"(?=\W*$|\s+(?:about|on|upon|for|to|between|against)\b)",
    re.IGNORECASE,
)


def what_is_asked(question: str) -> str:
    """Without the words that ask for a decision: every decision has them, whatever it is about."""
    if not _DECIDING.search(question):
        return question
    rest = _DECIDED.sub("", question)
    return rest if stems(rest) else question


def asks_for_decisions(question: str) -> bool:
    return bool(_DECIDING.search(question))


def decisions_first(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Best first. The question that led to a decision is worded like that of who asks for it, so
    that a decision counts as much as what stands just before it."""
    if asks_for_decisions(question):
        hits = [_judged(hit, hits) for hit in hits]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.record.at, hit.record.id))


def _judged(hit: Hit, hits: Sequence[Hit]) -> Hit:
    record = hit.record
    if record.type != DECISION:
        return replace(hit, score=UNDECIDED * hit.score)
    led = [
        other.score
        for other in hits
        if other.record.parent == record.parent
        and 0 < (record.position or 0) - (other.record.position or 0) <= BEFORE
    ]
    return replace(hit, score=max(hit.score, LED_TO * max(led, default=0.0)))


MANY_WAITING = 0.1  # share of all turns


async def waiting(store: RecordStore, embedder: Embedder | None) -> Notice | None:
    """Says how many are found by words alone so far, where that is worth a word."""
    # One that waits is found a hundred times faster than all are counted.
    if embedder is None or not await store.unembedded(embedder.name, (TURN,), 1):
        return None
    ready, left = await store.vector_counts(embedder.name, (TURN,))
    total = ready + left
    if left <= MANY_WAITING * total:
        return None
    message = f"{left:,} of {total:,} turns are found by words alone so far."
    return Notice("partial_results", message)


_MASK = re.compile(r"\[masked: [a-z ]+\]")
_FOREIGN = frozenset(stem(word) for word in FOREIGN_STOP_WORDS)


@lru_cache(8)
def sought_by(query: str) -> Sought:
    """Without stop words of other languages, as long as anything is left."""
    asked = stems(without_masks(query))
    return Sought((asked - _FOREIGN) or asked)


def said_in(text: str, sought: Sought) -> frozenset[str]:
    """What a mask calls a secret was said by nobody."""
    return sought.said_in(without_masks(text))


def without_masks(text: str) -> str:
    if "[masked: " not in text:
        return text
    return _MASK.sub(lambda mask: " " * len(mask[0]), text)


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
        hits = [_judged_code(hit, defining) if hit.record.kind == CODE else hit for hit in hits]
    return sorted(hits, key=lambda hit: (-hit.score, -hit.record.at, hit.record.id))


async def languages(store: RecordStore) -> list[str]:
    """Those that code of past conversations is written in, the most frequent first."""
    counts: dict[str, int] = {}
    for tally in await store.tally((CODE,)):
        if tally.type and not tally.is_deleted:
            counts[tally.type] = counts.get(tally.type, 0) + tally.count
    return sorted(counts, key=lambda name: (-counts[name], name))


def _judged_code(hit: Hit, defining: frozenset[str]) -> Hit:
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
