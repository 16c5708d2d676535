"""The dispatch table, and the endpoint before it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.settings import Settings
from everkept.transports.dispatch import Dispatcher
from everkept.transports.http import McpEndpoint
from server_processes import HANG

QUICK_PING_SECONDS = 0.01


@pytest.fixture
async def dispatcher(tmp_path: Path) -> AsyncIterator[Dispatcher]:
    app = App(Settings(tmp_path))
    yield Dispatcher(app)
    await app.close()


@pytest.fixture
async def endpoint(dispatcher: Dispatcher) -> AsyncIterator[McpEndpoint]:
    endpoint = McpEndpoint(dispatcher, "/mcp")
    async with asyncio.timeout(HANG):
        yield endpoint
    endpoint.close()


@pytest.fixture
async def pinging_endpoint(dispatcher: Dispatcher) -> AsyncIterator[McpEndpoint]:
    """Keeps silent connections alive without making a test wait."""
    endpoint = McpEndpoint(dispatcher, "/mcp", ping_seconds=QUICK_PING_SECONDS)
    async with asyncio.timeout(HANG):
        yield endpoint
    endpoint.close()
