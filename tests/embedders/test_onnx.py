import asyncio
import os
import subprocess
import sys
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from shutil import copy
from threading import Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everkept.core.ports import Embedder
from everkept.embedders import network
from everkept.embedders.network import Network
from everkept.embedders.onnx import (
    MAX_WINDOWS,
    MODEL_FOLDER,
    NETWORK_FILE,
    OVERLAP_PIECES,
    PIECES_PER_BATCH,
    TEXTS_PER_BATCH,
    VOCABULARY_FILE,
    WINDOW_PIECES,
    OnnxEmbedder,
    group_batches,
    split_windows,
)
from everkept.errors import ModelUnavailable
from everkept.settings import SHIPPED_MODEL

TEXTS = [
    "How do I reset my password?",
    "I forgot my login and need a new one.",
    "The soup needs more salt.",
    "We moved the database from MySQL to PostgreSQL in March.",
    "def area(radius: float) -> float:\n    return 3.14159 * radius**2",
    "Die Katze schläft auf dem Sofa.",
    "猫がソファで寝ています。",
    "Ankit's flight lands at 18:45, gate B12 ✈",
]
# In ten-thousandths, recorded from the trained weights before the conversion, which multiplies floats: the first 16
# numbers of each vector, and the cosines of each text with those before it. Rounding the input of a layer to bytes
# moves a vector by some 0.035: a number of it by 0.002 as a rule, and a cosine by a few times that.
FIRST_NUMBERS = """
    56 -840 -682 -204 -350 582 223 268 411 33 -397 407 601 -459 -573 -150
    -611 -919 563 -520 761 -120 -154 -237 398 -102 216 316 -145 117 154 -796
    -672 -35 770 -45 -288 -754 -137 -919 397 -1484 -618 -582 -15 -473 20 -298
    164 -740 -277 -105 -57 86 -600 -514 -411 -94 -148 1260 -94 -378 157 96
    690 48 -988 593 -3 -1368 -94 671 245 -319 525 -921 365 758 801 -643
    152 186 29 -212 353 694 71 385 309 140 -448 -356 265 -525 -232 -1231
    564 645 127 -279 13 454 1470 502 161 -293 934 -961 536 -60 139 -427
    426 319 -590 54 233 -350 -209 249 634 162 108 -115 -807 -73 -516 593
"""
COSINES = """
    6079
    557 1290
    1513 2021 -165
    1661 1258 650 -397
    737 640 -525 -515 -518
    1235 829 147 -95 1885 1840
    425 305 -873 516 941 327 1287
"""

DENSE_LAYERS = 6  # in each of as many blocks: query, key, value, and three after them

# Common words, each a piece of its own.
COMMON = """
    river stone green window paper seven morning garden letter music winter silver bridge table
    doctor island summer castle forest yellow market engine planet bottle dragon
"""
WORDS = COMMON.split()


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the vocabulary, where a test puts a network of its own."""
    copy(MODEL_FOLDER / VOCABULARY_FILE, tmp_path)
    return tmp_path


def recorded(numbers: str) -> list[float]:
    return [int(number) / 10_000 for number in numbers.split()]


def count_operations(content: bytes, name: str) -> int:
    """How many nodes of a network are of this kind, told by the field that says so."""
    return content.count(b"\x22" + bytes([len(name)]) + name.encode())


async def cosine(embedder: Embedder, one: str, other: str) -> float:
    first, second = await embedder.embed([one, other])
    return float(first @ second)


def test_the_default_setting_is_the_shipped_model() -> None:
    assert OnnxEmbedder.name == SHIPPED_MODEL


async def test_vectors_are_those_of_the_trained_weights(embedder: OnnxEmbedder) -> None:
    vectors = await embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[:, :16].ravel() == pytest.approx(recorded(FIRST_NUMBERS), abs=0.01)
    below = np.tril_indices(len(TEXTS), -1)
    assert (vectors @ vectors.T)[below] == pytest.approx(recorded(COSINES), abs=0.02)


def test_the_files_have_the_hashes_of_the_notice() -> None:
    notice = (MODEL_FOLDER / "NOTICE").read_text(encoding="utf-8")
    for name in (NETWORK_FILE, VOCABULARY_FILE):
        assert [name, sha256((MODEL_FOLDER / name).read_bytes()).hexdigest()] in map(str.split, notice.splitlines())


def test_matrices_are_multiplied_as_bytes() -> None:
    content = (MODEL_FOLDER / NETWORK_FILE).read_bytes()
    assert count_operations(content, "MatMulNBits") == 6 * DENSE_LAYERS
    assert count_operations(content, "MatMul") == 6 * 2  # of attention: neither side is constant
    assert count_operations(content, "Cast") == 2  # the mask, and the pieces of the text


def test_the_runtime_keeps_no_wide_copy_of_the_weights(tmp_path: Path) -> None:
    options = network.RUNTIME.SessionOptions()
    options.log_severity_level = 4
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    path = MODEL_FOLDER / NETWORK_FILE
    network.RUNTIME.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    loaded = (tmp_path / "loaded.onnx").stat().st_size
    assert loaded == pytest.approx(path.stat().st_size, rel=0.01)


def test_the_memory_of_a_batch_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Any] = []
    make = network.RUNTIME.InferenceSession

    def noted(*arguments: Any, **more: Any) -> Any:
        sessions.append(make(*arguments, **more))
        return sessions[-1]

    monkeypatch.setattr(network.RUNTIME, "InferenceSession", noted)
    Network(MODEL_FOLDER / NETWORK_FILE, threads=1, dimensions=384)
    assert [one.get_session_options().enable_cpu_mem_arena for one in sessions] == [False]


async def test_a_vector_does_not_depend_on_its_company(embedder: OnnxEmbedder) -> None:
    texts = [*TEXTS, "", "🎉", " ".join(WORDS * 20), *(" ".join(WORDS[:n]) for n in range(1, 25))]
    together = await embedder.embed(texts)
    alone = np.concatenate([await embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "similar", "unrelated"),
    [
        ("Her favourite colour is green.", "She likes green best.", "The train was late."),
        ("How do I reset my password?", "I forgot my login.", "The soup needs more salt."),
        ("Die Katze schläft auf dem Sofa.", "Auf dem Sofa schläft eine Katze.", "Der Zug nach Berlin hat Verspätung."),
        ("猫がソファで寝ています。", "ソファの上で猫が眠っている。", "東京行きの電車が遅れています。"),
        ("😀 Happy birthday!", "Happy birthday!", "the stock exchange"),
    ],
)
async def test_similar_sentences_are_nearer_than_unrelated_ones(
    embedder: OnnxEmbedder, text: str, similar: str, unrelated: str
) -> None:
    assert await cosine(embedder, text, similar) > await cosine(embedder, text, unrelated)


@pytest.mark.parametrize("text", ["", " \n", "\0", "🎉", "\ud83d", "x" * 10_000])
async def test_a_text_without_a_known_word_has_a_vector(embedder: OnnxEmbedder, text: str) -> None:
    assert np.linalg.norm(await embedder.embed([text])) == pytest.approx(1, abs=1e-5)


async def test_no_texts_have_no_vectors(embedder: OnnxEmbedder) -> None:
    assert (await embedder.embed([])).shape == (0, embedder.dimensions)


async def test_a_long_text_lies_in_the_middle_of_its_windows(embedder: OnnxEmbedder) -> None:
    words = WORDS * 25
    parts = [" ".join(part) for part in split_windows(words)]
    assert len(parts) == 3
    middle = (await embedder.embed(parts)).sum(axis=0)
    vectors = await embedder.embed(["before", " ".join(words), "after"])
    np.testing.assert_allclose(vectors[1], middle / np.linalg.norm(middle), atol=1e-5)
    np.testing.assert_allclose(vectors[[0, 2]], await embedder.embed(["before", "after"]), atol=1e-5)


async def test_the_end_of_a_long_text_counts(embedder: OnnxEmbedder) -> None:
    filler = "The committee discussed the budget of the coming year. " * 40
    ending = "Penguins breed on the ice of Antarctica. " * 10
    question = "Where do penguins live?"
    with_it = await cosine(embedder, question, filler + ending)
    assert with_it > await cosine(embedder, question, filler) + 0.1


@given(st.integers(0, 7_000))
def test_windows_overlap_and_leave_nothing_out(length: int) -> None:
    parts = split_windows(range(length))
    assert all(len(part) <= WINDOW_PIECES for part in parts)
    assert parts[0][:1] == range(length)[:1]
    assert parts[-1][-1:] == range(length)[-1:]
    assert all(one[-OVERLAP_PIECES:] == other[:OVERLAP_PIECES] for one, other in pairwise(parts))
    assert len(parts) == 1 or min(map(len, parts)) > OVERLAP_PIECES


@given(st.integers(8_000, 200_000))
def test_of_a_very_long_text_windows_from_its_beginning_to_its_end_are_taken(length: int) -> None:
    parts = split_windows(range(length))
    assert len(parts) == MAX_WINDOWS
    assert parts[0][0] == 0
    assert parts[-1][-1] == length - 1
    gaps = [other[0] - one[0] for one, other in pairwise(parts)]
    assert max(gaps) - min(gaps) <= WINDOW_PIECES


@given(st.lists(st.integers(2, WINDOW_PIECES + 2), max_size=60))
def test_batches_hold_every_row_once_and_stay_small(lengths: list[int]) -> None:
    made = list(group_batches(lengths))
    assert sorted(number for batch in made for number in batch) == list(range(len(lengths)))
    for batch in made:
        longest = max(lengths[number] for number in batch)
        assert len(batch) <= TEXTS_PER_BATCH
        assert len(batch) * longest <= max(PIECES_PER_BATCH, longest)


async def test_calls_at_the_same_time_load_the_model_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Path] = []

    class Counted(Network):
        def __init__(self, path: Path, *, threads: int, dimensions: int) -> None:
            loaded.append(path)
            super().__init__(path, threads=threads, dimensions=dimensions)

    monkeypatch.setattr(network, "Network", Counted)
    copy(MODEL_FOLDER / NETWORK_FILE, folder)
    embedder, other = OnnxEmbedder(folder), OnnxEmbedder(folder)
    answers = await asyncio.gather(*(embedder.embed(TEXTS[:2]) for _ in range(8)))
    assert all(np.array_equal(answers[0], answer) for answer in answers)
    await other.embed(TEXTS[:1])
    await embedder.close()
    await embedder.embed(TEXTS[:1])  # the other one still has it
    assert loaded == [folder / NETWORK_FILE]
    await embedder.close()
    await other.close()
    await embedder.embed(TEXTS[:1])
    assert len(loaded) == 2


async def test_loops_in_several_threads_share_one_embedder(embedder: OnnxEmbedder) -> None:
    expected = await embedder.embed(TEXTS)
    differences: list[float] = []

    def embed() -> None:
        found = asyncio.run(embedder.embed(TEXTS))
        differences.append(float(np.abs(found - expected).max()))

    threads = [Thread(target=embed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert len(differences) == 4
    assert max(differences) < 1e-5


async def test_a_call_under_way_survives_closing() -> None:
    embedder = OnnxEmbedder()
    await embedder.embed([""])
    call = asyncio.create_task(embedder.embed(TEXTS * 4))
    await asyncio.sleep(0)
    await embedder.close()
    assert (await call).shape == (len(TEXTS) * 4, embedder.dimensions)


async def test_a_missing_model_is_named(folder: Path) -> None:
    with pytest.raises(ModelUnavailable) as failure:
        await OnnxEmbedder(folder).embed(["text"])
    assert failure.value.facts["path"] == str(folder / NETWORK_FILE)


@pytest.mark.parametrize("kind", ["empty", "cut off", "random", "not even text"])
async def test_a_damaged_model_is_named(folder: Path, kind: str) -> None:
    content = (MODEL_FOLDER / NETWORK_FILE).read_bytes()
    damaged = {
        "empty": b"",
        "cut off": content[: len(content) // 2],
        "random": b"\x93 is no network" * 100,
        "not even text": content.replace(b"LayerNormalization", b"LayerNormalizati\xf0n"),
    }
    (folder / NETWORK_FILE).write_bytes(damaged[kind])
    with pytest.raises(ModelUnavailable) as failure:
        await OnnxEmbedder(folder).embed(["text"])
    assert failure.value.facts["path"] == str(folder / NETWORK_FILE)


def test_a_network_of_another_width_is_refused() -> None:
    with pytest.raises(ModelUnavailable):
        Network(MODEL_FOLDER / NETWORK_FILE, threads=1, dimensions=768)


@pytest.mark.parametrize("content", [None, b"", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", b"\xff"])
async def test_a_damaged_vocabulary_is_named(folder: Path, content: bytes | None) -> None:
    path = folder / VOCABULARY_FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelUnavailable) as failure:
        await OnnxEmbedder(folder).embed(["text"])
    assert failure.value.facts["path"] == str(path)


async def test_a_runtime_that_cannot_be_imported_is_no_crash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "everkept.embedders.network")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ModelUnavailable):
        await OnnxEmbedder(folder).embed(["text"])


def test_the_import_is_light_and_embedding_leaves_no_trace(tmp_path: Path) -> None:
    """The runtime would keep an id for its reports in the user's cache, were it not told off."""
    script = """if True:
        import asyncio, sys
        from everkept.embedders.onnx import OnnxEmbedder
        assert not {"numpy", "onnxruntime"} & sys.modules.keys()
        asyncio.run(OnnxEmbedder().embed(["text"]))
    """
    off_folders = {"CI", "ORT_DISABLE_TELEMETRY", "ORT_RUNNING_UNIT_TESTS"}
    environment = {name: value for name, value in os.environ.items() if name not in off_folders}
    for name in ("HOME", "USERPROFILE", "LOCALAPPDATA", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        environment[name] = str(tmp_path)
    command = [sys.executable, "-B", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.rglob("*")) == []
