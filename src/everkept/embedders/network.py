"""The ONNX network. Import it only to embed: numpy and onnxruntime are slow to load."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from everkept.errors import ModelUnavailable

Vectors = NDArray[np.float32]

INPUT_NAMES = ["input_ids", "attention_mask"]


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
FAILURES = (*_list_exceptions(RUNTIME.capi.onnxruntime_pybind11_state), UnicodeDecodeError)


class Network:
    """Network that turns ids of word pieces into vectors of length one. Safe to use from several threads."""

    def __init__(self, path: Path, *, threads: int, dimensions: int) -> None:
        """Load the network. Raise ModelUnavailable if the file is not this network."""
        self._path = path
        self._dimensions = dimensions
        if not path.is_file():
            raise ModelUnavailable(str(path), "is missing")
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
            raise ModelUnavailable(str(self._path), "contains a different model")

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except FAILURES as error:
            raise ModelUnavailable(str(self._path), "is damaged or cannot run on this machine") from error


class _Tensor(Protocol):
    name: str
    shape: Sequence[int | str]


class _Session(Protocol):
    """The part of `InferenceSession` that Everkept uses."""

    def run(self, output_names: None, input_feed: Mapping[str, NDArray[np.int64]]) -> Sequence[Vectors]: ...

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
    return RUNTIME.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
