"""An upstream is chosen by its entry, and costs nothing before its first use."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

from everkept.core.upstreams import Endpoint, Launch, Reach
from everkept.errors import UpstreamUnavailable
from everkept.upstreams.opening import open_upstream
from upstreaming import PATIENCE, actor

WEIGHED = """
import json, sys
from everkept.core.upstreams import Endpoint, Launch, Reach
from everkept.upstreams.opening import open_upstream
open_upstream(Reach("a", Launch("x")), {})
open_upstream(Reach("b", Endpoint("http://127.0.0.1:1/mcp")), {})
heavy = {"mcp", "httpx2", "jsonschema", "pydantic", "ctypes", "everkept.upstreams.stdio.link"}
print(json.dumps(sorted(heavy & set(sys.modules))))
"""


async def test_a_program_is_started() -> None:
    upstream = open_upstream(Reach("notes", actor()), dict(os.environ))
    try:
        assert (await upstream.call("name", {}))["structuredContent"] == {"name": "actor"}
        assert upstream.name == "notes"
    finally:
        await upstream.close()


@pytest.mark.parametrize("way", [Launch("no-such-program"), Endpoint("http://127.0.0.1:1/mcp")])
async def test_what_cannot_be_reached_is_unavailable(way: Launch | Endpoint) -> None:
    upstream = open_upstream(Reach("notes", way), dict(os.environ))
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(UpstreamUnavailable):
                await upstream.tools()
    finally:
        await upstream.close()


def test_an_upstream_that_is_not_used_loads_nothing() -> None:
    said = subprocess.run(
        [sys.executable, "-c", WEIGHED], capture_output=True, check=True, timeout=PATIENCE
    )
    assert json.loads(said.stdout) == []
