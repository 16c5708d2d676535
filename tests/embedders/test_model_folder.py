import json
import sys
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import numpy as np
import pytest

from everkept.embedders.model_folder import (
    FolderEmbedder,
    PackageTokenizer,
    load_tokenizer,
    read_layout,
    read_wordpiece,
)
from everkept.embedders.onnx import MODEL_FOLDER, NETWORK_FILE, VOCABULARY_FILE, OnnxEmbedder, WordPiece
from everkept.errors import ModelUnavailable
from onnx_models import DIMENSIONS, TokenizerKind, encode_constant, encode_network, write_model

KINDS: tuple[TokenizerKind, ...] = ("wordpiece", "unigram")
TEXTS = ["The dog sleeps.", "Der Hund schläft.", "La facture payée", "🎉", "", "x \ud83d y", "hund " * 2_000]


async def cosine(embedder: FolderEmbedder, one: str, other: str) -> float:
    first, second = await embedder.embed([one, other])
    return float(first @ second)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_folder_with_a_model_gives_vectors(tmp_path: Path, kind: TokenizerKind) -> None:
    embedder = FolderEmbedder(write_model(tmp_path, kind=kind))
    assert embedder.fault is None
    together = await embedder.embed(TEXTS)
    assert together.shape == (len(TEXTS), DIMENSIONS)
    assert together.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    alone = np.concatenate([await embedder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert embedder.dimensions == DIMENSIONS
    assert await cosine(embedder, "dog sleeps", "hund schläft") > 0.9
    assert await cosine(embedder, "dog sleeps", "rechnung bezahlt") < 0.3


@pytest.mark.parametrize("network", ["onnx/model.onnx", "onnx/model_quantized.onnx"])
async def test_the_network_may_be_in_a_folder_of_its_own(tmp_path: Path, network: str) -> None:
    embedder = FolderEmbedder(write_model(tmp_path, network=network, inputs=("input_ids",)))
    assert (await embedder.embed(["dog"])).shape == (1, DIMENSIONS)


@pytest.mark.parametrize(
    "files",
    [
        {"config": {"hidden_size": DIMENSIONS}},
        {"1_Pooling/config": {"word_embedding_dimension": DIMENSIONS, "pooling_mode_mean_tokens": True}},
    ],
    ids=str,
)
def test_dimensions_are_read_from_a_small_file_without_loading(tmp_path: Path, files: dict[str, Any]) -> None:
    write_model(tmp_path, **files)
    (tmp_path / "model.onnx").write_bytes(b"not loaded")
    assert FolderEmbedder(tmp_path).dimensions == DIMENSIONS


def test_without_small_files_dimensions_are_those_of_the_network(tmp_path: Path) -> None:
    assert FolderEmbedder(write_model(tmp_path, dimensions=20)).dimensions == 20


async def test_pooling_is_what_the_model_says(tmp_path: Path) -> None:
    vectors: dict[str, Any] = {}
    for mode in ("mean_tokens", "mean_sqrt_len_tokens", "max_tokens", "cls_token", "lasttoken"):
        chosen = {f"pooling_mode_{mode}": True, "pooling_mode_weightedmean_tokens": False}
        folder = write_model(tmp_path / mode, **{"1_Pooling/config": chosen})
        vectors[mode] = (await FolderEmbedder(folder).embed(["dog sleeps"]))[0]
    plain = (await FolderEmbedder(write_model(tmp_path / "plain")).embed(["dog sleeps"]))[0]
    np.testing.assert_allclose(vectors["mean_tokens"], plain, atol=1e-6)
    np.testing.assert_allclose(vectors["mean_sqrt_len_tokens"], plain, atol=1e-6)
    for mode in ("max_tokens", "cls_token", "lasttoken"):
        assert not np.allclose(vectors[mode], plain, atol=0.1)
    named = write_model(tmp_path / "named", **{"1_Pooling/config": {"pooling_mode": "cls"}})
    np.testing.assert_allclose((await FolderEmbedder(named).embed(["dog sleeps"]))[0], vectors["cls_token"], atol=1e-6)


async def test_a_pooled_output_is_taken_as_it_is(tmp_path: Path) -> None:
    table = np.random.default_rng(1).normal(size=(999, 64)).astype("<f4")
    table[:5] *= 0.1  # marks
    modules = [{"type": "sentence_transformers.models.Transformer", "path": ""}]
    folder = write_model(tmp_path, modules=modules, **{"1_Pooling/config": {"pooling_mode_cls_token": True}})
    (folder / "model.onnx").write_bytes(encode_network(table, ["input_ids"], pooled=True))
    ids = load_tokenizer(folder / "tokenizer.json").encode("dog")
    mean = table[[2, *ids, 3]].mean(axis=0)
    [found] = await FolderEmbedder(folder).embed(["dog"])
    np.testing.assert_allclose(found, mean / np.linalg.norm(mean), atol=1e-5)


async def test_a_text_longer_than_the_model_accepts_is_read_to_its_end(tmp_path: Path) -> None:
    """A tokenizer.json may cut texts, as this one does after 8 pieces."""
    folder = write_model(tmp_path, kind="unigram", sentence_bert_config={"max_seq_length": 16})
    embedder = FolderEmbedder(folder)
    assert read_layout(folder).max_pieces == 16
    assert await cosine(embedder, "dog " * 30 + "invoice " * 60, "invoice") > 0.5


@pytest.mark.parametrize(
    ("files", "pieces"),
    [
        ({}, 256),
        ({"sentence_bert_config": {"max_seq_length": 128}, "config": {"max_position_embeddings": 512}}, 128),
        ({"config": {"max_position_embeddings": 514, "model_type": "xlm-roberta"}}, 512),
        ({"config": {"max_position_embeddings": 66, "model_type": "xlm-roberta"}}, 64),
        ({"tokenizer_config": {"model_max_length": 10**30}, "config": {"max_position_embeddings": 8192}}, 512),
    ],
    ids=str,
)
def test_the_length_is_what_the_model_says(tmp_path: Path, files: dict[str, Any], pieces: int) -> None:
    assert read_layout(write_model(tmp_path, **files)).max_pieces == pieces


@pytest.mark.parametrize("kind", KINDS)
async def test_unrelated_texts_are_far_apart_for_each_model(tmp_path: Path, kind: TokenizerKind) -> None:
    """Vectors of some models have a large part in common, so that all cosines are high."""
    embedder = FolderEmbedder(write_model(tmp_path, kind=kind, common=3.0))
    assert await cosine(embedder, "dog sleeps", "hund schläft") > 0.6
    assert await cosine(embedder, "dog sleeps", "rechnung bezahlt") < 0.3


async def test_the_shipped_model_in_a_folder_gives_the_same_vectors(tmp_path: Path) -> None:
    pieces = (MODEL_FOLDER / VOCABULARY_FILE).read_text(encoding="utf-8").split("\n")[:-1]
    write_model(tmp_path)
    described = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    described["model"]["vocab"] = {piece: number for number, piece in enumerate(pieces)}
    for token in described["added_tokens"]:
        token["id"] = described["model"]["vocab"][token["content"]]
    write_json(tmp_path / "tokenizer.json", described)
    copy(MODEL_FOLDER / NETWORK_FILE, tmp_path / "model.onnx")
    texts = ["How do I reset my password?", "Die Katze schläft auf dem Sofa.", "猫がソファで寝ています。", ""]
    embedder = FolderEmbedder(tmp_path)
    np.testing.assert_allclose(await embedder.embed(texts), await OnnxEmbedder().embed(texts), atol=1e-5)
    shipped, measured = OnnxEmbedder().background, embedder.background
    for pairs in ("unrelated", "answers", "alike"):
        assert getattr(measured, pairs) == pytest.approx(getattr(shipped, pairs), abs=0.005)


def test_uncased_wordpiece_needs_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert isinstance(load_tokenizer(write_model(tmp_path) / "tokenizer.json"), WordPiece)


def test_our_tokenizer_and_the_package_give_the_same_pieces(tmp_path: Path) -> None:
    path = write_model(tmp_path) / "tokenizer.json"
    ours, theirs = load_tokenizer(path), PackageTokenizer(path)
    for text in ("The Dog SLEEPS, schläft!", "hund\tgarten", "unknownword dog", ""):
        assert list(ours.encode(text)) == theirs.encode(text)
        assert ours.add_marks(ours.encode(text)) == theirs.add_marks(theirs.encode(text))


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (
            "normalizer",
            {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": False},
        ),
        ("normalizer", None),
        ("pre_tokenizer", {"type": "Whitespace"}),
        ("post_processor", None),
        ("added_tokens", [{"id": 0, "content": "<extra>"}]),
        ("model", {"type": "WordPiece", "unk_token": "?", "vocab": {}}),
        ("model", {"type": "BPE", "vocab": {}, "merges": []}),
    ],
)
def test_another_tokenizer_is_not_taken_for_ours(tmp_path: Path, part: str, value: Any) -> None:
    described = json.loads((write_model(tmp_path) / "tokenizer.json").read_text(encoding="utf-8"))
    assert read_wordpiece(described) is not None
    assert read_wordpiece(described | {part: value}) is None


async def test_a_missing_package_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everkept.embedders.model_folder.find_spec", lambda _name: None)
    embedder = FolderEmbedder(write_model(tmp_path, kind="unigram"))
    with pytest.raises(ModelUnavailable) as failure:
        await embedder.embed(["dog"])
    assert "type Unigram, which needs the package tokenizers" in failure.value.message
    assert "models" in failure.value.hint or "installs everything" in failure.value.hint
    assert embedder.fault is failure.value  # known without another attempt
    write_json(tmp_path / "tokenizer.json", json.loads((write_model(tmp_path / "b") / "tokenizer.json").read_text()))
    assert embedder.fault is None


def spoil(folder: Path, how: str) -> None:
    match how:
        case "no folder":
            copytree(folder, folder.parent / "moved")
            for path in [*folder.rglob("*.*")]:
                path.unlink()
            folder.rmdir()
        case "no network":
            (folder / "model.onnx").unlink()
        case "no tokenizer":
            (folder / "tokenizer.json").unlink()
        case "dense":
            write_json(folder / "modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])
        case "pooling":
            write_json(folder / "1_Pooling" / "config.json", {"pooling_mode_weightedmean_tokens": True})
        case "two poolings":
            both = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}
            write_json(folder / "1_Pooling" / "config.json", both)
        case _:
            (folder / "config.json").write_bytes(b"\xff{")


@pytest.mark.parametrize(
    ("how", "named", "reason"),
    [
        ("no folder", "", "is not a folder"),
        ("no network", "", "has no model.onnx or onnx/model.onnx"),
        ("no tokenizer", "", "has no tokenizer.json"),
        ("dense", "modules.json", "needs a layer of type Dense"),
        ("pooling", "1_Pooling/config.json", "asks for pooling_mode_weightedmean_tokens"),
        ("two poolings", "1_Pooling/config.json", "pooling_mode_cls_token and pooling_mode_mean_tokens"),
        ("bad json", "config.json", "is not valid JSON"),
    ],
)
async def test_a_folder_without_such_a_model_is_told_without_loading(
    tmp_path: Path, how: str, named: str, reason: str
) -> None:
    folder = write_model(tmp_path / "model")
    spoil(folder, how)
    embedder = FolderEmbedder(folder)
    fault = embedder.fault
    assert fault is not None
    assert fault.facts["path"] == str(folder / named)
    assert reason in fault.message
    assert "`embedding_model`" in fault.hint
    with pytest.raises(ModelUnavailable):
        await embedder.embed(["text"])
    assert embedder.dimensions == 0
    assert embedder.name.startswith(("unreadable@", "model@"))


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("model.onnx", b"no network" * 50, "is damaged or cannot run"),
        ("model.onnx", encode_network(np.ones((99, 4), "<f4"), ["pixel_values", "input_ids"]), "input `pixel_values`"),
        ("tokenizer.json", b'{"model": {"type": "Unigram"}}', "is not a tokenizer"),
        ("tokenizer.json", b"{", "is not valid JSON"),
        ("sentence_bert_config.json", b'{"max_seq_length": 4}', "accepts only 4 pieces"),
    ],
)
async def test_a_file_of_another_kind_is_named_when_it_is_loaded(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    folder = write_model(tmp_path / "model")
    (folder / name).write_bytes(content)
    embedder = FolderEmbedder(folder)
    with pytest.raises(ModelUnavailable) as failure:
        await embedder.embed(["text"])
    assert reason in failure.value.message
    assert str(folder) in failure.value.facts["path"]
    assert "`embedding_model`" in failure.value.hint


def test_the_name_is_that_of_the_content_and_not_of_the_folder(tmp_path: Path) -> None:
    config = {"_name_or_path": "someone/multilingual mini", "model_type": "bert"}
    first = FolderEmbedder(write_model(tmp_path / "a", config=config)).name
    assert first.startswith("multilingual-mini@")
    assert FolderEmbedder(write_model(tmp_path / "b", config=config)).name == first
    others = [
        write_model(tmp_path / "c", config=config, seed=2),
        write_model(tmp_path / "d", config=config, groups=(("other",),)),
        write_model(tmp_path / "e", config=config, **{"1_Pooling/config": {"pooling_mode_cls_token": True}}),
        write_model(tmp_path / "f", config=config, sentence_bert_config={"max_seq_length": 99}),
    ]
    assert len({first, *(FolderEmbedder(folder).name for folder in others)}) == 5
    assert FolderEmbedder(write_model(tmp_path / "g", config={"model_type": "bert"})).name.startswith("bert@")


@pytest.mark.parametrize("shape", [[1, 1, 10**9], [1, 1, 10**12], [10**6, 10**3, 8]], ids=str)
async def test_a_small_file_that_asks_for_terabytes_gets_an_error(tmp_path: Path, shape: list[int]) -> None:
    if shape[-1] == 10**9 and sys.platform != "linux":
        pytest.skip("only Linux limits the memory of a process")
    (write_model(tmp_path) / "model.onnx").write_bytes(encode_constant(shape))
    embedder = FolderEmbedder(tmp_path)
    with pytest.raises(ModelUnavailable, match=r"model\.onnx is damaged or cannot run"):
        await embedder.embed(["dog"])
    assert embedder.fault is not None


async def test_a_network_that_returns_another_shape_than_it_declares_gets_an_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (write_model(tmp_path) / "model.onnx").write_bytes(encode_constant([7, 1, 4]))
    with pytest.raises(ModelUnavailable, match="returns no vectors for a text"):
        await FolderEmbedder(tmp_path).embed(["dog"])
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08\xff")
    with pytest.raises(ModelUnavailable, match="is damaged"):
        await FolderEmbedder(tmp_path).embed(["dog"])
    assert capfd.readouterr().out == ""  # where a server writes its answers


def test_a_network_file_that_is_larger_than_the_format_allows_is_not_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    with (tmp_path / "model.onnx").open("r+b") as file:
        file.truncate(3 << 30)  # without a byte on the disk
    assert FolderEmbedder(tmp_path).dimensions == 0
