"""The ONNX network. Import it only to embed: numpy and onnxruntime are slow to load."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from everkept.errors import ModelUnavailable

Vectors = NDArray[np.float32]

INPUT_NAMES = ["input_ids", "attention_mask"]
TYPES_INPUT = "token_type_ids"  # always 0, because a text is one sequence

MIN_NORM = 1e-6  # a shorter vector has no direction
MAX_COMMON_COSINE = 0.3  # mean cosine of unrelated texts; above it, their common direction is subtracted


def _import_runtime() -> Any:
    """Import the runtime with telemetry disabled. Version 1.29 and later send it unless disabled before the import."""
    os.putenv("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime  # pyright: ignore[reportMissingTypeStubs] - it comes without types

    runtime: Any = onnxruntime
    runtime.disable_telemetry_events()  # Windows ignores the variable
    return runtime


def _list_exceptions(module: ModuleType) -> tuple[type[Exception], ...]:
    members = vars(module).values()
    return tuple(kind for kind in members if isinstance(kind, type) and issubclass(kind, Exception))


RUNTIME = _import_runtime()
# The runtime's exceptions have no common base class, and new versions add more. An error that quotes a damaged file may
# not even be valid text.
FAILURES = (
    *_list_exceptions(RUNTIME.capi.onnxruntime_pybind11_state),
    *(UnicodeDecodeError, MemoryError, RuntimeError, ValueError, OverflowError, IndexError),
)


class Network:
    """Network that turns ids of word pieces into vectors of length one. Safe to use from several threads."""

    def __init__(self, path: Path, *, threads: int, dimensions: int) -> None:
        """Load the network. Raise ModelUnavailable if the file is not this network."""
        self._path = path
        self._dimensions = dimensions
        if not path.is_file():
            raise self._build_error("is missing")
        with self._translate_errors():
            self._session = _open_session(path, threads)
            self._check()

    def compute_vectors(self, rows: Sequence[Sequence[int]]) -> Vectors:
        """Return a vector for each row. Shorter rows are padded, and padding costs as much time as pieces."""
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        with self._translate_errors():
            return self._session.run(None, dict(zip(INPUT_NAMES, (ids, mask), strict=True)))[0]

    @property
    def dimensions(self) -> int:
        return self._dimensions

    def allocate(self, count: int) -> Vectors:
        """Return an uninitialized array for this many vectors."""
        return np.empty((count, self._dimensions), np.float32)

    def average(self, vectors: Vectors, counts: Sequence[int]) -> Vectors:
        """Return one vector for each count: the mean direction of that many vectors, in order."""
        if len(counts) == len(vectors):
            return vectors
        starts = np.cumsum([0, *counts[:-1]])
        sums = np.add.reduceat(vectors, starts, axis=0)
        return sums / np.linalg.norm(sums, axis=1, keepdims=True)

    def _check(self) -> None:
        inputs = [tensor.name for tensor in self._session.get_inputs()]
        widths = [tensor.shape[-1] for tensor in self._session.get_outputs()]
        if inputs != INPUT_NAMES or widths != [self._dimensions]:
            raise self._build_error("contains a different model")

    def _build_error(self, reason: str) -> ModelUnavailable:
        return ModelUnavailable(str(self._path), reason)

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except FAILURES as error:
            raise self._build_error("is damaged or cannot run on this machine") from error


MAX_FILE_BYTES = 2 << 30  # ONNX itself allows no larger file
MAX_DIMENSIONS = 16_384
# Memory that a model of a stranger may take while it is loaded and run once: a multiple of its files, and a base.
MEMORY_FACTOR, MEMORY_BASE_BYTES = 6, 1 << 30


@contextmanager
def limit_memory(path: Path) -> Generator[None]:
    """Limit the memory of this process in the block, so that a hostile file ends in an error. Linux has the limit."""
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[5]) * resource.getpagesize()
    except (ImportError, OSError):
        yield
        return
    files = sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*")) if path.parent.is_dir() else 0
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + MEMORY_FACTOR * files + MEMORY_BASE_BYTES
    limits = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([wanted, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


Pooling = Literal["mean", "cls", "max", "last"]


class PooledNetwork(Network):
    """Network of any model: its output is one vector per text or one per piece.

    Vectors per piece are pooled. Some models place all texts near each other, so that no cosine means "unrelated". From
    their vectors the common direction of unrelated texts is subtracted, so that cosines mean the same for each model.
    """

    def __init__(self, path: Path, *, threads: int, pooling: Pooling, padding: int, hint: str) -> None:
        self._hint = hint
        self._pooling: Pooling = pooling
        self._padding = padding
        self._output = 0
        self._center: NDArray[np.float32] | None = None
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise ModelUnavailable(str(path), f"is larger than {MAX_FILE_BYTES / 1e9:.1f} GB", hint=hint)
        with limit_memory(path):
            super().__init__(path, threads=threads, dimensions=0)
            self._dimensions = self.compute_vectors([[padding]]).shape[1]

    def calibrate(self, rows: Sequence[Sequence[int]]) -> None:
        """Measure how near unrelated texts are, given the pieces of some."""
        vectors = self.compute_vectors(rows)
        cosines = vectors @ vectors.T
        if cosines[np.triu_indices(len(rows), 1)].mean() > MAX_COMMON_COSINE:
            self._center = vectors.mean(axis=0)

    def compute_vectors(self, rows: Sequence[Sequence[int]]) -> Vectors:
        ids = np.full((len(rows), max(1, *map(len, rows))), self._padding, np.int64)
        mask = np.zeros_like(ids)
        mask[:, 0] = 1  # a text without pieces must not be empty
        for number, row in enumerate(rows):
            ids[number, : len(row)] = row
            mask[number, : len(row)] = 1
        given = {"input_ids": ids, "attention_mask": mask, TYPES_INPUT: np.zeros_like(ids)}
        inputs = self._session.get_inputs()
        with self._translate_errors():
            found = self._session.run(
                None, {tensor.name: given[tensor.name].astype(_INTEGERS[tensor.type]) for tensor in inputs}
            )
        vectors = self._check_vectors(found[self._output], ids.shape)
        if vectors.ndim == 3:
            vectors = _pool(vectors, mask.astype(bool), self._pooling)
        vectors = _normalize(vectors)
        return vectors if self._center is None else _normalize(vectors - self._center)

    def _check(self) -> None:
        """Choose the output. Raise ModelUnavailable if the network has no text as input or no vectors as output."""
        for tensor in self._session.get_inputs():
            if tensor.name not in (*INPUT_NAMES, TYPES_INPUT) or tensor.type not in _INTEGERS:
                raise self._build_error(f"has the input `{tensor.name}`, which no text embedding model needs")
        outputs = self._session.get_outputs()
        widths = {tensor.name: len(tensor.shape) for tensor in outputs}
        named = [name for name in _OUTPUT_NAMES if widths.get(name) in (2, 3)]
        others = [name for name, width in widths.items() if width == 3]
        if len(widths) == 1:
            others = [name for name, width in widths.items() if width in (2, 3)]
        if not (chosen := [*named, *others]):
            raise self._build_error("has no output with vectors")
        self._output = list(widths).index(chosen[0])

    def _check_vectors(self, found: Any, given: tuple[int, ...]) -> Vectors:
        """Return what the network computed as floats. Its file can declare another shape than it returns."""
        vectors = cast("NDArray[Any]", found) if isinstance(found, np.ndarray) else np.empty(0)
        *texts, width = vectors.shape or (0,)
        is_fitting = tuple(texts) in (given[:1], given) and vectors.dtype.kind in "fiu"
        if not is_fitting or not 0 < width <= MAX_DIMENSIONS:
            raise self._build_error("returns no vectors for a text")
        if self._dimensions not in (0, width):
            raise self._build_error("returns vectors of different lengths")
        return vectors.astype(np.float32)

    def _build_error(self, reason: str) -> ModelUnavailable:
        return ModelUnavailable(str(self._path), reason, hint=self._hint)


# Best first. The first one is pooled already.
_OUTPUT_NAMES = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_INTEGERS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def _pool(pieces: Vectors, mask: NDArray[np.bool], pooling: Pooling) -> Vectors:
    """Return one vector for each text from the vectors of its pieces."""
    shown = mask[:, :, None]
    match pooling:
        case "cls":
            return pieces[:, 0]
        case "last":
            return pieces[np.arange(len(pieces)), mask.sum(axis=1) - 1]
        case "max":
            return np.where(shown, pieces, -np.inf).max(axis=1).astype(np.float32)
        case "mean":
            return np.where(shown, pieces, 0).sum(axis=1) / shown.sum(axis=1)


def _normalize(vectors: Vectors) -> Vectors:
    """Return vectors of length one. A vector without direction becomes the first axis."""
    vectors = np.nan_to_num(vectors, posinf=0, neginf=0).astype(np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    is_short = lengths[:, 0] < MIN_NORM
    vectors[is_short] = 0
    vectors[is_short, 0] = 1
    lengths[is_short] = 1
    return (vectors / lengths).astype(np.float32)


class _Tensor(Protocol):
    name: str
    type: str
    shape: Sequence[int | str]


class _Session(Protocol):
    """The part of `InferenceSession` that Everkept uses."""

    def run(self, output_names: None, input_feed: Mapping[str, NDArray[np.integer]]) -> Sequence[Vectors]: ...

    def get_inputs(self) -> Sequence[_Tensor]: ...

    def get_outputs(self) -> Sequence[_Tensor]: ...


def _open_session(path: Path, threads: int) -> _Session:
    options = RUNTIME.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Idle threads sleep, because the processor belongs to the user's own work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # An arena would keep the memory of the largest batch, 20 MB, until the process ends.
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 4  # failures are raised as exceptions
    # With its fallback, the runtime prints errors to standard output, and tries the same again.
    return RUNTIME.InferenceSession(str(path), options, providers=["CPUExecutionProvider"], enable_fallback=0)
