"""The port Upstream over any way to connect."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from recollect.core.sessions import Report
from recollect.core.upstreams import JSON, Reach
from recollect.errors import UpstreamError, UpstreamUnavailable
from recollect.upstreams.links import Connect, Link, LinkEnded, NotSent
from recollect.upstreams.owner import PAUSES, Owner

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
        self._under_way = 0

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
            raise UpstreamUnavailable(self.name, f"{ended}.") from ended

    async def _ask_once(
        self, method: str, params: Mapping[str, Any], report: Report | None
    ) -> JSON:
        link = await self._owner.linked()
        self._under_way += 1
        try:
            async with asyncio.timeout(self._reach.call_timeout):
                return await link.request(method, params, report)
        except NotSent as ended:
            self._owner.let_go(link, str(ended))
            raise
        except LinkEnded as ended:
            self._owner.let_go(link, str(ended))
            raise UpstreamUnavailable(
                self.name,
                f"gave no answer: it {ended}.",
                hint="Whether the call took effect is not known, so it was not repeated.",
            ) from ended
        except TimeoutError as error:
            if self._under_way == 1:
                self._doubt(link)
            raise UpstreamUnavailable(
                self.name,
                f"did not answer within {self._reach.call_timeout:g} s.",
                hint="Whether the call took effect is not known. `callTimeout` gives it longer.",
            ) from error
        finally:
            self._under_way -= 1

    def _doubt(self, link: Link) -> None:
        """Finds out whether only this call was slow, or the server hangs."""
        if self._prober is None or self._prober.done():
            self._prober = asyncio.create_task(self._probe(link), name=f"probe of {self.name}")

    async def _probe(self, link: Link) -> None:
        try:
            async with asyncio.timeout(self._probe_seconds):
                await link.probe()
        except LinkEnded as ended:
            self._owner.let_go(link, str(ended))
        except TimeoutError:
            self._owner.let_go(link, f"answers nothing within {self._probe_seconds:g} s")

    def _listed(self, page: JSON) -> list[JSON]:
        tools = page.get("tools")
        if isinstance(tools, list):
            listed = cast(list[Any], tools)
            if all(isinstance(tool, dict) for tool in listed):
                return listed
        raise self._fault("its list of tools is none.")

    def _fault(self, text: str) -> UpstreamError:
        return UpstreamError(f"{self.name}: {text}", upstream=self.name)
