"""The console over HTTP: it begins sessions, answers calls, and reports what has changed.

Each request carries a token: of a session that a one-time code began, or of an account. No cookie is used, because all
ports of a host share cookies. So a page of another server cannot act for this one.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import cast

from everkept.accounts.access_log import AccessLog
from everkept.accounts.grants import hash_secret
from everkept.app.app import App
from everkept.app.memory_table import open_stores
from everkept.console.access import MAX_SESSIONS, ConsoleAccess, is_stranger
from everkept.console.graph_tools import GraphPageTools
from everkept.console.log_tools import LogPageTools
from everkept.console.markdown_tools import MarkdownPageTools
from everkept.console.memory_tools import HistoryPageTools, MemoryPageTools
from everkept.console.overview_tools import CarePageTools, OverviewPageTools
from everkept.console.page_states import PageStates
from everkept.console.pages import NO_STORE, PATH, SECURITY_HEADERS, build_page_routes
from everkept.console.team_tools import TeamPageTools
from everkept.core.mcp import MAX_MESSAGE_BYTES
from everkept.core.ports import RecordStore
from everkept.core.projects import USER_PROJECT
from everkept.core.sessions import Account, Session, act_as
from everkept.core.text import format_count
from everkept.errors import EverkeptError
from everkept.jobs.usage_log import stop_counting
from everkept.tools.tool import Tool
from everkept.transports.access_audit import audit
from everkept.transports.connection import JSON, ClientConnection, redact_for_account
from everkept.transports.dispatch import Dispatcher, ProtocolError
from everkept.transports.guard import BUSY_SECONDS, TokenAuth, get_bearer_token
from everkept.transports.http_exchange import (
    JSON_TYPE,
    PING_SECONDS,
    ASGIApp,
    Exchange,
    Message,
    Receive,
    Refusal,
    RequestRejected,
    Send,
    build_rate_limited,
    check_content_type,
    get_account,
    get_client_address,
    get_credential,
    read_headers,
    send_answer,
)
from everkept.transports.http_requests import build_size_error
from everkept.transports.rate_limits import BodyLimits, OpenCounts
from everkept.transports.trusted_proxies import FORWARDED_KEY

CLIENT = "console"  # in the change log
LOOK_SECONDS = 1.0  # between two looks for changes
LOOK_PAUSE_FACTOR = 20  # a slow look, such as that at a remote bank, pauses this many times as long
QUIET_SECONDS = 15.0  # after which the stream says that it is alive
MAX_PROJECTS = 50  # of one session, in which it has read or written lately
MAX_CODE_BYTES = 4096  # of a request without a token
LINES_TYPE = "application/x-ndjson"
API_PATH = f"{PATH}/api"

Answer = Callable[[Exchange, JSON], Awaitable[None]]

_ANSWER_HEADERS = (*SECURITY_HEADERS, NO_STORE)


def list_console_tools(app: App) -> list[Tool]:
    """Return the tools that only the console calls. A server that only reads has none that change anything."""
    families = (
        MemoryPageTools(app),
        LogPageTools(app),
        GraphPageTools(app),
        HistoryPageTools(app),
        OverviewPageTools(app),
        TeamPageTools(app),
        CarePageTools(app),
        MarkdownPageTools(),
    )
    tools = [tool for family in families for tool in family.list_tools()]
    return [tool for tool in tools if tool.is_read_only or not app.settings.read_only]


class ConsoleServer:
    """Routes of the console. They pass the guard without a token, and check theirs here."""

    def __init__(
        self, app: App, access: ConsoleAccess, access_log: AccessLog, token_auth: TokenAuth | None = None
    ) -> None:
        """Without `token_auth`, only sessions that a code began may call."""
        self._app = app
        self._open = OpenCounts()
        self._bodies = BodyLimits()
        self._access = access
        self._token_auth = token_auth
        self._states = PageStates(app)
        self._dispatcher = Dispatcher(app)
        self._dispatcher.more_tools = list_console_tools(app)
        audit(self._dispatcher, access_log)
        self._connections: OrderedDict[tuple[str, str | None], ClientConnection] = OrderedDict()

    def build_routes(self) -> dict[str, ASGIApp]:
        return {
            **build_page_routes(),
            f"{API_PATH}/session": self._build_route(self._begin_session, needs_token=False, limit=MAX_CODE_BYTES),
            f"{API_PATH}/lock": self._build_route(self._end_session),
            f"{API_PATH}/call": self._build_route(self._call),
            f"{API_PATH}/watch": self._build_route(self._watch),
        }

    def _build_route(self, answer: "Answer", *, needs_token: bool = True, limit: int = MAX_MESSAGE_BYTES) -> ASGIApp:
        async def route(scope: Message, receive: Receive, send: Send) -> None:
            exchange = Exchange(scope, receive, send, PING_SECONDS)
            try:
                _check_request(exchange)
                if needs_token:
                    await self._authenticate(scope)
                with ExitStack() as held, act_as(get_account(scope)):
                    self._hold_account(get_account(scope), held)
                    exchange.receive = self._bodies.limit(get_account(scope), receive, held)
                    await answer(exchange, await _read_object(exchange, limit))
            except RequestRejected as error:
                refusal = error.refusal
                await _send(send, refusal.status, {"error": {"error": "refused", "message": refusal.message}})

        return route

    async def _authenticate(self, scope: Message) -> None:
        headers = read_headers(scope)
        if self._access.check_token(get_bearer_token(headers)):
            return
        if self._token_auth is None:
            raise RequestRejected(Refusal(401, "This console session has ended. Run `everkept console` again."))
        refusal = await self._token_auth.authenticate(scope, headers)
        if refusal is not None:
            raise RequestRejected(refusal)

    def _hold_account(self, account: Account | None, held: ExitStack) -> None:
        """Count the calls of an account under way. The guard, which counts the others, lets these paths pass."""
        limit = self._app.settings.quota_calls
        if account is not None and not self._open.hold(f"account {account.name}", limit, held):
            what = format_count(limit, "request")
            raise RequestRejected(build_rate_limited(f"This account already has {what} under way.", BUSY_SECONDS))

    async def _begin_session(self, exchange: Exchange, body: JSON) -> None:
        code = body.get("code")
        if is_stranger(exchange.scope.get("client"), exchange.scope.get("server")):
            raise RequestRejected(Refusal(403, "This code is for another user of this machine."))
        token = self._access.redeem_code(code) if isinstance(code, str) else None
        if token is None:
            raise RequestRejected(Refusal(401, "This code was used or is too old. Run `everkept console` again."))
        await _send(exchange.send, 200, {"token": token})

    async def _end_session(self, exchange: Exchange, _body: JSON) -> None:
        token = get_bearer_token(exchange.headers)
        self._access.end_session(token)
        ended = hash_secret(token)
        for key in [key for key in self._connections if key[0] == ended]:
            del self._connections[key]
        await _send(exchange.send, 200, {})

    async def _call(self, exchange: Exchange, body: JSON) -> None:
        project = body.get("project")
        connection = self._get_connection(exchange, project if isinstance(project, str) else None)
        params: JSON = {"name": body.get("name"), "arguments": body.get("arguments") or {}}
        try:
            with stop_counting():
                answer = await self._dispatcher.handle(
                    connection,
                    1,
                    "tools/call",
                    params,
                    notify=_ignore,
                    announce=_ignore,
                    address=get_client_address(exchange.scope),
                )
        except ProtocolError as error:
            await _send(exchange.send, 400, {"error": {"error": "invalid_input", "message": error.message}})
            return
        account, limit = get_account(exchange.scope), self._app.settings.quota_answer_bytes
        if answer.result is not None and not answer.result.is_error:
            if account is not None and len(answer.result.facts_json) > limit:
                await _send(exchange.send, 200, {"error": build_size_error(limit).to_envelope()})
                return
            encoded = b'{"result":%b}' % answer.result.facts_json.encode()
            await send_answer(exchange.send, 200, encoded, JSON_TYPE, _ANSWER_HEADERS)
            return
        told = answer.as_json()
        key = "error" if told.get("isError") else "result"
        await _send(exchange.send, 200, {key: told.get("structuredContent")})

    async def _watch(self, exchange: Exchange, body: JSON) -> None:
        """Send a line whenever the newest change of a watched project, or the state of a watched page, is another."""
        named, page = body.get("project"), body.get("page")
        project = named if isinstance(named, str) else None
        session = self._get_connection(exchange, project).session
        start = {"type": "http.response.start", "status": 200, "headers": _build_headers(LINES_TYPE)}
        await exchange.send(start)
        told: Mapping[str, int | str] | None = None
        read_time = asyncio.get_running_loop().time
        spoke_at = read_time()
        leaving = asyncio.ensure_future(_wait_until_left(exchange))
        try:
            while not leaving.done() and await self._is_known(exchange):
                began = read_time()
                seen, problem = await self._read_changes(session, project, page)
                if seen != told or began - spoke_at >= QUIET_SECONDS:
                    line = {"changes": seen} if problem is None else {"changes": seen, "problem": problem}
                    await exchange.send(_build_part(json.dumps(line).encode() + b"\n"))
                    told, spoke_at = seen, began
                pause = min(QUIET_SECONDS, max(LOOK_SECONDS, LOOK_PAUSE_FACTOR * (read_time() - began)))
                await asyncio.wait({leaving}, timeout=pause)
        finally:
            leaving.cancel()
        await exchange.send(_build_part(b"", has_more=False))

    async def _is_known(self, exchange: Exchange) -> bool:
        if self._access.check_token(get_bearer_token(exchange.headers), is_use=False):
            return True
        return self._token_auth is not None and await self._token_auth.is_token_known(exchange.headers)

    async def _read_changes(
        self, session: Session, project: str | None, page: object
    ) -> tuple[Mapping[str, int | str], str | None]:
        """Return the state of the page if it has one, otherwise the newest change of each project; and a problem."""
        try:
            if isinstance(page, str) and self._states.has_page(page):
                return {page: await self._states.read(page, session)}, None
            stores: dict[str, RecordStore] = await open_stores(self._app.guarded, project)
            return {name: await store.get_revision() for name, store in stores.items()}, None
        except EverkeptError as error:
            return {USER_PROJECT: 0}, redact_for_account(session.account, error).message

    def _get_connection(self, exchange: Exchange, project: str | None) -> ClientConnection:
        """Return the state of this session in a project: what it has read of a bank, and the order of its calls."""
        who = get_credential(exchange.scope) or hash_secret(get_bearer_token(exchange.headers))
        key = (who, project)
        found = self._connections.get(key)
        if found is None:
            account = get_account(exchange.scope)
            session = Session(client=CLIENT, project=project, is_conversation=False, account=account)
            found = self._connections[key] = ClientConnection(session)
            self._drop_oldest(who)
        self._connections.move_to_end(key)
        return found

    def _drop_oldest(self, who: str) -> None:
        """Drop the oldest connections: of one session first, so that it does not end those of others."""
        own = [key for key in self._connections if key[0] == who]
        for key in own[: max(0, len(own) - MAX_PROJECTS)]:
            del self._connections[key]
        while len(self._connections) > MAX_PROJECTS * MAX_SESSIONS:
            self._connections.popitem(last=False)


def _check_request(exchange: Exchange) -> None:
    """Refuse what the page itself does not send: another method, another type, a page of another origin."""
    scope, headers = exchange.scope, exchange.headers
    if scope["method"] != "POST":
        raise RequestRejected(Refusal(405, f"{scope['method']} does nothing here."))
    check_content_type(headers)
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site not in (None, "same-origin", "none"):
        raise RequestRejected(Refusal(403, "Pages of other servers may not use the console."))
    if origin is None:
        return
    scheme, _, host = origin.partition("://")
    is_same_scheme = FORWARDED_KEY in scope or scheme == scope.get("scheme", "http")
    if host.lower() != headers.get("host", "").lower() or not is_same_scheme:
        raise RequestRejected(Refusal(403, "Pages of other servers may not use the console."))


async def _read_object(exchange: Exchange, limit: int) -> JSON:
    body = await exchange.read_json(limit)
    if not isinstance(body, dict):
        raise RequestRejected(Refusal(400, "The body must be a JSON object."))
    return cast(JSON, body)


async def _send(send: Send, status: int, body: JSON) -> None:
    await send_answer(send, status, json.dumps(body).encode(), JSON_TYPE, _ANSWER_HEADERS)


def _build_headers(content_type: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", content_type.encode()), *_ANSWER_HEADERS]


def _build_part(body: bytes, *, has_more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": has_more}


async def _wait_until_left(exchange: Exchange) -> None:
    while (await exchange.receive())["type"] != "http.disconnect":
        pass


async def _ignore(_method: str, _params: JSON) -> None:
    """Drop a notification, which the page does not show."""
