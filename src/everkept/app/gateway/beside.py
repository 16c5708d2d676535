"""The names of our own tools that a gateway is served beside."""

from everkept.app.build import build
from everkept.core.times import now
from everkept.settings import GATEWAY, Settings, chosen_toolsets


def names_beside(settings: Settings) -> set[str]:
    """None where no gateway is served, or nothing else is."""
    chosen = chosen_toolsets(settings)
    if GATEWAY not in chosen or len(chosen) == 1:
        return set()
    tools = build(settings, None, None, now).tools
    return {name for tool in tools for name in (tool.name, *tool.aliases)}
