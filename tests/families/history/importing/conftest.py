"""Stores that an import is tried on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import RecordStore
from everkept.engines.memory.store import MemoryStore
from everkept.engines.sqlite.library import SqliteLibrary


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RecordStore]:
    if request.param == "memory":
        yield MemoryStore()
        return
    library = SqliteLibrary(tmp_path)
    store = await library.history()
    yield store
    assert await store.check() == []
    await library.close()
