"""A client of the graph's tools, over the reference engine and over the real one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from calling import Client
from everkept.app.app import App
from everkept.engines.memory.library import MemoryLibrary
from everkept.settings import load


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def app(engine: str, tmp_path: Path) -> AsyncIterator[App]:
    library = MemoryLibrary() if engine == "memory" else None
    app = App(load({"data_dir": tmp_path, "toolsets": "graph"}, {}), library=library)
    yield app
    await app.close()


@pytest.fixture
async def graph(app: App) -> Client:
    """A client with an active project."""
    client = Client(app)
    await client("create_project", name="one")
    return client


@pytest.fixture
async def server_memory(engine: str, tmp_path: Path) -> AsyncIterator[Client]:
    library = MemoryLibrary() if engine == "memory" else None
    app = App(load({"data_dir": tmp_path, "dialect": "server-memory"}, {}), library=library)
    yield Client(app)
    await app.close()
