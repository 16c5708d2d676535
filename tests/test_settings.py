from pathlib import Path
from typing import Any

import pytest

from recollect.errors import InvalidInput
from recollect.settings import Settings, chosen_toolsets, load


def test_a_flag_goes_before_the_environment_and_that_before_the_default(tmp_path: Path) -> None:
    environment = {"RECOLLECT_DATA_DIR": str(tmp_path), "RECOLLECT_PORT": "9000"}
    assert load({}, environment).port == 9000
    assert load({"port": 9001}, environment).port == 9001
    assert load({"port": None}, environment).port == 9000
    assert load({"data_dir": tmp_path}, {}).port == 8081


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    environment = {"RECOLLECT_DATA_DIR": str(tmp_path), "RECOLLECT_PROJECT": ""}
    assert load({}, environment).project is None


def test_without_a_data_folder_the_platforms_own_is_used() -> None:
    assert load({}, {}).data_dir.name == "recollect"
    assert load({}, {}).data_dir.is_absolute()


def test_an_empty_data_folder_is_refused() -> None:
    with pytest.raises(InvalidInput):
        load({"data_dir": ""}, {})


def test_a_home_folder_in_the_data_folder_is_resolved() -> None:
    assert load({"data_dir": "~/x"}, {}).data_dir == Path.home() / "x"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("RECOLLECT_PORT", "eighty"),
        ("RECOLLECT_READ_ONLY", "maybe"),
        ("RECOLLECT_TRANSPORT", "smoke"),
        ("RECOLLECT_TOOLSETS", "graph,magic"),
        ("RECOLLECT_DIALECT", "klingon"),
    ],
)
def test_a_bad_value_is_named(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        load({"data_dir": tmp_path}, {variable: value})
    assert value.split(",")[-1] in str(caught.value)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("on", True), ("no", False)])
def test_switches_understand_the_usual_words(tmp_path: Path, text: str, value: Any) -> None:
    assert load({"data_dir": tmp_path}, {"RECOLLECT_READ_ONLY": text}).read_only is value


def test_the_working_folder_is_the_clients_project_where_it_says_so(tmp_path: Path) -> None:
    settings = load({"data_dir": tmp_path}, {"CLAUDE_PROJECT_DIR": "/somewhere"})
    assert settings.path == Path("/somewhere")
    assert load({"data_dir": tmp_path, "path": tmp_path}, {}).path == tmp_path


def test_toolsets_are_chosen_by_name(tmp_path: Path) -> None:
    assert chosen_toolsets(Settings(tmp_path)) == ("graph",)
    assert chosen_toolsets(Settings(tmp_path, toolsets=" graph, ")) == ("graph",)
