"""Whether Claude Code has our plugin, which brings server and hooks by itself."""

from pathlib import Path
from typing import Any, cast

from everkept.clients import jsonc
from everkept.clients.files import read
from everkept.clients.jsonc import NotJson
from everkept.errors import EverkeptError

PLUGIN = "everkept"  # before the `@` and the name of its marketplace


def installed_plugin(settings_file: Path) -> str | None:
    """Its full name, unless it is switched off; a file that cannot be read says nothing."""
    enabled = _names(settings_file, "enabledPlugins")
    installed = _names(settings_file.parent / "plugins" / "installed_plugins.json", "plugins")
    for name in (*enabled, *installed):
        if name.split("@")[0] == PLUGIN and enabled.get(name) is not False:
            return name
    return None


def _names(file: Path, key: str) -> dict[str, Any]:
    try:
        held = read(file)
        values: object = jsonc.parsed(held.text) if held else {}
    except (EverkeptError, NotJson):
        return {}
    listed = cast(dict[str, Any], values).get(key) if isinstance(values, dict) else None
    return cast(dict[str, Any], listed) if isinstance(listed, dict) else {}
