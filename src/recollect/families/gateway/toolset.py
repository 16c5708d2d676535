"""The tools of a gateway: those that its file maps, and those that are passed through."""

import logging
from collections.abc import Mapping
from typing import Any

from recollect.core.sessions import Call
from recollect.core.text import clipped
from recollect.core.upstreams import Upstream
from recollect.errors import MOST_LISTED, UpstreamError, visible
from recollect.families.gateway.calling.arguments import Arguments
from recollect.families.gateway.calling.mapping import mapped
from recollect.families.gateway.calling.results import result_of
from recollect.families.gateway.listings import Passed, fault_in, named, passed
from recollect.families.gateway.model import JSON, GatewayConfig, ToolConfig
from recollect.families.gateway.naming import PREFIXED, resolved
from recollect.tools.tool import Effect, Result, Run, Tool

log = logging.getLogger(__name__)


class GatewayTools:
    """Tools in front of other servers. Nothing is kept of what these answer."""

    def __init__(self, config: GatewayConfig, upstreams: Mapping[str, Upstream]) -> None:
        self._config = config
        self._upstreams = upstreams

    def mapped_tools(self) -> list[Tool]:
        """Those with an entry in the file; no server is asked."""
        return [self._mapped(tool) for tool in self._config.tools]

    async def passed_tools(self, upstream: str) -> list[Tool]:
        """Those that an upstream lists now, as far as they are passed through."""
        listed = await self._upstreams[upstream].tools()
        tools: list[Tool] = []
        for each in passed(self._config, upstream, listed):
            fault = fault_in(each.listing)
            if fault is None:
                tools.append(self._passed(upstream, each))
            else:
                name = clipped(visible(each.theirs))
                log.warning("gateway: %s of %s is not offered: %s", name, upstream, fault)
        return tools

    def _mapped(self, tool: ToolConfig) -> Tool:
        arguments = Arguments(tool.name, tool.input_schema)
        upstream = self._upstreams[tool.upstream]

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            arguments.check(given)
            name = await _name_there(tool.tool, upstream)
            return await _called(upstream, name, mapped(tool, given), call)

        return _tool(_listing(tool), run)

    def _passed(self, upstream_name: str, tool: Passed) -> Tool:
        upstream = self._upstreams[upstream_name]

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            return await _called(upstream, tool.theirs, given, call)

        return _tool(tool.listing, run)


def _tool(listing: JSON, run: Run) -> Tool:
    return Tool(
        name=listing["name"],
        description=listing.get("description", ""),
        input_schema=listing["inputSchema"],
        output_schema=listing.get("outputSchema"),
        run=run,
        effect=Effect.OUTSIDE,
        listing=listing,
    )


def _listing(tool: ToolConfig) -> JSON:
    said = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": tool.annotations,
    }
    return {key: value for key, value in said.items() if value is not None}


async def _called(
    upstream: Upstream, tool: str, arguments: Mapping[str, Any], call: Call
) -> Result:
    report = call.report if call.wants_progress else None
    answer = await upstream.call(tool, arguments, report)
    return result_of(answer, upstream.name, tool)


async def _name_there(wanted: str, upstream: Upstream) -> str:
    """Only a name that may have a prefix is worth the question what there is."""
    if PREFIXED not in wanted:
        return wanted
    known = [tool["name"] for tool in named(await upstream.tools())]
    found = resolved(wanted, known)
    if found is None:
        listed = ", ".join(clipped(visible(name)) for name in known[:MOST_LISTED]) or "none"
        more = f" and {len(known) - MOST_LISTED} more" if len(known) > MOST_LISTED else ""
        raise UpstreamError(
            f'{upstream.name} has no tool "{wanted}"; it has: {listed}{more}. '
            "`recollect gateway check` tells what has changed.",
            upstream=upstream.name,
        )
    return found
