"""The names of our own tools that a gateway is served beside."""

from dataclasses import replace

from recollect.app.app import App
from recollect.settings import GATEWAY, Settings, chosen_toolsets


def names_beside(settings: Settings) -> set[str]:
    """None where no gateway is served, or nothing else is."""
    chosen = chosen_toolsets(settings)
    own = [name for name in chosen if name != GATEWAY]
    if GATEWAY not in chosen or not own:
        return set()
    app = App(replace(settings, toolsets=",".join(own), read_only=False))
    return {name for tool in app.tools for name in (tool.name, *tool.aliases)}
