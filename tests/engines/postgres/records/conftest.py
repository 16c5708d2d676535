"""A store in tables of its own."""

from collections.abc import AsyncGenerator

import pytest

from everkept.engines.postgres.store import PostgresStore
from postgres_libraries import Shelf, shelf_of


@pytest.fixture
async def shelf() -> AsyncGenerator[Shelf, None]:
    async with shelf_of() as shelf:
        yield shelf


@pytest.fixture
async def store(shelf: Shelf) -> PostgresStore:
    return await shelf.library().user()
