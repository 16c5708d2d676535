"""A search over everything, over the reference engine and over the real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from unifying import Everything


@pytest.fixture(params=["memory", "sqlite"])
async def everything(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Everything]:
    made: Library = MemoryLibrary() if request.param == "memory" else SqliteLibrary(tmp_path)
    yield Everything(made)
    await made.close()
