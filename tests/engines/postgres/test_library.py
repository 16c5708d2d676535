"""A library on PostgreSQL that several servers use at once."""

import asyncio
from uuid import uuid4

import pytest

from concurrent_calls import outcomes
from everkept.core.answers import CatalogData, SearchRecord
from everkept.core.library import Condition
from everkept.core.mcp import ToolUsage
from everkept.core.ports import RecordStore, Token
from everkept.core.records import RecordFilter
from everkept.engines.postgres.library import PostgresLibrary
from everkept.errors import Conflict, EverkeptError, InvalidInput, NotFound, ProjectArchived
from postgres_libraries import Shelf, shelf_of
from records import DAY_ONE, batch, entity

SERVERS = 4
TASKS = 32
PATIENCE = 30  # seconds; nothing takes that long unless it hangs


@pytest.fixture
def libraries(shelf: Shelf) -> list[PostgresLibrary]:
    return [shelf.library() for _ in range(SERVERS)]


async def ids(store: RecordStore) -> list[str]:
    return [record.id for record in await store.scan(RecordFilter())]


async def test_of_many_that_create_one_name_at_once_exactly_one_wins(libraries: list[PostgresLibrary]) -> None:
    for number in range(3):
        name = f"project {number}"
        ended = await outcomes(*(libraries[task % SERVERS].create(name, "") for task in range(TASKS)))
        assert ended.count("done") == 1
        assert {*ended} <= {"done", "project_exists", "store_busy"}  # a busy machine may refuse some sooner
    assert len(await libraries[0].list_projects()) == 3


async def test_of_many_that_create_one_id_at_once_exactly_one_wins(libraries: list[PostgresLibrary]) -> None:
    project_id = str(uuid4())
    ended = await outcomes(
        *(libraries[task % SERVERS].create(f"project {task}", "", project_id=project_id) for task in range(TASKS))
    )
    assert sorted(ended) == ["conflict"] * (TASKS - 1) + ["done"]
    assert [project.id for project in await libraries[0].list_projects()] == [project_id]


async def test_of_several_that_archive_or_delete_at_once_exactly_one_does(libraries: list[PostgresLibrary]) -> None:
    await libraries[0].create("shop", "")
    for operation, refusal in (("archive", "project_status"), ("delete", "not_found")):
        ended = await outcomes(*(getattr(library, operation)("shop") for library in libraries))
        assert sorted(ended) == sorted([refusal] * (SERVERS - 1) + ["done"])


async def test_a_name_that_is_freed_again_and_again_belongs_to_one_at_a_time(libraries: list[PostgresLibrary]) -> None:
    async def make_and_delete(library: PostgresLibrary) -> None:
        for _ in range(5):
            await outcomes(library.create("shop", ""))
            await outcomes(library.delete("shop"))

    await asyncio.gather(*map(make_and_delete, libraries))
    await outcomes(libraries[0].delete("shop"))
    assert await libraries[0].list_projects() == []


async def test_a_folder_goes_to_one_project_whoever_asks(libraries: list[PostgresLibrary]) -> None:
    projects = [await library.create(f"project {number}", "") for number, library in enumerate(libraries)]
    given = await asyncio.gather(
        *(libraries[task % SERVERS].link_workspace("/work/shop", projects[task % SERVERS]) for task in range(TASKS))
    )
    assert len({project.id for project in given}) == 1


async def test_no_folder_is_left_to_a_project_that_is_deleted_meanwhile(libraries: list[PostgresLibrary]) -> None:
    first, *others = libraries
    for number in range(5):
        project = await first.create("shop", "")
        ended = await outcomes(
            first.delete("shop"),
            *(library.link_workspace(f"/work/{number}/{each}", project) for each, library in enumerate(others)),
        )
        assert ended[0] == "done"
        assert set(ended[1:]) <= {"done", "not_found"}
        assert await first.list_workspaces(project) == []
        with pytest.raises(NotFound):
            await first.link_workspace("/work/shop", project)


async def test_a_folder_that_came_just_before_the_end_is_silent_too(libraries: list[PostgresLibrary]) -> None:
    first, second, *_ = libraries
    for number in range(5):
        project = await first.create("shop", "")
        await first.set_off("shop", off=True)
        path = f"/work/{number}"
        given, _ = await outcomes(second.link_workspace(path, project), first.delete("shop"))
        is_silent = path in {silence.folder for silence in await first.list_off_periods()}
        assert is_silent == (given == "done")


async def test_switching_at_once_is_one_switch(libraries: list[PostgresLibrary]) -> None:
    first = libraries[0]
    await first.link_workspace("/work/shop", await first.create("shop", ""))
    for off in (True, False):
        await asyncio.gather(*(libraries[task % SERVERS].set_off("shop", off=off) for task in range(TASKS)))
        assert (await first.get_project("shop")).is_off == off
    [silence] = await first.list_off_periods()
    assert silence.until is not None


async def test_a_token_is_added_once_whoever_asks(libraries: list[PostgresLibrary]) -> None:
    ended = await outcomes(
        *(library.add_token(Token(str(number), "laptop", DAY_ONE), "hash") for number, library in enumerate(libraries))
    )
    assert sorted(ended) == ["conflict"] * (SERVERS - 1) + ["done"]
    [token] = await libraries[0].list_tokens()
    removed = await asyncio.gather(*(library.remove_token(token.id) for library in libraries))
    assert sorted(removed) == [False] * (SERVERS - 1) + [True]


async def test_what_one_server_writes_the_others_read(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    made = await ours.create("shop", "What we sell.")
    assert await theirs.list_projects() == [made]
    await theirs.set_note("key", "value")
    assert await ours.get_note("key") == "value"
    _, store = await ours.open("shop")
    await store.commit(batch(entity("Ada")))
    _, store = await theirs.open("shop")
    assert await ids(store) == ["Ada"]
    for library, name in ((ours, "ours"), (theirs, "theirs")):
        await (await library.open_user_store()).commit(batch(entity(name)))
    assert await ids(await ours.open_user_store()) == ["ours", "theirs"]
    assert await ids(await theirs.open_history_store()) == []


async def test_who_has_a_project_open_learns_that_it_is_put_away(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await ours.open("shop")
    await store.commit(batch(entity("Ada")))
    await theirs.archive("shop")
    with pytest.raises(ProjectArchived) as caught:
        await store.commit(batch(entity("Grace")))
    assert caught.value.facts["project"] == "shop"
    await theirs.restore("shop")
    await store.commit(batch(entity("Linus")))
    assert await ids(store) == ["Ada", "Linus"]
    await theirs.delete("shop")
    with pytest.raises(NotFound) as gone:
        await store.commit(batch(entity("Ken")))
    assert gone.value.facts["name"] == "shop"


async def test_a_project_that_was_made_anew_is_another_one(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    old = await ours.create("shop", "", project_id="an id")
    _, before = await ours.open("shop")
    await before.commit(batch(entity("Ada")))
    await theirs.delete("shop")
    await theirs.create("shop", "", project_id="another id")
    with pytest.raises(NotFound):
        await ours.get_store(old)
    _, after = await ours.open("shop")
    assert after is not before
    assert await ids(after) == []
    with pytest.raises(NotFound):
        await before.commit(batch(entity("Grace")))
    await theirs.delete("shop")
    await theirs.create("shop", "", project_id="an id")  # which was given before
    with pytest.raises(NotFound):
        await before.commit(batch(entity("Grace")))
    assert await ids((await ours.open("shop"))[1]) == []


async def test_a_store_that_is_opened_again_is_the_same_object(shelf: Shelf) -> None:
    library = shelf.library()
    made = await library.create("shop", "")
    _, store = await library.open("shop")
    assert (await library.open("shop"))[1] is store
    assert await library.get_store(made) is store
    assert await library.open_user_store() is await library.open_user_store()


@pytest.mark.parametrize("put_away", ["archive", "delete"])
async def test_nothing_is_acknowledged_that_a_project_put_away_meanwhile_has_not(shelf: Shelf, put_away: str) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await ours.open("shop")
    kept: list[str] = []
    has_begun = asyncio.Event()

    async def commit() -> str:
        for number in range(300):
            try:
                await store.commit(batch(entity(f"entity {number}")))
            except EverkeptError as error:
                return error.code
            kept.append(f"entity {number}")
            has_begun.set()
        return "never refused"

    writing = asyncio.create_task(commit())
    await has_begun.wait()
    await getattr(theirs, put_away)("shop")
    if put_away == "delete":
        assert await writing == "not_found"
        assert shelf.ask("SELECT count(*) FROM records") == [(0,)]
        return
    revision = await store.get_revision()
    assert await writing == "project_archived"
    assert await store.get_revision() == revision
    await theirs.restore("shop")
    assert await ids(store) == kept


async def test_ids_may_be_anything_but_those_of_the_stores_of_no_project(shelf: Shelf) -> None:
    library = shelf.library()
    odd = await library.create("odd", "", project_id="'; DROP TABLE stores; --")
    assert (await library.get_project("odd")).id == odd.id
    for name in ("user", "history"):
        with pytest.raises(Conflict):
            await library.create(name, "", project_id=name)
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(entity(name)))
    assert await ids(await library.open_user_store()) == await ids(await library.open_history_store()) == []


async def test_libraries_of_two_schemas_share_nothing(shelf: Shelf) -> None:
    async with shelf_of() as other:
        ours, theirs = shelf.library(), other.library()
        for library in (ours, theirs):
            await library.create("shop", "")
            await (await library.open_user_store()).commit(batch(entity("mine")))
            _, store = await library.open("shop")
            await store.commit(batch(entity("Ada")))
        await ours.delete("shop")
        assert await ids((await theirs.open("shop"))[1]) == ["Ada"]


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=ascii)
async def test_what_cannot_be_stored_is_refused_and_changes_nothing(shelf: Shelf, text: str) -> None:
    library = shelf.library()
    shop = await library.create("shop", "")
    for refused in (
        library.create("other", text),
        library.create("other", "", project_id=text),
        library.link_workspace(text, shop),
        library.set_note("key", text),
        library.set_note(text, "value"),
        library.add_token(Token("1", text, DAY_ONE), "hash"),
        library.add_searches([SearchRecord(DAY_ONE, "recall", text, 1, 1.0)]),
        library.add_usage([ToolUsage(text, 1, 0, 1.0, 1.0, DAY_ONE)]),
        library.replace_catalog_data(CatalogData(notes={"key": text})),
    ):
        assert await outcomes(refused) == ["invalid_input"]
    assert (await library.read_catalog_data()).projects == [shop]
    assert await library.list_notes("") == {}
    assert await library.list_tokens() == await library.list_searches() == await library.list_usage() == []
    for asked in (library.get_project(text), library.archive(text), library.delete(text)):
        with pytest.raises(NotFound):
            await asked


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=ascii)
async def test_what_cannot_be_stored_is_not_looked_for(shelf: Shelf, text: str) -> None:
    library = shelf.library()
    for asked in (
        library.get_note(text),
        library.list_notes(text),
        library.find_workspace_project(text),
        library.list_searches(session=text),
        library.remove_token(text),
        library.has_token(text),
    ):
        with pytest.raises(InvalidInput):
            await asked


async def test_its_condition_is_known_without_asking(shelf: Shelf) -> None:
    library = shelf.library()
    known = Condition("postgres", "local-server", place="postgresql://127.0.0.1")
    assert library.condition == known
    await library.list_projects()
    assert library.condition.status == "connected"
    major, minor = map(int, library.condition.version.split("."))
    assert major >= 14
    assert minor >= 0


async def test_a_library_that_was_closed_opens_again(shelf: Shelf) -> None:
    library = shelf.library()
    await library.create("shop", "")
    await library.close()
    assert [project.name for project in await library.list_projects()] == ["shop"]


async def test_a_name_or_an_id_that_is_taken_is_told_with_what_to_do(shelf: Shelf) -> None:
    library = shelf.library()
    await library.create("shop", "", project_id="an id")
    with pytest.raises(Conflict) as caught:
        await library.create("shop", "")
    assert caught.value.facts["name"] == "shop"
    assert caught.value.hint
    with pytest.raises(Conflict) as caught:
        await library.create("other", "", project_id="an id")
    assert caught.value.facts["id"] == "an id"
