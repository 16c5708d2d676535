"""A data folder with something of everything, and the one who looks at it."""

from pathlib import Path

import pytest

from data_folders import filled
from everkept.care.findings import Patient
from everkept.core.times import now
from everkept.settings import load


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data", "shop", "old", archived=("old",))
    return tmp_path / "data"


@pytest.fixture
def patient(data: Path) -> Patient:
    return Patient(load({"data_dir": data, "config": "none"}, {}), now)
