"""A gateway in front of servers that are made for tests: its file, and clients of every kind."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mcp import StdioServerParameters, types
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from server_processes import HANG, HttpServer, command, environment, http_server

JSON = dict[str, Any]

HERE = Path(__file__).parent


def actor(*options: object) -> JSON:
    """A server of `upstream_actors`, as the file names it."""
    program = str(HERE / "upstream_actors.py")
    return {"command": sys.executable, "args": [program, *map(str, options)]}


def mapped(name: str, tool: str, mapping: Mapping[str, str], **more: Any) -> JSON:
    """A tool of ours whose parameters are all texts."""
    own = {key: more.pop(key) for key in ("annotations", "title") if key in more}
    return {
        "name": name,
        "description": f"Does what {name} promises",
        "inputSchema": {"type": "object", "properties": {parameter: {"type": "string"} for parameter in mapping}},
        "upstream": {"tool": tool, "paramMapping": dict(mapping), **more},
        **own,
    }


def offered(*names: str) -> str:
    """What a file for `--tools` of an actor says: it answers with what it was asked."""
    return json.dumps([{"name": name, "inputSchema": {"type": "object"}} for name in names])


def write(path: Path, config: Any) -> Path:
    """As editors do: whole, in the place of what was there."""
    new = path.with_name(f".{path.name}.new")
    new.write_text(config if isinstance(config, str) else json.dumps(config, indent=2), "utf-8")
    new.replace(path)
    return path


def npx(folder: Path) -> dict[str, str]:
    """Variables with which `npx` starts the stand-in for episodic-memory, whatever it is asked
    for; what that one hears is kept in the folder."""
    folder.mkdir()
    program = f'"{sys.executable}" "{HERE / "episodic_server.py"}" --heard "{folder / "heard"}"'
    if sys.platform == "win32":
        (folder / "npx.cmd").write_text(f"@{program} %*\n", "utf-8")
    else:
        (folder / "npx").write_text(f'#!/bin/sh\nexec {program} "$@"\n', "utf-8")
        (folder / "npx").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@dataclass
class Front:
    """A server of ours with a gateway, and how a client speaks to it."""

    folder: Path
    transport: str
    mode: str = "legacy"
    options: tuple[object, ...] = ("--toolsets", "gateway")
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    server: HttpServer | None = None

    @property
    def file(self) -> Path:
        return self.folder / "tools.json"

    @property
    def is_stateless(self) -> bool:
        return self.mode != "legacy"

    @contextmanager
    def running(self) -> Generator[None, None, None]:
        """Over HTTP clients share a server; on pipes each starts its own."""
        if self.transport == "stdio":
            yield
            return
        given = ("--no-token", "--gateway-config", self.file, *self.options)
        with http_server(self.folder / "data", *given, **self.variables) as self.server:
            yield
        self.server = None

    @asynccontextmanager
    async def connect(self, **options: Any) -> AsyncGenerator[Client, None]:
        if self.server is not None:
            target: Any = self.server.url
        else:
            given = ("--data-dir", self.folder / "data", "--gateway-config", self.file)
            program, *arguments = command("serve", *given, *self.options)
            env = environment() | dict(self.variables)
            parameters = StdioServerParameters(command=program, args=arguments, env=env)
            target = stdio_client(parameters)
        async with asyncio.timeout(HANG * 2), Client(target, mode=self.mode, **options) as client:
            yield client


async def answered(client: Client, tool: str, **arguments: Any) -> types.CallToolResult:
    result = await client.call_tool(tool, arguments)
    assert isinstance(result, types.CallToolResult)
    return result


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured answer of a call that goes well."""
    result = await answered(client, tool, **arguments)
    assert not result.is_error, result
    return result.structured_content


def text(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def call_until(client: Client, expected: Any, tool: str, **arguments: Any) -> None:
    """The file is looked at now and then, and until then the old answer comes."""
    async with asyncio.timeout(HANG):
        while (await answered(client, tool, **arguments)).structured_content != expected:
            continue


async def names(client: Client) -> list[str]:
    return [tool.name for tool in (await client.list_tools()).tools]
