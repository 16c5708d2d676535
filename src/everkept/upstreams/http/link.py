"""A connection over Streamable HTTP: the SDK's transport, and what we make of its answers."""

import asyncio
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
from mcp.types import HEADER_MISMATCH, METHOD_NOT_FOUND

from everkept.core.protocol import MESSAGE_LIMIT, STATELESS_VERSION
from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, Reach
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.greeting import Greeting, greet, stateless_meta, tells
from everkept.upstreams.http.faults import (
    BAD_REQUEST,
    FAILED,
    FORBIDDEN,
    SILENT,
    UNAUTHORIZED,
    Fault,
    Kind,
)
from everkept.upstreams.http.headers import StatelessHeaders
from everkept.upstreams.http.places import Target
from everkept.upstreams.http.posts import Post, current_post
from everkept.upstreams.http.wire import Wire
from everkept.upstreams.links import NOT_KNOWN, Link, LinkEnded, NotSent
from everkept.upstreams.messages import written
from everkept.upstreams.results import answered, result_of

DISCOVERY = 10.0  # seconds; a server of the older era may leave the question without an answer
CONFIRMATION = 5.0  # seconds to find out whether a server is still there
MOMENT = 1.0  # seconds for other calls to find out what one has found out
LISTEN_PAUSES = (1.0, 5.0, 30.0)  # seconds before listening anew; the last one again and again
CALL, LISTEN = "tools/call", "subscriptions/listen"
ANSWERED = (Kind.REFUSED, Kind.UNCLEAR, Kind.UNREADABLE)
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
                link.end("was closed by Everkept")
                tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        # While it is being left, tasks of the SDK find their streams closed, and that is all.
        _, unexpected = group.split((anyio.ClosedResourceError, anyio.BrokenResourceError))
        if unexpected is not None:
            log.exception("%s: the connection failed", reach.label)
            raise UpstreamUnavailable(reach.label, "lost its connection.") from stopped
    if stopped is not None:
        raise stopped


class HttpLink:
    """A links.Link. The SDK knows the wire, and sees neither what is asked nor what is answered:
    its models would drop and refuse what they do not know."""

    def __init__(self, target: Target, on_tools_changed: Callable[[], None]) -> None:
        self.wire = Wire(target, self._watch)
        self._upstream = target.upstream
        self._tell = on_tools_changed
        self._dispatcher: JSONRPCDispatcher[TransportContext] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._ids = count(1)
        self._greeting: Greeting | None = None
        self._version = ""  # of the handshake era
        self._stateless = StatelessHeaders(target.upstream)
        self._waiting: set[Post] = set()  # calls, and nothing that we ask for ourselves
        self._confirming = asyncio.Lock()
        self._absent: Fault | None = None  # why the server cannot say anything by itself
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
        post = self._post(method, params, report)
        try:
            return await self._request(post, report)
        except UpstreamError as error:
            # With this status the server refused it unread.
            if post.status != BAD_REQUEST or not await self._has_learned(method, error):
                raise
        return await self._request(self._post(method, params, report), report)

    async def probe(self) -> None:
        try:
            await self._send(self._post("server/discover" if self._is_stateless else "ping", {}))
        except UpstreamError:
            return  # that is an answer too
        except _NoAnswerError as failed:
            fault = failed.fault
            is_answer = fault.kind in ANSWERED and (fault.status or 0) < FAILED
            if self._has_ended.is_set() or not is_answer:
                self.end(fault.reason)
                raise LinkEnded(self._reason) from None

    @property
    def _is_stateless(self) -> bool:
        return self._greeting is not None and self._greeting.is_stateless

    async def _request(self, post: Post, report: Report | None) -> JSON:
        if post.method != LISTEN:
            self._waiting.add(post)
        try:
            result = await self._send(post, report)
        except _NoAnswerError as failed:
            post.settled.set()
            raise await self._failure(post, failed.fault) from None
        finally:
            post.settled.set()
            self._waiting.discard(post)
            self._leave_if_absent()
        return self._passed_on(post.method, result)

    def _passed_on(self, method: str, result: JSON) -> JSON:
        if not self._is_stateless:
            return result
        listing = method == "tools/list"
        return answered(self._stateless.learn(result) if listing else result, self._upstream)

    def _post(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> Post:
        """Raises InvalidInput for what cannot be sent."""
        request_id = next(self._ids)
        meta: JSON = {**cast(JSON, params.get("_meta") or {})}
        if self._is_stateless:
            meta |= stateless_meta()
        if report is not None:
            meta["progressToken"] = request_id
        if meta:
            params = {**params, "_meta": meta}
        body = written({"id": request_id, "method": method, "params": params})
        return Post(request_id, method, self._headers(method, params), body)

    async def _send(self, post: Post, report: Report | None = None) -> JSON:
        """The result; _NoAnswerError where none came, of whatever kind."""
        assert self._dispatcher is not None
        if self._has_ended.is_set():
            raise NotSent(self._reason)
        options: CallOptions = {
            "request_id": post.request_id,
            "headers": post.headers,
            "cancel_on_abandon": False,  # _abandon does it, without making the caller wait
        }
        telling = None if report is None else _Telling(report)
        if telling is not None:
            options["on_progress"] = telling
        outer = current_post.set(post)
        try:
            await self._dispatcher.send_raw_request(post.method, None, options)
        except MCPError:
            pass  # its words are the SDK's: what happened is in the post
        except asyncio.CancelledError:
            self._abandon(post)
            raise
        finally:
            current_post.reset(outer)
        if telling is not None:
            await telling.done()
        if post.answer is not None:
            return result_of(post.answer, self._upstream)
        raise self._no_answer(post)

    def _no_answer(self, post: Post) -> Exception:
        if post.fault is None and self._has_ended.is_set():
            return (LinkEnded if post.is_sent else NotSent)(self._reason)
        return _NoAnswerError(post.fault or SILENT)

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

    async def _failure(self, post: Post, fault: Fault) -> Exception:
        """What the caller is told. One that meets with a server that is gone ends the connection
        only where no other waits for an answer: that may be on its way."""
        if fault.kind in ANSWERED:
            return self._told(fault, post.method)
        is_alone = await self._is_left_alone(post)
        match fault.kind:
            case Kind.UNREACHED if is_alone:
                self.end(fault.reason)
                return NotSent(fault.reason)
            case Kind.EXPIRED if is_alone or await self._is_gone():
                self.end(fault.reason)
                return NotSent(fault.reason)
            case Kind.BROKEN if is_alone and await self._is_gone():
                return LinkEnded(fault.reason)
            case _:
                return self._told(fault, post.method)

    async def _is_left_alone(self, post: Post) -> bool:
        """Whether no other call waits, or they all wait for nothing as this one did."""
        try:
            async with asyncio.timeout(MOMENT):
                while others := [
                    other for other in self._waiting - {post} if not other.settled.is_set()
                ]:
                    await others[0].settled.wait()
        except TimeoutError:
            return self._has_ended.is_set()
        return True

    async def _is_gone(self) -> bool:
        """Whether it was the server that broke, or this one exchange."""
        try:
            async with asyncio.timeout(CONFIRMATION), self._confirming:
                await self.probe()
        except LinkEnded:
            return True
        except TimeoutError:
            return False  # the next call will see
        return False

    def _watch(self, absent: Fault | None) -> None:
        self._absent = absent
        self._leave_if_absent()

    def _leave_if_absent(self) -> None:
        """Where nobody could say that the tools have changed, the connection is made anew; but
        not before the calls on it have their answers."""
        if self._absent is not None and not self._waiting:
            self.end(self._absent.reason)

    def _told(self, fault: Fault, method: str) -> UpstreamUnavailable | UpstreamError:
        if fault.kind is Kind.UNREADABLE:
            return UpstreamError(f"{self._upstream} {fault.reason}.", upstream=self._upstream)
        facts = {} if fault.status is None else {"status": fault.status}
        is_open = fault.is_open and method == CALL
        return UpstreamUnavailable(
            self._upstream,
            f"{fault.reason}.",
            hint=NOT_KNOWN if is_open else fault.hint,
            retry_possible=fault.may_pass and not is_open,
            **facts,
        )

    async def _has_learned(self, method: str, error: UpstreamError) -> bool:
        """Lists the tools where a call lacked headers that only a listing tells of."""
        is_headers = error.facts.get("upstream_code") == HEADER_MISMATCH
        if not (is_headers and method == CALL and self._is_stateless):
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
        try:
            result = await self._send(self._post(method, params))
        except LinkEnded as gone:
            raise UpstreamUnavailable(self._upstream, f"{gone}.") from None
        except _NoAnswerError as failed:
            raise self._told(failed.fault, method) from None
        if method == "initialize":
            self._version = str(result.get("protocolVersion", ""))
        return result

    async def _listen(self) -> None:
        """Hears of changed tools in the stateless era, as long as the server lets us."""
        wanted: JSON = {"notifications": {"toolsListChanged": True}}
        for pause in chain(LISTEN_PAUSES, repeat(LISTEN_PAUSES[-1])):
            try:
                await self._request(self._post(LISTEN, wanted), None)
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


class _NoAnswerError(Exception):
    """No answer came, or one that is none."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault
