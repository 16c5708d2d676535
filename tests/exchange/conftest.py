"""A home in memory, into which the sources are imported."""

from collections.abc import AsyncIterator

import pytest

from everkept.engines.memory.library import MemoryLibrary
from foreign_stores import Home


@pytest.fixture
async def home() -> AsyncIterator[Home]:
    library = MemoryLibrary()
    yield Home(library)
    await library.close()
