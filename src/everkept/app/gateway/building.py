"""The gateway of an application, put together."""

from collections.abc import Callable

from everkept.app.gateway.gateway import Counting, Gateway
from everkept.core.times import Clock
from everkept.core.upstreams import Reach, Upstream
from everkept.settings import Settings, gateway_target, upstream_environment
from everkept.tools.toolset import Toolset


def build_gateway(
    settings: Settings, own: Callable[[], Toolset], usage: Counting, clock: Clock
) -> Gateway:
    """Reads no file and starts no server: that happens when its tools are first asked for."""

    def taken() -> set[str]:
        return {name for tool in own() for name in (tool.name, *tool.aliases)}

    return Gateway(gateway_target(settings), _open, usage, clock, taken)


def _open(reach: Reach) -> Upstream:
    from everkept.upstreams.upstream import open_upstream

    return open_upstream(reach, upstream_environment())
