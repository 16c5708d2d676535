"""Servers with data to draw, and a chat program that shows views of their answers."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from view_clients import DRAWS, Era, ViewClient, run_server

if TYPE_CHECKING:
    from view_host import ViewHost

ShowView = Callable[..., "ViewHost"]
Serve = Callable[..., ViewClient]


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a folder with the data of a world in `data`. Each is filled once."""
    from console_worlds import fill_hostile, fill_shop

    made: dict[str, Path] = {}

    def fill(name: str) -> Path:
        if name not in made:
            made[name] = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("EVERKEPT_CONFIG", "none")
                {"shop": fill_shop, "hostile": fill_hostile}[name](made[name] / "data")
        return made[name]

    return fill


@pytest.fixture(scope="session")
def shared_clients(filled: Callable[[str], Path]) -> Iterator[Serve]:
    """Return a client of a server for tests that change nothing."""
    with ExitStack() as stack:
        started: dict[object, ViewClient] = {}

        def serve(name: str, transport: str = "http", era: Era = "handshake") -> ViewClient:
            key = (name, transport, era)
            if key not in started:
                server = run_server(transport, filled(name), "--project", "shop", "--views", "all")
                started[key] = ViewClient(stack.enter_context(server), era, DRAWS)
            return started[key]

        yield serve


@pytest.fixture
def serve(filled: Callable[[str], Path], tmp_path: Path) -> Iterator[Serve]:
    """Return a client of a server with a copy of the data, for a test that changes it."""
    with ExitStack() as stack:

        def start(name: str, *options: object) -> ViewClient:
            shutil.copytree(filled(name), tmp_path / name)
            server = run_server("http", tmp_path / name, "--project", "shop", "--views", "all", *options)
            return ViewClient(stack.enter_context(server), "stateless", DRAWS)

        yield start


@pytest.fixture
def show_view(open_page: Callable[..., Any]) -> Iterator[ShowView]:
    """Open the view of a tool, as its entry in tools/list says. Options go to the host, `browser` to the context."""
    from view_host import HOST, ViewHost

    shown: list[ViewHost] = []

    def show(client: ViewClient, tool: str, *, browser: dict[str, Any] | None = None, **about: Any) -> ViewHost:
        uri = client.list_views()[tool]["ui"]["resourceUri"]
        [content] = client.ask("resources/read", uri=uri)["contents"]
        page, watch = open_page(HOST, policy=None, **(browser or {}))
        shown.append(ViewHost(page, watch, client, content["text"], **about))
        return shown[-1]

    yield show
    for host in shown:
        host.forget_known_problems()
