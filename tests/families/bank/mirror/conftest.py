"""A bank with a graph and its mirror."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from graph_mirror import Mirroring, mirrored


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[Mirroring, None]:
    async with mirrored(tmp_path) as machine:
        yield machine
