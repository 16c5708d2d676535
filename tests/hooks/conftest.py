"""A small past of work."""

from pathlib import Path

import pytest

from prompts import Past, shop


@pytest.fixture
def past(tmp_path: Path) -> Past:
    return shop(tmp_path)
