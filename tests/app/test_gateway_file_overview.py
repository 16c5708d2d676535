from pathlib import Path

import pytest

from everkept.app.gateway_file import list_own_names
from everkept.settings import Settings
from everkept.values import replace


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", toolsets="memories,gateway")


def test_names_are_those_of_the_toolsets_that_are_served(settings: Settings) -> None:
    names = list_own_names(settings)
    assert "store_memory" in names
    assert "search_nodes" not in names
    assert not settings.data_dir.exists()


def test_names_of_tools_that_write_are_taken_where_only_reading_is_allowed(settings: Settings) -> None:
    assert list_own_names(replace(settings, read_only=True)) == list_own_names(settings)


@pytest.mark.parametrize("toolsets", ["gateway", "memories"])
def test_no_name_is_taken_where_either_is_served_alone(settings: Settings, toolsets: str) -> None:
    assert list_own_names(replace(settings, toolsets=toolsets)) == set()
