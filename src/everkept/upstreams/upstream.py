"""An upstream of the gateway: opened by what its entry says, over a connection with an owner."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

from everkept.core.sessions import Report
from everkept.core.upstreams import JSON, MOST_RENEWALS, Launch, Reach, Upstream
from everkept.errors import UpstreamError, UpstreamUnavailable
from everkept.upstreams.link import NOT_KNOWN, Connect, Link, LinkEnded, NotSent
from everkept.upstreams.owner import PAUSES, Owner

PROBE = 5.0  # seconds for a server to answer anything at all
MOST_PAGES = 1000  # of a list of tools


class OwnedUpstream:
    """A server whose connection has an owner. Times are given by tests alone."""

    def __init__(
        self,
        reach: Reach,
        environment: Mapping[str, str],
        connect: Connect,
        *,
        pauses: tuple[float, ...] = PAUSES,
        probe: float = PROBE,
    ) -> None:
        self._reach = reach
        self._owner = Owner(reach, environment, connect, pauses)
        self._probe_seconds = probe
        self._prober: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._reach.name

    def start(self) -> None:
        self._owner.start()

    async def tools(self) -> list[JSON]:
        found: list[JSON] = []
        cursors: set[str] = set()
        params: JSON = {}
        for _ in range(MOST_PAGES):
            page = await self._ask("tools/list", params)
            found += self._listed(page)
            cursor = page.get("nextCursor")
            if cursor is None:
                return found
            if not isinstance(cursor, str) or cursor in cursors:
                raise self._fault(f"its list of tools does not end: cursor {str(cursor)[:100]!r}.")
            cursors.add(cursor)
            params = {"cursor": cursor}
        raise self._fault(f"its list of tools has more than {MOST_PAGES:,} pages.")

    async def call(
        self, tool: str, arguments: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        return await self._ask("tools/call", {"name": tool, "arguments": arguments}, report)

    def on_tools_changed(self, tell: Callable[[], None]) -> None:
        self._owner.on_news(tell)

    async def close(self) -> None:
        if self._prober is not None:
            self._prober.cancel()
            await asyncio.wait({self._prober})
        await self._owner.close()

    async def _ask(
        self, method: str, params: Mapping[str, Any], report: Report | None = None
    ) -> JSON:
        try:
            return await self._ask_once(method, params, report)
        except NotSent:
            pass  # the server was gone already: nothing can happen twice
        try:
            return await self._ask_once(method, params, report)
        except NotSent as ended:
            raise UpstreamUnavailable(self._reach.label, f"{ended}.") from ended

    async def _ask_once(
        self, method: str, params: Mapping[str, Any], report: Report | None
    ) -> JSON:
        link = await self._owner.linked()
        patience = _Patience(self._reach.call_timeout)
        try:
            async with patience.scope:
                answer = await link.request(method, params, self._heard(link, patience, report))
        except NotSent as ended:
            raise NotSent(self._owner.let_go(link, str(ended))) from ended
        except LinkEnded as ended:
            why = self._owner.let_go(link, str(ended))
            raise self._unanswered(method, f"gave no answer: it {why}.") from ended
        except UpstreamError:
            self._owner.hear(link)
            raise
        except TimeoutError as error:
            if self._owner.is_silent(link, patience.began):
                self._doubt(link)
            longer = "`callTimeout` gives it longer."
            raise self._unanswered(method, f"did not answer {patience.spent}.", longer) from error
        self._owner.hear(link)
        return answer

    def _unanswered(self, method: str, reason: str, hint: str = "") -> UpstreamUnavailable:
        """For what was sent: to list the tools once more does no harm, a call may."""
        is_call = method == "tools/call"
        hints = [NOT_KNOWN, hint] if is_call else [hint]
        return UpstreamUnavailable(
            self._reach.label,
            reason,
            hint=" ".join(filter(None, hints)) or None,
            retry_possible=not is_call,
        )

    def _heard(self, link: Link, patience: "_Patience", report: Report | None) -> Report | None:
        """The report, told after we have heard of the progress ourselves."""
        if report is None:
            return None

        async def hear(done: float, total: float | None, message: str | None) -> None:
            self._owner.hear(link)
            patience.renew()
            await report(done, total, message)

        return hear

    def _doubt(self, link: Link) -> None:
        """Finds out whether only some calls are slow, or the server hangs."""
        if self._prober is None or self._prober.done():
            self._prober = asyncio.create_task(self._probe(link), name=f"probe of {self.name}")

    async def _probe(self, link: Link) -> None:
        began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._probe_seconds):
                await link.probe()
        except LinkEnded as ended:
            self._owner.let_go(link, str(ended))
        except TimeoutError:
            # It may have answered another call meanwhile, or told of progress.
            if self._owner.is_silent(link, began):
                self._owner.let_go(link, self._silence)

    @property
    def _silence(self) -> str:
        seconds = self._reach.call_timeout + self._probe_seconds
        ended = "it" if isinstance(self._reach.way, Launch) else "the connection"
        return f"said nothing for {seconds:g} s, so Everkept ended {ended}"

    def _listed(self, page: JSON) -> list[JSON]:
        tools = page.get("tools")
        if isinstance(tools, list):
            listed = cast(list[Any], tools)
            if all(isinstance(tool, dict) for tool in listed):
                return listed
        raise self._fault("its list of tools is none.")

    def _fault(self, text: str) -> UpstreamError:
        return UpstreamError(f"{self._reach.label}: {text}", upstream=self._reach.label)


class _Patience:
    """How long one call is waited for: progress renews it, but not for ever."""

    def __init__(self, seconds: float) -> None:
        self.began = asyncio.get_running_loop().time()
        self._seconds = seconds
        self._last = self.began + seconds * MOST_RENEWALS
        self._is_renewed = False
        self.scope = asyncio.timeout(seconds)

    def renew(self) -> None:
        now = asyncio.get_running_loop().time()
        with suppress(RuntimeError):  # it is over, and this word came late
            self.scope.reschedule(min(now + self._seconds, self._last))
            self._is_renewed = True

    @property
    def spent(self) -> str:
        """What it was, once it is over."""
        if not self._is_renewed:
            return f"within {self._seconds:g} s"
        if self.scope.when() == self._last:
            return f"within {self._seconds * MOST_RENEWALS:g} s, in spite of its progress"
        return f"within {self._seconds:g} s after its last word of progress"


def open_upstream(reach: Reach, environment: Mapping[str, str]) -> Upstream:
    """An upstream that has not been started yet: nothing is loaded for it before its first use."""
    return OwnedUpstream(reach, environment, _connect)


@asynccontextmanager
async def _connect(
    reach: Reach, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AsyncGenerator[Link, None]:
    if isinstance(reach.way, Launch):
        from everkept.upstreams.stdio import connect_stdio as connect
    else:
        connect = await asyncio.to_thread(_http)  # it takes a while to import
    async with connect(reach, environment, tools_changed) as link:
        yield link


def _http() -> Connect:
    from everkept.upstreams.http import connect_http

    return connect_http
