"""What every test may use."""

import asyncio
import difflib
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from everkept.core.ports import Library
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.sqlite.library import SqliteLibrary

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from browsers import Watch

# No test is about time: a busy machine must not change what one says.
UNTIMED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("quick", max_examples=25, **UNTIMED)
settings.register_profile("thorough", max_examples=100, **UNTIMED)
settings.load_profile("quick")

ROOT = Path(__file__).parent.parent
MAX_DIFFERENCE = 80  # lines that a failure shows
RECORDS = ROOT / "tests" / "golden" / "records"
WITHOUT_BROWSER = pytest.StashKey[int]()  # the number of tests that need one and are left out


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="Write the golden records instead of comparing.")
    parser.addoption("--all", action="store_true", dest="all_of_all", help="Run the thorough tests too.")
    parser.addoption(
        "--all-of", action="append", default=[], metavar="FOLDER", help="Run the thorough tests of this folder too."
    )

    parser.addoption("--browser", action="store_true", help="Run the tests in a browser, as tools/browser does.")


def is_thorough(config: pytest.Config, path: Path) -> bool:
    """Return whether the tests of a file run in full."""
    folders = [ROOT / folder for folder in config.getoption("--all-of")]
    return config.getoption("--all") or any(path.is_relative_to(folder) for folder in folders)


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Choose how many examples the properties of a module get; they read it as they are made."""
    if isinstance(collector, pytest.Module):
        chosen = is_thorough(collector.config, collector.path)
        settings.load_profile("thorough" if chosen else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the thorough tests and those in a browser, unless they are asked for."""
    left_out = [item for item in items if item.get_closest_marker("thorough") and not is_thorough(config, item.path)]
    if not config.getoption("--browser"):
        in_browser = [item for item in items if item.get_closest_marker("browser")]
        config.stash[WITHOUT_BROWSER] = len(in_browser)
        left_out += in_browser
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        without = set(left_out)
        items[:] = [item for item in items if item not in without]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the number of left out tests from a worker to the process that writes the summary."""
    if (sent := getattr(session.config, "workeroutput", None)) is not None:
        sent["without_browser"] = session.config.stash.get(WITHOUT_BROWSER, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[WITHOUT_BROWSER] = node.workeroutput.get("without_browser", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out, because no other line does."""
    if count := config.stash.get(WITHOUT_BROWSER, 0):
        terminalreporter.write_line(f"left out: {count} tests in a browser; tools/browser runs them")


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a value with its golden record, or write the record with --renew-golden."""

    def compare(name: str, value: Any, ignored: Collection[str] = ()) -> None:
        """Items of a list that are `ignored` do not count."""
        path = RECORDS / f"{name}.json"
        if request.config.getoption("--renew-golden"):
            text = json.dumps(value, indent=1, ensure_ascii=False)
            path.write_text(f"{text}\n", encoding="utf-8")
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if ignored:
            value, recorded = ([x for x in side if x not in ignored] for side in (value, recorded))
        found = json.loads(json.dumps(value))
        if found != recorded:
            pytest.fail(_describe_difference(path, recorded, found), pytrace=False)

    return compare


def _describe_difference(path: Path, recorded: Any, found: Any) -> str:
    sides = [json.dumps(side, indent=1, ensure_ascii=False).splitlines() for side in (recorded, found)]
    lines = [*difflib.unified_diff(*sides, "recorded", "now", lineterm="", n=1)]
    advice = "./test tests/golden --renew-golden, then read git diff tests/golden."
    return "\n".join([*lines[:MAX_DIFFERENCE], "", f"{path.name} differs. To accept it: {advice}"])


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether the tests of this file run in full."""
    return is_thorough(request.config, request.path)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own settings, and git's, must not decide what a test sees."""
    monkeypatch.setenv("EVERKEPT_CONFIG", "none")
    monkeypatch.setenv("EVERKEPT_RECALL_TIME_LIMIT", "60")  # a busy machine must not make an answer shorter
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="session")
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def no_own_cache(cache_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers that a test starts leave nothing in a developer's own cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", cache_folder)


@pytest.fixture(scope="session", autouse=True)
def shipped_model() -> OnnxEmbedder:
    """The model that all embedders of this process share, so that it is loaded once."""
    embedder = OnnxEmbedder()
    asyncio.run(embedder.embed([""]))
    return embedder


@pytest.fixture(scope="session")
def empty_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of an empty library. To copy them is quicker than to make them."""
    folder = tmp_path_factory.mktemp("empty") / "data"

    async def make() -> None:
        library = SqliteLibrary(folder)
        await library.open_user_store()
        await library.open_history_store()
        await library.close()

    asyncio.run(make())
    return folder


@pytest.fixture
async def library(empty_data: Path, tmp_path: Path) -> AsyncIterator[Library]:
    """An empty library; tests/contracts hold the other engines equal to this one."""
    shutil.copytree(empty_data, tmp_path / "data")
    library = SqliteLibrary(tmp_path / "data")
    yield library
    await library.close()


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """One browser for each worker."""
    from browsers import start_browser

    with start_browser() as browser:
        yield browser


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[Callable[..., "tuple[Page, Watch]"]]:
    """Open a page in a context of its own. The test fails if a page complains or asks another machine."""
    from browsers import Pages

    pages = Pages(browser)
    yield pages.open
    pages.close()


@pytest.fixture
def home_without_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which no client of ours has left anything."""
    place = tmp_path / "home"
    place.mkdir()
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(place))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return place
