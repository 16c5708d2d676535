"""Stores to search in, of both engines."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.ports import Library
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.sqlite.library import SqliteLibrary
from shelving import Shelf


@pytest.fixture(params=["memory", "sqlite"])
async def library(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Library]:
    library: Library = MemoryLibrary() if request.param == "memory" else SqliteLibrary(tmp_path)
    await library.create("one", "")
    yield library
    await library.close()


@pytest.fixture
async def shelf(library: Library) -> Shelf:
    """The store of a project alone."""
    return Shelf([(await library.open("one"))[1]])


@pytest.fixture
async def two_shelves(library: Library) -> Shelf:
    """The stores of a project and of its user."""
    return Shelf([(await library.open("one"))[1], await library.user()])
