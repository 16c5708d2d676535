"""One client while it is connected: what it sees, its notifications, and the end of a server."""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Collection, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from everkept.core.sessions import Account, Session
from everkept.errors import (
    EverkeptError,
    ModelUnavailable,
    QueryTimeout,
    Refused,
    StorageFull,
    StoreBusy,
    StoreTooNew,
    StoreUnreachable,
    Unavailable,
)
from everkept.tools.tool import Tool
from everkept.values import Value, field

if TYPE_CHECKING:
    from everkept.app.prompts import Prompt
    from everkept.app.resources import ResourceInfo
    from everkept.core.client_roots import ClientRoots

JSON = dict[str, Any]
NotifyClient = Callable[[str, JSON], Awaitable[None]]
EndSubscription = Callable[[], None]
FollowTools = Callable[[Callable[[], None]], Callable[[], None]]

TOOLS_CHANGED = "notifications/tools/list_changed"
RESOURCES_CHANGED = "notifications/resources/list_changed"
MAX_SUBSCRIPTIONS = 100  # of one connection, and of one stream


class ServerNotification(NamedTuple):
    method: str
    params: JSON


class NotificationQueue:
    """Pending notifications: each thing once, however often it changed.

    Adding never waits, so a client that does not read delays only itself.
    """

    def __init__(self) -> None:
        self._changed: dict[str, ServerNotification] = {}
        self._news = asyncio.Event()
        self._is_ended = False

    async def add_resource(self, uri: str) -> None:
        """Note that a resource has changed."""
        self._add(uri, ServerNotification("notifications/resources/updated", {"uri": uri}))

    def add_tools(self) -> None:
        """Note that the list of tools has changed."""
        self._add(TOOLS_CHANGED, ServerNotification(TOOLS_CHANGED, {}))

    async def add_resource_list(self, _uri: str = "") -> None:
        """The list of resources has changed."""
        self._add(RESOURCES_CHANGED, ServerNotification(RESOURCES_CHANGED, {}))

    def end(self) -> None:
        self._is_ended = True
        self._news.set()

    async def wait_next(self) -> ServerNotification | None:
        """Return the oldest one, or None after the end."""
        await self._news.wait()
        if not self._changed:
            return None
        notice = self._changed.pop(next(iter(self._changed)))
        if not self._changed and not self._is_ended:
            self._news.clear()
        return notice

    def _add(self, key: str, notice: ServerNotification) -> None:
        self._changed[key] = notice
        self._news.set()


class CallSequence:
    """Order of the calls of one client.

    A call that writes waits for all earlier calls, a call that reads for the earlier writes. So each call sees what was
    sent before it, and reads still run side by side.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Future[None], bool] = {}

    @property
    def is_idle(self) -> bool:
        return not self._running

    def reserve(self, *, writes: bool) -> "CallSlot":
        return CallSlot(self._running, writes)


class CallSlot:
    """Turn of one call. Entering it waits for the earlier calls."""

    __slots__ = ("_done", "_running", "_writes")

    def __init__(self, running: dict[asyncio.Future[None], bool], writes: bool) -> None:
        self._running = running
        self._writes = writes
        self._done = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        writes = self._writes
        earlier = [done for done, wrote in self._running.items() if wrote or writes]
        self._running[self._done] = writes
        if earlier:
            try:
                await asyncio.wait(earlier)
            except BaseException:
                self._end()
                raise

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        del self._running[self._done]
        self._done.set_result(None)


class ClientConnection(Value, frozen=False):
    """Session and subscriptions of a client."""

    session: Session
    subscriptions: dict[str, EndSubscription] = field(default_factory=dict[str, EndSubscription])
    notices: NotificationQueue = field(default_factory=NotificationQueue)
    turns: CallSequence = field(default_factory=CallSequence)
    offers_roots: bool = False
    draws_views: bool = False  # in a chat
    roots: "ClientRoots | None" = None  # of a client that was asked
    _teller: asyncio.Task[None] | None = None
    _leave_tools: Callable[[], None] | None = None
    _leave_resources: EndSubscription | None = None

    async def subscribe(self, uri: str, begin: Callable[[], Awaitable[EndSubscription]]) -> None:
        """Subscribe, unless the client already has. Two spellings of one address are equal."""
        key = _normalize_uri(uri)
        if key in self.subscriptions:
            return
        self._check_limit()
        end = await begin()
        # Another request may have subscribed in the meantime.
        if key in self.subscriptions:
            end()
            return
        try:
            self._check_limit()
        except Refused:
            end()
            raise
        self.subscriptions[key] = end

    def unsubscribe(self, uri: str) -> None:
        end = self.subscriptions.pop(_normalize_uri(uri), None)
        if end is not None:
            end()

    def start_notifying(self, announce: NotifyClient) -> None:
        """Start to send notifications, unless that has begun."""
        if self._teller is None:
            self._teller = asyncio.create_task(self._send_notifications(announce), name="notices")

    def follow_tools(self, follow: FollowTools, announce: NotifyClient) -> None:
        """Notify the client when the list of tools changes."""
        if self._leave_tools is None:
            self._leave_tools = follow(self.notices.add_tools)
            self.start_notifying(announce)

    def follow_resources(self, follow: Callable[[], EndSubscription], announce: NotifyClient) -> None:
        """Notify the client when the list of resources changes."""
        if self._leave_resources is None:
            self._leave_resources = follow()
            self.start_notifying(announce)

    async def settle_roots(self) -> None:
        """Wait for the client's folders, if it was asked."""
        if self.roots is not None:
            await self.roots.settle()

    def close(self) -> None:
        for leave in (self._leave_tools, self._leave_resources):
            if leave is not None:
                leave()
        for end in self.subscriptions.values():
            end()
        self.subscriptions.clear()
        self.notices.end()
        if self._teller is not None:
            self._teller.cancel()

    def _check_limit(self) -> None:
        if len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            raise Refused(
                f"A connection can have at most {MAX_SUBSCRIPTIONS} subscriptions.",
                hint="Call resources/unsubscribe for one first.",
            )

    async def _send_notifications(self, announce: NotifyClient) -> None:
        while (notice := await self.notices.wait_next()) is not None:
            await announce(notice.method, notice.params)


def deduplicate_uris(uris: Sequence[object]) -> list[str]:
    """Return the distinct addresses, each in its first spelling."""
    first: dict[str, str] = {}
    for uri in uris:
        if isinstance(uri, str):
            first.setdefault(_normalize_uri(uri), uri)
    return list(first.values())


def _normalize_uri(uri: str) -> str:
    """Return the same text for every percent encoding of an address."""
    return quote(unquote(uri), safe=":/", errors="surrogatepass")


def install_signal_handlers(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    """Call `stop` at SIGTERM and SIGINT until the process ends."""
    for name in ("SIGTERM", "SIGINT"):
        number = getattr(signal, name)
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:
            # The event loop of Windows has no signals, but the interpreter has.
            def handle(_number: int, _frame: FrameType | None) -> None:
                loop.call_soon_threadsafe(stop)

            signal.signal(number, handle)


def describe_tool(tool: Tool, *, is_whole: bool = False, views: Collection[str] = ()) -> JSON:
    """Return a tool as tools/list shows it; with `is_whole`, also the rare parameters and all bounds.

    `views` holds the names of the pages that the client can draw.
    """
    if tool.listing is not None:
        return tool.listing
    from everkept.tools.tool_list import shorten_input_schema, shorten_output_schema  # calls do not need it

    listed: JSON = {
        "name": tool.name,
        "description": tool.description,
        "inputSchema": tool.input_schema if is_whole else shorten_input_schema(tool.parameters),
        "annotations": tool.annotations,
    }
    if tool.output_schema is not None:
        listed["outputSchema"] = shorten_output_schema(tool.output_schema)
    if tool.view is not None and tool.view in views:
        from everkept.views.pages import build_view_meta

        listed["_meta"] = build_view_meta(tool.view)
    return listed


def describe_prompt(prompt: "Prompt") -> JSON:
    """Return a prompt as prompts/list shows it."""
    arguments = [{"name": each.name, "description": each.description, "required": True} for each in prompt.arguments]
    listed: JSON = {"name": prompt.name, "title": prompt.title, "description": prompt.description}
    return listed | {"arguments": arguments} if arguments else listed


def describe_resource(info: "ResourceInfo", key: str) -> JSON:
    """Return a resource or template; `key` names the field of its address."""
    return {key: info.uri, "name": info.name, "description": info.description, "mimeType": info.mime_type}


LOG_HINT = "Ask the owner of the server, whose log has the reason."
PUBLIC_MESSAGES = {
    StoreBusy.code: "The memory is busy.",
    StoreUnreachable.code: "The memory is unreachable.",
    QueryTimeout.code: "The memory took too long to answer.",
    StorageFull.code: "The server has no disk space left.",
    StoreTooNew.code: "This server is too old for its database.",
    ModelUnavailable.code: "Search by meaning does not work at the moment.",
}
DEFAULT_MESSAGE = "The server cannot do this at the moment."

log = logging.getLogger(__name__)


def redact_for_account(account: Account | None, error: EverkeptError) -> EverkeptError:
    """Return the error for the caller. The owner sees all of it.

    Only errors of outside systems contain names of machines, addresses and paths. The code and `retry_possible` stay.
    """
    if account is None or not isinstance(error, Unavailable):
        return error
    log.warning("a call of %s failed: %s", account.name, error)
    return redact_error(error)


def redact_error(error: EverkeptError) -> EverkeptError:
    """Return the error without any location of the server's data."""
    told = Unavailable(PUBLIC_MESSAGES.get(error.code, DEFAULT_MESSAGE), hint=LOG_HINT)
    told.code, told.degraded = error.code, error.degraded
    told.retry_possible = error.retry_possible
    return told
