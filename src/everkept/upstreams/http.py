"""A connection over Streamable HTTP, in the era that the server speaks."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from itertools import chain, count, repeat
from typing import Any, cast

from everkept.core.mcp import JSON, STATELESS_VERSION, UpstreamEndpoint, UpstreamSettings
from everkept.core.sessions import Report
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.http_target import HttpTarget, StatelessHeaders, build_target
from everkept.upstreams.http_wire import (
    BAD_REQUEST,
    FORBIDDEN,
    SERVER_ERROR,
    UNAUTHORIZED,
    FaultKind,
    HttpFault,
    HttpWire,
    NoAnswer,
    PostCall,
)
from everkept.upstreams.link import (
    EFFECT_UNKNOWN_HINT,
    LinkEnded,
    NotSent,
    Rpc,
    ServerGreeting,
    UpstreamLink,
    build_stateless_meta,
    get_result,
    greet,
    has_tool_notifications,
    strip_stateless_fields,
)

DISCOVERY_SECONDS = 10.0  # a server of the older era may never answer
CONFIRMATION_SECONDS = 5.0  # to find out whether the server still exists
OTHER_CALLS_SECONDS = 1.0  # for other calls to find out the same
LISTEN_PAUSE_SECONDS = (1.0, 5.0, 30.0)  # before listening again; the last one repeats
CALL_METHOD, LISTEN_METHOD = "tools/call", "subscriptions/listen"
ANSWERED_KINDS = (FaultKind.REFUSED, FaultKind.UNCLEAR, FaultKind.UNREADABLE)
HEADER_MISMATCH = -32020
MAX_TASKS = 1000  # besides the calls
MAX_PAGES = 100  # of tools/list, when it is read for its headers

log = logging.getLogger(__name__)


@asynccontextmanager
async def connect_http(
    reach: UpstreamSettings, environment: Mapping[str, str], on_tools_changed: Callable[[], None]
) -> AsyncGenerator[UpstreamLink, None]:
    """Implement link.Connect for HTTP. `environment` has variables for headers, proxies and SSL_CERT_FILE."""
    target = build_target(cast(UpstreamEndpoint, reach.way), environment, reach.label)
    link = HttpLink(target, reach.connect_timeout, on_tools_changed)
    try:
        await link.open()
        yield link
    finally:
        await link.close()


class HttpLink:
    """Link to a server over HTTP."""

    def __init__(self, target: HttpTarget, connect_seconds: float, on_tools_changed: Callable[[], None]) -> None:
        self._rpc = Rpc(on_tools_changed, self._reply)
        self._wire = HttpWire(target, connect_seconds, self._rpc.handle, self._watch, self._start)
        self._upstream = target.upstream
        self._tell = on_tools_changed
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = count(1)
        self._is_stateless = False  # until the greeting
        self._stateless = StatelessHeaders(target.upstream)
        self._open: set[PostCall] = set()
        self._waiting: set[PostCall] = set()  # calls of clients, without our own requests
        self._confirming = asyncio.Lock()
        self._absent: HttpFault | None = None  # why the server cannot send messages by itself
        self._reason = ""
        self._has_ended = asyncio.Event()

    async def open(self) -> None:
        """Greet the server. Raise UpstreamUnavailable if it does not answer properly."""
        greeting = await self._greet()
        self._is_stateless = greeting.is_stateless
        if not self._is_stateless:
            await self._wire.notify({"method": "notifications/initialized"})
            self._start(self._wire.listen())
        elif greeting.tells_of_changes:
            self._start(self._listen())

    async def close(self) -> None:
        """End every call, and the session if there is one."""
        self.end("was closed by Everkept")
        for post in self._open:
            post.scope.reschedule(0.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._wire.close()

    def end(self, reason: str) -> None:
        if not self._has_ended.is_set():
            self._reason = reason
            self._has_ended.set()

    async def wait_ended(self) -> str:
        await self._has_ended.wait()
        return self._reason

    async def request(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> JSON:
        post = self._build_post(method, params, report)
        try:
            return await self._request(post)
        except UpstreamError as error:
            # With this status the server refused the request without reading it.
            if post.status != BAD_REQUEST or not await self._learn_headers(method, error):
                raise
        return await self._request(self._build_post(method, params, report))

    async def probe(self) -> None:
        try:
            await self._send(self._build_post("server/discover" if self._is_stateless else "ping", {}))
        except UpstreamError:
            return  # an error is an answer too
        except NoAnswer as failed:
            fault = failed.fault
            is_answer = fault.kind in ANSWERED_KINDS and (fault.status or 0) < SERVER_ERROR
            if self._has_ended.is_set() or not is_answer:
                self.end(fault.reason)
                raise LinkEnded(self._reason) from None

    async def _request(self, post: PostCall) -> JSON:
        if post.method != LISTEN_METHOD:
            self._waiting.add(post)
        try:
            result = await self._send(post)
        except NoAnswer as failed:
            raise await self._to_failure(post, failed.fault) from None
        finally:
            self._waiting.discard(post)
            self._leave_if_absent()
        if not self._is_stateless:
            return result
        listing = post.method == "tools/list"
        return strip_stateless_fields(self._stateless.learn(result) if listing else result, self._upstream)

    def _build_post(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> PostCall:
        """Build a call. Raise InvalidInput for values that cannot be sent."""
        headers: dict[str, str] = {}
        if self._is_stateless:
            params = {**params, "_meta": {**(params.get("_meta") or {}), **build_stateless_meta()}}
        if self._is_stateless or method == "server/discover":
            headers = self._stateless.build_headers(method, params)
        return PostCall(next(self._ids), method, params, headers, report)

    async def _send(self, post: PostCall) -> JSON:
        """Return the result. Raise NoAnswer if there is none."""
        if self._has_ended.is_set():
            raise NotSent(self._reason)
        self._open.add(post)
        try:
            async with post.scope:
                answer = await self._exchange(post)
        except TimeoutError:
            raise (LinkEnded if post.is_sent else NotSent)(self._reason) from None
        except asyncio.CancelledError:
            self._abandon(post)
            raise
        finally:
            post.settled.set()
            self._open.discard(post)
        return get_result(answer, self._upstream)

    async def _exchange(self, post: PostCall) -> JSON:
        if post.report is None:
            return await self._wire.exchange(post)
        self._rpc.calls[post.id] = post
        post.answer = asyncio.create_task(self._wire.exchange(post))
        post.answer.add_done_callback(post.wake)
        try:
            return await post.wait_answer()
        finally:
            del self._rpc.calls[post.id]
            post.answer.cancel()

    def _abandon(self, post: PostCall) -> None:
        """Cancel the call at the server. In the stateless era, closing the exchange is enough."""
        if post.is_sent and self._wire.version:
            said = {"requestId": post.id, "reason": "not needed"}
            self._start(self._wire.notify({"method": "notifications/cancelled", "params": said}))

    def _reply(self, message: JSON) -> None:
        # A server that keeps asking but reads slowly gets no more answers.
        if len(self._tasks) < MAX_TASKS:
            self._start(self._wire.notify(message))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work besides the calls while the connection is open."""
        if self._has_ended.is_set():
            work.close()
            return
        task = asyncio.create_task(work, name=f"beside the calls of {self._upstream}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _to_failure(self, post: PostCall, fault: HttpFault) -> Exception:
        """Return the error for the caller.

        If the server is gone, end the connection, but not while another call waits: its answer may be on the way.
        """
        if fault.kind in ANSWERED_KINDS:
            return self._to_upstream_error(fault, post.method)
        is_alone = await self._is_left_alone(post)
        match fault.kind:
            case FaultKind.UNREACHED if is_alone:
                self.end(fault.reason)
                return NotSent(fault.reason)
            case FaultKind.EXPIRED if is_alone or await self._is_gone():
                self.end(fault.reason)
                return NotSent(fault.reason)
            case FaultKind.BROKEN if is_alone and await self._is_gone():
                return LinkEnded(fault.reason)
            case _:
                return self._to_upstream_error(fault, post.method)

    async def _is_left_alone(self, post: PostCall) -> bool:
        """Return whether no other call waits, or all others end within a moment."""
        try:
            async with asyncio.timeout(OTHER_CALLS_SECONDS):
                while others := [other for other in self._waiting - {post} if not other.settled.is_set()]:
                    await others[0].settled.wait()
        except TimeoutError:
            return self._has_ended.is_set()
        return True

    async def _is_gone(self) -> bool:
        """Return whether the server is gone, and not just this exchange."""
        try:
            async with asyncio.timeout(CONFIRMATION_SECONDS), self._confirming:
                await self.probe()
        except LinkEnded:
            return True
        except TimeoutError:
            return False  # the next call finds out
        return False

    def _watch(self, absent: HttpFault | None) -> None:
        self._absent = absent
        self._leave_if_absent()

    def _leave_if_absent(self) -> None:
        """End a connection on which the server cannot report changed tools, after its pending calls."""
        if self._absent is not None and not self._waiting:
            self.end(self._absent.reason)

    def _to_upstream_error(self, fault: HttpFault, method: str) -> UpstreamUnavailable | UpstreamError:
        if fault.kind is FaultKind.UNREADABLE:
            return UpstreamError(f"{self._upstream} {fault.reason}.", upstream=self._upstream)
        facts = {} if fault.status is None else {"status": fault.status}
        is_open = fault.is_open and method == CALL_METHOD
        return UpstreamUnavailable(
            self._upstream,
            f"{fault.reason}.",
            hint=EFFECT_UNKNOWN_HINT if is_open else fault.hint,
            retry_possible=fault.may_pass and not is_open,
            **facts,
        )

    async def _learn_headers(self, method: str, error: UpstreamError) -> bool:
        """List the tools if a call lacked headers that only the list names. Return whether that was done."""
        is_headers = error.facts.get("upstream_code") == HEADER_MISMATCH
        if not (is_headers and method == CALL_METHOD and self._is_stateless):
            return False
        params: JSON = {}
        for _ in range(MAX_PAGES):
            page = await self.request("tools/list", params)
            if not isinstance(cursor := page.get("nextCursor"), str):
                return True
            params = {"cursor": cursor}
        return False

    async def _greet(self) -> ServerGreeting:
        """Greet the server, first in the way that needs no session."""
        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                found = await self._ask("server/discover", {"_meta": build_stateless_meta()})
        except UpstreamUnavailable as error:
            if error.facts.get("status") in (None, UNAUTHORIZED, FORBIDDEN):
                raise
        except (UpstreamError, TimeoutError):
            pass  # a server of the older era does not know the method
        else:
            offered = found.get("supportedVersions")
            if isinstance(offered, list) and STATELESS_VERSION in cast(list[Any], offered):
                return ServerGreeting(is_stateless=True, tells_of_changes=has_tool_notifications(found))
        # `open` sends the end of the handshake, because later messages must not overtake it.
        return await greet(self._upstream, self._ask, lambda _method, _params: None)

    async def _ask(self, method: str, params: JSON) -> JSON:
        """Send a request of the greeting. Its failure does not end the connection."""
        try:
            result = await self._send(self._build_post(method, params))
        except LinkEnded as gone:
            raise UpstreamUnavailable(self._upstream, f"{gone}.") from None
        except NoAnswer as failed:
            raise self._to_upstream_error(failed.fault, method) from None
        if method == "initialize":
            self._wire.version = str(result.get("protocolVersion", ""))
        return result

    async def _listen(self) -> None:
        """Subscribe to changes of the tools in the stateless era, as long as the server allows it."""
        wanted: JSON = {"notifications": {"toolsListChanged": True}}
        for pause in chain(LISTEN_PAUSE_SECONDS, repeat(LISTEN_PAUSE_SECONDS[-1])):
            try:
                await self._request(self._build_post(LISTEN_METHOD, wanted))
            except UpstreamUnavailable as error:
                log.debug("%s does not report changes: %s", self._upstream, error.message)
            except (UpstreamError, LinkEnded):
                return
            await asyncio.sleep(pause)
            self._tell()  # changes during the pause were missed
