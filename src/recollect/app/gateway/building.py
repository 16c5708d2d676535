"""The gateway of an application, put together."""

from collections.abc import Callable

from recollect.app.gateway.gateway import Counting, Gateway
from recollect.core.times import Clock
from recollect.core.upstreams import Reach, Upstream
from recollect.settings import Settings, gateway_target, upstream_environment
from recollect.tools.toolset import Toolset


def build_gateway(
    settings: Settings, own: Callable[[], Toolset], usage: Counting, clock: Clock
) -> Gateway:
    """Reads no file and starts no server: that happens when its tools are first asked for."""

    def taken() -> set[str]:
        return {name for tool in own() for name in (tool.name, *tool.aliases)}

    return Gateway(gateway_target(settings), _open, usage, clock, taken)


def _open(reach: Reach) -> Upstream:
    from recollect.upstreams.opening import open_upstream

    return open_upstream(reach, upstream_environment())
