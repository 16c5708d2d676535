from pathlib import Path

import pytest

from everkept.app.search_sources import map_project_folders
from everkept.core.projects import Project, find_workspace_key
from everkept.engines.memory.library import MemoryLibrary
from worktrees import add_worktree


@pytest.fixture
def library() -> MemoryLibrary:
    return MemoryLibrary()


async def project(library: MemoryLibrary, name: str, *folders: str) -> Project:
    made = await library.create(name, "")
    for folder in folders:
        await library.link_workspace(folder, made)
    return made


async def shared(library: MemoryLibrary, projects: list[Project], *folders: str) -> dict[str, str]:
    found = await map_project_folders(library, projects, folders)
    return {folder: owner.name for folder, owner in found.items()}


async def test_a_folder_belongs_to_the_project_around_it(library: MemoryLibrary) -> None:
    shop = await project(library, "shop", "/nowhere/shop")
    blog = await project(library, "blog", "/nowhere/blog")
    folders = ("/nowhere/shop", "/nowhere/shop/src", "/nowhere/shopping", "/nowhere/blog", "")
    assert await shared(library, [shop], *folders) == {"/nowhere/shop": "shop", "/nowhere/shop/src": "shop"}
    assert await shared(library, [shop, blog], "/nowhere/blog") == {"/nowhere/blog": "blog"}
    assert await shared(library, [], *folders) == {}


async def test_a_project_inside_of_another_is_its_own(library: MemoryLibrary) -> None:
    shop = await project(library, "shop", "/nowhere/shop")
    inner = await project(library, "secret", "/nowhere/shop/secret")
    folders = ("/nowhere/shop/src", "/nowhere/shop/secret", "/nowhere/shop/secret/src")
    assert set(await shared(library, [shop], *folders)) == {"/nowhere/shop/src"}
    assert set(await shared(library, [inner], *folders)) == set(folders[1:])
    assert set(await shared(library, [shop, inner], *folders)) == set(folders)


async def test_folders_of_windows_are_known_anywhere(library: MemoryLibrary) -> None:
    shop = await project(library, "shop", "C:\\work\\shop")
    folders = ("C:\\work\\shop\\src", "C:\\work\\other")
    assert set(await shared(library, [shop], *folders)) == {"C:\\work\\shop\\src"}


async def test_a_repository_in_a_shared_folder_that_has_no_project_goes_with_it(
    library: MemoryLibrary, tmp_path: Path
) -> None:
    root = Path(find_workspace_key(str(tmp_path)) or "")
    shop = await project(library, "shop", str(root / "shop"))
    (root / "shop" / "src").mkdir(parents=True)
    add_worktree(root / "shop", root / "worktree")
    folders = (str(root / "shop" / "src"), str(root / "worktree"), str(root))
    assert set(await shared(library, [shop], *folders)) == set(folders[:2])
    other = await project(library, "other", str(root / "worktree"))
    assert set(await shared(library, [shop], *folders)) == {folders[0]}
    assert set(await shared(library, [shop, other], *folders)) == set(folders[:2])


async def test_without_a_folder_a_project_shares_none(library: MemoryLibrary) -> None:
    shop = await project(library, "shop")
    assert await shared(library, [shop], "/nowhere/shop") == {}
