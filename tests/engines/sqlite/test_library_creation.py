import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from everkept.core.records import RecordFilter
from everkept.engines.sqlite import library
from everkept.engines.sqlite.connection import connect, create
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.engines.sqlite.schema import LIBRARY, PROJECT
from everkept.errors import StoreDamaged, StoreTooNew
from processes import acting
from records import batch, entity

PUBLISHERS = 8


async def lost(library: SqliteLibrary, folder: Path) -> SqliteLibrary:
    """The library after its `_meta.db` was moved away."""
    await library.close()
    (folder / "_meta.db").rename(folder / "_meta.moved")
    return SqliteLibrary(folder)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def ids(library: SqliteLibrary, project: str) -> list[str]:
    _, store = await library.open(project)
    return [record.id for record in await store.scan(RecordFilter())]


async def test_a_lost_list_of_projects_is_made_anew_from_their_files(library: SqliteLibrary, folder: Path) -> None:
    await library.create("shop", "What we sell.")
    await library.create("old", "")
    for _ in range(2):
        await library.archive("old")
        await library.restore("old")
    await library.archive("old")
    before = {p.id: (p.name, p.description, p.status) for p in await library.list_projects()}
    created = [project.created_at for project in await library.list_projects()]
    again = await lost(library, folder)
    assert {p.id: (p.name, p.description, p.status) for p in await again.list_projects()} == before
    assert [project.created_at for project in await again.list_projects()] == created
    assert await ids(again, "project") == ["kept"]
    await again.restore("old")
    for name in ("old", "shop", "project"):
        _, store = await again.open(name)
        await store.commit(batch(entity("after")))
        await again.archive(name)
        await again.restore(name)
        assert "after" in await ids(again, name)
    await again.close()


async def test_a_name_that_two_files_have_gets_a_number(library: SqliteLibrary, folder: Path) -> None:
    library = await lost(library, folder)
    (folder / "hidden").mkdir()
    for path in (folder / "projects").glob("*.db"):
        path.rename(folder / "hidden" / path.name)
    await library.create("project", "")
    library = await lost(library, folder)
    for path in (folder / "hidden").glob("*.db"):
        path.rename(folder / "archive" / path.name)
    names = {project.name: project.status for project in await library.list_projects()}
    assert names == {"project": "active", "project-2": "archived"}
    await library.restore("project-2")
    assert await ids(library, "project-2") == ["kept"]
    await library.close()


async def test_a_file_that_does_not_know_its_name_gets_one(library: SqliteLibrary, folder: Path) -> None:
    create(folder / "projects" / "0123456789abcdef.db", PROJECT)
    again = await lost(library, folder)
    assert [project.name for project in await again.list_projects()] == ["project", "recovered-01234567"]
    assert await ids(again, "recovered-01234567") == []
    await again.close()


async def test_a_damaged_file_is_left_out_and_told(
    library: SqliteLibrary, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "projects" / "damaged.db").write_bytes(b"no database")
    again = await lost(library, folder)
    assert [project.name for project in await again.list_projects()] == ["project"]
    assert any("damaged.db" in record.getMessage() for record in caplog.records)
    assert (folder / "projects" / "damaged.db").read_bytes() == b"no database"
    await again.close()


async def test_a_file_of_a_newer_program_is_not_forgotten(library: SqliteLibrary, folder: Path, path: Path) -> None:
    again = await lost(library, folder)
    with acting("leave_log", path, "PRAGMA user_version=99") as other:
        other.process.wait()
    with pytest.raises(StoreTooNew):
        await again.list_projects()
    assert names_in(folder) == ["_meta.moved", "archive", "projects"]


async def test_a_move_that_a_crash_cut_in_two_is_finished_from_the_files_alone(
    library: SqliteLibrary, folder: Path
) -> None:
    with acting("die_while_archiving", folder, "project") as other:
        other.process.wait()
    again = await lost(library, folder)
    assert [project.status for project in await again.list_projects()] == ["archived"]
    await again.restore("project")
    assert await ids(again, "project") == ["kept"]
    await again.close()


async def test_the_log_of_a_list_that_was_moved_away_is_not_taken_for_the_new_ones(
    library: SqliteLibrary, folder: Path
) -> None:
    await library.close()
    with acting("leave_log", folder / "_meta.db", "UPDATE projects SET name = 'x'") as other:
        other.process.wait()
    assert (folder / "_meta.db-wal").stat().st_size
    (folder / "_meta.db").unlink()
    again = SqliteLibrary(folder)
    assert [project.name for project in await again.list_projects()] == ["project"]
    await again.close()


async def test_a_damaged_list_of_projects_says_what_can_be_done(library: SqliteLibrary, folder: Path) -> None:
    await library.close()
    (folder / "_meta.db").write_bytes(b"no database")
    with pytest.raises(StoreDamaged) as caught:
        await SqliteLibrary(folder).list_projects()
    assert "move it to another folder" in (caught.value.hint or "")
    assert "tokens" in (caught.value.hint or "")


def test_of_several_that_publish_at_once_one_wins_for_good(tmp_path: Path) -> None:
    target = tmp_path / "_meta.db"
    begin = threading.Barrier(PUBLISHERS)
    seen: list[bytes] = []

    def publish(number: int) -> None:
        draft = tmp_path / f"_meta.{number}.new"
        draft.write_bytes(str(number).encode())
        begin.wait()
        library._publish(draft, target)
        seen.append(target.read_bytes())

    threads = [threading.Thread(target=publish, args=(number,)) for number in range(PUBLISHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == PUBLISHERS
    assert set(seen) == {target.read_bytes()}


async def test_a_library_is_made_where_there_are_no_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    library = SqliteLibrary(folder)
    await library.create("project", "")
    await library.close()
    assert names_in(folder) == ["_meta.db", "archive", "projects"]


def test_of_several_that_make_the_users_file_at_once_all_use_the_same(tmp_path: Path) -> None:
    starting = threading.Barrier(PUBLISHERS)

    def use(number: int) -> None:
        starting.wait()
        library.create_store(tmp_path / "user.db")
        with closing(connect(tmp_path / "user.db", PROJECT)) as db:
            db.execute("INSERT INTO changes(at, tool) VALUES (?, '')", (number,))

    with ThreadPoolExecutor(PUBLISHERS) as threads:
        list(threads.map(use, range(PUBLISHERS)))
    with closing(connect(tmp_path / "user.db", PROJECT)) as db:
        found = {row[0] for row in db.execute("SELECT at FROM changes")}
    assert found == set(range(PUBLISHERS))
    assert names_in(tmp_path) == ["user.db"]


async def test_the_users_file_is_no_project_when_the_list_is_made_anew(library: SqliteLibrary, folder: Path) -> None:
    await (await library.open_user_store()).commit(batch(entity("mine")))
    again = await lost(library, folder)
    assert [project.name for project in await again.list_projects()] == ["project"]
    assert [record.id for record in await (await again.open_user_store()).scan(RecordFilter())] == ["mine"]
    await again.close()


@pytest.mark.parametrize("name", ["_meta", "user"])
async def test_drafts_that_a_crash_left_are_removed_and_fresh_ones_are_not(
    library: SqliteLibrary, folder: Path, name: str
) -> None:
    await library.close()
    stale, fresh = folder / f"{name}.1.new", folder / f"{name}.2.new"
    for draft in (stale, fresh):
        create(draft, LIBRARY)
    os.utime(stale, (1, 1))
    await library.list_projects()
    assert not stale.exists()
    assert fresh.exists()
