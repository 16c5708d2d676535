"""A server for several people, in a process of its own and over HTTPS, and who they are."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from certificates import certificate
from server_processes import HANG, HttpServer, http_server, run

OWNER = "owner"


@dataclass
class Team:
    """`tokens` are secrets by the name of who has them; `ids` what they are revoked by."""

    data_dir: Path
    server: HttpServer
    trusted: ssl.SSLContext
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    ids: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def root(self) -> str:
        return self.server.url.removesuffix("/mcp")

    def done(self, *arguments: object) -> Any:
        """A command of the owner's, on the server's machine."""
        outcome = run(*arguments, "--json", "--data-dir", self.data_dir)
        assert outcome.returncode == 0, outcome.stderr
        return json.loads(outcome.stdout)

    def join(self, name: str, *options: object) -> None:
        """Somebody gets a token."""
        made = self.done("token", *options)
        self.tokens[name], self.ids[name] = made["token"], made["id"]

    def http(self, name: str | None = None) -> httpx2.AsyncClient:
        held = {} if name is None else {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx2.AsyncClient(verify=self.trusted, headers=held, timeout=HANG)

    async def get(self, path: str, name: str | None = None, method: str = "GET") -> Any:
        async with self.http(name) as http:
            return await http.request(method, self.root + path)

    @asynccontextmanager
    async def connect(self, name: str, mode: str = "legacy") -> AsyncGenerator[Client, None]:
        """The official SDK's client, as that person has set it up."""
        async with (
            asyncio.timeout(HANG),
            self.http(name) as http,
            Client(streamable_http_client(self.server.url, http_client=http), mode=mode) as client,
        ):
            yield client


@contextmanager
def team(folder: Path, *options: object) -> Iterator[Team]:
    """With a token of the owner's, and nobody else yet."""
    data_dir, path = folder / "data", certificate(folder)
    path.chmod(0o600)
    made = json.loads(run("token", "--json", "--data-dir", data_dir).stdout)
    trusted = ssl.create_default_context(cafile=path)
    with http_server(data_dir, "--certificate", path, *options) as server:
        yield Team(data_dir, server, trusted, {OWNER: made["token"]}, {OWNER: made["id"]})


async def call(client: Client, tool: str, /, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    return result.structured_content
