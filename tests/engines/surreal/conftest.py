"""Servers of both versions of SurrealDB."""

from collections.abc import AsyncGenerator

import pytest

from surreal_libraries import Shelf, shelf_of
from surrealing import CORES, Server, served


@pytest.fixture(params=CORES, ids="core{}".format)
async def server(request: pytest.FixtureRequest) -> AsyncGenerator[Server, None]:
    """One of its own, in memory."""
    async with served(request.param) as server:
        yield server


@pytest.fixture(params=CORES, ids="core{}".format)
async def namespace(request: pytest.FixtureRequest) -> AsyncGenerator[Shelf, None]:
    """A namespace of a server that others use too."""
    async with shelf_of(request.param) as shelf:
        yield shelf


@pytest.fixture
def shelf(namespace: Shelf) -> Shelf:
    return namespace
