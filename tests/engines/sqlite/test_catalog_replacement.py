from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from everkept.core.answers import CatalogData
from everkept.core.projects import Project
from everkept.core.records import RecordFilter
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound
from everkept.values import replace
from holding_actors import KEPT, fill, records_of, wanted
from processes import Actor, said_by
from records import DAY_ONE, batch, entity


@pytest.fixture
async def filled(folder: Path) -> AsyncIterator[SqliteLibrary]:
    library = SqliteLibrary(folder)
    await fill(library)
    yield library
    await library.close()


async def test_a_library_holds_what_it_took_over_and_the_records_that_it_had(
    filled: SqliteLibrary, folder: Path
) -> None:
    for _ in range(2):
        await filled.replace_catalog_data(wanted())
        assert await filled.read_catalog_data() == wanted()
        assert await records_of(filled) == KEPT
        assert await filled.get_note("lease.work") == "of this moment"
        assert [token.id for token in await filled.list_tokens()] == ["t1"]
        assert await filled.has_token("hash 1")
        assert not await filled.has_token("hash 0")
    archived = sorted(path.name for path in (folder / "archive").glob("*.db"))
    assert archived == ["id-one.db", "id-put-away.db"]
    await filled.close()
    again = SqliteLibrary(folder)
    assert await again.read_catalog_data() == wanted()
    await again.close()


async def test_another_process_keeps_none_of_what_was_given_up(filled: SqliteLibrary, folder: Path) -> None:
    other = SqliteLibrary(folder)
    stores = {name: (await other.open(name))[1] for name in ("one", "two", "going")}
    for store in stores.values():
        await store.scan(RecordFilter())
    await filled.replace_catalog_data(wanted())
    for name in ("one", "going"):
        with pytest.raises(EverkeptError):
            await stores[name].commit(batch(entity("late")))
    await stores["two"].commit(batch(entity("on it goes")))
    _, store = await other.open("one")
    assert [record.id for record in await store.scan(RecordFilter())] == ["kept in two", "on it goes"]
    with pytest.raises(NotFound):
        await other.get_project("nobody")
    await other.close()


async def test_a_death_at_any_step_is_made_good_by_the_next_attempt(filled: SqliteLibrary, folder: Path) -> None:
    await filled.close()
    told = Actor("holding_actors:die_at_every_step", folder).finish()
    assert len(told) > 15
    assert told == [[True, True]] * len(told)


@pytest.mark.parametrize(
    "projects",
    [
        [Project("../../away", "one", "", "active", DAY_ONE, DAY_ONE)],
        [Project("id-one", "a/b", "", "active", DAY_ONE, DAY_ONE)],
        [Project(each, "one", "", "active", DAY_ONE, DAY_ONE) for each in ("a", "b")],
        [Project("a", each, "", "active", DAY_ONE, DAY_ONE) for each in ("one", "two")],
    ],
    ids=["id", "name", "two names", "two ids"],
)
async def test_what_no_library_could_hold_changes_nothing(filled: SqliteLibrary, projects: list[Project]) -> None:
    before = await filled.read_catalog_data()
    with pytest.raises(InvalidInput):
        await filled.replace_catalog_data(replace(wanted(), projects=projects))
    assert await filled.read_catalog_data() == before


async def test_folders_of_projects_that_are_not_there_are_left_out(filled: SqliteLibrary) -> None:
    await filled.replace_catalog_data(replace(wanted(), workspaces={"/src": "id-nobody"}))
    assert (await filled.read_catalog_data()).workspaces == {}


async def test_nothing_at_all_can_be_taken_over(filled: SqliteLibrary, folder: Path) -> None:
    await filled.replace_catalog_data(CatalogData())
    assert await filled.read_catalog_data() == CatalogData(projects=[], tokens=[])
    assert said_by("digests", folder / "projects") == said_by("digests", folder / "archive") == {}


async def test_a_damaged_file_keeps_no_other_from_being_told_anew(filled: SqliteLibrary, folder: Path) -> None:
    await filled.close()
    said_by("spoil", folder / "projects" / "id-two.db")
    await filled.replace_catalog_data(wanted())
    assert await filled.read_catalog_data() == wanted()


async def test_a_project_may_be_made_with_an_id_of_its_own(library: SqliteLibrary, folder: Path) -> None:
    made = await library.create("named", "", project_id="of-elsewhere")
    assert made.id == "of-elsewhere"
    assert (folder / "projects" / "of-elsewhere.db").exists()
    for name in ("named", "another"):
        with pytest.raises(Conflict):
            await library.create(name, "", project_id="of-elsewhere")
    with pytest.raises(InvalidInput):
        await library.create("another", "", project_id="../elsewhere")
    assert [project.name for project in await library.list_projects()] == ["named", "project"]


async def test_the_file_of_nobodys_project_is_not_written_over(library: SqliteLibrary, folder: Path) -> None:
    lost = folder / "projects" / "lost.db"
    lost.write_bytes(b"somebody's")
    with pytest.raises(Conflict):
        await library.create("found", "", project_id="lost")
    assert lost.read_bytes() == b"somebody's"
    assert [project.name for project in await library.list_projects()] == ["project"]


async def test_the_store_of_an_archived_project_can_be_read_and_not_written(library: SqliteLibrary) -> None:
    project = await library.archive("project")
    store = await library.get_store(project)
    assert [record.id for record in await store.scan(RecordFilter())] == ["kept"]
    with pytest.raises(EverkeptError) as caught:
        await store.commit(batch(entity("late")))
    assert caught.value.code == "project_archived"
    await library.restore("project")
    _, restored = await library.open("project")
    await restored.commit(batch(entity("in time")))
    assert await library.get_store(project) is restored


async def test_the_condition_says_what_a_library_is_kept_in(library: SqliteLibrary, folder: Path) -> None:
    found = library.condition
    assert (found.engine, found.mode, found.status) == ("sqlite", "embedded-file", "connected")
    assert found.place == str(folder)
    assert found.version.startswith("3.")
