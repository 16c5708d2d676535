"""An assistant with memories, over the reference engine and over the real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from remembering import Assistant


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def library(engine: str, tmp_path: Path) -> AsyncIterator[Library]:
    made: Library = MemoryLibrary() if engine == "memory" else SqliteLibrary(tmp_path)
    yield made
    await made.close()


@pytest.fixture
def assistant(library: Library) -> Assistant:
    return Assistant(library)
