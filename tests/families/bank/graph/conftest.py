"""The graph of a memory bank."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from graphing import Graphing, graph_in


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    async with graph_in(tmp_path, library=library) as made:
        yield made
