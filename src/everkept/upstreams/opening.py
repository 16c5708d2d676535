"""The way to a server, chosen by what its entry says."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager

from everkept.core.upstreams import Launch, Reach, Upstream
from everkept.upstreams.links import Connect, Link
from everkept.upstreams.owned import OwnedUpstream


def open_upstream(reach: Reach, environment: Mapping[str, str]) -> Upstream:
    """An upstream that has not been started yet: nothing is loaded for it before its first use."""
    return OwnedUpstream(reach, environment, _connect)


@asynccontextmanager
async def _connect(
    reach: Reach, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AsyncGenerator[Link, None]:
    # An HTTP client takes a while to import: others are served meanwhile.
    load = _stdio if isinstance(reach.way, Launch) else _http
    connect = await asyncio.to_thread(load)
    async with connect(reach, environment, tools_changed) as link:
        yield link


def _stdio() -> Connect:
    from everkept.upstreams.stdio.link import connect_stdio

    return connect_stdio


def _http() -> Connect:
    from everkept.upstreams.http.link import connect_http

    return connect_http
