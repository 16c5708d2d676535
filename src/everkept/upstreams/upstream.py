"""An upstream of the gateway: one task connects and reconnects it."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, cast

from everkept.core.mcp import JSON, MAX_RENEWALS, Upstream, UpstreamProgram, UpstreamSettings
from everkept.core.sessions import Report
from everkept.errors import UpstreamError, UpstreamUnavailable, escape_name
from everkept.upstreams.link import EFFECT_UNKNOWN_HINT, Connect, LinkEnded, NotSent, UpstreamLink, build_mask

# Pauses between attempts; the last one repeats.
RETRY_PAUSE_SECONDS = 1.0, 2.0, 4.0, 8.0, 15.0, 30.0
MAX_WAIT_SECONDS = 3.0  # how long a call waits for the next attempt
SETTLED_SECONDS = 30.0  # a connection that ends earlier, or that never answered, counts as a setback
CLOSE_SECONDS = 8.0  # longer than a program takes to end

log = logging.getLogger(__name__)

ConnectOutcome = UpstreamLink | UpstreamUnavailable


class ConnectionOwner:
    """Opens and closes the connection. Callers send their requests on the link themselves.

    It connects when a caller needs the link, or by itself if the server should always be connected. Each failed attempt
    makes the pause before the next one longer. So does each connection that ended soon, except the first one.
    """

    def __init__(
        self,
        reach: UpstreamSettings,
        environment: Mapping[str, str],
        connect: Connect,
        pauses: tuple[float, ...] = RETRY_PAUSE_SECONDS,
    ) -> None:
        self._reach = reach
        self._environment = environment
        self._connect = connect
        self._pauses = pauses
        self._hide = build_mask(reach, environment)
        self._tellers: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._link: UpstreamLink | None = None
        # Why the link ends; set until the connection is closed.
        self._over: asyncio.Future[str] | None = None
        self._last_end: tuple[UpstreamLink, str] | None = None
        self._outcome: asyncio.Future[ConnectOutcome] | None = None  # of the attempt that callers wait for
        self._has_tried = False
        self._began = 0.0  # when the link was opened, by the loop's clock
        self._heard = 0.0  # when the server last answered on it; 0 for never
        self._failure: UpstreamUnavailable | None = None  # of the last attempt or connection
        self._failures = 0  # in a row
        self._short_lives = 0  # connections in a row that ended soon, even with failures between them
        self._next_attempt = 0.0  # by the loop's clock
        self._is_closed = False

    def start(self) -> None:
        if self._is_closed or self._link is not None:
            return
        self._wanted.set()
        if self._task is None:
            # In an empty context, so that no data of the first client gets there.
            self._task = asyncio.create_task(
                self._run(), name=f"owner of {self._reach.name}", context=contextvars.Context()
            )
            self._task.add_done_callback(self._handle_task_end)

    def add_listener(self, tell: Callable[[], None]) -> None:
        self._tellers.append(tell)

    async def wait_link(self) -> UpstreamLink:
        """Return the open link. Raise UpstreamUnavailable if there is none in time."""
        if self._is_closed:
            raise self._build_error("was closed by Everkept.")
        if self._link is not None:
            return self._link
        pause = self._compute_pause_left()
        if pause > MAX_WAIT_SECONDS:
            raise self._build_paused_error(pause)
        self.start()
        if self._outcome is None:
            self._outcome = asyncio.get_running_loop().create_future()
        try:
            # The owner times out first, and then needs time to close the connection.
            async with asyncio.timeout(self._reach.connect_timeout + pause + CLOSE_SECONDS):
                outcome = await asyncio.shield(self._outcome)
        except TimeoutError as error:
            raise self._build_timeout_error("") from error
        if isinstance(outcome, UpstreamUnavailable):
            raise outcome.with_traceback(None)  # all waiting callers share it
        return outcome

    def note_activity(self, link: UpstreamLink) -> None:
        """Note that the server has answered or reported progress."""
        if link is self._link:
            self._heard = asyncio.get_running_loop().time()

    def is_silent(self, link: UpstreamLink, since: float) -> bool:
        """Return whether the server has sent nothing on the current link since then."""
        return link is self._link and self._heard < since

    def release(self, link: UpstreamLink, reason: str) -> str:
        """End the connection if it is still the current one. Return why it really ended."""
        if self._detach_link(link, reason):
            now = asyncio.get_running_loop().time()
            is_settled = self._heard > 0.0 and now - self._began >= SETTLED_SECONDS
            self._short_lives = 0 if is_settled else self._short_lives + 1
            self._failure = self._build_error(f"{reason}.")
            self._next_attempt = now + self._compute_pause()
        ended = self._last_end
        return ended[1] if ended is not None and ended[0] is link else reason

    def _detach_link(self, link: UpstreamLink | None, reason: str) -> bool:
        """Return whether it was the current link, which now ends."""
        if link is None or link is not self._link or self._over is None or self._over.done():
            return False
        self._over.set_result(reason)
        self._link, self._last_end = None, (link, reason)
        return True

    async def close(self) -> None:
        self._is_closed = True
        self._set_outcome(self._build_error("was closed by Everkept."))
        if self._task is None:
            return
        if self._over is None:
            self._task.cancel()  # it connects or waits
        else:
            self._detach_link(self._link, "was closed by Everkept")
        _, unfinished = await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)
        if unfinished:
            log.warning("%s was not closed within %g s", self._reach.label, CLOSE_SECONDS)
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_SECONDS)

    async def _run(self) -> None:
        while not self._is_closed:
            await asyncio.sleep(self._compute_pause_left())
            if not self._reach.starts_at_once:
                await self._wanted.wait()
            try:
                await self._connect_once()
            except UpstreamUnavailable as error:
                self._note_failure(error)
            except LinkEnded as ended:
                self._note_failure(self._build_error(f"{ended}."))
            except TimeoutError as error:
                # The notes are the output of the server, see link.Connect.
                self._note_failure(self._build_timeout_error(" / ".join(getattr(error.__cause__, "__notes__", []))))

    async def _connect_once(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._reach.connect_timeout):
                    link = await stack.enter_async_context(
                        self._connect(self._reach, self._environment, self._notify_listeners)
                    )
                await self._hold_link(link)
        finally:
            self._over = None

    async def _hold_link(self, link: UpstreamLink) -> None:
        """Keep the link until the server or we end it."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[str] = loop.create_future()
        self._link, self._over = link, over
        self._began, self._heard = loop.time(), 0.0
        self._failure, self._failures = None, 0
        self._set_outcome(link)
        if self._has_tried:
            self._notify_listeners()
        self._has_tried = True
        watching = asyncio.create_task(self._watch(link), name=f"end of {self._reach.name}")
        try:
            log.info("%s %s", self._reach.label, escape_name(self._hide(await over)))
        finally:
            self._link = None
            watching.cancel()

    async def _watch(self, link: UpstreamLink) -> None:
        self.release(link, await link.wait_ended())

    def _note_failure(self, error: UpstreamUnavailable) -> None:
        log.warning("%s", escape_name(self._hide(error.message)))
        self._has_tried = True
        self._failure = error
        self._failures += 1
        self._next_attempt = asyncio.get_running_loop().time() + self._compute_pause()
        self._set_outcome(error)

    def _handle_task_end(self, task: asyncio.Task[None]) -> None:
        """Let the next caller start the task again if a bug has ended it."""
        self._task = None if not self._is_closed else task
        if not task.cancelled() and (bug := task.exception()) is not None:
            log.error("the connection task of %s has ended", self._reach.label, exc_info=bug)
            self._set_outcome(self._build_error("cannot be reached because of an internal error; see the log."))

    def _set_outcome(self, outcome: ConnectOutcome) -> None:
        self._wanted.clear()  # callers that came during the attempt have their outcome
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(outcome)
        self._outcome = None

    def _notify_listeners(self) -> None:
        loop = asyncio.get_running_loop()
        for tell in self._tellers:
            loop.call_soon(tell)

    def _compute_pause(self) -> float:
        setbacks = self._failures + max(self._short_lives - 1, 0)
        return self._pauses[min(setbacks, len(self._pauses)) - 1] if setbacks else 0.0

    def _compute_pause_left(self) -> float:
        return max(0.0, self._next_attempt - asyncio.get_running_loop().time())

    def _build_paused_error(self, pause: float) -> UpstreamUnavailable:
        assert self._failure is not None
        return UpstreamUnavailable(
            self._reach.label,
            f"cannot be reached; next attempt in {pause:.0f} s: {self._failure.message}",
            hint=self._failure.hint,
            retry_possible=self._failure.retry_possible,
            retry_in_seconds=round(pause, 1),
        )

    def _build_timeout_error(self, said: str) -> UpstreamUnavailable:
        words = f" It wrote: {said}." if said else ""
        return UpstreamUnavailable(
            self._reach.label,
            f"was not ready within {self._reach.connect_timeout:g} s.{words}",
            hint="Increase `connectTimeout` if it needs longer.",
        )

    def _build_error(self, reason: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(self._reach.label, reason)


PROBE_SECONDS = 5.0  # for a server to answer anything
MAX_PAGES = 1000  # of a list of tools


class OwnedUpstream:
    """A server whose connection has an owner. Only tests pass other times."""

    def __init__(
        self,
        reach: UpstreamSettings,
        environment: Mapping[str, str],
        connect: Connect,
        *,
        pauses: tuple[float, ...] = RETRY_PAUSE_SECONDS,
        probe: float = PROBE_SECONDS,
    ) -> None:
        self._reach = reach
        self._owner = ConnectionOwner(reach, environment, connect, pauses)
        self._probe_seconds = probe
        self._prober: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._reach.name

    def start(self) -> None:
        self._owner.start()

    async def list_tools(self) -> list[JSON]:
        found: list[JSON] = []
        cursors: set[str] = set()
        params: JSON = {}
        for _ in range(MAX_PAGES):
            page = await self._ask("tools/list", params)
            found += self._get_tools(page)
            cursor = page.get("nextCursor")
            if cursor is None:
                return found
            if not isinstance(cursor, str) or cursor in cursors:
                raise self._build_error(f"its list of tools does not end: cursor {str(cursor)[:100]!r}.")
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise self._build_error(f"its list of tools has more than {MAX_PAGES:,} pages.")

    async def call(self, tool: str, arguments: Mapping[str, Any], report: Report | None = None) -> JSON:
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, report)

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        self._owner.add_listener(tell)

    async def close(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.wait({self._prober})
        await self._owner.close()

    async def _ask(self, method: str, params: Mapping[str, Any], report: Report | None = None) -> JSON:
        try:
            return await self._ask_once(method, params, report)
        except NotSent:
            pass  # the server was already gone, so nothing can happen twice
        try:
            return await self._ask_once(method, params, report)
        except NotSent as ended:
            raise UpstreamUnavailable(self._reach.label, f"{ended}.") from ended

    async def _ask_once(self, method: str, params: Mapping[str, Any], report: Report | None) -> JSON:
        link = await self._owner.wait_link()
        patience = _CallTimeout(self._reach.call_timeout)
        try:
            async with patience.scope:
                answer = await link.request(method, params, self._wrap_report(link, patience, report))
        except NotSent as ended:
            raise NotSent(self._owner.release(link, str(ended))) from ended
        except LinkEnded as ended:
            why = self._owner.release(link, str(ended))
            raise self._build_unanswered_error(method, f"did not answer: it {why}.") from ended
        except UpstreamError:
            self._owner.note_activity(link)
            raise
        except TimeoutError as error:
            is_probing = self._prober is not None and not self._prober.done()
            if self._owner.is_silent(link, patience.began) and not is_probing:
                # Find out whether only some calls are slow, or whether the server hangs.
                self._prober = asyncio.create_task(self._probe(link), name=f"probe of {self.name}")
            longer = "Increase `callTimeout` if it needs longer."
            raise self._build_unanswered_error(method, f"did not answer {patience.description}.", longer) from error
        self._owner.note_activity(link)
        return answer

    def _build_unanswered_error(self, method: str, reason: str, hint: str = "") -> UpstreamUnavailable:
        """Build the error for a sent request. Listing the tools can be repeated, a call cannot."""
        is_call = method == "tools/call"
        hints = [EFFECT_UNKNOWN_HINT, hint] if is_call else [hint]
        return UpstreamUnavailable(
            self._reach.label, reason, hint=" ".join(filter(None, hints)) or None, retry_possible=not is_call
        )

    def _wrap_report(self, link: UpstreamLink, patience: "_CallTimeout", report: Report | None) -> Report | None:
        """Return a report that first notes the progress for the timeout."""
        if report is None:
            return None

        async def hear(done: float, total: float | None, message: str | None) -> None:
            self._owner.note_activity(link)
            patience.renew()
            await report(done, total, message)

        return hear

    async def _probe(self, link: UpstreamLink) -> None:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._probe_seconds):
                await link.probe()
        except LinkEnded as ended:
            self._owner.release(link, str(ended))
        except TimeoutError:
            # It may have answered another call, or reported progress, in that time.
            if self._owner.is_silent(link, began):
                seconds = self._reach.call_timeout + self._probe_seconds
                ended = "it" if isinstance(self._reach.way, UpstreamProgram) else "the connection"
                self._owner.release(link, f"sent nothing for {seconds:g} s, so Everkept ended {ended}")

    def _get_tools(self, page: JSON) -> list[JSON]:
        tools = page.get("tools")
        if isinstance(tools, list) and all(isinstance(tool, dict) for tool in cast(list[Any], tools)):
            return cast(list[JSON], tools)
        raise self._build_error("its list of tools is invalid.")

    def _build_error(self, text: str) -> UpstreamError:
        return UpstreamError(f"{self._reach.label}: {text}", upstream=self._reach.label)


class _CallTimeout:
    """Timeout of one call. Progress renews it, but not forever."""

    def __init__(self, seconds: float) -> None:
        self.began = asyncio.get_running_loop().time()
        self._seconds = seconds
        self._last = self.began + seconds * MAX_RENEWALS
        self._is_renewed = False
        self.scope = asyncio.timeout(seconds)

    def renew(self) -> None:
        now = asyncio.get_running_loop().time()
        with suppress(RuntimeError):  # the call is over, and this report came late
            self.scope.reschedule(min(now + self._seconds, self._last))
            self._is_renewed = True

    @property
    def description(self) -> str:
        """Text for the error after the timeout."""
        if not self._is_renewed:
            return f"within {self._seconds:g} s"
        if self.scope.when() == self._last:
            return f"within {self._seconds * MAX_RENEWALS:g} s, despite its progress"
        return f"within {self._seconds:g} s after its last progress"


def open_upstream(reach: UpstreamSettings, environment: Mapping[str, str]) -> Upstream:
    """Return an upstream that is not started. Nothing is loaded for it before its first use."""
    return OwnedUpstream(reach, environment, _connect)


@asynccontextmanager
async def _connect(
    reach: UpstreamSettings, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AsyncGenerator[UpstreamLink, None]:
    if isinstance(reach.way, UpstreamProgram):
        from everkept.upstreams.stdio import connect_stdio as connect
    else:
        connect = await asyncio.to_thread(_import_http, reach)  # slow to import
    async with connect(reach, environment, tools_changed) as link:
        yield link


def _import_http(reach: UpstreamSettings) -> Connect:
    from everkept.core.extras import EXTRAS, format_install_hint

    if not EXTRAS["remote"].is_installed:
        why = "is at an address, which needs the package httpx2. It is not installed."
        raise UpstreamUnavailable(reach.label, why, hint=format_install_hint("remote"))
    from everkept.upstreams.http import connect_http

    return connect_http
