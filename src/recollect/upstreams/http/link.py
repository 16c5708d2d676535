"""A connection over Streamable HTTP: the SDK's transport, and what we make of its answers."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from itertools import chain, count, repeat
from typing import Any, cast

import anyio
import anyio.abc
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp.types import HEADER_MISMATCH, METHOD_NOT_FOUND, JSONRPCRequest

from recollect.core.sessions import Report
from recollect.core.upstreams import JSON, Reach
from recollect.errors import InvalidInput, UpstreamError, UpstreamUnavailable
from recollect.upstreams.greeting import STATELESS_VERSION, Greeting, greet, stateless_meta, tells
from recollect.upstreams.http.faults import FORBIDDEN, UNAUTHORIZED, Fault, Kind
from recollect.upstreams.http.headers import StatelessHeaders
from recollect.upstreams.http.places import Target
from recollect.upstreams.http.posts import Post, current_post
from recollect.upstreams.http.wire import MESSAGE_LIMIT, Wire
from recollect.upstreams.links import Link, LinkEnded, NotSent
from recollect.upstreams.results import answered

DISCOVERY = 10.0  # seconds; a server of the older era may leave the question without an answer
CONFIRMATION = 5.0  # seconds to find out whether a server is still there
LISTEN_PAUSES = (1.0, 5.0, 30.0)  # seconds before listening anew; the last one again and again
MOST_PAGES = 100  # of tools/list, where only headers are looked for

# They write whole messages, addresses and sessions; what matters of it is in our own errors.
for noisy in ("httpx2", "httpcore2", "mcp.client.streamable_http"):
    logging.getLogger(noisy).setLevel(logging.CRITICAL)

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_link(
    reach: Reach, target: Target, on_tools_changed: Callable[[], None]
) -> AsyncGenerator[Link, None]:
    """Greets the server, and ends the session where there is one. Left by the task that entered."""
    link = HttpLink(target, on_tools_changed)
    client = httpx2.AsyncClient(
        transport=link.wire,
        headers=target.headers,
        # Who asks knows how long to wait for an answer.
        timeout=httpx2.Timeout(None, connect=reach.connect_timeout),
        trust_env=False,
    )
    stopped: BaseException | None = None
    try:
        async with (
            client,
            streamable_http_client(
                target.url, http_client=client, max_sse_event_size=MESSAGE_LIMIT
            ) as (incoming, outgoing),
            anyio.create_task_group() as tasks,
        ):
            try:
                await link.begin(JSONRPCDispatcher(incoming, outgoing), tasks)
                yield link
            except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - raised below
                stopped = error  # the groups would wrap it
            finally:
                link.end("was left")
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        # While it is being left, tasks of the SDK find their streams closed, and that is all.
        _, unexpected = group.split((anyio.ClosedResourceError, anyio.BrokenResourceError))
        if unexpected is not None:
            log.exception("%s: the connection failed", reach.name)
            raise UpstreamUnavailable(reach.name, "lost its connection.") from stopped
    if stopped is not None:
        raise stopped


class HttpLink:
    """A links.Link. The SDK knows the wire, and none of its models sees a result: they would drop
    and refuse what they do not know."""

    def __init__(self, target: Target, on_tools_changed: Callable[[], None]) -> None:
        self.wire = Wire(target, lambda fault: self.end(fault.reason))
        self._upstream = target.upstream
        self._tell = on_tools_changed
        self._dispatcher: JSONRPCDispatcher[TransportContext] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ids = count(1)
        self._greeting: Greeting | None = None
        self._version = ""  # of the handshake era
        self._stateless = StatelessHeaders(target.upstream)
        self._reason = ""
        self._has_ended = asyncio.Event()

    async def begin(
        self, dispatcher: JSONRPCDispatcher[TransportContext], tasks: anyio.abc.TaskGroup
    ) -> None:
        """Greets the server; UpstreamUnavailable where it does not answer in kind."""
        self._dispatcher, self._tasks = dispatcher, tasks
        await tasks.start(self._run, dispatcher)
        self._greeting = await self._greeted()
        if self._greeting.is_stateless:
            if self._greeting.tells_of_changes:
                tasks.start_soon(self._listen)
        else:
            options: CallOptions = {"headers": self._headers("", {})}
            await dispatcher.notify("notifications/initialized", None, options)
        self.wire.tasks = tasks

    def end(self, reason: str) -> None:
        if not self._has_ended.is_set():
            self._reason = reason
            self._has_ended.set()

    async def ended(self) -> str:
        await self._has_ended.wait()
        return self._reason

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        _check(method, params)
        return await self._request(method, params, report, may_learn=True)

    async def probe(self) -> None:
        post = Post(next(self._ids))
        try:
            await self._send(post, "server/discover" if self._is_stateless else "ping", {})
        except MCPError as error:
            fault = post.fault
            is_silent = fault is not None and (
                fault.kind is not Kind.REFUSED or (fault.status or 0) >= 500
            )
            if self._has_ended.is_set() or is_silent:
                reason = self._reason or (fault.reason if fault else error.message)
                self.end(reason)
                raise LinkEnded(reason) from None

    @property
    def _is_stateless(self) -> bool:
        return self._greeting is not None and self._greeting.is_stateless

    async def _request(
        self, method: str, params: Mapping[str, Any], report: Report | None, *, may_learn: bool
    ) -> JSON:
        post = Post(next(self._ids))
        try:
            result = await self._send(post, method, params, report)
        except MCPError as error:
            if may_learn and await self._has_learned(method, error):
                # The server refused it unread.
                return await self._request(method, params, report, may_learn=False)
            raise await self._failure(post, error) from None
        if not self._is_stateless:
            return result
        listing = method == "tools/list"
        return answered(self._stateless.learn(result) if listing else result, self._upstream)

    async def _send(
        self, post: Post, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        assert self._dispatcher is not None
        if self._has_ended.is_set():
            raise NotSent(self._reason)
        if self._is_stateless:
            meta = {**cast(JSON, params.get("_meta") or {}), **stateless_meta()}
            params = {**params, "_meta": meta}
        options: CallOptions = {
            "request_id": post.request_id,
            "headers": self._headers(method, params),
            "cancel_on_abandon": False,  # _abandon does it, without making the caller wait
        }
        telling = None if report is None else _Telling(report)
        if telling is not None:
            options["on_progress"] = telling
        outer = current_post.set(post)
        try:
            result = await self._dispatcher.send_raw_request(method, params, options)
        except asyncio.CancelledError:
            self._abandon(post)
            raise
        finally:
            current_post.reset(outer)
        if telling is not None:
            await telling.done()
        return result

    def _headers(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        if self._is_stateless or method == "server/discover":
            return self._stateless.of(method, params)
        return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}

    def _abandon(self, post: Post) -> None:
        """Closes the exchange, which is how the stateless era cancels; the other wants a word."""
        if self._has_ended.is_set():
            return  # all of them are being closed
        post.give_up()
        if self._greeting is not None and not self._greeting.is_stateless and post.is_sent:
            assert self._tasks is not None
            assert self._dispatcher is not None
            said = {"requestId": post.request_id, "reason": "not needed"}
            self._tasks.start_soon(self._dispatcher.notify, "notifications/cancelled", said)

    async def _failure(self, post: Post, error: MCPError) -> Exception:
        """What the caller is told: the server's own words, or why there are none."""
        fault = post.fault
        if fault is None:
            if self._has_ended.is_set():
                return LinkEnded(self._reason)
            return UpstreamError(
                _own_words(error), upstream=self._upstream, upstream_code=error.code
            )
        if fault.kind in (Kind.UNREACHED, Kind.EXPIRED):
            self.end(fault.reason)
            return NotSent(fault.reason)
        if fault.kind is Kind.BROKEN and await self._is_gone():
            return LinkEnded(fault.reason)
        return self._unavailable(fault)

    async def _is_gone(self) -> bool:
        """Whether it was the server that broke, or this one exchange."""
        try:
            async with asyncio.timeout(CONFIRMATION):
                await self.probe()
        except LinkEnded:
            return True
        except TimeoutError:
            return False  # the next call will see
        return False

    def _unavailable(self, fault: Fault) -> UpstreamUnavailable:
        facts = {} if fault.status is None else {"status": fault.status}
        return UpstreamUnavailable(self._upstream, f"{fault.reason}.", hint=fault.hint, **facts)

    async def _has_learned(self, method: str, error: MCPError) -> bool:
        """Lists the tools where a call lacked headers that only a listing tells of."""
        if error.code != HEADER_MISMATCH or method != "tools/call" or not self._is_stateless:
            return False
        params: JSON = {}
        for _ in range(MOST_PAGES):
            page = await self.request("tools/list", params)
            if not isinstance(cursor := page.get("nextCursor"), str):
                return True
            params = {"cursor": cursor}
        return False

    async def _greeted(self) -> Greeting:
        """Asks in the way that needs no session first."""
        try:
            async with asyncio.timeout(DISCOVERY):
                found = await self._ask("server/discover", {"_meta": stateless_meta()})
        except UpstreamUnavailable as error:
            if error.facts.get("status") in (None, UNAUTHORIZED, FORBIDDEN):
                raise
        except (UpstreamError, TimeoutError):
            pass  # a server of the older era does not know the question
        else:
            offered = found.get("supportedVersions")
            if isinstance(offered, list) and STATELESS_VERSION in cast(list[Any], offered):
                return Greeting(is_stateless=True, tells_of_changes=tells(found))
        # The word that ends a handshake is sent in `begin`: what follows must not overtake it.
        return await greet(self._upstream, self._ask, lambda _method, _params: None)

    async def _ask(self, method: str, params: JSON) -> JSON:
        """A request of the greeting: nothing that it meets is the end of a connection yet."""
        post = Post(next(self._ids))
        try:
            result = await self._send(post, method, params)
        except NotSent as gone:
            raise UpstreamUnavailable(self._upstream, f"{gone}.") from None
        except MCPError as error:
            if post.fault is not None:
                raise self._unavailable(post.fault) from None
            raise UpstreamError(_own_words(error), upstream=self._upstream) from None
        if method == "initialize":
            self._version = str(result.get("protocolVersion", ""))
        return result

    async def _listen(self) -> None:
        """Hears of changed tools in the stateless era, as long as the server lets us."""
        wanted: JSON = {"notifications": {"toolsListChanged": True}}
        for pause in chain(LISTEN_PAUSES, repeat(LISTEN_PAUSES[-1])):
            try:
                await self.request("subscriptions/listen", wanted)
            except UpstreamUnavailable as error:
                log.debug("%s does not tell of changes: %s", self._upstream, error.message)
            except (UpstreamError, LinkEnded):
                return
            await asyncio.sleep(pause)
            self._tell()  # whatever changed meanwhile was not heard

    async def _run(
        self,
        dispatcher: JSONRPCDispatcher[TransportContext],
        *,
        task_status: anyio.abc.TaskStatus[None],
    ) -> None:
        try:
            await dispatcher.run(_answer, self._on_notice, task_status=task_status)
        finally:
            self.end("lost its connection")

    async def _on_notice(
        self, _: DispatchContext[TransportContext], method: str, _params: Mapping[str, Any] | None
    ) -> None:
        if method == "notifications/tools/list_changed":
            self._tell()


class _Telling:
    """Progress, one after the other: the SDK starts a task for each."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._turn = asyncio.Lock()

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        async with self._turn:
            await self._report(progress, total, message)

    async def done(self) -> None:
        """Waits for those that came before the answer."""
        async with self._turn:
            return


async def _answer(
    _: DispatchContext[TransportContext], method: str, _params: Mapping[str, Any] | None
) -> JSON:
    """What a server gets that asks us something."""
    if method == "ping":
        return {}
    raise MCPError(code=METHOD_NOT_FOUND, message=f"Method not found: {method}")


def _check(method: str, params: Mapping[str, Any]) -> None:
    """Makes the message once, as the SDK will: there a failure would end the connection, and a NaN
    would become a null."""
    try:
        json.dumps(dict(params), ensure_ascii=False, allow_nan=False).encode()
        message = JSONRPCRequest(jsonrpc="2.0", id=0, method=method, params=dict(params))
        message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(
            "The arguments cannot be sent: they hold NaN, Infinity or half a character, or are "
            "nested too deeply."
        ) from error


def _own_words(error: MCPError) -> str:
    """The server's, unless the SDK speaks: its words would quote what came."""
    if error.message.startswith("Failed to parse"):
        return "The answer is no message of JSON-RPC."
    if error.message.startswith("SSE stream failed"):
        return f"The answer has more than {MESSAGE_LIMIT:,} bytes."
    return error.message or f"error {error.code}"
