"""Stores to search in, of both engines."""

import pytest

from everkept.core.ports import Library
from memory_shelf import Shelf


@pytest.fixture
async def library(library: Library) -> Library:
    await library.create("one", "")
    return library


@pytest.fixture
async def shelf(library: Library) -> Shelf:
    """The store of a project alone."""
    return Shelf([(await library.open("one"))[1]])


@pytest.fixture
async def two_shelves(library: Library) -> Shelf:
    """The stores of a project and of its user."""
    return Shelf([(await library.open("one"))[1], await library.open_user_store()])
