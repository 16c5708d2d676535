from pathlib import Path
from typing import Any

import pytest

from recollect.errors import InvalidInput
from recollect.settings import Settings, chosen_toolsets, load


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RECOLLECT_PORT", "eighty"),
        ("RECOLLECT_PORT", "65536"),
        ("RECOLLECT_READ_ONLY", "maybe"),
        ("RECOLLECT_TRANSPORT", "smoke"),
        ("RECOLLECT_TOOLSETS", "graph,magic"),
        ("RECOLLECT_DIALECT", "klingon"),
        ("RECOLLECT_EMBEDDING_MODEL", "huge"),
        ("RECOLLECT_MAX_MEMORIES_PER_SESSION", "0"),
        ("RECOLLECT_RECALL_TIME_LIMIT", "soon"),
        ("RECOLLECT_RECALL_TIME_LIMIT", "0"),
        ("RECOLLECT_RECALL_TIME_LIMIT", "nan"),
        ("MEMORY_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_named_with_its_variable(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"data_dir": tmp_path}, {variable: value})
    assert caught.value.facts["argument"] == variable
    assert caught.value.facts["value"] == value
    assert repr(value) in str(caught.value)


def test_what_is_allowed_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"data_dir": tmp_path, "transport": "smoke"}, {})
    assert caught.value.facts["allowed"] == ["stdio", "http"]
    assert caught.value.facts["argument"] == "--transport"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("on", True), ("no", False)])
def test_switches_understand_the_usual_words(tmp_path: Path, text: str, value: Any) -> None:
    assert load({"data_dir": tmp_path}, {"RECOLLECT_READ_ONLY": text}).read_only is value


def test_an_empty_data_folder_is_refused() -> None:
    with pytest.raises(InvalidInput):
        load({"data_dir": ""}, {})


def test_a_home_folder_in_the_data_folder_is_resolved() -> None:
    assert load({"data_dir": "~/x"}, {}).data_dir == Path.home() / "x"


def test_toolsets_are_chosen_by_name(tmp_path: Path) -> None:
    assert chosen_toolsets(Settings(tmp_path)) == ("memories", "graph")
    assert chosen_toolsets(Settings(tmp_path, toolsets=" graph, ")) == ("graph",)
    with pytest.raises(InvalidInput):
        chosen_toolsets(Settings(tmp_path, toolsets="magic"))
