"""A server that we start, and speak to on its standard input and output."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, Launch, Reach
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.greeting import Greeting, greet, stateless_meta
from everkept.upstreams.links import Link, LinkEnded
from everkept.upstreams.results import answered
from everkept.upstreams.stdio.children import Child, running
from everkept.upstreams.stdio.launching import program
from everkept.upstreams.stdio.remarks import Remarks
from everkept.upstreams.stdio.wire import Wire
from everkept.upstreams.variables import hiding

_TOOLS_CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def connect_stdio(
    reach: Reach, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AsyncGenerator[Link, None]:
    """A links.Connect for a Launch."""

    def notified(method: str, _: JSON) -> None:
        if method == _TOOLS_CHANGED:
            tools_changed()

    label = reach.label
    remarks = Remarks(label, hiding(reach, environment))
    child = Child(label, MESSAGE_LIMIT, remarks)
    wire = Wire(label, child, notified, remarks.stray)
    child.on_line = wire.on_line
    child.ended.add_done_callback(lambda ended: wire.end(ended.result()))
    async with running(child, program(label, cast(Launch, reach.way), environment)):
        try:
            greeting = await _greeted(wire, child)
            async with _listening(wire, greeting):
                yield _StdioLink(wire, child, greeting)
        finally:
            wire.end("was closed by Everkept")  # at once: the end of the program takes its time


class _StdioLink:
    def __init__(self, wire: Wire, child: Child, greeting: Greeting) -> None:
        self._wire = wire
        self._child = child
        self._is_stateless = greeting.is_stateless

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        if not self._is_stateless:
            return await self._wire.request(method, params, report)
        result = await self._wire.request(method, {**params, "_meta": stateless_meta()}, report)
        return answered(result, self._wire.upstream)

    async def probe(self) -> None:
        """A busy server may not come to answer; whatever it writes meanwhile is a sign of life."""
        self._child.stirred.clear()
        stirring = asyncio.create_task(self._child.stirred.wait())
        asking = asyncio.create_task(self._asked_anything())
        try:
            await asyncio.wait({stirring, asking}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await asking
        finally:
            stirring.cancel()
            asking.cancel()
            await asyncio.wait({stirring, asking})

    async def _asked_anything(self) -> None:
        method = "server/discover" if self._is_stateless else "ping"
        with suppress(UpstreamError):  # that is an answer too
            await self.request(method, {})

    async def ended(self) -> str:
        return await asyncio.shield(self._child.ended)


async def _greeted(wire: Wire, child: Child) -> Greeting:
    try:
        return await greet(wire.upstream, wire.request, wire.notify)
    except LinkEnded as ended:
        raise UpstreamUnavailable(
            wire.upstream, f"{ended}.", hint="It must speak MCP on its standard output."
        ) from ended
    except asyncio.CancelledError as given_up:
        if said := child.last_words:
            given_up.add_note(said)
        raise


@asynccontextmanager
async def _listening(wire: Wire, greeting: Greeting) -> AsyncGenerator[None, None]:
    """Where nothing is told unasked, asks to be told when the tools change."""
    if not (greeting.is_stateless and greeting.tells_of_changes):
        yield
        return
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": stateless_meta()}

    async def listen() -> None:
        with suppress(UpstreamError, LinkEnded):  # it works without
            await wire.request("subscriptions/listen", wanted)

    task = asyncio.create_task(listen(), name=f"changes of the tools of {wire.upstream}")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
