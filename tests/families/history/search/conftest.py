"""A store of past conversations, of each engine."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import RecordStore
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RecordStore]:
    library = MemoryLibrary() if request.param == "memory" else SqliteLibrary(tmp_path)
    yield await library.history()
    await library.close()
