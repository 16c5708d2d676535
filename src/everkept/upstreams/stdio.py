"""A server that we start, and speak to in lines on its standard input and output."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, Protocol, cast

from everkept.core.lines import Overlong, id_in
from everkept.core.protocol import MESSAGE_LIMIT
from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, Launch, Reach
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.child import Child, Remarks, running
from everkept.upstreams.link import (
    Greeting,
    Link,
    LinkEnded,
    NotSent,
    greet,
    hiding,
    stateless_meta,
)
from everkept.upstreams.program import program
from everkept.upstreams.rpc import Call, Rpc, Unreadable, answered, number, read, result_of, written


class Pipe(Protocol):
    """Where lines go."""

    def write(self, line: bytes) -> None: ...

    async def drained(self) -> None:
        """Waits until the other side has read most of it."""
        ...

    @property
    def deafness(self) -> str | None:
        """Why the other side will not read what is written now; None where it may."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether far too much waits there."""
        ...


class Wire:
    """What is sent, and what comes back; `notified` is told what the server says by itself, and
    `strayed` of the lines that are no messages."""

    def __init__(
        self,
        upstream: str,
        pipe: Pipe,
        notified: Callable[[str, JSON], None],
        strayed: Callable[[bytes], None],
    ) -> None:
        self.upstream = upstream
        self._pipe = pipe
        self._strayed = strayed
        self._ids = count(1)
        self._rpc = Rpc(notified, self._reply)
        self._calls = self._rpc.calls
        self._end: str | None = None

    async def request(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        """The result as it came; progress is asked for where there is someone to tell."""
        self._check_open()
        call = Call(next(self._ids), method, params, report)
        await self._pipe.drained()
        self._check_open()
        call.answer = asyncio.get_running_loop().create_future()
        self._calls[call.id] = call
        self._pipe.write(call.body + b"\n")
        try:
            self._check_open()  # the program may have gone unnoticed
            return await call.answered()
        finally:
            del self._calls[call.id]
            if not call.answer.done() or call.answer.cancelled():
                given_up = {"requestId": call.id, "reason": "The client does not wait."}
                self.notify("notifications/cancelled", given_up)
            call.answer.cancel()

    def notify(self, method: str, params: JSON) -> None:
        if self._end is None:
            self._pipe.write(_line({"method": method, "params": params}))

    def end(self, reason: str) -> None:
        """Every request that waits, and every later one, is told that no answer will come."""
        if self._end is None:
            self._end = reason
            for call in self._calls.values():
                _settle(call, LinkEnded(reason))

    def on_line(self, line: bytes | Overlong) -> None:
        if isinstance(line, Overlong):
            self._on_overlong(line)
        elif stripped := line.strip():
            try:
                message = read(stripped)
            except Unreadable as error:
                self._on_unreadable(stripped, str(error))
                return
            # Batches existed in one revision of the protocol.
            members = cast(list[Any], message) if isinstance(message, list) else [message]
            for member in members:
                if not isinstance(member, dict) or not self._on_message(cast(JSON, member)):
                    self._strayed(stripped)

    def _on_message(self, message: JSON) -> bool:
        """Whether it was a message at all."""
        if self._rpc.handle(message):
            return True
        answered = number(message.get("id"))
        if message.get("method") is not None or answered is None:
            return False
        # An answer that no call waits for came too late.
        if call := self._calls.get(answered):
            try:
                _settle(call, result_of(message, self.upstream))
            except UpstreamError as error:
                _settle(call, error)
        return True

    def _reply(self, message: JSON) -> None:
        # A server that asks and asks, and never reads, gets no more answers.
        if self._end is None and not self._pipe.is_full:
            self._pipe.write(_line(message))

    def _fault(self, text: str) -> UpstreamError:
        return UpstreamError(text, upstream=self.upstream)

    def _on_overlong(self, line: Overlong) -> None:
        owner = self._owner(line.head, line.tail)
        if owner is None and len(self._calls) == 1:
            [owner] = self._calls.values()
        if owner is None:
            self._strayed(line.head)
        else:
            limit = f"{MESSAGE_LIMIT:,}"
            _settle(owner, self._fault(f"The answer has more than {limit} bytes."))

    def _on_unreadable(self, line: bytes, reason: str) -> None:
        if owner := self._owner(line, line):
            _settle(owner, self._fault(f"{self.upstream} gave an answer that is no JSON: {reason}"))
        else:
            self._strayed(line)

    def _owner(self, head: bytes, tail: bytes) -> Call | None:
        found = id_in(head, tail)
        return self._calls.get(found) if isinstance(found, int) else None

    def _check_open(self) -> None:
        if reason := self._end or self._pipe.deafness:
            raise NotSent(reason)


def _settle(call: Call, answer: JSON | Exception) -> None:
    if call.answer is None or call.answer.done():
        return
    if isinstance(answer, Exception):
        call.answer.set_exception(answer)
    else:
        call.answer.set_result(answer)
    call.on_answer(call.answer)


def _line(message: JSON) -> bytes:
    return written(message) + b"\n"


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
