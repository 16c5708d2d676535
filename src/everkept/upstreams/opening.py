"""The way to a server, chosen by what its entry says."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager

from everkept.core.upstreams import Launch, Reach, Upstream
from everkept.upstreams.links import Link
from everkept.upstreams.owned import OwnedUpstream


def open_upstream(reach: Reach, environment: Mapping[str, str]) -> Upstream:
    """An upstream that has not been started yet: nothing is loaded for it before its first use."""
    return OwnedUpstream(reach, environment, _connect)


def _connect(
    reach: Reach, environment: Mapping[str, str], tools_changed: Callable[[], None]
) -> AbstractAsyncContextManager[Link]:
    if isinstance(reach.way, Launch):
        from everkept.upstreams.stdio.link import connect_stdio

        return connect_stdio(reach, environment, tools_changed)
    from everkept.upstreams.http.connecting import connect_http

    return connect_http(reach, environment, tools_changed)
