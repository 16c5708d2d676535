"""Consoles over data folders, and pages of theirs in a browser."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from console_calls import ConsoleClient
from everkept.core.ports import Library

if TYPE_CHECKING:
    from browsers import ConsoleProcess, OpenConsole, StartConsole


@pytest.fixture(scope="session")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the workspace of a world, which has its data in `data`. Each is filled once."""
    from console_worlds import fill_bank, fill_hostile, fill_large_graph, fill_shop

    fillers: dict[str, Callable[[Path], None]] = {
        "empty": lambda _: None,
        "shop": fill_shop,
        "hostile": fill_hostile,
        "large": lambda data: fill_large_graph(data, 5_000, 10_000),
    }
    made: dict[str, Path] = {}

    def fill(name: str) -> Path:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            if name == "shop":
                fill_bank(folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("EVERKEPT_CONFIG", "none")
                fillers[name](folder / "data")
            made[name] = folder
        return made[name]

    return fill


@pytest.fixture(scope="session")
def shared_consoles(
    worlds: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator["StartConsole"]:
    """Start the console of a world once, for tests that only look."""
    from browsers import console_process

    home = tmp_path_factory.mktemp("home")
    with ExitStack() as stack:
        started: dict[str, ConsoleProcess] = {}

        def start(name: str) -> "ConsoleProcess":
            if name not in started:
                folder = worlds(name)
                process = console_process(folder / "data", "--path", folder, HOME=str(home))
                started[name] = stack.enter_context(process)
            return started[name]

        yield start


@pytest.fixture
def start_console(worlds: Callable[[str], Path], tmp_path: Path) -> Iterator["StartConsole"]:
    """Start the console of a copy of a world, for a test that changes it. Options go to the command."""
    from browsers import console_process
    from server_processes import run

    with ExitStack() as stack:

        def start(name: str, *options: object, **variables: Any) -> "ConsoleProcess":
            folder = tmp_path / name
            if not folder.exists():
                shutil.copytree(worlds(name), folder)
            if variables.get("serves"):
                assert run("token", "--data-dir", folder / "data").returncode == 0
                process = console_process(folder / "data", *options, HOME=str(tmp_path), **variables)
            else:
                process = console_process(folder / "data", "--path", folder, *options, HOME=str(tmp_path), **variables)
            return stack.enter_context(process)

        yield start


@pytest.fixture
def open_console(open_page: Callable[..., Any]) -> "OpenConsole":
    """Open the console of a process in a browser, at a place and with a token; options go to the context."""
    from browsers import Console

    def open(process: "ConsoleProcess", place: str = "#/", token: str | None = None, **options: Any) -> Console:
        console = Console(*open_page(process.origin, **options))
        console.begin(token or process.token, place)
        return console

    return open


@pytest.fixture
async def client(library: Library, tmp_path: Path) -> AsyncIterator[ConsoleClient]:
    """The console in this process, with an empty project."""
    client = ConsoleClient(library, tmp_path, clock=lambda: 0.0)
    await client.call("create_project", name="shop")
    yield client
    await client.app.close()
