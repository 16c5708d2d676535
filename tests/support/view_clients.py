"""Clients that may draw views in a chat: of both eras, over stdio and HTTP, on real servers."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from everkept.first_answers import VIEW_EXTENSION, VIEW_TYPE
from server_processes import INITIALIZE, META, HttpServer, StdioServer, http_server, stdio_server

Era = Literal["handshake", "stateless"]
DRAWS: dict[str, Any] = {"extensions": {VIEW_EXTENSION: {"mimeTypes": [VIEW_TYPE]}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


class ViewClient:
    """A client of a server; `hello` is how the server introduced itself."""

    def __init__(self, server: StdioServer | HttpServer, era: Era, capabilities: dict[str, Any]) -> None:
        self._server = server
        self._meta = {"_meta": META | {CAPABILITIES: capabilities}} if era == "stateless" else {}
        self._headers: dict[str, str] = {}
        if era == "stateless":
            self.hello = self.ask("server/discover")
        else:
            self.hello = self._shake_hands(INITIALIZE | {"capabilities": capabilities})

    def _shake_hands(self, params: dict[str, Any]) -> Any:
        if isinstance(self._server, StdioServer):
            return self._server.ask(0, "initialize", **params)["result"]
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        _, got, message = self._server.exchange(body)
        version = message["result"]["protocolVersion"]
        self._headers = {"Mcp-Session-Id": got["mcp-session-id"], "MCP-Protocol-Version": version}
        return message["result"]

    def respond(self, method: str, **params: Any) -> Any:
        """Return the whole answer, which may be an error."""
        sent = self._meta | params
        if isinstance(self._server, StdioServer):
            return self._server.ask(1, method, **sent)
        if self._meta:
            return self._server.ask(method, sent)[1]
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
        return self._server.exchange(body, self._headers)[2]

    def ask(self, method: str, **params: Any) -> Any:
        answer = self.respond(method, **params)
        assert "result" in answer, answer
        return answer["result"]

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.ask("tools/call", name=tool, arguments=arguments)

    def list_views(self) -> dict[str, Any]:
        """The `_meta` of the tools that have one."""
        return {each["name"]: each["_meta"] for each in self.ask("tools/list")["tools"] if "_meta" in each}


@contextmanager
def run_server(transport: str, folder: Path, *options: object) -> Generator[StdioServer | HttpServer]:
    """A server whose saved first answers are in the folder too."""
    cache = str(folder / "cache")
    if transport == "stdio":
        with stdio_server(folder / "data", *options, XDG_CACHE_HOME=cache) as server:
            yield server
    else:
        with http_server(folder / "data", "--no-token", *options, XDG_CACHE_HOME=cache) as server:
            yield server
