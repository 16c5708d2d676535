"""Likeness of memories: which repeat or replace another, and which share a topic."""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Literal

from everkept.core.ports import Background, Embedder, Level, RecordStore, RecordVector, VectorIndexer
from everkept.core.records import Record, RecordFilter, Weights
from everkept.core.text import clip_text, format_count
from everkept.errors import ModelUnavailable
from everkept.families.memories.memory_identity import EVENT_TYPE, NOTHING_STORED
from everkept.families.memories.model import MEMORY
from everkept.language import telling_words
from everkept.language.sentences import split_sentences, take_beginning
from everkept.language.spellings import stem
from everkept.language.telling_words import compute_rarities, list_spoken_words
from everkept.language.words import AllOf, AnyOf, WordPhrase, WordQuery
from everkept.retrieval.profile import Deadline
from everkept.tools.tool import ToolWarning
from everkept.values import Value

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Vectors = Mapping[str, "NDArray[np.float32]"]

BATCH_TEXTS = 16

log = logging.getLogger(__name__)


class VectorSource:
    """Source of vectors for any number of stores, until the time is up."""

    def __init__(self, indexing: VectorIndexer, time_limit: float | None) -> None:
        self._embedder = indexing.embedder
        self._fault = indexing.fault
        self._deadline = Deadline.from_seconds(time_limit)
        self._missing: dict[RecordStore, int] = {}

    async def get_vectors(self, store: RecordStore, records: Sequence[Record]) -> Vectors:
        """Return the vectors of records by id. Pass the most important records first, because the time is limited."""
        embedder = self._embedder
        if embedder is None or not records:
            return {}
        found = dict(await store.get_vectors(embedder.name, [record.id for record in records]))
        waiting = [r for r in records if r.text and r.id not in found]
        for start in range(0, len(waiting), BATCH_TEXTS):
            if self._fault is not None or self._deadline.has_passed:
                break
            batch = waiting[start : start + BATCH_TEXTS]
            found |= await self._deadline.run(self._compute_vectors(embedder, store, batch)) or {}
        self._missing[store] = sum(record.id not in found for record in waiting)
        return found

    async def find_background(self) -> Background | None:
        """Return the background of the model, or None if it does not work."""
        embedder = self._embedder
        try:
            return None if embedder is None else await asyncio.to_thread(lambda: embedder.background)
        except ModelUnavailable as fault:
            self._fault = fault
            return None

    @property
    def warnings(self) -> list[ToolWarning]:
        missing = sum(self._missing.values())
        if not missing:
            return []
        count = format_count(missing, "memory", "memories")
        if self._fault is not None:
            return [ToolWarning("embedding_failed", f"{self._fault.message} {count} compared by words only.")]
        return [ToolWarning("embeddings_pending", f"{count} not embedded yet; compared by words.")]

    async def _compute_vectors(self, embedder: Embedder, store: RecordStore, records: Sequence[Record]) -> Vectors:
        ids = [record.id for record in records]
        # The background job works on the same queue.
        there = await store.get_vectors(embedder.name, ids)
        missing = [record for record in records if record.id not in there]
        if not missing:
            return there
        try:
            rows = await embedder.embed([record.text for record in missing])
        except ModelUnavailable as fault:
            self._fault = fault
            return there
        except Exception:
            log.exception("embedding failed for %s", format_count(len(missing), "memory", "memories"))
            return there
        items = [RecordVector(r.id, r.version, row) for r, row in zip(missing, rows, strict=True)]
        await store.put_vectors(embedder.name, items)
        # Read back, because stored vectors are rounded and later calls must see the same values.
        return await store.get_vectors(embedder.name, ids)


LikenessKind = Literal["similar", "superseded"]

MIN_SIMILAR_SHARE = 0.8  # of the words of two texts
MIN_WORDS = 3  # content words; shorter texts are similar by chance
MIN_SUBJECT_SHARE = 0.6  # of the words at the beginning of a replaced fact that equal the new one
MAX_WORDS = 400  # content words that are compared
MAX_CANDIDATES = 5
_WORD_PAIRS = ((0, 1), (2, 3))  # of the longest words


class SimilarMemory(Value):
    record: Record
    likeness: LikenessKind


async def find_similar(store: RecordStore, text: str, kind: str, visible_to: str) -> list[SimilarMemory]:
    """Return the stored memories that are similar to a text, the most similar first. Takes one query by words."""
    words = extract_stems(text)
    query = _build_query(_extract_words(text)) if len(words) >= MIN_WORDS else None
    if query is None:
        return []
    where = RecordFilter(kinds=(MEMORY,), visible_to=visible_to)
    matches = await store.match(query, where, Weights(name=0.0, context=0.0), MAX_CANDIDATES + 1)
    judged = [
        (_compute_overlap(words, extract_stems(record.text)), SimilarMemory(record, likeness))
        for record in (await store.get([match.id for match in matches]) if matches else [])
        if not record.facets.get("superseded_by") and (likeness := classify_likeness(text, kind, record))
    ]
    judged.sort(key=lambda pair: -pair[0])
    return [alike for _, alike in judged]


def classify_likeness(text: str, kind: str, old: Record) -> LikenessKind | None:
    """Return how a text relates to a stored memory, or None. A wrong warning costs more than a missing one."""
    ours, theirs = extract_stems(text), extract_stems(old.text)
    if min(len(ours), len(theirs)) < MIN_WORDS:
        return None
    # Two events stay two events, however similar they are.
    if EVENT_TYPE not in (kind, old.type) and _is_replacement(ours, theirs):
        return "superseded"
    return "similar" if _compute_overlap(ours, theirs) >= MIN_SIMILAR_SHARE else None


def extract_stems(text: str) -> list[str]:
    """Return the stems of a text in order, without stop words."""
    return [stem(word) for word in _extract_words(text)]


def _extract_words(text: str) -> list[str]:
    return list_spoken_words(text)[:MAX_WORDS]


def _is_replacement(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Return whether both have the same subject with another value: other numbers, or another end of the sentence."""
    if set(ours) == set(theirs):
        return False
    numbers, other_numbers = _select_numbers(ours), _select_numbers(theirs)
    if numbers != other_numbers and numbers and other_numbers:
        return _compute_overlap(_drop_numbers(ours), _drop_numbers(theirs)) >= MIN_SIMILAR_SHARE
    shared = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs))
    )
    rest = {*ours[shared:]} & {*theirs[shared:]}
    is_replaced = shared < len(ours) and shared < len(theirs) and not rest
    return is_replaced and shared >= MIN_WORDS and shared >= MIN_SUBJECT_SHARE * max(len(ours), len(theirs))


def _compute_overlap(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Return the Jaccard similarity: 1 if both have the same words."""
    union = {*ours, *theirs}
    return len({*ours} & {*theirs}) / len(union) if union else 0.0


def _select_numbers(words: Sequence[str]) -> set[str]:
    return {word for word in words if _has_digit(word)}


def _drop_numbers(words: Sequence[str]) -> list[str]:
    return [word for word in words if not _has_digit(word)]


def _has_digit(word: str) -> bool:
    """Return whether a word has a digit. The check for letters is a fast path for most words."""
    return not word.isalpha() and any(c.isdigit() for c in word)


def _build_query(words: Sequence[str]) -> WordQuery | None:
    """Build a query for two of the longest words, or two others: a similar text lacks at most one of them.

    Long words are rare, and two rare words are found quickly in a store of any size. Numbers are excluded, because a
    newer fact changes them.
    """
    distinct = dict.fromkeys(_drop_numbers(words))
    longest = sorted(distinct, key=lambda word: -len(word))[: 2 * len(_WORD_PAIRS)]
    pairs = [AllOf(tuple(WordPhrase((longest[i],)) for i in pair)) for pair in _WORD_PAIRS if pair[1] < len(longest)]
    return AnyOf(tuple(pairs)) if len(pairs) > 1 else next(iter(pairs), None)


MEMORY_TYPES = ("episodic", "semantic", "procedural", "working")
MAX_TEXT_CHARACTERS = 2_000  # read of each memory
MAX_READ_CHARACTERS = 200_000  # in total: a summary at shutdown has no time for more


def format_session_summary(
    records: Sequence[Record], about: Sequence[Record] | None = None, since: Sequence[str] = ()
) -> str:
    """Summarize a session for people and for its record: all its memories, and those that show what it was about.

    `since` lists what happened to some later.
    """
    if not records:
        return NOTHING_STORED
    counts = Counter(record.type or "" for record in records)
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in MEMORY_TYPES if counts[kind])
    counted = format_count(len(records), "memory", "memories") + (f" ({listed})" if listed else "")
    line = ", ".join([counted, *since]) + "."
    named = extract_key_topics(records if about is None else about)
    return f"{line} Key topics: {', '.join(named)}" if named else line


def extract_key_topics(records: Sequence[Record]) -> list[str]:
    """Return the topics of most memories in their own spelling, the most important first."""
    return telling_words.find_key_topics(_iter_texts(records))


def _iter_texts(records: Sequence[Record]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield texts and tags up to the limit, newest first, because these best show what a session led to."""
    left = MAX_READ_CHARACTERS
    for record in sorted(records, key=lambda r: (r.effective_at, r.id), reverse=True):
        if left <= 0:
            return
        text = take_beginning(record.text, MAX_TEXT_CHARACTERS)
        yield text, record.tags
        left -= len(text) + sum(map(len, record.tags))


MIN_REPEATED_SHARE = 0.6  # of a sentence's words that earlier ones have
FULL_SENTENCE_WORDS = 4  # content words; a sentence with fewer is an exclamation or a heading
COVERED_WORD_FACTOR = 0.3  # weight of a word that a chosen sentence already has

_UNPUNCTUATED_END = re.compile(r"[^\W_]$")


class WeightedSentence(Value):
    """Sentence of one of several texts, with the weight of its text."""

    text: str
    words: frozenset[str]
    place: tuple[int, int]  # number of the text, and of the sentence in it
    weight: float


def select_central_sentences(
    texts: Sequence[str], weights: Sequence[float], rarity: Mapping[str, float], *, most: int, length: int
) -> str:
    """Return the sentences that best show what the texts have in common, in their order.

    There are at most `most` sentences and `length` characters, without repetitions. The first one may be clipped.
    """
    said: list[WeightedSentence] = [*_iter_sentences(texts, weights)]
    words = {(sentence.place[0], word) for sentence in said for word in sentence.words}
    shared = Counter(word for _, word in words)
    worth = {word: count * rarity.get(word, 1.0) for word, count in shared.items()}
    said = _select_statements(said, {word for word, count in shared.items() if count > 1})
    chosen: list[WeightedSentence] = []
    room = length
    while said and len(chosen) < most:
        best = max(said, key=lambda s: (_compute_centrality(s, worth), (-s.place[0], -s.place[1])))
        said.remove(best)
        if chosen and len(best.text) + 2 > room:
            continue
        chosen.append(best)
        room -= len(best.text) + 2
        worth |= {word: worth[word] * COVERED_WORD_FACTOR for word in best.words}
        told = frozenset[str]().union(*(s.words for s in chosen))
        said = [s for s in said if len(s.words & told) < MIN_REPEATED_SHARE * len(s.words)]
    return clip_to_length(_join_sentences(sorted(chosen, key=lambda s: s.place)), length)


def clip_to_length(text: str, length: int) -> str:
    return text if len(text) <= length else clip_text(text, length)


def _iter_sentences(texts: Sequence[str], weights: Sequence[float]) -> Iterator[WeightedSentence]:
    for number, (text, weight) in enumerate(zip(texts, weights, strict=True)):
        for place, sentence in enumerate(split_sentences(text) or [text.strip()]):
            yield WeightedSentence(sentence, frozenset(extract_stems(sentence)), (number, place), weight)


def _select_statements(said: Sequence[WeightedSentence], shared: Set[str]) -> list[WeightedSentence]:
    """Return statements. Of each text, return those that share a word with the other texts, if there are any."""
    stated = [s for s in said if len(s.words) > 1 and not s.text.endswith(("?", "？"))] or said
    pointed = [s for s in stated if not s.words.isdisjoint(shared)]
    texts = {s.place[0] for s in pointed}
    return [*pointed, *(s for s in stated if s.place[0] not in texts)]


def _compute_centrality(said: WeightedSentence, worth: Mapping[str, float]) -> float:
    """Return the weight of a sentence. The root keeps long sentences, which have more words, from always winning."""
    if not said.words:
        return 0.0
    central = sum(worth[word] for word in sorted(said.words)) / len(said.words) ** 0.5
    return said.weight * central * min(len(said.words) / FULL_SENTENCE_WORDS, 1.0)


def _join_sentences(chosen: Sequence[WeightedSentence]) -> str:
    text = ""
    for said in chosen:
        if text:
            is_block = "\n" in said.text or "\n" in text
            text += "\n" if is_block else " "
        text += said.text + ("." if len(chosen) > 1 and _UNPUNCTUATED_END.search(said.text) else "")
    return text


# Likeness of levels of nearness; between them it grows linearly, and equal texts have 1. On this scale, notes on one
# topic (a bug and its fix, a migration) have 0.37 to 0.5 on average, and notes on different topics 0.1.
_LIKENESS_OF_LEVELS = ((Level("unrelated", 0.5), 0.05), (Level("unrelated", 0.998), 0.38), (Level("alike", 0.5), 0.8))


def compute_likeness(
    words: Sequence[Sequence[str]], vectors: "Sequence[NDArray[np.float32] | None]", background: Background | None
) -> "NDArray[np.float32]":
    """Return the likeness of each pair of texts, at most 1: by vectors, or by content words if one is missing.

    Vectors count only with the background of their model.
    """
    import numpy as np

    known = [row for row, vector in enumerate(vectors) if vector is not None]
    if background is None or not known:
        return _compute_word_likeness(words)
    by_meaning = _scale_cosines(_compute_cosines([vector for vector in vectors if vector is not None]), background)
    if len(known) == len(words):
        return by_meaning
    alike = _compute_word_likeness(words)
    alike[np.ix_(known, known)] = by_meaning
    return alike


def _compute_word_likeness(words: Sequence[Sequence[str]]) -> "NDArray[np.float32]":
    """Return the likeness by words. The root scales them: 0.15 shared means one topic, 0.6 one thing."""
    import numpy as np

    return np.sqrt(_compute_word_cosines(words))


def _scale_cosines(cosines: "NDArray[np.float32]", background: Background) -> "NDArray[np.float32]":
    import numpy as np

    middle, *levels = (background.find(level) for level, _ in _LIKENESS_OF_LEVELS)
    known = np.maximum.accumulate([2 * middle - 1.0, middle, *levels, 1.0])
    return np.interp(cosines, known, [-1.0, *(value for _, value in _LIKENESS_OF_LEVELS), 1.0]).astype(np.float32)


def cluster_rows(alike: "NDArray[np.float32]", threshold: float) -> list[list[int]]:
    """Group rows by average linkage: the average likeness within a group is at least the threshold.

    The two nearest groups are joined while any are near enough; each row is in one group. Uses chains of nearest
    neighbors, so that 2,000 rows take a fraction of a second.
    """
    import numpy as np

    near = alike.astype(np.float32)
    np.fill_diagonal(near, -np.inf)
    members = [[row] for row in range(len(near))]
    waiting = np.ones(len(near), bool)
    chain: list[int] = []
    while waiting.any():
        if not chain:
            chain.append(int(waiting.argmax()))
        last = chain[-1]
        nearest = int(near[last].argmax())
        if near[last, nearest] < threshold:
            # Joining others brings them no nearer, and each earlier link of the chain is weaker.
            waiting[chain] = False
            chain.clear()
        elif len(chain) > 1 and near[last, chain[-2]] >= near[last, nearest]:
            del chain[-1]
            kept, joined = sorted((last, chain.pop()))
            _join_clusters(near, kept, joined, (len(members[kept]), len(members[joined])))
            members[kept] += members[joined]
            members[joined] = []
            waiting[joined] = False
        else:
            chain.append(nearest)
    return [sorted(rows) for rows in members if rows]


def _join_clusters(near: "NDArray[np.float32]", kept: int, joined: int, sizes: tuple[int, int]) -> None:
    import numpy as np

    row = (near[kept] * sizes[0] + near[joined] * sizes[1]) / sum(sizes)
    row[kept] = -np.inf
    near[kept] = near[:, kept] = row
    near[joined] = near[:, joined] = -np.inf


def _compute_cosines(vectors: "Sequence[NDArray[np.float32]]") -> "NDArray[np.float32]":
    import numpy as np

    rows = np.stack(vectors).astype(np.float32)
    return rows @ rows.T


def _compute_word_cosines(words: Sequence[Sequence[str]]) -> "NDArray[np.float32]":
    """Return the cosines of the texts' words, each word weighted by its rarity."""
    import numpy as np

    weights = compute_rarities(words)
    holders: dict[str, list[int]] = {}
    for row, text in enumerate(words):
        for word in dict.fromkeys(text):
            holders.setdefault(word, []).append(row)
    alike = np.zeros((len(words), len(words)), np.float32)
    for word, rows in holders.items():
        alike[np.ix_(rows, rows)] += np.float32(weights[word] ** 2)
    lengths = np.sqrt(np.maximum(alike.diagonal(), np.float32(1e-9)))
    return (alike / lengths[:, None] / lengths[None, :]).astype(np.float32)
