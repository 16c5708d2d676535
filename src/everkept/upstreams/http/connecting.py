"""Servers behind an address: MCP over Streamable HTTP, with the official SDK."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import cast

from everkept.core.upstreams import Endpoint, Reach
from everkept.upstreams.http.places import Target, target_of
from everkept.upstreams.links import Link

OpenLink = Callable[[Reach, Target, Callable[[], None]], AbstractAsyncContextManager[Link]]


@asynccontextmanager
async def connect_http(
    reach: Reach, environment: Mapping[str, str], on_tools_changed: Callable[[], None]
) -> AsyncGenerator[Link, None]:
    """A links.Connect. Of `environment` are taken: variables that headers name, those that name
    a proxy (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY), and SSL_CERT_FILE."""
    target = target_of(cast(Endpoint, reach.way), environment, reach.label)
    # The SDK takes half a second to import: others are served meanwhile.
    open_link = await asyncio.to_thread(_link_opener)
    async with open_link(reach, target, on_tools_changed) as link:
        yield link


def _link_opener() -> OpenLink:
    from everkept.upstreams.http.link import open_link

    return open_link
