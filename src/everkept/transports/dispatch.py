"""The protocol's methods, in one table for every transport and both eras."""

import logging
import uuid
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from everkept import __version__
from everkept.app.app import App
from everkept.core.mcp import (
    GATEWAY_CLIENT,
    HANDSHAKE_VERSIONS,
    META_PREFIX,
    STATELESS_VERSION,
    encode_small,
    encode_utf8,
)
from everkept.core.sessions import Account, Report, Session, act_as
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, NotFound, Unavailable, escape_name
from everkept.first_answers import VIEW_EXTENSION, can_draw_views
from everkept.tools.tool import Effect, Tool, ToolResult, Toolset, combine
from everkept.transports.connection import (
    JSON,
    MAX_SUBSCRIPTIONS,
    RESOURCES_CHANGED,
    TOOLS_CHANGED,
    ClientConnection,
    NotificationQueue,
    NotifyClient,
    deduplicate_uris,
    describe_prompt,
    describe_resource,
    describe_tool,
    redact_for_account,
)
from everkept.values import Value

if TYPE_CHECKING:  # loaded at the first use
    from everkept.app.gateway import Gateway

AskClient = Callable[[str, JSON], Awaitable[JSON]]

PROTOCOL_VERSION = META_PREFIX + "protocolVersion"
CLIENT_CAPABILITIES = META_PREFIX + "clientCapabilities"
CLIENT_INFO = META_PREFIX + "clientInfo"
SERVER_INFO = META_PREFIX + "serverInfo"
SUBSCRIPTION_ID = META_PREFIX + "subscriptionId"

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
SERVER_ERROR = -32000
BANK_SCHEME = "memory-bank://"
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002  # handshake eras only
UNSUPPORTED_VERSION = -32022

# Methods that exist in only one era.
_HANDSHAKE_ONLY = frozenset({"initialize", "ping", "resources/subscribe", "resources/unsubscribe"})
_STATELESS_ONLY = frozenset({"server/discover", "subscriptions/listen"})
_CACHEABLE = frozenset(
    {"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)

log = logging.getLogger(__name__)


class ProtocolError(Exception):
    """Error of the protocol: the request was wrong, or the server failed."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def as_json(self) -> JSON:
        body: JSON = {"code": self.code, "message": self.message}
        return body if self.data is None else body | {"data": self.data}

    def respond(self, request_id: str | int | None) -> bytes:
        """Return the whole JSON-RPC message."""
        return encode_small({"jsonrpc": "2.0", "id": request_id, "error": self.as_json()})


class RequestResult:
    """Result of one request: its fields and those of a tool's result."""

    __slots__ = ("fields", "result")

    def __init__(self, fields: JSON, result: ToolResult | None = None) -> None:
        self.fields = fields
        self.result = result

    def as_json(self) -> JSON:
        if self.result is None:
            return self.fields
        return {
            "content": [{"type": "text", "text": self.result.text}],
            "structuredContent": self.result.facts,
            "isError": False,
            **self.fields,
        }

    def as_bytes(self) -> bytes:
        """Return the result as JSON. A tool's facts are encoded once for both places."""
        fields = encode_small(self.fields) if self.fields else b"{}"
        if self.result is None:
            return fields
        return b"".join(
            (
                b'{"content":[{"type":"text","text":',
                encode_utf8(self.result.text),
                b'}],"structuredContent":',
                self.result.facts_json.encode(),
                b',"isError":false',
                b"," + fields[1:] if self.fields else b"}",
            )
        )

    def respond(self, request_id: str | int) -> bytes:
        """Return the whole JSON-RPC message: an error if the answer is not valid JSON."""
        try:
            result = self.as_bytes()
        except (TypeError, ValueError, RecursionError):
            log.exception("cannot write an answer")
            failure = ProtocolError(INTERNAL_ERROR, "The answer cannot be encoded.")
            return failure.respond(request_id)
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode_small(request_id), result)


class Request(Value):
    """One request. `notify` reaches the client with the answer, `announce` at any later time.

    `ask` asks the client a question, if the transport supports it. `address` is the client's machine, if it is on a
    network.
    """

    id: str | int
    params: JSON
    connection: ClientConnection
    session: Session
    is_stateless: bool
    draws_views: bool
    notify: NotifyClient
    announce: NotifyClient
    ask: AskClient | None = None
    address: str = ""


Reply = JSON | RequestResult
Handler = Callable[[Request], Awaitable[Reply]]


class Dispatcher:
    """Answers requests. `methods` and `more_tools` may be extended before the first one."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.methods: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "subscriptions/listen": self._listen,
        }
        self.more_tools: list[Tool] = []
        self._streams: set[NotificationQueue] = set()
        self._is_closing = False

    async def handle(
        self,
        connection: ClientConnection,
        request_id: str | int,
        method: str,
        params: JSON,
        *,
        notify: NotifyClient,
        announce: NotifyClient,
        ask: AskClient | None = None,
        address: str = "",
    ) -> RequestResult:
        """Answer one request, or raise ProtocolError."""
        try:
            stateless = is_stateless(params)
            if stateless:
                check_stateless(params)
            handler = self._get_handler(method, stateless=stateless)
            account = connection.session.account
            session = _build_stateless_session(params, account) if stateless else connection.session
            draws_views = self._draws_views(params) if stateless else connection.draws_views
            request = Request(
                request_id, params, connection, session, stateless, draws_views, notify, announce, ask, address
            )
            with act_as(account):
                reply = await handler(request)
            answer = reply if isinstance(reply, RequestResult) else RequestResult(reply)
            return self._finish(method, answer) if stateless else answer
        except ProtocolError:
            raise
        except EverkeptError as error:
            told = redact_for_account(connection.session.account, error)
            raise _to_protocol_error(told, params) from error
        except Exception as error:
            if (damage := await self.app.find_damage()) is not None:
                raise _to_protocol_error(damage, params) from error
            raise _report_bug(method, error) from error

    def close(self) -> None:
        """Close the open subscription streams."""
        self._is_closing = True
        for stream in self._streams:
            stream.end()

    @property
    def server_info(self) -> JSON:
        return {"name": "everkept", "title": "Everkept", "version": __version__}

    @property
    def capabilities(self) -> JSON:
        return {
            "tools": {"listChanged": self.app.gateway is not None},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": False},
        }

    def build_capabilities(self, *, draws_views: bool) -> JSON:
        """Return what this server can do, for a client that can draw views in a chat or not."""
        return self.capabilities | ({"extensions": {VIEW_EXTENSION: {}}} if draws_views else {})

    def _draws_views(self, params: JSON) -> bool:
        """Return whether views are on and a client of the stateless era can draw them."""
        return self.app.settings.views != "off" and can_draw_views(cast(JSON, params["_meta"])[CLIENT_CAPABILITIES])

    @property
    def tools(self) -> Toolset:
        return combine(self.app.tools, self.more_tools) if self.more_tools else self.app.tools

    def _get_handler(self, method: str, *, stateless: bool) -> Handler:
        handler = self.methods.get(method)
        if handler is None or method in (_HANDSHAKE_ONLY if stateless else _STATELESS_ONLY):
            raise ProtocolError(METHOD_NOT_FOUND, f"Method not found: {method}", method)
        return handler

    async def _initialize(self, request: Request) -> JSON:
        asked = request.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise ProtocolError(INVALID_PARAMS, "initialize needs a `protocolVersion`.")
        request.session.client = _format_client(request.params.get("clientInfo"))
        request.session.started_at = self.app.clock()
        offered = request.params.get("capabilities")
        request.connection.offers_roots = isinstance(offered, dict) and isinstance(
            cast(JSON, offered).get("roots"), dict
        )
        request.connection.draws_views = self.app.settings.views != "off" and can_draw_views(offered)
        if (gateway := self._find_gateway(request.session)) is not None:
            request.connection.follow_tools(gateway.on_change, request.announce)
        return {
            "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": self.build_capabilities(draws_views=request.connection.draws_views),
            "serverInfo": self.server_info,
            "instructions": self.app.instructions,
        }

    async def _ping(self, request: Request) -> JSON:
        return {}

    async def _discover(self, request: Request) -> JSON:
        return {
            "supportedVersions": [STATELESS_VERSION],
            "capabilities": self.build_capabilities(draws_views=request.draws_views),
            "instructions": self.app.instructions,
        }

    async def _list_tools(self, request: Request) -> JSON:
        _refuse_cursor(request)
        gateway = self._find_gateway(request.session)
        if gateway is not None:
            await self.app.refresh_tools()
        is_whole = is_gateway(request.session)  # it compares its file with the schemas, and no model reads them
        views = self._list_views() if request.draws_views else ()
        return {"tools": [describe_tool(tool, is_whole=is_whole, views=views) for tool in self._select_tools(gateway)]}

    def _list_views(self) -> frozenset[str]:
        from everkept.views.pages import CHAT_VIEWS  # few clients draw them

        return CHAT_VIEWS[self.app.settings.views]

    async def _call_tool(self, request: Request) -> Reply:
        name = request.params.get("name")
        arguments = request.params.get("arguments", {})
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "tools/call needs the `name` of a tool.")
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise ProtocolError(INVALID_PARAMS, "`arguments` must be an object.")
        try:
            tool = await self._resolve_tool(request, name)
            async with _reserve_slot(request, tool):
                await request.connection.settle_roots()
                result = await self.app.run(
                    request.session, tool, name, cast(JSON, arguments), build_progress_report(request)
                )
        except EverkeptError as error:
            return build_failure(error, request.session.account)
        if result.wire is not None:
            return _strip_result_type(result.wire, request)
        return RequestResult({}, result)

    async def _resolve_tool(self, request: Request, name: str) -> Tool:
        gateway = self._find_gateway(request.session)
        if gateway is not None and name not in self.tools:
            await gateway.refresh()  # they may have changed since the client last asked
            if name not in self.tools and (failure := gateway.find_failure(name)) is not None:
                raise failure
        try:
            return self._select_tools(gateway).get(name)
        except NotFound as error:
            code = INVALID_PARAMS if request.is_stateless else METHOD_NOT_FOUND
            raise ProtocolError(code, f"Unknown tool: {name}. {error.hint}") from error

    def _select_tools(self, gateway: "Gateway | None") -> Toolset:
        """Return the tools for a client; a gateway gets none of the gateway's tools."""
        if gateway is not None or self.app.gateway is None:
            return self.tools
        return combine(self.app.own_tools, self.more_tools)

    def _find_gateway(self, session: Session) -> "Gateway | None":
        """Return the gateway, or None if the client is a gateway, which may be its own upstream."""
        gateway = self.app.gateway
        if gateway is None or is_gateway(session):
            return None
        gateway.welcome()
        return gateway

    async def _list_resources(self, request: Request) -> JSON:
        _refuse_cursor(request)
        await request.connection.settle_roots()
        listed = await self.app.resources.list_resources(request.session)
        connection = request.connection
        if request.session.stateful and not request.is_stateless:
            connection.follow_resources(
                lambda: self.app.watcher.follow_list(
                    request.session, [info.uri for info in listed], connection.notices.add_resource_list
                ),
                request.announce,
            )
        return {"resources": [describe_resource(info, "uri") for info in listed]}

    async def _list_templates(self, request: Request) -> JSON:
        _refuse_cursor(request)
        templates = self.app.resources.list_templates()
        return {"resourceTemplates": [describe_resource(info, "uriTemplate") for info in templates]}

    async def _read_resource(self, request: Request) -> JSON:
        uri = _get_uri(request.params)
        await request.connection.settle_roots()
        document = await self.app.resources.read(request.session, uri)
        content: JSON = {"uri": uri, "mimeType": document.mime_type}
        if document.data is None:
            content["text"] = document.text
        else:
            content["blob"] = b64encode(document.data).decode("ascii")
        if document.meta is not None:
            content["_meta"] = document.meta
        if document.is_degraded:
            content["_meta"] = {"degraded": True}
        return {"contents": [content]}

    async def _list_prompts(self, request: Request) -> JSON:
        from everkept.app.prompts import list_prompts

        _refuse_cursor(request)
        return {"prompts": [describe_prompt(prompt) for prompt in list_prompts(self.app.own_tools)]}

    async def _get_prompt(self, request: Request) -> JSON:
        from everkept.app.prompts import check_arguments, find_prompt

        name, arguments = request.params.get("name"), request.params.get("arguments")
        if not isinstance(name, str):
            raise ProtocolError(INVALID_PARAMS, "prompts/get needs the `name` of a prompt.")
        if not isinstance(arguments, dict | None):
            raise ProtocolError(INVALID_PARAMS, "`arguments` must be an object.")
        try:
            prompt = find_prompt(name, self.app.own_tools)
            text = prompt.render(self.app.own_tools, check_arguments(prompt, cast(JSON, arguments or {})))
        except (NotFound, InvalidInput) as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from error
        message: JSON = {"role": "user", "content": {"type": "text", "text": text}}
        return {"description": prompt.description, "messages": [message]}

    async def _subscribe(self, request: Request) -> JSON:
        uri, connection = _get_uri(request.params), request.connection
        await connection.settle_roots()
        subscribe = self.app.watcher.subscribe
        await connection.subscribe(uri, lambda: subscribe(request.session, uri, connection.notices.add_resource))
        connection.start_notifying(request.announce)
        return {}

    async def _unsubscribe(self, request: Request) -> JSON:
        request.connection.unsubscribe(_get_uri(request.params))
        return {}

    async def _listen(self, request: Request) -> JSON:
        """Keep a stream open. The answer comes when it ends."""
        wanted = request.params.get("notifications")
        if not isinstance(wanted, dict):
            raise ProtocolError(INVALID_PARAMS, "subscriptions/listen needs `notifications`.")
        asked = cast(JSON, wanted).get("resourceSubscriptions")
        uris = cast(list[Any], asked) if isinstance(asked, list) else []
        gateway = self._find_gateway(request.session)
        tag: JSON = {"_meta": {SUBSCRIPTION_ID: request.id}}
        stream = NotificationQueue()
        ends: dict[str, Callable[[], None]] = {}
        self._streams.add(stream)
        if self._is_closing:
            stream.end()
        try:
            for uri in deduplicate_uris(uris)[:MAX_SUBSCRIPTIONS]:
                try:
                    ends[uri] = await self.app.watcher.subscribe(request.session, uri, stream.add_resource)
                except EverkeptError as error:
                    log.info("not subscribed to %s: %s", escape_name(uri), escape_name(str(error)))
            granted: JSON = {"resourceSubscriptions": list(ends)} if ends else {}
            if gateway is not None and cast(JSON, wanted).get("toolsListChanged") is True:
                ends[TOOLS_CHANGED] = gateway.on_change(stream.add_tools)
                granted["toolsListChanged"] = True
            if cast(JSON, wanted).get("resourcesListChanged") is True:
                listed = await self.app.resources.list_resources(request.session)
                ends[RESOURCES_CHANGED] = self.app.watcher.follow_list(
                    request.session, [info.uri for info in listed], stream.add_resource_list
                )
                granted["resourcesListChanged"] = True
            await request.notify("notifications/subscriptions/acknowledged", {"notifications": granted} | tag)
            while (notice := await stream.wait_next()) is not None:
                await request.notify(notice.method, notice.params | tag)
        finally:
            self._streams.discard(stream)
            for end in ends.values():
                end()
        return dict(tag)

    def _finish(self, method: str, answer: RequestResult) -> RequestResult:
        fields = answer.fields
        meta = {**cast(JSON, fields.get("_meta", {})), SERVER_INFO: self.server_info}
        caching: JSON = {"ttlMs": 0, "cacheScope": "private"} if method in _CACHEABLE else {}
        fields = {"resultType": "complete", **caching, **fields, "_meta": meta}
        return RequestResult(fields, answer.result)


def is_stateless(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and PROTOCOL_VERSION in meta


def check_stateless(params: Mapping[str, Any]) -> None:
    meta = cast(JSON, params["_meta"])
    version = meta[PROTOCOL_VERSION]
    if version != STATELESS_VERSION:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": [STATELESS_VERSION], "requested": version},
        )
    if not isinstance(meta.get(CLIENT_CAPABILITIES), dict):
        raise ProtocolError(INVALID_PARAMS, f"`_meta` lacks `{CLIENT_CAPABILITIES}`.")


def _build_stateless_session(params: JSON, account: Account | None) -> Session:
    meta = cast(JSON, params["_meta"])
    client = _format_client(meta.get(CLIENT_INFO))
    return Session(client=client, stateful=False, account=account)


def _format_client(info: Any) -> str:
    if not isinstance(info, dict):
        return ""
    parts = (cast(JSON, info).get("name"), cast(JSON, info).get("version"))
    return " ".join(str(part) for part in parts if part)[:100]


def build_progress_report(request: Request) -> Report | None:
    """Return None if the client did not ask for progress."""
    meta = request.params.get("_meta")
    token = cast(JSON, meta).get("progressToken") if isinstance(meta, dict) else None
    if token is None:
        return None

    async def report(done: float, total: float | None, message: str | None) -> None:
        body: JSON = {"progressToken": token, "progress": done}
        if total is not None:
            body["total"] = total
        if message is not None:
            body["message"] = message
        await request.notify("notifications/progress", body)

    return report


def build_failure(error: EverkeptError, account: Account | None) -> JSON:
    """Return a tool's result for an error."""
    told = redact_for_account(account, error)
    return {"content": [{"type": "text", "text": str(told)}], "structuredContent": told.to_envelope(), "isError": True}


def _strip_result_type(wire: JSON, request: Request) -> JSON:
    """Remove the key of our era from another server's answer."""
    kept = {key: value for key, value in wire.items() if key != "resultType"}
    return kept if request.is_stateless and len(kept) < len(wire) else wire


def _reserve_slot(request: Request, tool: Tool) -> AbstractAsyncContextManager[None]:
    """Reserve a turn. Calls to another server need none, so that a hanging one delays nothing."""
    if tool.effect is Effect.OUTSIDE:
        return nullcontext()
    return request.connection.turns.reserve(writes=tool.effect is not Effect.READS)


def _get_uri(params: JSON) -> str:
    uri = params.get("uri")
    if not isinstance(uri, str) or not uri:
        raise ProtocolError(INVALID_PARAMS, "`uri` is required.")
    return uri


def is_gateway(session: Session) -> bool:
    """Return whether the client is the gateway of another Everkept."""
    return session.client.split(" ")[0] == GATEWAY_CLIENT


def _refuse_cursor(request: Request) -> None:
    """Refuse any cursor, because every list fits on one page."""
    if request.params.get("cursor") is not None:
        raise ProtocolError(INVALID_PARAMS, "Unknown cursor.")


def _to_protocol_error(error: EverkeptError, params: JSON) -> ProtocolError:
    uri = params.get("uri")
    if isinstance(error, NotFound) and not isinstance(error, BankNotFound):
        code = INVALID_PARAMS if is_stateless(params) else RESOURCE_NOT_FOUND
        more = {name: fact for name, fact in error.facts.items() if name in ("expectedPath", "suggestion")}
        return ProtocolError(code, str(error), {"uri": uri, **more})
    code = INVALID_PARAMS
    if isinstance(error, BankNotFound | Unavailable):
        # Clients of the public memory bank server expect this code for a bank that cannot be read.
        code = SERVER_ERROR if str(uri).startswith(BANK_SCHEME) else INTERNAL_ERROR
    return ProtocolError(code, str(error), error.to_envelope())


def _report_bug(method: str, error: Exception) -> ProtocolError:
    fault = uuid.uuid4().hex[:8]
    log.error("internal error %s in %s", fault, method, exc_info=error)
    return ProtocolError(INTERNAL_ERROR, f"Internal error {fault}. The server's log has the details.")
