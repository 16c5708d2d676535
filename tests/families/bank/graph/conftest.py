"""The graph of a memory bank."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bank_graph import Graphing, graph_in
from everkept.core.ports import Library


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    async with graph_in(tmp_path, library=library) as made:
        yield made
