"""Whether a new memory repeats or replaces another one, by words and by embedding."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from everkept.core.ports import Embedded, Embedder, Indexing, RecordStore
from everkept.core.records import Record, Weights, Where
from everkept.errors import ModelUnavailable
from everkept.families.memories.identity import EVENT
from everkept.families.memories.model import MEMORY
from everkept.language.stems import stem
from everkept.language.telling_words import spoken_words
from everkept.language.words import AllOf, AnyOf, Phrase, WordQuery
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import Warned
from everkept.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors = Mapping[str, "NDArray[np.float32]"]

BATCH = 16  # texts

log = logging.getLogger(__name__)


class Meaning:
    """Gives vectors until the time is up, in however many stores."""

    def __init__(self, indexing: Indexing, time_limit: float | None) -> None:
        self._embedder = indexing.embedder
        self._fault = indexing.fault
        self._deadline = Deadline.within(time_limit)
        self._missing: dict[RecordStore, int] = {}

    async def of(self, store: RecordStore, records: Sequence[Record]) -> Vectors:
        """By id, as the store keeps them; those that matter most are to come first."""
        embedder = self._embedder
        if embedder is None or not records:
            return {}
        found = dict(await store.vectors(embedder.name, [record.id for record in records]))
        waiting = [r for r in records if r.text and r.id not in found]
        for start in range(0, len(waiting), BATCH):
            if self._fault is not None or self._deadline.has_passed:
                break
            batch = waiting[start : start + BATCH]
            found |= await self._deadline.one(self._made(embedder, store, batch)) or {}
        self._missing[store] = sum(record.id not in found for record in waiting)
        return found

    @property
    def warnings(self) -> list[Warned]:
        missing = sum(self._missing.values())
        if not missing:
            return []
        count = "1 memory" if missing == 1 else f"{missing} memories"
        if self._fault is not None:
            message = f"{self._fault.message} {count} without a vector counted by words alone."
            return [Warned("embedding_failed", message)]
        return [Warned("embeddings_pending", f"{count} without a vector yet counted by words.")]

    async def _made(
        self, embedder: Embedder, store: RecordStore, records: Sequence[Record]
    ) -> Vectors:
        ids = [record.id for record in records]
        # The background works at the same queue.
        there = await store.vectors(embedder.name, ids)
        missing = [record for record in records if record.id not in there]
        if not missing:
            return there
        try:
            rows = await embedder.embed([record.text for record in missing])
        except ModelUnavailable as fault:
            self._fault = fault
            return there
        except Exception:
            log.exception("%d memories have to wait for their vectors", len(missing))
            return there
        items = [Embedded(r.id, r.version, row) for r, row in zip(missing, rows, strict=True)]
        await store.put_vectors(embedder.name, items)
        # Read back: what is stored is rounded, and the next time must see the same.
        return await store.vectors(embedder.name, ids)


Likeness = Literal["similar", "superseded"]

SIMILAR = 0.8  # share of their words that two texts have in common
SHORTEST = 3  # telling words; shorter texts are alike by chance
SUBJECT = 0.6  # share of its words with which a replaced fact begins like the new one
LONGEST = 400  # telling words that are compared
CANDIDATES = 5
_PAIRS = ((0, 1), (2, 3))  # of the longest words


class Alike(Value):
    record: Record
    likeness: Likeness


async def alike(store: RecordStore, text: str, kind: str, visible_to: str) -> list[Alike]:
    """The stored memories that are like a text, the likest first; one question by words."""
    words = telling_stems(text)
    query = _question(_words(text)) if len(words) >= SHORTEST else None
    if query is None:
        return []
    where = Where(kinds=(MEMORY,), visible_to=visible_to)
    matches = await store.match(query, where, Weights(context=0.0), CANDIDATES + 1)
    judged = [
        (_overlap(words, telling_stems(record.text)), Alike(record, likeness))
        for record in (await store.get([match.id for match in matches]) if matches else [])
        if not record.facets.get("superseded_by") and (likeness := likeness_of(text, kind, record))
    ]
    judged.sort(key=lambda pair: -pair[0])
    return [alike for _, alike in judged]


def likeness_of(text: str, kind: str, old: Record) -> Likeness | None:
    """Conservative: a warning that is wrong costs more than one that is missing."""
    ours, theirs = telling_stems(text), telling_stems(old.text)
    if min(len(ours), len(theirs)) < SHORTEST:
        return None
    # Two events are two events, however alike they are.
    if EVENT not in (kind, old.type) and _is_said_anew(ours, theirs):
        return "superseded"
    return "similar" if _overlap(ours, theirs) >= SIMILAR else None


def telling_stems(text: str) -> list[str]:
    """The stems of a text but stop words, in their order."""
    return [stem(word) for word in _words(text)]


def _words(text: str) -> list[str]:
    return spoken_words(text)[:LONGEST]


def _is_said_anew(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """The same subject with another value: other numbers, or another end of the sentence."""
    if set(ours) == set(theirs):
        return False
    numbers, other_numbers = _numbers(ours), _numbers(theirs)
    if numbers != other_numbers and numbers and other_numbers:
        return _overlap(_without_numbers(ours), _without_numbers(theirs)) >= SIMILAR
    shared = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    rest = {*ours[shared:]} & {*theirs[shared:]}
    is_replaced = shared < len(ours) and shared < len(theirs) and not rest
    return is_replaced and shared >= SHORTEST and shared >= SUBJECT * max(len(ours), len(theirs))


def _overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Jaccard's: 1 where both have the same words."""
    union = {*ours, *theirs}
    return len({*ours} & {*theirs}) / len(union) if union else 0.0


def _numbers(words: Sequence[str]) -> set[str]:
    return {word for word in words if _has_digit(word)}


def _without_numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if not _has_digit(word)]


def _has_digit(word: str) -> bool:
    """Most words are letters only, which is known without a look at each."""
    return not word.isalpha() and any(c.isdigit() for c in word)


def _question(words: Sequence[str]) -> WordQuery | None:
    """Two of the longest words, or two others: a text that is alike lacks one of them at most.

    Long words are rare ones, and rare ones together are found at once in a store of any size.
    Numbers are what a newer fact changes.
    """
    distinct = dict.fromkeys(_without_numbers(words))
    longest = sorted(distinct, key=lambda word: -len(word))[: 2 * len(_PAIRS)]
    pairs = [
        AllOf(tuple(Phrase((longest[i],)) for i in pair))
        for pair in _PAIRS
        if pair[1] < len(longest)
    ]
    return AnyOf(tuple(pairs)) if len(pairs) > 1 else next(iter(pairs), None)
