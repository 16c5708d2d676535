from pathlib import Path

import pytest

from everkept.core.projects import find_workspace
from everkept.engines.memory.library import MemoryLibrary
from everkept.hooks.workspace import find_project, get_hooks_folder
from everkept.settings import Settings


@pytest.fixture
async def library() -> MemoryLibrary:
    return MemoryLibrary()


def test_the_hooks_have_a_folder_in_the_data_folder(tmp_path: Path) -> None:
    assert get_hooks_folder(Settings(tmp_path)) == tmp_path / "hooks"


async def test_a_folder_has_the_project_that_servers_gave_it(library: MemoryLibrary, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    settings = Settings(tmp_path / "data")
    assert await find_project(inside, settings, library) is None
    home = find_workspace(tmp_path)
    assert home is not None
    project = await library.create("shop", "")
    await library.link_workspace(home.key, project)
    assert await find_project(inside, settings, library) == project
    assert await find_project(inside, Settings(tmp_path / "data", project="auto"), library) == project


async def test_a_project_that_is_configured_goes_first(library: MemoryLibrary, tmp_path: Path) -> None:
    settings = Settings(tmp_path, project="chosen")
    assert await find_project(tmp_path, settings, library) is None
    chosen = await library.create("chosen", "")
    assert await find_project(tmp_path, settings, library) == chosen


async def test_the_home_folder_has_the_default_project(library: MemoryLibrary, tmp_path: Path) -> None:
    assert await find_project(Path.home(), Settings(tmp_path), library) is None
    project = await library.create("default", "")
    assert await find_project(Path.home(), Settings(tmp_path), library) == project
    assert await find_project(None, Settings(tmp_path), library) == project
