from pathlib import Path

import pytest

from everkept.core.projects import home_of
from everkept.engines.memory.library import MemoryLibrary
from everkept.hooks.workspace import hooks_folder, project_of
from everkept.settings import Settings


@pytest.fixture
async def library() -> MemoryLibrary:
    return MemoryLibrary()


def test_the_hooks_have_a_folder_in_the_data_folder(tmp_path: Path) -> None:
    assert hooks_folder(Settings(tmp_path)) == tmp_path / "hooks"


async def test_a_folder_has_the_project_that_servers_gave_it(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    inside = tmp_path / "src" / "deep"
    inside.mkdir(parents=True)
    settings = Settings(tmp_path / "data")
    assert await project_of(inside, settings, library) is None
    home = home_of(tmp_path)
    assert home is not None
    project = await library.create("shop", "")
    await library.assign_workspace(home.key, project)
    assert await project_of(inside, settings, library) == project
    assert await project_of(inside, Settings(tmp_path / "data", project="auto"), library) == project


async def test_a_project_that_is_configured_goes_first(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, project="chosen")
    assert await project_of(tmp_path, settings, library) is None
    chosen = await library.create("chosen", "")
    assert await project_of(tmp_path, settings, library) == chosen


async def test_the_home_folder_has_the_default_project(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    assert await project_of(Path.home(), Settings(tmp_path), library) is None
    project = await library.create("default", "")
    assert await project_of(Path.home(), Settings(tmp_path), library) == project
    assert await project_of(None, Settings(tmp_path), library) == project
