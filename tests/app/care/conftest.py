"""A data folder with something of everything, and the one who looks at it."""

from pathlib import Path

import pytest

from caring import filled
from recollect.app.care.findings import Patient
from recollect.core.times import now
from recollect.settings import load


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which no client is set up."""
    place = tmp_path / "home"
    place.mkdir()
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(place))
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop", "old", archived=("old",))
    return tmp_path / "data"


@pytest.fixture
def patient(data: Path, home: Path) -> Patient:
    return Patient(load({"data_dir": data, "config": "none"}, {}), now)
