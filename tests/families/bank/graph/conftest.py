"""The graph of a memory bank, and a bank with a mirror of it."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from bank_graph import Graphing, graph_in
from everkept.core.ports import Library
from graph_mirror import Mirroring, mirrored


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    async with graph_in(tmp_path, library=library) as made:
        yield made


@pytest.fixture
async def here(tmp_path: Path) -> AsyncGenerator[Mirroring, None]:
    async with mirrored(tmp_path) as machine:
        yield machine
