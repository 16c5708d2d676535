"""The bundled pages: which of them clients draw in a chat, and data inside one of them."""

import json
from importlib import resources
from typing import Any

MIME_TYPE = "text/html;profile=mcp-app"
URI_PREFIX = "ui://everkept/"
# Views that a client gets, by the setting `views`. Memories are recalled often, so their view must be asked for.
CHAT_VIEWS: dict[str, frozenset[str]] = {
    "off": frozenset(),
    "quiet": frozenset({"graph", "past"}),
    "all": frozenset({"graph", "past", "memories"}),
}
DATA = '<script type="application/json" id="data">{}</script>'


def build_view_meta(name: str) -> dict[str, Any]:
    """Return the `_meta` that names the view of a tool. Older hosts read only the flat key."""
    uri = URI_PREFIX + name
    return {"ui": {"resourceUri": uri}, "ui/resourceUri": uri}


def read_page(name: str) -> str:
    """Return the HTML of a page."""
    return (resources.files("everkept.views") / f"{name}.html").read_text(encoding="utf-8")


def fill_page(name: str, data: Any) -> str:
    """Return the HTML of a page with the data that it draws. No text in the data can end its element."""
    encoded = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return read_page(name).replace(DATA.format("null"), DATA.format(encoded), 1)
