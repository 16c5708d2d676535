"""Every page in a real browser: with nothing, with a small shop's memory, and with hostile texts."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from browsers import OpenConsole, StartConsole

pytestmark = pytest.mark.browser

PAGES = {
    "overview": "Overview",
    "search": "Search",
    "memories": "Memories",
    "review": "Review",
    "graph": "Graph",
    "conversations": "Conversations",
    "bank": "Memory bank",
    "log": "Log",
    "projects": "Projects",
    "health": "Health",
    "team": "Team",
    "care": "Care",
}
VIEWS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 320, "height": 640}},
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("world", ["empty", "shop", "hostile"])
def test_every_page_is_accessible_and_complains_of_nothing(
    world: str, view: str, shared_consoles: "StartConsole", open_console: "OpenConsole"
) -> None:
    console = open_console(shared_consoles(world), reduced_motion="reduce", **VIEWS[view])
    found: dict[str, list[str]] = {}
    for name, title in PAGES.items():
        console.go(name)
        assert console.page.locator("h1").inner_text() == title
        found[name] = console.find_violations()
    assert {name: problems for name, problems in found.items() if problems} == {}
    assert console.page.evaluate("() => window.hit === undefined")
