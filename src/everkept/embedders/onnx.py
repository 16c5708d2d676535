"""Embeddings of texts of any length, the model that ships with the package, and its tokenizer.

A test checks that the ids of word pieces equal those of the `tokenizers` library for the model's tokenizer.json. The
one exception is a lone surrogate: that library refuses it, while this module removes it like a control character.

The background of a model is measured from texts of ours. `background_texts.json` has rows of three: a statement, the
same in other words, and a question that it answers. No two rows have a subject in common.

The embeddings of recent queries are cached, so that repeated and concurrent queries are embedded once.
"""

import asyncio
import json
import math
import re
import unicodedata
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakValueDictionary

from everkept.core.ports import SHARES, SHIPPED_MODEL, Background, Embedder, ForwardingEmbedder
from everkept.core.runtime import keep_heaps_small, return_freed_memory
from everkept.core.text import blake2b
from everkept.core.times import Clock, read_clock
from everkept.errors import ModelUnavailable
from everkept.patterns import compile_late

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from everkept.embedders.network import Network

TEXTS_FILE = Path(__file__).parent / "background_texts.json"
BACKGROUND_FILE = "background.json"  # beside a model that ships with the package
DECIMALS = 4


@lru_cache(1)
def read_texts() -> list[str]:
    """Return all statements, then their other wordings, then the questions, in the same order."""
    rows: list[list[str]] = json.loads(TEXTS_FILE.read_text(encoding="utf-8"))
    return [text for column in zip(*rows, strict=True) for text in column]


def read_background(folder: Path) -> Background:
    """Read what was measured of a shipped model."""
    measured: dict[str, list[float]] = json.loads((folder / BACKGROUND_FILE).read_text(encoding="utf-8"))
    return Background(**{pairs: tuple(cosines) for pairs, cosines in measured.items()})


def measure_background(vectors: "NDArray[np.float32]") -> Background:
    """Measure the background from the vectors of `read_texts`."""
    import numpy as np

    stated, reworded, asked = np.split(vectors.astype(np.float32), 3)
    others = ~np.eye(len(stated), dtype=bool)
    pairs = (asked @ stated.T, asked @ reworded.T, stated @ reworded.T, stated @ stated.T)
    unrelated = np.concatenate([cosines[others] for cosines in pairs])
    answers = np.concatenate([cosines.diagonal() for cosines in pairs[:2]])
    found = (np.quantile(cosines, SHARES) for cosines in (unrelated, answers, pairs[2].diagonal()))
    return Background(*(tuple(round(float(cosine), DECIMALS) for cosine in row) for row in found))


UNKNOWN = "[UNK]"
START = "[CLS]"
END = "[SEP]"
SPECIAL_PIECES = ("[PAD]", UNKNOWN, START, END, "[MASK]")

MAX_WORD_CHARACTERS = 100  # a longer word counts as unknown
CACHED_CHUNKS = 16_384
MAX_CACHED_CHARACTERS = 64  # longer chunks, from scripts without spaces, would fill the cache with whole sentences


class WordPiece:
    """Tokenizer with a vocabulary of word pieces. Safe to use from several threads."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        """Index the vocabulary. Raise ValueError if it lacks a special piece or has a duplicate."""
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
            raise ValueError(f"no {', '.join(missing)} in the vocabulary")
        if len(ids) < len(vocabulary):
            raise ValueError("the vocabulary has a piece twice")
        self.size = len(vocabulary)
        self._special = {piece: ids.pop(piece) for piece in SPECIAL_PIECES}
        self._unknown = (self._special[UNKNOWN],)
        # A word of the text never begins with ##, because punctuation is split off first.
        self._beginnings = {p: n for p, n in ids.items() if not p.startswith("##")}
        self._continuations = {p[2:]: n for p, n in ids.items() if p.startswith("##")}
        self._longest = max(map(len, ids), default=0)
        self._ids_of_known_chunk = lru_cache(CACHED_CHUNKS)(self._encode_chunk)

    @classmethod
    def from_file(cls, path: Path) -> "WordPiece":
        """Read one piece per line. The line number, from 0, is the id of the piece."""
        return cls(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text's pieces, without start and end marks."""
        return list(chain.from_iterable(map(self._encode_any_chunk, _CHUNK.findall(text))))

    def add_marks(self, ids: Iterable[int]) -> list[int]:
        """Return the ids between the start and end marks that the model expects."""
        return [self._special[START], *ids, self._special[END]]

    def _encode_any_chunk(self, chunk: str) -> tuple[int, ...]:
        if len(chunk) > MAX_CACHED_CHARACTERS:
            return self._encode_chunk(chunk)
        return self._ids_of_known_chunk(chunk)

    def _encode_chunk(self, chunk: str) -> tuple[int, ...]:
        return tuple(chain.from_iterable(map(self._encode_part, _SPECIAL.split(chunk))))

    def _encode_part(self, part: str) -> Iterator[int]:
        if part in self._special:
            return iter((self._special[part],))
        words = "".join(map(_normalize_character, part)).split()
        return chain.from_iterable(map(self._encode_word, words))

    def _encode_word(self, word: str) -> Sequence[int]:
        """Match the longest piece repeatedly. The whole word is unknown if any rest has no matching piece."""
        if (whole := self._beginnings.get(word)) is not None:
            return (whole,)
        if len(word) > MAX_WORD_CHARACTERS:
            return self._unknown
        found: list[int] = []
        start = 0
        while start < len(word):
            pieces = self._continuations if start else self._beginnings
            for end in range(min(len(word), start + self._longest), start, -1):
                if (piece := pieces.get(word[start:end])) is not None:
                    break
            else:
                return self._unknown
            found.append(piece)
            start = end
        return found


# Whitespace as BERT defines it. Python's definition also includes control characters, which are removed instead, so
# that the text around them stays one word.
_SPACES = " \t\n\r\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CHUNK = compile_late(f"[^{_SPACES}]+")
_SPACE = compile_late(f"[{_SPACES}]")
_SPECIAL = compile_late(f"({'|'.join(map(re.escape, SPECIAL_PIECES))})")
# The reference also has the gap before U+2B920.
_IDEOGRAPH = compile_late(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f]"
)

# The reference uses the tables of Unicode 8 and treats every newer character as a letter, so it becomes part of an
# unknown word. These ranges contain every newer mark, punctuation and format character up to Unicode 18. Their other
# characters are in no piece of the vocabulary.
_NEWER_CHARACTERS = compile_late(
    "[\u05c8\u05c9\u061d\u07fd\u0890-\u08e2\u09fd\u09fe\u0a76\u0afa-\u0aff\u0b53-\u0b55"
    "\u0c04-\u0c3c\u0c77\u0c84\u0d00\u0d3b\u0d3c\u0d81\u0eba\u0ece\u180f-\u1886\u1abf-\u1af0"
    "\u1b4e\u1b4f\u1b7d-\u1b7f\u1df6-\u1dfb\u2e43-\u2e63\ua82c\ua8c5\ua8ff\ua9bd"
    "\U00010d24-\U00010f89\U00011070-\U00011074\U000110c2-\U000110cd\U000111cf"
    "\U0001123e-\U00011241\U0001133b\U000113bb-\U0001145e\U00011660-\U0001166c\U000116b9"
    "\U0001182f-\U00011fff\U00012ff1-\U0001612f\U00016d6d-\U00016f4f\U00016fe2-\U00016fe4"
    "\U0001cf00-\U0001d128\U0001d25b\U0001d25c\U0001e000-\U0001e6f5\U0001e944-\U0001e95f]"
)
# Characters whose category changed after Unicode 8: two were punctuation, two were marks.
_CHANGED_CHARACTERS = {"\u166d": " \u166d ", "\U000111c9": " \U000111c9 ", "\u1734": "", "\U0001171e": ""}


@lru_cache(maxsize=8_192)
def _normalize_character(character: str) -> str:
    """Return the replacement of a character: nothing, a space, a separate word, or its lower case without marks.

    One character at a time is enough. Decomposing a whole text reorders neighbors only if a mark is removed or the word
    is unknown anyway.
    """
    if character in _CHANGED_CHARACTERS:
        return _CHANGED_CHARACTERS[character]
    if _NEWER_CHARACTERS.match(character):
        return character
    if _SPACE.match(character):
        return " "
    if character in "\0\ufffd" or unicodedata.category(character) in {"Cc", "Cf", "Co", "Cs"}:
        return ""
    decomposed = unicodedata.normalize("NFD", character)
    bare = "".join(c.lower() for c in decomposed if unicodedata.category(c) != "Mn")
    return f" {bare} " if _is_separate(character) or _is_separate(bare) else bare


def _is_separate(text: str) -> bool:
    """Return whether the text is one ideograph or punctuation mark. ASCII symbols count as punctuation."""
    if len(text) != 1:
        return False
    if text.isascii():
        return not text.isalnum()
    return unicodedata.category(text).startswith("P") or bool(_IDEOGRAPH.match(text))


T = TypeVar("T")

MODEL_FOLDER = Path(__file__).parent / "model"
NETWORK_FILE = "everkept_minilm_1.onnx"
VOCABULARY_FILE = "vocab.txt"
VOCABULARY_SIZE = 30_522
FILE_BYTES = {NETWORK_FILE: 23_667_761, VOCABULARY_FILE: 231_508}
DIMENSIONS = 384

WINDOW_PIECES = 254  # the model was trained on 256, and two of them mark start and end
MAX_WINDOWS = 32  # about 5,000 words; of a longer text, this many evenly spread windows are used
OVERLAP_PIECES = 32  # shared by neighboring windows, so that few sentences are cut in both
TEXTS_PER_BATCH = 16
# Including padding. A larger batch is not faster, takes more memory and delays queries.
PIECES_PER_BATCH = 512


class Tokenizer(Protocol):
    """Tokenizer of a model. Safe to use from several threads."""

    def encode(self, text: str) -> Sequence[int]:
        """Return the ids of the text's pieces, without start and end marks."""
        ...

    def add_marks(self, ids: Iterable[int]) -> list[int]:
        """Return the ids between the marks that the model expects."""
        ...


class LoadedModel:
    """A tokenizer with its network. `window` is how many pieces the model accepts besides its marks."""

    def __init__(self, tokenizer: Tokenizer, network: "Network", window: int = WINDOW_PIECES) -> None:
        self.tokenizer = tokenizer
        self.network = network
        self.window = window

    def encode_windows(self, text: str) -> list[list[int]]:
        pieces = self.tokenizer.encode(text)
        return [self.tokenizer.add_marks(ids) for ids in split_windows(pieces, self.window)]

    def compute_vectors(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return a row for each text, without a pause between batches."""
        parts = [self.encode_windows(text) for text in texts]
        rows = [row for part in parts for row in part]
        vectors = self.network.allocate(len(rows))
        for batch in group_batches([len(row) for row in rows]):
            vectors[batch] = self.network.compute_vectors([rows[number] for number in batch])
        return self.network.average(vectors, [len(part) for part in parts])


_shared_models = WeakValueDictionary[object, LoadedModel]()


class WindowEmbedder(ABC):
    """Embedder that loads its model in a thread on the first call. Safe to use from several threads.

    A text with more pieces than the model accepts is split into windows of equal length that overlap. Its vector is the
    mean direction of the windows' vectors. So the end counts as much as the beginning, but each sentence of a longer
    text counts less. At most 32 windows, evenly spread, are embedded, because all windows of a very long text would
    take minutes.
    """

    def __init__(self, threads: int, key: object = None) -> None:
        """Embedders of a process that have the same key share one model while any of them uses it."""
        self._threads = threads
        self._key = object() if key is None else key
        self._model: LoadedModel | None = None
        self._changing = Lock()

    @abstractmethod
    def _load_model(self) -> LoadedModel:
        """Load the model. Raise ModelUnavailable if that is impossible."""

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """Return a row for each text. The work is split into batches so that other calls can run in between."""
        if len(texts) == 1:
            return await asyncio.to_thread(self._embed_question, texts[0])
        model = await asyncio.to_thread(self._get_model)
        parts = await asyncio.to_thread(lambda: [model.encode_windows(text) for text in texts])
        rows = [row for part in parts for row in part]
        vectors = model.network.allocate(len(rows))
        for batch in group_batches([len(row) for row in rows]):
            chosen = [rows[number] for number in batch]
            vectors[batch] = await asyncio.to_thread(model.network.compute_vectors, chosen)
        return model.network.average(vectors, [len(part) for part in parts])

    async def close(self) -> None:
        """Free the memory. A running call finishes normally; a later call loads the model again."""
        await asyncio.to_thread(self._forget)

    def _embed_question(self, text: str) -> "NDArray[np.float32]":
        """Embed one text within one thread, because each switch between threads delays the query."""
        return self._get_model().compute_vectors([text])

    def _get_model(self) -> LoadedModel:
        with self._changing:
            model = self._model or _shared_models.get(self._key)
            if model is None:
                keep_heaps_small()
                model = _shared_models[self._key] = self._load_model()
                return_freed_memory()
            self._model = model
            return model

    def _forget(self) -> None:
        with self._changing:
            was_loaded, self._model = self._model is not None, None
        if was_loaded and self._key not in _shared_models:
            return_freed_memory()


class OnnxEmbedder(WindowEmbedder):
    """Embedder of the model that ships with the package."""

    name = SHIPPED_MODEL
    dimensions = DIMENSIONS

    def __init__(self, folder: Path = MODEL_FOLDER, *, threads: int = 2) -> None:
        super().__init__(threads, (folder, threads))
        self._folder = folder
        self._background: Background | None = None

    @property
    def fault(self) -> ModelUnavailable | None:
        """Return the error of a missing file or wrong size. Checking contents would take as long as loading."""
        for name, size in FILE_BYTES.items():
            path = self._folder / name
            try:
                found = path.stat().st_size
            except OSError as error:
                return ModelUnavailable(str(path), f"cannot be read ({error.strerror})")
            if found != size:
                return ModelUnavailable(str(path), "is damaged")
        return None

    @property
    def background(self) -> Background:
        if self._background is None:
            self._background = read_background(self._folder)
        return self._background

    def _load_model(self) -> LoadedModel:
        tokenizer = _load_vocabulary(self._folder / VOCABULARY_FILE)
        path = self._folder / NETWORK_FILE
        with require_runtime(path):
            from everkept.embedders.network import Network
        return LoadedModel(tokenizer, Network(path, threads=self._threads, dimensions=DIMENSIONS))


@contextmanager
def require_runtime(path: Path) -> Generator[None]:
    """Raise ModelUnavailable if the packages that run the network at `path` cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ModelUnavailable(str(path), f"needs onnxruntime and numpy ({error})") from error


def split_windows(pieces: Sequence[T], window: int = WINDOW_PIECES) -> list[Sequence[T]]:
    """Return the pieces whole if the model accepts that many, otherwise in overlapping windows of equal length."""
    if len(pieces) <= window:
        return [pieces]
    overlap = min(OVERLAP_PIECES, window // 4)
    count = math.ceil((len(pieces) - overlap) / (window - overlap))
    step = math.ceil((len(pieces) - overlap) / count)
    taken = range(count)
    if count > MAX_WINDOWS:
        taken = [round(n * (count - 1) / (MAX_WINDOWS - 1)) for n in range(MAX_WINDOWS)]
    return [pieces[step * n : step * n + step + overlap] for n in taken]


def group_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield groups of row numbers, sorted by length so that a batch needs little padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = (len(batch) + 1) * lengths[number]
        if batch and (len(batch) == TEXTS_PER_BATCH or padded > PIECES_PER_BATCH):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _load_vocabulary(path: Path) -> WordPiece:
    try:
        tokenizer = WordPiece.from_file(path)
    except OSError as error:
        raise ModelUnavailable(str(path), f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # also raised for text in another encoding
        raise ModelUnavailable(str(path), f"is damaged ({error})") from error
    if tokenizer.size != VOCABULARY_SIZE:
        raise ModelUnavailable(str(path), "is damaged")
    return tokenizer


MAX_CACHED_QUESTIONS = 10_000  # 19 MB when full
CACHE_MICROSECONDS = 24 * 3_600 * 1_000_000  # since the query was last asked


class CachedEmbedder(ForwardingEmbedder):
    """Cache in front of another embedder. It keeps single texts only, because these are usually queries."""

    def __init__(self, embedder: Embedder, clock: Clock = read_clock) -> None:
        super().__init__(embedder)
        self._clock = clock
        self._under_way: dict[bytes, asyncio.Task[NDArray[np.float32]]] = {}
        # Least recently asked first, each vector with the time when it was last asked for.
        self._kept: OrderedDict[bytes, tuple[NDArray[np.float32], int]] = OrderedDict()

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        if len(texts) != 1:
            return await self._embedder.embed(texts)
        # A hash, because a stored text of any length may also be embedded on its own.
        key = blake2b(texts[0].encode("utf-8", "surrogatepass"), digest_size=16).digest()
        at = self._clock()
        self._drop_aged(at)
        if key in self._kept:
            vector, _ = self._kept.pop(key)
            self._kept[key] = vector, at
            return vector
        task = self._under_way.get(key)
        if task is None or task.get_loop() is not asyncio.get_running_loop():
            task = self._under_way[key] = asyncio.create_task(self._embedder.embed(texts))
            task.add_done_callback(lambda done: self._store_result(key, done))
        # A canceled caller must not cancel the embedding for the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        waiting = list(self._under_way.values())
        self._under_way.clear()
        self._kept.clear()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await super().close()

    def _store_result(self, key: bytes, done: "asyncio.Task[NDArray[np.float32]]") -> None:
        failed = done.cancelled() or done.exception() is not None
        if self._under_way.get(key) is not done:
            return  # closed since then
        del self._under_way[key]
        if not failed:
            self._kept[key] = done.result(), self._clock()
            if len(self._kept) > MAX_CACHED_QUESTIONS:
                self._kept.popitem(last=False)

    def _drop_aged(self, at: int) -> None:
        while self._kept:
            oldest = next(iter(self._kept))
            if at - self._kept[oldest][1] < CACHE_MICROSECONDS:
                return
            del self._kept[oldest]
