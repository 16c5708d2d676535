"""The tools of a gateway: those that its file maps, and those that are passed through."""

import logging
from collections.abc import Mapping
from typing import Any

from everkept.core.sessions import Call
from everkept.core.text import clipped
from everkept.core.upstreams import Upstream
from everkept.errors import EverkeptError, visible
from everkept.families.gateway.calls import NameThere, check, mapped, result_of
from everkept.families.gateway.listings import Passed, fault_in, passed
from everkept.families.gateway.model import JSON, GatewayConfig, ToolConfig
from everkept.families.gateway.schema_facts import by_name
from everkept.tools.tool import Effect, Result, Run, Tool

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
        upstream = self._upstreams[tool.upstream]
        name = NameThere(tool.tool, upstream)

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            check(given, tool.input_schema)
            try:
                result = await _called(upstream, await name.get(), mapped(tool, given), call)
            except EverkeptError:
                name.doubt()
                raise
            if result.is_error:
                name.doubt()
            return result

        return _tool(_listing(tool), run, is_trusted=True)

    def _passed(self, upstream_name: str, tool: Passed) -> Tool:
        upstream = self._upstreams[upstream_name]
        through = self._config.upstreams[upstream_name].pass_through

        async def run(call: Call, given: Mapping[str, Any]) -> Result:
            return await _called(upstream, tool.theirs, given, call)

        is_trusted = through is not None and through.trusts_read_only_hint
        return _tool(tool.listing, run, is_trusted=is_trusted)


def _tool(listing: JSON, run: Run, *, is_trusted: bool) -> Tool:
    """What a server says of its own tools is believed where the file says so."""
    hints = by_name(listing.get("annotations"))
    return Tool(
        name=listing["name"],
        description=listing.get("description", ""),
        input_schema=listing["inputSchema"],
        output_schema=listing.get("outputSchema"),
        run=run,
        effect=Effect.OUTSIDE,
        listing=listing,
        said_to_read=is_trusted and hints.get("readOnlyHint") is True,
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
