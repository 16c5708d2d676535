"""Another embedding model than the shipped one, as a person uses it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnx_models import write_model

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("repository")
VARIABLE = "EVERKEPT_EMBEDDING_MODEL"
TEXTS = ("The dog sleeps in the garden", "The invoice is paid", "The train is late")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that knows the German words for those in the texts."""
    return write_model(tmp_path / "model", kind="unigram", config={"_name_or_path": "tiny-multilingual"})


def remember(everkept: Run, monkeypatch: pytest.MonkeyPatch, *texts: str) -> None:
    monkeypatch.setenv(VARIABLE, "none")  # so that they are sure to wait
    for text in texts:
        everkept("remember", text)
    monkeypatch.delenv(VARIABLE)


def find(everkept: Run, query: str) -> list[str]:
    return [memory["content"] for memory in everkept("recall", query, "--json").json["memories"]]


def test_a_question_in_another_language_finds_what_a_multilingual_model_knows(
    everkept: Run, monkeypatch: pytest.MonkeyPatch, model: Path
) -> None:
    remember(everkept, monkeypatch, *TEXTS)
    assert everkept("index").out == "Embedded 3 texts.\n"
    assert "The invoice is paid" not in find(everkept, "rechnung bezahlt")[:1]
    monkeypatch.setenv(VARIABLE, str(model))
    told = everkept("status").out
    assert "3 texts pending (0 % done)" in told
    assert "tiny-multilingual@" in told
    assert everkept("index").status == 0
    assert find(everkept, "rechnung bezahlt")[0] == "The invoice is paid"
    assert find(everkept, "hund schläft")[0] == "The dog sleeps in the garden"
    shown = everkept("status", "--json").json
    assert shown["storage"]["embedding_dimensions"] == 48
    assert (shown["totals"]["with_vectors"], shown["totals"]["without_vectors"]) == (3, 0)


def test_the_shipped_model_comes_back_by_command(everkept: Run, monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    remember(everkept, monkeypatch, *TEXTS)
    monkeypatch.setenv(VARIABLE, str(model))
    everkept("index")
    monkeypatch.delenv(VARIABLE)
    found = everkept("recall", "train", "--json").json
    assert [memory["content"] for memory in found["memories"]] == ["The train is late"]
    assert "uses the embedding model tiny-multilingual@" in found["warnings"][0]["message"]
    assert "uses the embedding model tiny-multilingual@" in everkept("status").out
    assert "uses the embedding model tiny-multilingual@" in everkept("doctor", "--json").out
    assert everkept("index").out == "Embedded 3 texts.\n"
    assert "warnings" not in everkept("recall", "train", "--json").json
    assert everkept("doctor", "--json").json["findings"] != []


def test_the_time_for_embedding_can_be_limited(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(everkept, monkeypatch, *TEXTS)
    assert everkept("index", "--minutes", "0.000001").out == "Embedded 0 texts. 3 texts pending.\n"
    assert everkept("index", "--minutes", "0.000001", "--json").json == {"embedded": 0, "pending": 3}
    assert everkept("index", "--minutes", "5").out == "Embedded 3 texts.\n"
    assert everkept("index", "--minutes", "0").status == 2


def test_a_folder_without_a_model_stops_nothing_but_the_search_by_meaning(
    everkept: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    remember(everkept, monkeypatch, *TEXTS)
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv(VARIABLE, str(empty))
    found = everkept("recall", "train", "--json").json
    assert [memory["content"] for memory in found["memories"]] == ["The train is late"]
    assert f"{empty} has no model.onnx or onnx/model.onnx" in found["warnings"][0]["message"]
    refused = everkept("index")
    assert refused.status == 1
    assert f"{empty} has no model.onnx" in refused.err
    assert "Set `embedding_model` to a folder with model.onnx and tokenizer.json" in refused.err
    assert "has no model.onnx" in everkept("doctor", "--json").out


def test_a_word_is_no_model(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "multilingual")
    refused = everkept("recall", "train")
    assert refused.status == 2
    assert "everkept-minilm-1, none or the path of a folder, such as ./multilingual" in refused.err
