"""A server that Everkept starts and speaks to in lines on its standard input and output."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any, cast

from everkept.core.mcp import JSON, MAX_MESSAGE_BYTES, OverlongLine, UpstreamProgram, UpstreamSettings, find_id
from everkept.core.sessions import Report
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.child import ChildProgram, StderrLog, resolve_program, run_program
from everkept.upstreams.link import (
    LinkEnded,
    NotSent,
    Rpc,
    UnreadableJson,
    UpstreamCall,
    UpstreamLink,
    build_mask,
    build_stateless_meta,
    encode_message,
    get_result,
    greet,
    parse_id,
    parse_message,
    strip_stateless_fields,
)


@asynccontextmanager
async def connect_stdio(
    reach: UpstreamSettings, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AsyncGenerator[UpstreamLink, None]:
    """Implement link.Connect for a program."""
    label = reach.label
    program = cast(UpstreamProgram, reach.way)
    remarks = StderrLog(label, build_mask(reach, environment), program.args)
    child = ChildProgram(label, MAX_MESSAGE_BYTES, remarks)
    link = StdioLink(label, child, tools_changed, remarks.add_stray_line)
    child.on_line = link.handle_line
    child.ended.add_done_callback(lambda ended: link.end(ended.result()))
    async with run_program(child, resolve_program(label, program, environment)):
        try:
            await link.open()
            yield link
        finally:
            await link.close()  # first, because the end of the program takes a while


class StdioLink:
    """Link to a program. `strayed` gets the lines that are not messages."""

    def __init__(
        self, upstream: str, child: ChildProgram, tools_changed: Callable[[], None], strayed: Callable[[bytes], None]
    ) -> None:
        self.upstream = upstream
        self._child = child
        self._strayed = strayed
        self._ids = count(1)
        self._rpc = Rpc(tools_changed, self._reply)
        self._calls = self._rpc.calls
        self._is_stateless = False  # until the greeting
        self._listening: asyncio.Task[None] | None = None
        self._end: str | None = None

    async def open(self) -> None:
        """Greet the server. In the stateless era, subscribe to changes of its tools."""
        try:
            greeting = await greet(self.upstream, self.request, self.notify)
        except LinkEnded as ended:
            hint = "The program must speak MCP on its standard output."
            raise UpstreamUnavailable(self.upstream, f"{ended}.", hint=hint) from ended
        except asyncio.CancelledError as canceled:
            if said := self._child.last_output:
                canceled.add_note(said)
            raise
        self._is_stateless = greeting.is_stateless
        if greeting.is_stateless and greeting.tells_of_changes:
            name = f"changes of the tools of {self.upstream}"
            self._listening = asyncio.create_task(self._listen(), name=name)

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait({self._listening})
        self.end("was closed by Everkept")

    async def request(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> JSON:
        is_stateless = self._is_stateless
        if is_stateless:
            params = {**params, "_meta": build_stateless_meta()}
        self._check_open()
        call = UpstreamCall(next(self._ids), method, params, report)
        await self._child.wait_drained()
        self._check_open()
        call.answer = asyncio.get_running_loop().create_future()
        self._calls[call.id] = call
        self._child.write(call.body + b"\n")
        try:
            self._check_open()  # the program may have ended unnoticed
            result = await call.wait_answer()
            return strip_stateless_fields(result, self.upstream) if is_stateless else result
        finally:
            del self._calls[call.id]
            if not call.answer.done() or call.answer.cancelled():
                canceled = {"requestId": call.id, "reason": "The client no longer waits."}
                self.notify("notifications/cancelled", canceled)
            call.answer.cancel()

    async def probe(self) -> None:
        """Wait for an answer or any other output: a busy server may be slow to answer."""
        self._child.stirred.clear()
        stirring = asyncio.create_task(self._child.stirred.wait())
        asking = asyncio.create_task(self._ping())
        try:
            await asyncio.wait({stirring, asking}, return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                await asking
        finally:
            stirring.cancel()
            asking.cancel()
            await asyncio.wait({stirring, asking})

    async def wait_ended(self) -> str:
        return await asyncio.shield(self._child.ended)

    def notify(self, method: str, params: JSON) -> None:
        if self._end is None:
            self._child.write(_encode_line({"method": method, "params": params}))

    def end(self, reason: str) -> None:
        """Fail every pending request, and every later one."""
        if self._end is None:
            self._end = reason
            for call in self._calls.values():
                _settle(call, LinkEnded(reason))

    def handle_line(self, line: bytes | OverlongLine) -> None:
        if isinstance(line, OverlongLine):
            self._handle_overlong(line)
        elif stripped := line.strip():
            try:
                message = parse_message(stripped)
            except UnreadableJson as error:
                self._handle_unreadable(stripped, str(error))
                return
            # One revision of the protocol had batches.
            members = cast(list[Any], message) if isinstance(message, list) else [message]
            for member in members:
                if not isinstance(member, dict) or not self._handle_message(cast(JSON, member)):
                    self._strayed(stripped)

    def _handle_message(self, message: JSON) -> bool:
        """Return whether it was a message."""
        if self._rpc.handle(message):
            return True
        call_id = parse_id(message.get("id"))
        if message.get("method") is not None or call_id is None:
            return False
        # An answer without a pending call came too late.
        if call := self._calls.get(call_id):
            try:
                _settle(call, get_result(message, self.upstream))
            except UpstreamError as error:
                _settle(call, error)
        return True

    def _reply(self, message: JSON) -> None:
        # A server that keeps asking but never reads gets no more answers.
        if self._end is None and not self._child.is_full:
            self._child.write(_encode_line(message))

    def _handle_overlong(self, line: OverlongLine) -> None:
        owner = self._find_call(line.head, line.tail)
        if owner is None and len(self._calls) == 1:
            [owner] = self._calls.values()
        if owner is None:
            self._strayed(line.head)
        else:
            text = f"The answer has more than {MAX_MESSAGE_BYTES:,} bytes."
            _settle(owner, UpstreamError(text, upstream=self.upstream))

    def _handle_unreadable(self, line: bytes, reason: str) -> None:
        if owner := self._find_call(line, line):
            text = f"{self.upstream} sent an answer that is not JSON: {reason}"
            _settle(owner, UpstreamError(text, upstream=self.upstream))
        else:
            self._strayed(line)

    def _find_call(self, head: bytes, tail: bytes) -> UpstreamCall | None:
        found = find_id(head, tail)
        return self._calls.get(found) if isinstance(found, int) else None

    def _check_open(self) -> None:
        if reason := self._end or self._child.closed_reason:
            raise NotSent(reason)

    async def _ping(self) -> None:
        with suppress(UpstreamError):  # an error is an answer too
            await self.request("server/discover" if self._is_stateless else "ping", {})

    async def _listen(self) -> None:
        with suppress(UpstreamError, LinkEnded):  # optional
            wanted = {"notifications": {"toolsListChanged": True}}
            await self.request("subscriptions/listen", wanted)


def _settle(call: UpstreamCall, answer: JSON | Exception) -> None:
    if call.answer is None or call.answer.done():
        return
    if isinstance(answer, Exception):
        call.answer.set_exception(answer)
    else:
        call.answer.set_result(answer)
    call.wake(call.answer)


def _encode_line(message: JSON) -> bytes:
    return encode_message(message) + b"\n"
