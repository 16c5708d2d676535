"""The headers that repeat what a request of the stateless era says in its body."""

import logging
from collections.abc import Mapping
from typing import Any, cast

from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from everkept.core.protocol import STATELESS_VERSION
from everkept.core.upstreams import JSON
from everkept.errors import InvalidInput

log = logging.getLogger(__name__)


class StatelessHeaders:
    """Knows which arguments of which tools a server wants in headers, once it has listed them."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._maps: dict[str, dict[tuple[str, ...], str]] = {}

    def of(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        """Raises InvalidInput for what can be said in JSON, and in no header."""
        try:
            return self._of(method, params)
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"The arguments cannot be sent: {self._upstream} wants one of them in a header, "
                "and it holds half a character."
            ) from error

    def _of(self, method: str, params: Mapping[str, Any]) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: STATELESS_VERSION, MCP_METHOD_HEADER: method}
        named = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(named, str):
            headers[MCP_NAME_HEADER] = encode_header_value(named)
            arguments: Any = params.get("arguments")
            if method == "tools/call" and isinstance(arguments, dict):
                wanted = self._maps.get(named, {})
                headers |= mcp_param_headers(wanted, cast(JSON, arguments))
        return headers

    def learn(self, listing: JSON) -> JSON:
        """Takes in a page of tools/list; gives it without tools that the protocol forbids to use:
        those whose headers cannot be made."""
        listed: Any = listing.get("tools")
        if not isinstance(listed, list):
            return listing
        kept = [tool for tool in cast(list[Any], listed) if self._is_usable(tool)]
        return listing if len(kept) == len(cast(list[Any], listed)) else listing | {"tools": kept}

    def _is_usable(self, tool: Any) -> bool:
        described = cast(JSON, tool) if isinstance(tool, dict) else {}
        name, schema = described.get("name"), described.get("inputSchema")
        if not isinstance(name, str):
            return True
        if (reason := find_invalid_x_mcp_header(schema)) is not None:
            log.warning("%s: the tool %s is left out: %s", self._upstream, name, reason)
            self._maps.pop(name, None)
            return False
        self._maps[name] = x_mcp_header_map(schema)
        return True
