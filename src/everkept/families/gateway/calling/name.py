"""What a tool is called at the server behind the gateway."""

from weakref import WeakMethod

from everkept.core.text import clipped
from everkept.core.upstreams import Upstream
from everkept.errors import MOST_LISTED, UpstreamError, visible
from everkept.families.gateway.listings import named
from everkept.families.gateway.naming import PREFIXED, resolved


class NameThere:
    """Only a name that may have a prefix is worth the question what there is.

    It is asked once, and again when the answer may be another: after the server said that its
    tools have changed, was connected anew, or failed a call.
    """

    def __init__(self, wanted: str, upstream: Upstream) -> None:
        self._wanted = wanted
        self._upstream = upstream
        self._found: str | None = None
        self._doubts = 0
        if PREFIXED not in wanted:
            self._found = wanted
        else:
            # The upstream may live longer than the file that this name stands in.
            doubt = WeakMethod(self.doubt)
            upstream.on_tools_changed(lambda: (doubt() or _nobody)())

    async def get(self) -> str:
        """UpstreamError where there is no such tool."""
        if self._found is not None:
            return self._found
        doubts = self._doubts
        found = await self._ask()
        if doubts == self._doubts:  # else what was listed may be outdated already
            self._found = found
        return found

    def doubt(self) -> None:
        if PREFIXED in self._wanted:
            self._found = None
            self._doubts += 1

    async def _ask(self) -> str:
        known = [tool["name"] for tool in named(await self._upstream.tools())]
        found = resolved(self._wanted, set(known))
        if found is None:
            listed = ", ".join(clipped(visible(name)) for name in known[:MOST_LISTED]) or "none"
            more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
            raise UpstreamError(
                f'{self._upstream.name} has no tool "{self._wanted}"; it has: {listed}{more}. '
                "`everkept gateway check` tells what has changed.",
                upstream=self._upstream.name,
            )
        return found


def _nobody() -> None:
    pass
