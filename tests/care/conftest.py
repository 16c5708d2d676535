"""A data folder with something of everything, and the one who looks at it."""

from pathlib import Path

import pytest

from data_folders import filled
from everkept.care.check_context import CheckContext
from everkept.core.times import read_clock
from everkept.settings import read_settings


@pytest.fixture
def home(home_without_clients: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which no client is set up."""
    monkeypatch.chdir(home_without_clients)
    return home_without_clients


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop", "old", archived=("old",))
    return tmp_path / "data"


@pytest.fixture
def context(data: Path, home: Path) -> CheckContext:
    return CheckContext(read_settings({"data_dir": data, "config": "none"}, {}), read_clock)
