from dataclasses import replace
from pathlib import Path

import pytest

from recollect.app.care.engine import care_of
from recollect.errors import Refused
from recollect.settings import load


def test_an_engine_without_files_has_nothing_to_care_for(tmp_path: Path) -> None:
    settings = load({"data_dir": tmp_path, "config": "none"}, {})
    assert care_of(settings).folder == tmp_path
    with pytest.raises(Refused, match="kept in memory"):
        care_of(replace(settings, deployment_mode="embedded-memory"))
