"""A library on SurrealDB that several processes use at once."""

import asyncio
from uuid import uuid4

import pytest

from concurrent_calls import outcomes
from everkept.core.library import Condition
from everkept.core.ports import Token
from everkept.core.records import RecordFilter
from everkept.engines.surreal.library import SurrealLibrary
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectArchived, StoreTooNew
from records import DAY_ONE, batch, entity
from surreal_libraries import DATABASE, Shelf

MANY = 6


@pytest.fixture
def libraries(shelf: Shelf) -> list[SurrealLibrary]:
    return [shelf.library() for _ in range(MANY)]


async def test_of_several_that_create_one_name_at_once_exactly_one_wins(libraries: list[SurrealLibrary]) -> None:
    for number in range(5):
        name = f"project {number}"
        ended = await outcomes(*(library.create(name, "") for library in libraries))
        assert sorted(ended) == ["done"] + ["project_exists"] * (MANY - 1)
    assert len(await libraries[0].list_projects()) == 5


async def test_of_several_that_create_one_id_at_once_exactly_one_wins(libraries: list[SurrealLibrary]) -> None:
    project_id = str(uuid4())
    ended = await outcomes(
        *(library.create(f"project {number}", "", project_id=project_id) for number, library in enumerate(libraries))
    )
    assert sorted(ended) == ["conflict"] * (MANY - 1) + ["done"]
    assert [project.id for project in await libraries[0].list_projects()] == [project_id]


async def test_of_several_that_archive_or_delete_at_once_exactly_one_does(libraries: list[SurrealLibrary]) -> None:
    await libraries[0].create("shop", "")
    ended = await outcomes(*(library.archive("shop") for library in libraries))
    assert sorted(ended) == ["done"] + ["project_status"] * (MANY - 1)
    ended = await outcomes(*(library.delete("shop") for library in libraries))
    assert sorted(ended) == ["done"] + ["not_found"] * (MANY - 1)


async def test_a_folder_goes_to_one_project_whoever_asks(libraries: list[SurrealLibrary]) -> None:
    projects = [await library.create(f"project {number}", "") for number, library in enumerate(libraries)]
    given = await asyncio.gather(
        *(library.link_workspace("/work/shop", project) for library, project in zip(libraries, projects, strict=True))
    )
    assert len({project.id for project in given}) == 1


async def test_no_folder_is_left_to_a_project_that_is_deleted_meanwhile(libraries: list[SurrealLibrary]) -> None:
    first, *others = libraries
    for number in range(3):
        project = await first.create("shop", "")
        await outcomes(
            first.delete("shop"),
            *(library.link_workspace(f"/work/{number}/{each}", project) for each, library in enumerate(others)),
        )
        assert await first.list_workspaces(project) == []
        with pytest.raises(NotFound):
            await first.link_workspace("/work/shop", project)


async def test_switching_at_once_is_one_switch(libraries: list[SurrealLibrary]) -> None:
    first = libraries[0]
    await first.link_workspace("/work/shop", await first.create("shop", ""))
    for off in (True, False):
        await asyncio.gather(*(library.set_off("shop", off=off) for library in libraries))
        assert (await first.get_project("shop")).is_off == off
    [silence] = await first.list_off_periods()
    assert silence.until is not None


async def test_a_token_is_added_once_whoever_asks(libraries: list[SurrealLibrary]) -> None:
    ended = await outcomes(
        *(library.add_token(Token(str(number), "laptop", DAY_ONE), "hash") for number, library in enumerate(libraries))
    )
    assert sorted(ended) == ["conflict"] * (MANY - 1) + ["done"]
    [token] = await libraries[0].list_tokens()
    removed = await asyncio.gather(*(library.remove_token(token.id) for library in libraries))
    assert sorted(removed) == [False] * (MANY - 1) + [True]


async def test_what_one_process_writes_the_others_read(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    made = await ours.create("shop", "What we sell.")
    assert await theirs.list_projects() == [made]
    await theirs.set_note("key", "value")
    assert await ours.get_note("key") == "value"
    _, store = await ours.open("shop")
    await store.commit(batch(entity("Ada")))
    _, store = await theirs.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]
    for library, name in ((ours, "ours"), (theirs, "theirs")):
        await (await library.open_user_store()).commit(batch(entity(name)))
    users = await (await ours.open_user_store()).scan(RecordFilter())
    assert [record.id for record in users] == ["ours", "theirs"]


async def test_who_has_a_project_open_learns_that_it_is_put_away(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await ours.open("shop")
    await store.commit(batch(entity("Ada")))
    await theirs.archive("shop")
    with pytest.raises(ProjectArchived):
        await store.commit(batch(entity("Grace")))
    await theirs.restore("shop")
    await store.commit(batch(entity("Linus")))
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada", "Linus"]
    await theirs.delete("shop")
    with pytest.raises(NotFound):
        await store.commit(batch(entity("Ken")))


async def test_nothing_is_acknowledged_that_a_project_put_away_meanwhile_has_not(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await ours.open("shop")
    kept: list[str] = []
    has_begun = asyncio.Event()

    async def commit() -> None:
        for number in range(1_000):
            try:
                await store.commit(batch(entity(f"entity {number}")))
            except ProjectArchived:
                return
            kept.append(f"entity {number}")
            has_begun.set()

    writing = asyncio.create_task(commit())
    await has_begun.wait()
    await theirs.archive("shop")
    revision = await store.get_revision()
    await writing
    assert await store.get_revision() == revision
    await theirs.restore("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == kept


async def test_databases_are_named_by_ids_and_never_by_names(shelf: Shelf) -> None:
    library = shelf.library()
    for name in ("user", "history", "`; REMOVE DATABASE default; --", "日本"):
        made = await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(entity(name)))
        assert f"{DATABASE}_{made.id.replace('-', '')}" in await shelf.databases()
    odd = await library.create("odd", "", project_id="`an` id; of another kind")
    _, store = await library.open("odd")
    await store.commit(batch(entity("odd")))
    assert (await library.get_project("odd")).id == odd.id
    assert await (await library.open_user_store()).scan(RecordFilter()) == []
    assert len(await shelf.databases()) == 7


async def test_libraries_of_two_databases_share_nothing(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library(database="other")
    for library in (ours, theirs):
        await library.create("shop", "")
        await (await library.open_user_store()).commit(batch(entity("mine")))
        _, store = await library.open("shop")
        await store.commit(batch(entity("Ada")))
    await ours.delete("shop")
    assert [project.name for project in await theirs.list_projects()] == ["shop"]


async def test_a_library_of_a_newer_version_is_left_alone(shelf: Shelf) -> None:
    await shelf.library().create("shop", "")
    await shelf.connection().run(DATABASE, "UPDATE meta:library SET version = 99")
    library = shelf.library()
    for attempt in (library.list_projects(), library.create("other", "")):
        with pytest.raises(StoreTooNew):
            await attempt


async def test_what_cannot_be_stored_is_refused_and_changes_nothing(shelf: Shelf) -> None:
    library = shelf.library()
    await library.set_note("key", "value")
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(InvalidInput):
            await library.set_note("key", text)
        with pytest.raises(InvalidInput):
            await library.create("shop", text)
        with pytest.raises(NotFound):
            await library.get_project(text)
    assert await library.list_notes("") == {"key": "value"}
    assert await library.list_projects() == []


async def test_its_condition_is_known_without_asking(shelf: Shelf) -> None:
    library = shelf.library()
    assert library.condition == Condition("surreal", "local-server", place="ws://127.0.0.1")
    await library.list_projects()
    assert library.condition.status == "connected"


async def test_a_name_that_is_taken_is_told_with_what_to_do(shelf: Shelf) -> None:
    library = shelf.library()
    await library.create("shop", "", project_id="an id")
    with pytest.raises(Conflict) as caught:
        await library.create("shop", "")
    assert caught.value.facts["name"] == "shop"
    with pytest.raises(Conflict) as caught:
        await library.create("other", "", project_id="an id")
    assert caught.value.facts["id"] == "an id"
