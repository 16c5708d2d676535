import subprocess
from pathlib import Path

import pytest

from everkept.accounts.project_rule import ProjectRule
from everkept.app.bank import BankProjects
from everkept.core.ports import Library
from everkept.core.sessions import Session, ToolCall
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import ProjectArchived, ProjectOff
from everkept.families.bank.banks import Bank
from everkept.files.resolver import FileStoreResolver
from records import batch, entity


@pytest.fixture
def library() -> Library:
    return MemoryLibrary()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


async def bank_at(folder: Path, name: str = "memory-bank") -> Bank:
    (folder / name).mkdir(parents=True, exist_ok=True)
    files = FileStoreResolver()
    return Bank(await files.open_folder(str(folder / name)), await files.open_folder(str(folder)))


async def project_of(library: Library, bank: Bank, projects: BankProjects | None = None) -> str:
    """The name of the project that a write to the bank's records reaches."""
    projects = projects or BankProjects(library)
    store = await projects.open_to_write(bank)
    if not await store.get(["written"]):
        await store.commit(batch(entity("written")))
    assert [r.id for r in await (await projects.open_to_read(bank)).get(["written"])] == ["written"]
    project_id = await projects.find_project_id(bank)
    [name] = [project.name for project in await library.list_projects() if project.id == project_id]
    return name


async def test_a_bank_at_the_root_of_a_repository_shares_its_project(library: Library, repository: Path) -> None:
    rule = ProjectRule(library, workspace=repository)
    memories = await rule.open_to_write(ToolCall(Session(), "test"), None)
    assert await project_of(library, await bank_at(repository)) == "shop"
    assert await memories.get(["written"])


async def test_the_first_bank_below_the_root_shares_it_and_a_second_gets_its_own(
    library: Library, repository: Path
) -> None:
    first, second = await bank_at(repository / "api"), await bank_at(repository / "web")
    assert await project_of(library, first) == "shop"
    assert await project_of(library, second) == "shop-2"
    assert await project_of(library, await bank_at(repository / "api")) == "shop"
    assert await project_of(library, await bank_at(repository / "web")) == "shop-2"


async def test_nothing_is_made_before_the_first_write(library: Library, repository: Path) -> None:
    bank = await bank_at(repository)
    projects = BankProjects(library)
    assert await projects.find_project_id(bank) is None
    assert await (await projects.open_to_read(bank)).get_revision() == 0
    assert await library.list_projects() == []


async def test_the_bank_of_the_start_belongs_to_the_project_that_was_named(
    library: Library, repository: Path, tmp_path: Path
) -> None:
    projects = BankProjects(library, configured="named", place=repository)
    bank = await bank_at(repository)
    await library.create("named", "")
    assert await projects.find_project_id(bank) is None  # it comes to it with the first write
    assert await project_of(library, bank, projects) == "named"
    elsewhere = await bank_at(tmp_path / "other")
    assert await project_of(library, elsewhere, projects) == "other"


async def test_a_bank_keeps_its_project_whoever_names_another_one_later(library: Library, repository: Path) -> None:
    bank = await bank_at(repository)
    assert await project_of(library, bank) == "shop"
    later = BankProjects(library, configured="named", place=repository)
    assert await project_of(library, bank, later) == "shop"
    assert [project.name for project in await library.list_projects()] == ["shop"]


async def test_where_the_start_has_no_folder_a_named_project_owns_no_bank(library: Library, repository: Path) -> None:
    projects = BankProjects(library, configured="named", place=None)
    assert await project_of(library, await bank_at(repository), projects) == "shop"


async def test_a_folder_outside_of_a_repository_is_a_project_of_its_own(library: Library, tmp_path: Path) -> None:
    assert await project_of(library, await bank_at(tmp_path / "notes")) == "notes"
    assert await project_of(library, await bank_at(tmp_path / "x" / "notes")) == "notes-2"


async def test_an_archived_project_refuses_its_bank_too(library: Library, tmp_path: Path) -> None:
    bank = await bank_at(tmp_path / "notes")
    await project_of(library, bank)
    await library.archive("notes")
    with pytest.raises(ProjectArchived):
        await BankProjects(library).open_to_read(bank)


async def test_a_project_that_was_deleted_is_made_anew(library: Library, tmp_path: Path) -> None:
    bank = await bank_at(tmp_path / "notes")
    projects = BankProjects(library)
    await project_of(library, bank, projects)
    before = await projects.find_project_id(bank)
    await library.delete("notes")
    assert await (await projects.open_to_read(bank)).get(["written"]) == []
    assert await project_of(library, bank, projects) == "notes"
    assert await projects.find_project_id(bank) not in (None, before)


async def test_a_bank_below_the_root_claims_the_project_that_memories_made_before(
    library: Library, repository: Path
) -> None:
    await ProjectRule(library, workspace=repository).open_to_write(ToolCall(Session(), "test"), None)
    projects = BankProjects(library)
    first, second = await bank_at(repository / "api"), await bank_at(repository / "web")
    assert await (await projects.open_to_read(second)).get_revision() == 0  # reading claims nothing
    assert await project_of(library, first, projects) == "shop"
    assert await project_of(library, second, projects) == "shop-2"


async def test_two_banks_at_one_place_have_a_project_each(library: Library, repository: Path) -> None:
    assert await project_of(library, await bank_at(repository, "one")) == "shop"
    assert await project_of(library, await bank_at(repository, "two")) == "shop-2"
    assert await project_of(library, await bank_at(repository / "sub")) == "shop-3"


@pytest.fixture
def worktree(repository: Path) -> Path:
    git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    folder = repository.parent / "shop-fix"
    subprocess.run([*git, "worktree", "add", "-q", str(folder)], check=True)
    return folder


async def test_the_bank_of_a_worktree_is_the_same(library: Library, repository: Path, worktree: Path) -> None:
    assert await project_of(library, await bank_at(repository)) == "shop"
    assert await project_of(library, await bank_at(worktree)) == "shop"


async def test_the_records_of_a_bank_are_off_with_its_project(library: Library, repository: Path) -> None:
    bank, projects = await bank_at(repository), BankProjects(library)
    name = await project_of(library, bank, projects)
    await library.set_off(name, off=True)
    for asked in (projects, BankProjects(library)):  # one that knows it, and one that is new
        for ask in (asked.open_to_read, asked.open_to_write):
            with pytest.raises(ProjectOff):
                await ask(bank)
    await library.set_off(name, off=False)
    assert await project_of(library, bank, projects) == name
