"""Vectors from all-MiniLM-L6-v2, the model that the package carries."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from everkept.core.memory_trim import keep_heaps_small, return_freed_memory
from everkept.embedders.wordpiece import WordPiece
from everkept.errors import ModelUnavailable
from everkept.values import Value

if TYPE_CHECKING:  # imported by the thread that loads the model
    import numpy as np
    from numpy.typing import NDArray

    from everkept.embedders.network import Network

T = TypeVar("T")

FOLDER = Path(__file__).parent / "model"
NETWORK = "minilm_w8.onnx"
VOCABULARY = "vocab.txt"
VOCABULARY_SIZE = 30_522
SIZES = {NETWORK: 23_667_761, VOCABULARY: 231_508}  # bytes
DIMENSIONS = 384

WINDOW = 254  # pieces: the model was trained on 256, and two of them mark start and end
MOST_WINDOWS = 32  # some five thousand words; of a longer text so many are taken, evenly spread
OVERLAP = 32  # pieces that neighbouring windows share, so that few sentences are cut in both
TEXTS_PER_BATCH = 16
# With padding. A larger batch is not faster, takes more memory, and keeps a question waiting.
PIECES_PER_BATCH = 512


class OnnxEmbedder:
    """The model, loaded in a thread by the first call. Safe to use from several threads.

    A text of more than 254 word pieces is embedded in windows of equal length, of which each
    shares 32 pieces with the next. Its vector is the mean direction of theirs: the end counts as
    much as the beginning, but the longer a text is, the less each of its sentences does. Of more
    than 32 windows so many are taken, evenly spread: all of a very long text would take minutes.
    """

    name = "all-MiniLM-L6-v2"
    dimensions = DIMENSIONS

    def __init__(self, folder: Path = FOLDER, *, threads: int = 2) -> None:
        self._folder = folder
        self._threads = threads
        self._model: _Model | None = None
        self._changing = Lock()

    @property
    def fault(self) -> ModelUnavailable | None:
        """Looks at the files' sizes alone: a look inside takes as long as loading them."""
        for name, size in SIZES.items():
            path = self._folder / name
            try:
                found = path.stat().st_size
            except OSError as error:
                return ModelUnavailable(str(path), f"cannot be read ({error.strerror})")
            if found != size:
                return ModelUnavailable(str(path), "is damaged")
        return None

    async def embed(self, texts: Sequence[str]) -> "NDArray[np.float32]":
        """A row for each text, batch by batch, so that a long call lets others in between."""
        if len(texts) == 1:
            return await asyncio.to_thread(self._embed_question, texts[0])
        model = await asyncio.to_thread(self._loaded)
        parts = await asyncio.to_thread(lambda: [model.windows(text) for text in texts])
        rows = [row for part in parts for row in part]
        vectors = model.network.room(len(rows))
        for batch in batches([len(row) for row in rows]):
            chosen = [rows[number] for number in batch]
            vectors[batch] = await asyncio.to_thread(model.network.vectors, chosen)
        return model.network.averaged(vectors, [len(part) for part in parts])

    async def close(self) -> None:
        """Gives the memory back. A call under way ends as usual; a later one loads again."""
        await asyncio.to_thread(self._forget)

    def _embed_question(self, text: str) -> "NDArray[np.float32]":
        """One text in one go: every change of threads keeps whoever asks waiting."""
        model = self._loaded()
        rows = model.windows(text)
        vectors = model.network.room(len(rows))
        for batch in batches([len(row) for row in rows]):
            vectors[batch] = model.network.vectors([rows[number] for number in batch])
        return model.network.averaged(vectors, [len(rows)])

    def _loaded(self) -> "_Model":
        with self._changing:
            if self._model is None:
                keep_heaps_small()
                self._model = _load(self._folder, self._threads)
                return_freed_memory()
            return self._model

    def _forget(self) -> None:
        with self._changing:
            self._model = None
        return_freed_memory()


def windows(pieces: Sequence[T]) -> list[Sequence[T]]:
    """The pieces as they are if the model takes so many, else in overlapping parts alike in length.

    The last part may be shorter by what does not divide evenly.
    """
    if len(pieces) <= WINDOW:
        return [pieces]
    count = math.ceil((len(pieces) - OVERLAP) / (WINDOW - OVERLAP))
    step = math.ceil((len(pieces) - OVERLAP) / count)
    taken = range(count)
    if count > MOST_WINDOWS:
        taken = [round(n * (count - 1) / (MOST_WINDOWS - 1)) for n in range(MOST_WINDOWS)]
    return [pieces[step * n : step * n + step + OVERLAP] for n in taken]


def batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of the rows of these lengths, in groups that need little padding."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        padded = (len(batch) + 1) * lengths[number]
        if batch and (len(batch) == TEXTS_PER_BATCH or padded > PIECES_PER_BATCH):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


class _Model(Value):
    tokenizer: WordPiece
    network: "Network"

    def windows(self, text: str) -> list[list[int]]:
        return [self.tokenizer.framed(ids) for ids in windows(self.tokenizer.ids(text))]


def _load(folder: Path, threads: int) -> _Model:
    tokenizer = _tokenizer(folder / VOCABULARY)
    path = folder / NETWORK
    try:
        from everkept.embedders.network import Network
    except ImportError as error:
        raise ModelUnavailable(str(path), f"needs onnxruntime and numpy ({error})") from error
    return _Model(tokenizer, Network(path, threads=threads, dimensions=DIMENSIONS))


def _tokenizer(path: Path) -> WordPiece:
    try:
        tokenizer = WordPiece.from_file(path)
    except OSError as error:
        raise ModelUnavailable(str(path), f"cannot be read ({error.strerror})") from error
    except ValueError as error:  # text in another encoding is one too
        raise ModelUnavailable(str(path), f"is damaged ({error})") from error
    if tokenizer.size != VOCABULARY_SIZE:
        raise ModelUnavailable(str(path), "is damaged")
    return tokenizer
