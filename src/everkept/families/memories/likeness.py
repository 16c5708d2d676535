"""How alike memories are: which repeat or replace another, and which are about the same thing."""

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Literal

from everkept.core.ports import Embedded, Embedder, Indexing, RecordStore
from everkept.core.records import Record, Weights, Where
from everkept.core.text import clipped
from everkept.errors import ModelUnavailable
from everkept.families.memories.memory_identity import EVENT, NOTHING_STORED
from everkept.families.memories.model import MEMORY
from everkept.language import telling_words
from everkept.language.sentences import beginning, sentences
from everkept.language.spellings import stem
from everkept.language.telling_words import rarity_among, spoken_words
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


TYPES = ("episodic", "semantic", "procedural", "working")
LONGEST_TEXT = 2_000  # characters of a memory that are read
MOST_READ = 200_000  # characters in all: a summary at shutdown has no time for more


def session_summary(records: Sequence[Record], names: Sequence[str] = ()) -> str:
    """For people and for the record of a session that ends; `names` are linked entities'."""
    if not records:
        return NOTHING_STORED
    counts = Counter(record.type or "" for record in records)
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in TYPES if counts[kind])
    noun = "memory" if len(records) == 1 else "memories"
    line = f"{len(records)} {noun} ({listed})." if listed else f"{len(records)} {noun}."
    named = key_topics(records, names)
    return f"{line} Key topics: {', '.join(named)}" if named else line


def key_topics(
    records: Sequence[Record], names: Sequence[str] = (), limit: int = telling_words.MOST_TOPICS
) -> list[str]:
    """What most of the memories speak of, spelled as they do, the weightiest first."""
    return telling_words.key_topics(_read(records), names, limit)


def _read(records: Sequence[Record]) -> Iterator[tuple[str, Sequence[str]]]:
    """Texts and tags, as far as there is time; the newest tell best where a session has come to."""
    left = MOST_READ
    for record in sorted(records, key=lambda r: (r.at, r.id), reverse=True):
        if left <= 0:
            return
        text = beginning(record.text, LONGEST_TEXT)
        yield text, record.tags
        left -= len(text) + sum(map(len, record.tags))


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


def likeness(
    words: Sequence[Sequence[str]], vectors: "Sequence[NDArray[np.float32] | None]"
) -> "NDArray[np.float32]":
    """How alike each two texts are, 1 at most: by their vectors, or by their words for want of one.

    `words` are the telling words of each text.
    """
    import numpy as np

    known = [row for row, vector in enumerate(vectors) if vector is not None]
    if len(known) == len(words) and known:
        return _cosines([vector for vector in vectors if vector is not None])
    # The root brings words to the model's scale: 0.15 of them shared is one topic, 0.6 one thing.
    alike = np.sqrt(_shared_words(words))
    if known:
        by_meaning = _cosines([vector for vector in vectors if vector is not None])
        alike[np.ix_(known, known)] = by_meaning
    return alike


def groups(alike: "NDArray[np.float32]", threshold: float) -> list[list[int]]:
    """Average linkage: the rows of each group are, on average, at least so much alike.

    The two nearest groups are joined as long as any are near enough; each row is in one group.
    By chains of nearest neighbours, so that 2,000 rows take a fraction of a second.
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
            # Joining others brings them no nearer, and each link of the chain is weaker still.
            waiting[chain] = False
            chain.clear()
        elif len(chain) > 1 and near[last, chain[-2]] >= near[last, nearest]:
            del chain[-1]
            kept, joined = sorted((last, chain.pop()))
            _join(near, kept, joined, (len(members[kept]), len(members[joined])))
            members[kept] += members[joined]
            members[joined] = []
            waiting[joined] = False
        else:
            chain.append(nearest)
    return [sorted(rows) for rows in members if rows]


def _join(near: "NDArray[np.float32]", kept: int, joined: int, sizes: tuple[int, int]) -> None:
    import numpy as np

    row = (near[kept] * sizes[0] + near[joined] * sizes[1]) / sum(sizes)
    row[kept] = -np.inf
    near[kept] = near[:, kept] = row
    near[joined] = near[:, joined] = -np.inf


def _cosines(vectors: "Sequence[NDArray[np.float32]]") -> "NDArray[np.float32]":
    import numpy as np

    rows = np.stack(vectors).astype(np.float32)
    return rows @ rows.T


def _shared_words(words: Sequence[Sequence[str]]) -> "NDArray[np.float32]":
    """The cosine of the texts' words, each word weighted by how telling it is."""
    import numpy as np

    weights = rarity_among(words)
    holders: dict[str, list[int]] = {}
    for row, text in enumerate(words):
        for word in dict.fromkeys(text):
            holders.setdefault(word, []).append(row)
    alike = np.zeros((len(words), len(words)), np.float32)
    for word, rows in holders.items():
        alike[np.ix_(rows, rows)] += np.float32(weights[word] ** 2)
    lengths = np.sqrt(np.maximum(alike.diagonal(), np.float32(1e-9)))
    return (alike / lengths[:, None] / lengths[None, :]).astype(np.float32)
