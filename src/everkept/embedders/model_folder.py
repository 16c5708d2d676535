"""Embeddings from a folder with a model in the layout of sentence-transformers: model.onnx and tokenizer.json.

Small JSON files beside them are optional. They say how vectors of pieces are pooled and how long a text may be. Vectors
always have length one.
"""

import json
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

from everkept.core.extras import format_install_hint
from everkept.core.ports import Background
from everkept.core.text import blake2b
from everkept.embedders.onnx import (
    MAX_WORD_CHARACTERS,
    SPECIAL_PIECES,
    LoadedModel,
    Tokenizer,
    WindowEmbedder,
    WordPiece,
    measure_background,
    read_texts,
    require_runtime,
)
from everkept.errors import ModelUnavailable
from everkept.values import Value

NETWORK_FILES = ("model.onnx", "onnx/model.onnx", "onnx/model_quantized.onnx", "model_quantized.onnx")
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "config.json"
MODULES_FILE = "modules.json"  # lists the parts of the model, each with its folder
LENGTH_FILE = "sentence_bert_config.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
POOLING_FOLDER = "1_Pooling"
MODEL_HINT = "Set `embedding_model` to a folder with model.onnx and tokenizer.json, or remove the setting."
EXTRA = "models"  # installs the package that reads other tokenizers than WordPiece

MAX_PIECES = 512  # with marks; longer windows take much more memory, and blur what a text is about
MIN_WINDOW_PIECES = 8
DEFAULT_PIECES = 256
# Models of these families number positions from 2.
_SHIFTED_FAMILIES = frozenset({"roberta", "xlm-roberta", "camembert", "mpnet"})
_SHIFTED_POSITIONS = 2

# Blocks that identify a large file. Training changes all weights, so reading every byte would show no more.
SAMPLED_BLOCKS, BLOCK_BYTES = 64, 16_384
PROCEDURE = b"1"  # change it if the same files are to give other vectors
DIGEST_BYTES = 6

# Unrelated texts in many languages. They show which direction all vectors of a model share.
UNRELATED_TEXTS = (
    "The train to the coast leaves at noon.",
    "How do I reset my password?",
    "Add two spoons of salt to the soup.",
    "def area(radius): return 3.14 * radius ** 2",
    "Her brother plays the violin.",
    "The court dismissed the appeal.",
    "Prices rose by four percent in March.",
    "A whale breathes air through its blowhole.",
    "Der Vertrag endet im Oktober.",
    "Die Katze schläft auf dem Sofa.",
    "Le musée est fermé le mardi.",
    "Il faut changer les pneus de la voiture.",
    "¿Dónde está la farmacia más cercana?",
    "El partido terminó en empate.",
    "Поезд опоздал на два часа.",
    "今日は雨が降っています。",
    "数据库迁移已经完成。",
    "الكتاب على الطاولة.",
)

PoolingMode = Literal["mean", "cls", "max", "last"]
_POOLING_KEYS: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean",  # the same direction
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
_UNSAFE_CHARACTERS = re.compile(r"[^\w.-]+", re.ASCII)


class ModelLayout(Value):
    """Content of the small files of the folder."""

    network: Path
    tokenizer: Path
    pooling: PoolingMode
    max_pieces: int
    padding: int
    dimensions: int  # 0 if no file says it
    label: str


class FolderEmbedder(WindowEmbedder):
    """Embedder of a model in a folder. Its name depends on the content, so that a changed model has another name."""

    def __init__(self, folder: Path, *, threads: int = 2) -> None:
        super().__init__(threads)
        self._folder = folder
        self._name: str | None = None
        self._failure: tuple[ModelUnavailable, object] | None = None  # with the state of the folder then
        self._background: Background | None = None

    @property
    def name(self) -> str:
        """The model's own name if a file has it, with a digest of its files. The folder's name does not count."""
        if self._name is None:
            try:
                layout = read_layout(self._folder)
                self._name = f"{layout.label}@{_compute_digest(self._folder, layout)}"
            except (ModelUnavailable, OSError):
                return f"unreadable@{self._folder.name}"
        return self._name

    @property
    def dimensions(self) -> int:
        """The length of vectors. If no file says it, the model must be loaded. 0 if it is unusable."""
        try:
            if self._model is None and (told := read_layout(self._folder).dimensions):
                return told
            return self._get_model().network.dimensions
        except ModelUnavailable:
            return 0

    @property
    def fault(self) -> ModelUnavailable | None:
        """Return what is wrong with the small files, or why loading failed before. It does not load the model."""
        if self._failure is not None and self._failure[1] == _stat_files(self._folder):
            return self._failure[0]
        try:
            read_layout(self._folder)
        except ModelUnavailable as fault:
            return fault
        return None

    @property
    def background(self) -> Background:
        return self._background or self._measure(self._get_model())

    def _load_model(self) -> LoadedModel:
        state = _stat_files(self._folder)
        try:
            return self._load_files(read_layout(self._folder))
        except ModelUnavailable as fault:
            self._failure = fault, state
            raise

    def _load_files(self, layout: ModelLayout) -> LoadedModel:
        with require_runtime(layout.network):
            from everkept.embedders.network import PooledNetwork
        tokenizer = load_tokenizer(layout.tokenizer)
        window = layout.max_pieces - len(tokenizer.add_marks(()))
        if window < MIN_WINDOW_PIECES:
            raise _build_error(self._folder, f"accepts only {layout.max_pieces} pieces of text")
        network = PooledNetwork(
            layout.network, threads=self._threads, pooling=layout.pooling, padding=layout.padding, hint=MODEL_HINT
        )
        model = LoadedModel(tokenizer, network, window)
        network.calibrate([row for text in UNRELATED_TEXTS for row in model.encode_windows(text)])
        self._measure(model)  # here, because this runs in a thread
        return model

    def _measure(self, model: LoadedModel) -> Background:
        if self._background is None:
            self._background = measure_background(model.compute_vectors(read_texts()))
        return self._background


def read_layout(folder: Path) -> ModelLayout:
    """Read the small files of a model. Raise ModelUnavailable if the folder has no model that Everkept can use."""
    if not folder.is_dir():
        raise _build_error(folder, "is not a folder")
    tokenizer = folder / TOKENIZER_FILE
    network = next((path for name in NETWORK_FILES if (path := folder / name).is_file()), None)
    if network is None:
        raise _build_error(folder, "has no model.onnx or onnx/model.onnx")
    if not tokenizer.is_file():
        raise _build_error(folder, f"has no {TOKENIZER_FILE}")
    config = _read_object(folder / CONFIG_FILE)
    pooling_file = _find_pooling(folder)
    pooling = _read_object(pooling_file)
    widths = (pooling.get("word_embedding_dimension"), config.get("hidden_size"), config.get("dim"))
    return ModelLayout(
        network=network,
        tokenizer=tokenizer,
        pooling=_choose_pooling(pooling_file, pooling),
        max_pieces=_choose_length(folder, config),
        padding=_take_number(config.get("pad_token_id")) or 0,
        dimensions=next((width for width in map(_take_number, widths) if width), 0),
        label=_choose_label(config),
    )


def _find_pooling(folder: Path) -> Path:
    """Return the file about pooling. Raise ModelUnavailable for a layer that model.onnx does not contain."""
    chosen = folder / POOLING_FOLDER
    for part in _read_list(folder / MODULES_FILE):
        kind, path = str(part.get("type", "")).rpartition(".")[2], str(part.get("path", ""))
        if kind == "Pooling":
            chosen = folder / path
        elif kind not in ("Transformer", "Normalize", "Dropout", ""):
            reason = f"needs a layer of type {kind}, which Everkept does not compute"
            raise _build_error(folder / MODULES_FILE, reason)
    return chosen / CONFIG_FILE


def _choose_pooling(path: Path, config: Mapping[str, Any]) -> PoolingMode:
    named = config.get("pooling_mode")
    if named is None:
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
    else:
        chosen = [f"pooling_mode_{named}"] if isinstance(named, str) else ["pooling_mode"]
        shorter = {f"pooling_mode_{mode}": mode for mode in get_args(PoolingMode)}
        if chosen[0] in shorter:
            return shorter[chosen[0]]
    if not chosen:
        return "mean"
    if len(chosen) > 1 or chosen[0] not in _POOLING_KEYS:
        raise _build_error(path, f"asks for {' and '.join(chosen)}, which Everkept does not compute")
    return _POOLING_KEYS[chosen[0]]


def _choose_length(folder: Path, config: Mapping[str, Any]) -> int:
    """Return how many pieces a text may have, with marks."""
    told = _take_number(_read_object(folder / LENGTH_FILE).get("max_seq_length"))
    positions = _take_number(config.get("max_position_embeddings"))
    if positions and str(config.get("model_type")) in _SHIFTED_FAMILIES:
        positions -= _SHIFTED_POSITIONS
    of_tokenizer = _take_number(_read_object(folder / TOKENIZER_CONFIG_FILE).get("model_max_length"))
    limits = [limit for limit in (told, positions, of_tokenizer) if limit]
    return min(*limits, MAX_PIECES) if limits else DEFAULT_PIECES


def _choose_label(config: Mapping[str, Any]) -> str:
    """Return the model's name from its own files: the same on each machine, whatever the folder is called."""
    named = str(config.get("_name_or_path") or "").replace("\\", "/").rstrip("/").rpartition("/")[2]
    label = _UNSAFE_CHARACTERS.sub("-", named or str(config.get("model_type") or "model")).strip("-.")
    return label[:64] or "model"


def _take_number(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_number else None


def _read_object(path: Path) -> Mapping[str, Any]:
    found = _read_json(path)
    return cast(Mapping[str, Any], found) if isinstance(found, dict) else {}


def _read_list(path: Path) -> list[Mapping[str, Any]]:
    return _list_objects(_read_json(path))


def _list_objects(value: Any) -> list[Mapping[str, Any]]:
    listed = cast(list[Any], value) if isinstance(value, list) else []
    return [cast(Mapping[str, Any], item) for item in listed if isinstance(item, dict)]


def _read_json(path: Path) -> Any:
    """Read a JSON file, or return None if there is none. Raise ModelUnavailable if it is unreadable."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _build_error(path, f"cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # also raised for text in another encoding
        raise _build_error(path, "is not valid JSON") from error


def _build_error(path: Path, reason: str) -> ModelUnavailable:
    return ModelUnavailable(str(path), reason, hint=MODEL_HINT)


def _list_files(folder: Path) -> list[Path]:
    """Return all files that the vectors depend on: those that exist, and what a large network keeps beside it."""
    small = (TOKENIZER_FILE, CONFIG_FILE, MODULES_FILE, LENGTH_FILE, TOKENIZER_CONFIG_FILE)
    beside = [path for name in NETWORK_FILES for path in sorted((folder / name).parent.glob(f"{Path(name).name}*"))]
    return list(dict.fromkeys([*(folder / name for name in small), *beside]))


def _stat_files(folder: Path) -> list[tuple[str, int, int]]:
    states: list[tuple[str, int, int]] = []
    for path in _list_files(folder):
        try:
            state = path.stat()
        except OSError:
            continue
        states.append((str(path), state.st_size, state.st_mtime_ns))
    return states


def _compute_digest(folder: Path, layout: ModelLayout) -> str:
    """Return a digest of what decides the vectors, so that the same model has the same name on each machine."""
    chosen = layout.network.name
    parts = [path for path in _list_files(folder) if path.parent == layout.network.parent]
    seen = blake2b(digest_size=DIGEST_BYTES)
    seen.update(PROCEDURE + f"{layout.pooling} {layout.max_pieces} {layout.padding}".encode())
    for path in [layout.tokenizer, *(path for path in parts if path.name.startswith(chosen))]:
        size = path.stat().st_size
        seen.update(size.to_bytes(8, "little"))
        step = max(BLOCK_BYTES, size // SAMPLED_BLOCKS)
        with path.open("rb") as file:
            for start in range(0, size, step):
                file.seek(start)
                seen.update(file.read(BLOCK_BYTES))
    return seen.hexdigest()


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a tokenizer.json: with our own WordPiece if that gives the same pieces, otherwise with the package."""
    described = _read_object(path)
    if (own := read_wordpiece(described)) is not None:
        return own
    kind = _get_part(described, "model").get("type", "unknown")
    if find_spec("tokenizers") is None:
        raise ModelUnavailable(
            str(path),
            f"is a tokenizer of type {kind}, which needs the package tokenizers",
            hint=format_install_hint(EXTRA),
        )
    return PackageTokenizer(path)


class PackageTokenizer:
    """Any tokenizer that the package `tokenizers` can read."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer as AnyTokenizer

        try:
            self._tokenizer = AnyTokenizer.from_file(str(path))
            self._tokenizer.no_truncation()
            self._tokenizer.no_padding()
            bare = self.encode("a")
            marked = self._tokenizer.encode("a").ids
        except BaseException as error:  # no narrower class, and a panic is not an Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise _build_error(path, f"is not a tokenizer ({error})") from error
        start = next((n for n in range(len(marked)) if marked[n : n + len(bare)] == bare), 0)
        self._before, self._after = marked[:start], marked[start + len(bare) :]

    def encode(self, text: str) -> list[int]:
        valid = text.encode("utf-8", "ignore").decode()  # the package refuses unpaired surrogates
        return self._tokenizer.encode(valid, add_special_tokens=False).ids

    def add_marks(self, ids: Iterable[int]) -> list[int]:
        return [*self._before, *ids, *self._after]


_OWN_NORMALIZER = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True}
_OWN_MODEL = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": MAX_WORD_CHARACTERS,
}


def read_wordpiece(described: Mapping[str, Any]) -> WordPiece | None:
    """Return our own tokenizer if it gives the same pieces as the one described, which is uncased BERT's."""
    model, normalizer = _get_part(described, "model"), _get_part(described, "normalizer")
    added = _list_objects(described.get("added_tokens"))
    is_own = (
        _OWN_MODEL.items() <= model.items()
        and normalizer.get("type") == "BertNormalizer"
        and _OWN_NORMALIZER.items() <= normalizer.items()
        and normalizer.get("strip_accents") in (None, True)
        and _get_part(described, "pre_tokenizer").get("type") == "BertPreTokenizer"
        and _list_marks(_get_part(described, "post_processor")) == ["[CLS]", "[SEP]"]
        and all(str(token.get("content")) in SPECIAL_PIECES for token in added)
    )
    ids = _get_part(model, "vocab")
    if not is_own or not all(isinstance(number, int) for number in ids.values()):
        return None
    pieces = sorted(ids, key=ids.__getitem__)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        return None
    try:
        return WordPiece(pieces)
    except ValueError:  # it lacks a special piece
        return None


def _list_marks(processor: Mapping[str, Any]) -> list[str]:
    """Return the marks around a single text."""
    if processor.get("type") == "BertProcessing":
        ends = (processor.get(end) for end in ("cls", "sep"))
        return [str(cast(list[Any], end)[0]) if isinstance(end, list) and end else "" for end in ends]
    single = _list_objects(processor.get("single"))
    return [str(_get_part(step, "SpecialToken").get("id")) for step in single if "SpecialToken" in step]


def _get_part(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = described.get(name)
    return cast(Mapping[str, Any], part) if isinstance(part, dict) else {}
