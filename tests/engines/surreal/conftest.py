"""Servers of both versions of SurrealDB."""

import atexit
from collections.abc import AsyncGenerator
from functools import cache

import pytest

from surreal_libraries import Shelf, shelf_of
from surreal_server import CORES, Server, served


@pytest.fixture(params=CORES, ids="core{}".format)
async def server(request: pytest.FixtureRequest) -> AsyncGenerator[Server, None]:
    """One of its own, in memory."""
    async with served(request.param) as server:
        yield server


@cache
def lasting(core: int) -> Server:
    server = Server(core)
    server.start()
    atexit.register(server.stop)
    return server


@pytest.fixture(params=CORES, ids="core{}".format)
async def warm(request: pytest.FixtureRequest) -> AsyncGenerator[Server, None]:
    """One for all tests that do nothing bad to it; each finds the namespace `memory` empty."""
    server = lasting(request.param)
    yield server
    await server.empty("memory")


@pytest.fixture(params=CORES, ids="core{}".format)
async def namespace(request: pytest.FixtureRequest) -> AsyncGenerator[Shelf, None]:
    """A namespace of a server that others use too."""
    async with shelf_of(request.param) as shelf:
        yield shelf


@pytest.fixture
def shelf(namespace: Shelf) -> Shelf:
    return namespace
