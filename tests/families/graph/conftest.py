"""A client of the graph's tools."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.settings import read_settings
from tool_calls import Client


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    app = App(read_settings({"data_dir": tmp_path, "toolsets": "graph"}, {}))
    yield app
    await app.close()


@pytest.fixture
async def graph(app: App) -> Client:
    """A client with an active project."""
    client = Client(app)
    await client("create_project", name="one")
    return client


@pytest.fixture
async def server_memory(tmp_path: Path) -> AsyncIterator[Client]:
    app = App(read_settings({"data_dir": tmp_path, "dialect": "server-memory"}, {}))
    yield Client(app)
    await app.close()
