"""The test upstream over HTTP, by the official SDK: its own reading of both eras."""

import threading
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.from_thread
import anyio.to_thread
import uvicorn
from mcp import types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from upstream_actors import HANDSHAKE_VERSIONS, META, VERSION
from upstream_tools import Actor, Call, Cancelled, RpcError

JSON = dict[str, Any]
Context = ServerRequestContext[Any, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Notify = Callable[[str, JSON], Coroutine[Any, Any, None]]

PATH = "/mcp"
METHOD_NOT_FOUND = -32601


def serve_http(actor: Actor, era: str, port_file: Path, port: int = 0) -> None:
    """Serves on a free port of this machine until it is ended."""
    config = uvicorn.Config(
        http_app(actor, era), port=port, log_level="critical", lifespan="on", timeout_graceful_shutdown=1
    )
    _Server(config, port_file).run()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, port_file: Path) -> None:
        super().__init__(config)
        self._port_file = port_file

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        written = self._port_file.with_suffix(".part")
        written.write_text(str(port), encoding="ascii")
        written.rename(self._port_file)


def http_app(actor: Actor, era: str = "both", schema: JSON | None = None) -> App:
    """The actor as an ASGI application; `schema` is the input of every tool, for its headers."""
    server = Server[Any](actor.name, get_tool_input_schema=None if schema is None else lambda _name: schema)
    server.middleware[:] = [_Answers(actor)]
    return _of_era(era, cast(App, server.streamable_http_app(streamable_http_path=PATH)))


def _of_era(era: str, app: App) -> App:
    """Refuses the other one as servers do that have not heard of it."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            version = dict(scope["headers"]).get(b"mcp-protocol-version", b"").decode()
            if era != "both" and (version == VERSION) != (era == "stateless"):
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"Unknown version"})
                return
        await app(scope, receive, send)

    return served


class _Answers:
    """Stands before all that the SDK would answer itself."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._listeners: list[Notify] = []

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        params = dict(ctx.params or {})
        try:
            result = await self._result(ctx, params)
        except RpcError as error:
            body = error.body
            raise MCPError(body["code"], body["message"], body.get("data")) from error
        if ctx.protocol_version != VERSION:
            return result
        meta = {**result.get("_meta", {}), META + "serverInfo": self._actor.info}
        return {"resultType": "complete", **result, "_meta": meta}

    async def _result(self, ctx: Context, params: JSON) -> JSON:
        caching: JSON = {"ttlMs": 0, "cacheScope": "private"}
        match ctx.method:
            case "initialize":
                # The context has no public way to its connection, where notices are heard.
                connection = ctx.session._connection  # pyright: ignore[reportPrivateUsage]
                self._listeners.append(connection.notify)
                asked = params["protocolVersion"]
                return {
                    "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else "2025-06-18",
                    "capabilities": self._actor.capabilities,
                    "serverInfo": self._actor.info,
                }
            case "server/discover":
                offered: JSON = {"supportedVersions": [VERSION]}
                return offered | {"capabilities": self._actor.capabilities} | caching
            case "subscriptions/listen":
                return await self._listen(ctx)
            case "ping":
                return {}
            case "tools/list":
                listed = self._actor.listed(params.get("cursor"))
                return listed | caching if ctx.protocol_version == VERSION else listed
            case "tools/call":
                return await self._call(ctx, params)
            case other:
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {other}")

    async def _listen(self, ctx: Context) -> JSON:
        tag: JSON = {"_meta": {META + "subscriptionId": ctx.request_id}}
        granted = {"notifications": {"toolsListChanged": True}} | tag
        tell = _notifier(ctx)
        await tell("notifications/subscriptions/acknowledged", granted)

        async def tagged(method: str, _: JSON) -> None:
            await tell(method, tag)

        self._listeners.append(tagged)
        try:
            await anyio.sleep_forever()
        finally:
            self._listeners.remove(tagged)
        raise AssertionError

    async def _call(self, ctx: Context, params: JSON) -> JSON:
        token = cast(JSON, params.get("_meta") or {}).get("progressToken")
        tell = _notifier(ctx)
        cancelled = threading.Event()

        def report(done: float, total: float | None, message: str | None) -> None:
            if token is not None:
                body = {"progressToken": token, "progress": done, "total": total}
                told = body | {"message": message}
                anyio.from_thread.run(tell, "notifications/progress", told)

        def announce() -> None:
            for listener in self._listeners:
                anyio.from_thread.run(listener, "notifications/tools/list_changed", JSON())

        call = Call(params["name"], params.get("arguments") or {}, report, announce, cancelled)
        try:
            return await anyio.to_thread.run_sync(partial(_called, self._actor, call), abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            cancelled.set()
            raise


def _called(actor: Actor, call: Call) -> JSON:
    try:
        return actor.call(call)
    except Cancelled:
        return {}  # nobody reads it


def _notifier(ctx: Context) -> Notify:
    async def notify(method: str, params: JSON) -> None:
        notification = types.Notification[JSON, str](method=method, params=params)
        await ctx.session.send_notification(cast(types.ServerNotification, notification), ctx.request_id)

    return notify
