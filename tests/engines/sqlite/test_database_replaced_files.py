"""Files that are moved, deleted or replaced while they are open."""

import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from data_folders import vector_of
from everkept.core.ports import RecordStore
from everkept.core.records import RecordFilter
from everkept.engines.sqlite.care import SqliteCare
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import EverkeptError, Unavailable
from records import batch, entity

MODEL = "test"


@pytest.fixture
async def library(folder: Path) -> AsyncIterator[SqliteLibrary]:
    library = SqliteLibrary(folder)
    await library.create("shop", "")
    yield library
    await library.close()


async def names(store: RecordStore) -> set[str]:
    return {record.id for record in await store.scan(RecordFilter())}


async def names_on_disk(folder: Path) -> set[str]:
    """What another process finds there."""
    fresh = SqliteLibrary(folder)
    try:
        return await names((await fresh.open("shop"))[1])
    finally:
        await fresh.close()


def remove(folder: Path, way: str) -> None:
    shutil.rmtree(folder) if way == "deleted" else folder.rename(folder.with_name("moved"))


def has_gone(folder: Path) -> bool:
    return not folder.exists()


def swap(folder: Path, place: Path) -> None:
    """Put the copy in the place of the folder."""
    folder.rename(place / "old")
    (place / "copy").rename(folder)


async def copy_folder(library: SqliteLibrary, folder: Path, target: Path) -> None:
    await library.close()  # the next call opens it again
    shutil.copytree(folder, target)


async def test_a_write_into_a_deleted_file_is_an_error_until_it_is_back(library: SqliteLibrary, folder: Path) -> None:
    _, store = await library.open("shop")
    await store.commit(batch(entity("one")))
    [path] = (folder / "projects").glob("*.db")
    await library.close()
    copy = path.read_bytes()
    await store.commit(batch(entity("two")))
    path.unlink()
    with pytest.raises(Unavailable, match="deleted while it was open"):
        await store.commit(batch(entity("lost")))
    with pytest.raises(EverkeptError):
        await store.commit(batch(entity("lost")))
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    path.write_bytes(copy)
    await store.commit(batch(entity("three")))
    assert await names(store) == await names_on_disk(folder) == {"one", "three"}


@pytest.mark.parametrize("way", ["deleted", "moved"])
async def test_no_write_is_acknowledged_without_its_data_folder(library: SqliteLibrary, folder: Path, way: str) -> None:
    _, store = await library.open("shop")
    user = await library.open_user_store()
    for each in (store, user):
        await each.commit(batch(entity("one")))
    remove(folder, way)
    for _ in range(2):
        for each in (store, user):
            with pytest.raises(EverkeptError):
                await each.commit(batch(entity("lost")))
        with pytest.raises(EverkeptError):
            await library.set_note("note", "lost")
        with pytest.raises(EverkeptError):
            await library.create("lost", "")
    assert has_gone(folder)


async def test_after_an_error_the_file_that_is_there_now_is_used(
    library: SqliteLibrary, folder: Path, tmp_path: Path
) -> None:
    _, store = await library.open("shop")
    await store.commit(batch(entity("one")))
    await store.put_vectors(MODEL, [vector_of("one", 1)])
    await copy_folder(library, folder, tmp_path / "copy")
    await store.commit(batch(entity("two")))
    await store.put_vectors(MODEL, [vector_of("two", 1)])
    near = await store.find_near(MODEL, vector_of("two", 1).vector, RecordFilter(), 5)
    assert near[0].id == "two"
    swap(folder, tmp_path)
    with pytest.raises(Unavailable, match="replaced by another file"):
        await store.commit(batch(entity("lost")))
    await store.commit(batch(entity("three")))
    assert await names(store) == await names_on_disk(folder) == {"one", "three"}
    near = await store.find_near(MODEL, vector_of("two", 1).vector, RecordFilter(), 5)
    assert [match.id for match in near] == ["one"]
    assert await names_on_disk(tmp_path / "old") == {"one", "two"}


async def test_a_moved_list_of_projects_moves_no_project(library: SqliteLibrary, folder: Path, tmp_path: Path) -> None:
    await copy_folder(library, folder, tmp_path / "copy")
    await library.set_note("note", "before")
    swap(folder, tmp_path)
    with pytest.raises(Unavailable):
        await library.archive("shop")
    await library.set_note("note", "after")
    assert await library.get_note("note") == "after"
    assert (await library.get_project("shop")).status == "active"


async def test_the_doctor_names_processes_with_a_deleted_file(library: SqliteLibrary, folder: Path) -> None:
    user = await library.open_user_store()
    await user.commit(batch(entity("one")))
    assert list(SqliteCare(folder).check_leftovers("data")) == []
    (folder / "user.db").unlink()
    found = [finding.what for finding in SqliteCare(folder).check_leftovers("data")]
    assert len(found) == (sys.platform == "linux")
    assert all("user.db open, which was deleted" in what for what in found)
