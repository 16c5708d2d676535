"""Tools that are passed through whole: what their servers last said that they have."""

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from everkept.core.upstreams import JSON
from everkept.errors import EverkeptError, UpstreamUnavailable, visible
from everkept.families.gateway.model import GatewayConfig, PassThrough
from everkept.families.gateway.toolset import GatewayTools
from everkept.tools.tool import Tool

log = logging.getLogger(__name__)


class Passing:
    """Asked for anew each time; what a server said last stands while it does not answer.

    Where two have a tool of one name, it is that of the server which stands first in the file.
    """

    def __init__(
        self,
        config: GatewayConfig,
        family: GatewayTools,
        taken: Collection[str],
        made: Callable[[Tool], Tool],
    ) -> None:
        """`taken` are names that are not to be had; `made` is what becomes of each tool."""
        self.failures: dict[str, EverkeptError] = {}  # of those that did not answer last time
        self._ways: dict[str, PassThrough] = {
            name: each.pass_through
            for name, each in config.upstreams.items()
            if each.pass_through is not None
        }
        self._family = family
        self._taken = taken
        self._made = made
        self._listed: dict[str, list[Tool]] = {}
        self._told: set[tuple[str, str]] = set()

    @property
    def upstreams(self) -> list[str]:
        return list(self._ways)

    def tools(self) -> list[Tool]:
        taken = set(self._taken)
        kept: list[Tool] = []
        for upstream in self._ways:
            for tool in self._listed.get(upstream, []):
                if tool.name in taken:
                    self._tell_clash(upstream, tool.name)
                else:
                    taken.add(tool.name)
                    kept.append(tool)
        return kept

    async def look(self, upstream: str, patience: float | None) -> bool:
        """Whether the tools are others now. TimeoutError where it takes longer than that."""
        before = _listings(self.tools())
        try:
            async with asyncio.timeout(patience):
                listed = await self._family.passed_tools(upstream)
        except TimeoutError:
            self._fail(upstream, UpstreamUnavailable(upstream, "has not listed its tools yet."))
            raise
        except EverkeptError as error:
            self._fail(upstream, error)
            return False
        self.failures.pop(upstream, None)
        self._listed[upstream] = [self._made(tool) for tool in listed]
        return _listings(self.tools()) != before

    def failure_behind(self, name: str) -> EverkeptError | None:
        """Why a name is unknown that a server might have which never said what it has."""
        for upstream, way in self._ways.items():
            failure = self.failures.get(upstream)
            may_have = name.startswith(way.prefix) or name in way.rename.values()
            if failure is not None and upstream not in self._listed and may_have:
                return failure
        return None

    def _fail(self, upstream: str, error: EverkeptError) -> None:
        if upstream not in self.failures:
            log.warning("gateway: tools of %s: %s", upstream, visible(str(error)))
        self.failures[upstream] = error

    def _tell_clash(self, upstream: str, name: str) -> None:
        if (upstream, name) not in self._told:
            self._told.add((upstream, name))
            log.warning(
                "gateway: %s of %s is not offered: there is a tool of that name; "
                "a `prefix` tells them apart",
                visible(name),
                upstream,
            )


def _listings(tools: Sequence[Tool]) -> list[JSON | None]:
    return [tool.listing for tool in tools]
