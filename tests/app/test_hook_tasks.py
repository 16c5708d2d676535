from pathlib import Path

import pytest

from everkept.app.hook_tasks import store_memory
from everkept.core.records import RecordFilter
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import ProjectOff, Refused
from everkept.families.memories.memory_record import NewMemory
from everkept.families.memories.model import MemorySource
from everkept.settings import Settings

NOTICED = NewMemory("Edited a.py", "episodic", "session", 0.2, "s-1", source=MemorySource(tool="hook:PostToolUse"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    repository = tmp_path / "shop"
    (repository / ".git").mkdir(parents=True)
    return repository


async def test_a_memory_lands_in_the_project_of_the_folder_and_waits_for_its_vector(
    tmp_path: Path, folder: Path
) -> None:
    library = MemoryLibrary()
    stored = await store_memory(Settings(tmp_path), folder / "src", NOTICED, library=library)
    _, store = await library.open("shop")
    (record,) = await store.scan(RecordFilter(kinds=("memory",), automatic=True))
    assert record.id == stored.memory_id
    assert [r.id for r in await store.find_unembedded("any", ["memory"], 9)] == [record.id]
    assert [c.tool for c in await store.read_changes()] == ["hook:PostToolUse"]


async def test_a_configured_project_goes_before_the_folders(tmp_path: Path, folder: Path) -> None:
    library = MemoryLibrary()
    await store_memory(Settings(tmp_path, project="named"), folder, NOTICED, library=library)
    assert [project.name for project in await library.list_projects()] == ["named"]


async def test_without_a_folder_it_is_the_default_project(tmp_path: Path) -> None:
    library = MemoryLibrary()
    await store_memory(Settings(tmp_path), None, NOTICED, library=library)
    assert [project.name for project in await library.list_projects()] == ["default"]


async def test_a_full_session_is_refused(tmp_path: Path, folder: Path) -> None:
    library = MemoryLibrary()
    settings = Settings(tmp_path, max_memories_per_session=1)
    await store_memory(settings, folder, NOTICED, library=library)
    with pytest.raises(Refused) as caught:
        await store_memory(settings, folder, NOTICED, library=library)
    assert caught.value.facts["limit"] == 1


async def test_nothing_is_stored_in_a_project_that_is_off(tmp_path: Path, folder: Path) -> None:
    library = MemoryLibrary()
    await store_memory(Settings(tmp_path), folder, NOTICED, library=library)
    await library.set_off("shop", off=True)
    with pytest.raises(ProjectOff):
        await store_memory(Settings(tmp_path), folder, NOTICED, library=library)
