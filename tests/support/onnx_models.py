"""Small embedding models in the layout of sentence-transformers: each piece of text has a vector, and nothing more.

Words of one group have the same vector, so such a model knows synonyms and translations.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from everkept.embedders.model_folder import UNRELATED_TEXTS

DIMENSIONS = 48  # no multiple of 64, unlike the shipped model's
GROUPS = (
    ("dog", "hund", "chien"),
    ("sleeps", "schläft", "dort"),
    ("invoice", "rechnung", "facture"),
    ("paid", "bezahlt", "payée"),
    ("server", "serveur", "rechner"),
    ("garden", "garten", "jardin"),
    ("train", "zug"),
    ("late", "spät"),
)
BERT_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_MARKS = ("<s>", "<pad>", "</s>", "<unk>")
TokenizerKind = Literal["wordpiece", "unigram"]

_FLOAT, _INT64 = 1, 7
_INTEGER, _INTEGERS = 2, 7  # kinds of attributes
_OPSET, _IR_VERSION = 17, 8


def write_model(
    folder: Path,
    *,
    kind: TokenizerKind = "wordpiece",
    groups: Sequence[Sequence[str]] = GROUPS,
    dimensions: int = DIMENSIONS,
    network: str = "model.onnx",
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    common: float = 0.0,
    seed: int = 1,
    **files: Mapping[str, Any] | Sequence[Any],
) -> Path:
    """Write a model and return its folder. `files` are JSON files, as config={"pad_token_id": 0}.

    `common` is the length of a vector that is added to that of each piece.
    """
    marks = BERT_MARKS if kind == "wordpiece" else ROBERTA_MARKS
    groups = [*groups, *([word] for word in _list_other_words(groups))]
    words = [word for group in groups for word in group]
    rows = [number for number, group in enumerate(groups) for _ in group]
    # Bare BERT pieces without accents, so that the tokenizer finds the words as it normalizes them.
    spelled = [_drop_accents(word) for word in words] if kind == "wordpiece" else [f"▁{word}" for word in words]
    numbers = np.random.default_rng(seed).normal(size=(len(groups) + len(marks), dimensions))
    numbers /= np.linalg.norm(numbers, axis=1, keepdims=True)
    numbers[len(groups) :] *= 0.1  # marks and unknown words say little
    numbers[:, 0] += common
    table = np.concatenate([numbers[len(groups) :], numbers[rows]]).astype("<f4")
    (folder / network).parent.mkdir(parents=True, exist_ok=True)
    (folder / network).write_bytes(encode_network(table, inputs))
    build = _describe_wordpiece if kind == "wordpiece" else _describe_unigram
    files = {"tokenizer": build([*marks, *spelled]), **files}
    for name, content in files.items():
        path = folder / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")
    return folder


def _list_other_words(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return words that make unrelated texts unrelated for the model too."""
    known = {_drop_accents(word) for group in groups for word in group}
    words = re.findall(r"[^\W\d_]+", " ".join(UNRELATED_TEXTS).lower())
    return [word for word in dict.fromkeys(map(_drop_accents, words)) if word not in known]


def encode_network(table: "np.ndarray[Any, Any]", inputs: Sequence[str], *, pooled: bool = False) -> bytes:
    """Return the bytes of an ONNX file that looks up a row for each id. If `pooled`, it returns the mean of a text."""
    output = "sentence_embedding" if pooled else "last_hidden_state"
    texts = ["batch", "length"]
    tensor = [_number(1, dimension) for dimension in table.shape]
    initializer = b"".join([*tensor, _number(2, _FLOAT), _text(8, "table"), _part(9, table.tobytes())])
    found = "pieces" if pooled else output
    nodes = [_text(1, "table") + _text(1, "input_ids") + _text(2, found) + _text(4, "Gather")]
    if pooled:
        axes = _part(5, _text(1, "axes") + _number(8, 1) + _number(20, _INTEGERS))
        flat = _part(5, _text(1, "keepdims") + _number(3, 0) + _number(20, _INTEGER))
        nodes.append(_text(1, found) + _text(2, output) + _text(4, "ReduceMean") + axes + flat)
    graph = [*(_part(1, node) for node in nodes), _text(2, "graph"), _part(5, initializer)]
    graph += [_part(11, _describe_value(name, _INT64, texts)) for name in inputs]
    graph += [_part(12, _describe_value(output, _FLOAT, [*texts[: 1 if pooled else 2], table.shape[1]]))]
    model = [_number(1, _IR_VERSION), _part(7, b"".join(graph)), _part(8, _number(2, _OPSET))]
    return b"".join(model)


def encode_constant(shape: Sequence[int]) -> bytes:
    """Return the bytes of an ONNX file that answers each text with zeros in this shape, however large it is."""
    sizes = b"".join(size.to_bytes(8, "little") for size in shape)
    initializer = _number(1, len(shape)) + _number(2, _INT64) + _text(8, "shape") + _part(9, sizes)
    node = _text(1, "shape") + _text(2, "last_hidden_state") + _text(4, "ConstantOfShape")
    texts = ["batch", "length"]
    graph = [_part(1, node), _text(2, "graph"), _part(5, initializer)]
    graph += [_part(11, _describe_value("input_ids", _INT64, texts))]
    graph += [_part(12, _describe_value("last_hidden_state", _FLOAT, [*texts, shape[-1]]))]
    return _number(1, _IR_VERSION) + _part(7, b"".join(graph)) + _part(8, _number(2, _OPSET))


def _describe_value(name: str, kind: int, shape: Iterable[str | int]) -> bytes:
    sizes = (_text(2, size) if isinstance(size, str) else _number(1, size) for size in shape)
    tensor = _number(1, kind) + _part(2, b"".join(_part(1, size) for size in sizes))
    return _text(1, name) + _part(2, _part(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _part(field, value.encode())


def _part(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    digits = bytearray()
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return bytes([*digits, value])


def _describe_wordpiece(pieces: Sequence[str]) -> dict[str, Any]:
    ids = {piece: number for number, piece in enumerate(pieces)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_describe_mark(mark, ids[mark]) for mark in BERT_MARKS],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _describe_marks("[CLS]", "[SEP]", ids),
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }


def _describe_unigram(pieces: Sequence[str]) -> dict[str, Any]:
    ids = {piece: number for number, piece in enumerate(pieces)}
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": None,
        "added_tokens": [_describe_mark(mark, ids[mark]) for mark in ROBERTA_MARKS],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": metaspace,
        "post_processor": _describe_marks("<s>", "</s>", ids),
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": [[piece, -1.0] for piece in pieces]},
    }


def _describe_mark(mark: str, number: int) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": mark, **plain}


def _describe_marks(start: str, end: str, ids: Mapping[str, int]) -> dict[str, Any]:
    def mark(name: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": 0}}

    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [mark(start), first, mark(end)],
        "pair": [mark(start), first, mark(end), second, mark(end)],
        "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (start, end)},
    }


def _drop_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if unicodedata.category(c) != "Mn")
