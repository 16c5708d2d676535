"""What a library has beside the records, given to another library that makes it its own."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from everkept.core.answers import LEASE_PREFIX, CatalogData, SearchRecord
from everkept.core.mcp import ToolUsage
from everkept.core.ports import Library, RecordStore, Token
from everkept.core.projects import OffHistory, Project
from everkept.core.records import RecordFilter
from everkept.core.times import Clock
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import Conflict, NotFound, ProjectArchived
from records import DAY_ONE, batch, entity

SHOP, CAFE = "/work/shop", "/work/café läden"


@pytest.fixture
def elsewhere(clock: Clock) -> Library:
    """A library of another engine."""
    return MemoryLibrary(clock)


async def fill(library: Library) -> None:
    """Projects of every kind, one that is no more, and small things."""
    shop = await library.create("shop", "What is sold.")
    cafe = await library.create("café", "")
    await library.link_workspace(SHOP, shop)
    await library.link_workspace(f"{SHOP}/annex", shop)
    await library.link_workspace(CAFE, cafe)
    await library.create("old", "Kept.")
    await library.archive("old")
    await library.set_off("shop", off=True)
    for off in (True, False):
        await library.set_off("café", off=off)
    left = await library.create("left", "")
    await library.link_workspace("/work/left", left)
    await library.set_off("left", off=True)
    await library.delete("left")
    await library.set_note("seen", "1")
    await library.set_note("größe", "")
    await library.set_note(f"{LEASE_PREFIX}job", "held")
    await library.add_token(Token("t2", "phone", DAY_ONE + 1), "hash 2")
    await library.add_token(Token("t1", "laptop", DAY_ONE), "hash 1")


async def everything(library: Library) -> dict[str, Any]:
    """All that can be asked of what it holds."""
    projects = await library.list_projects()
    return {
        "projects": projects,
        "one by one": [await library.get_project(project.name) for project in projects],
        "folders": [await library.list_workspaces(project) for project in projects],
        "of folders": [await library.find_workspace_project(path) for path in (SHOP, CAFE)],
        "silences": sorted(await library.list_off_periods(), key=repr),
        "notes": {key: value for key, value in (await library.list_notes("")).items() if key in ("seen", "größe")},
        "tokens": await library.list_tokens(),
        "known": [await library.has_token(f"hash {number}") for number in range(4)],
        "holdings": told(await library.read_catalog_data()),
    }


def told(catalog_data: CatalogData) -> dict[str, Any]:
    return {
        "projects": sorted(catalog_data.projects, key=lambda project: project.name),
        "workspaces": dict(catalog_data.workspaces),
        "switching": dict(catalog_data.switching),
        "notes": dict(catalog_data.notes),
        "tokens": sorted(catalog_data.tokens, key=lambda token: token[0].id),
    }


async def ids(store: RecordStore) -> list[str]:
    return [record.id for record in await store.scan(RecordFilter())]


async def test_a_library_that_was_just_made_holds_nothing(library: Library) -> None:
    assert told(await library.read_catalog_data()) == told(CatalogData())


async def test_holdings_are_all_but_what_holds_for_a_moment(library: Library) -> None:
    await fill(library)
    catalog_data = await library.read_catalog_data()
    projects = {project.name: project for project in await library.list_projects()}
    assert {project.name: project for project in catalog_data.projects} == projects
    assert catalog_data.workspaces == {
        SHOP: projects["shop"].id,
        f"{SHOP}/annex": projects["shop"].id,
        CAFE: projects["café"].id,
    }
    assert catalog_data.notes == {"seen": "1", "größe": ""}
    assert {token.id: secret for token, secret in catalog_data.tokens} == {"t1": "hash 1", "t2": "hash 2"}
    assert catalog_data.switching[projects["shop"].id].off_since == projects["shop"].off_since
    assert len(catalog_data.switching[projects["café"].id].spans) == 1
    [left] = [each for each in catalog_data.switching.values() if each.deleted_at is not None]
    assert left.folders == ("/work/left",)
    assert len(catalog_data.switching) == 3


async def test_whoever_takes_over_answers_as_the_other_does(library: Library, elsewhere: Library) -> None:
    await fill(elsewhere)
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    assert await everything(library) == await everything(elsewhere)


@pytest.mark.smoke
async def test_what_a_library_holds_can_be_taken_over(library: Library, elsewhere: Library) -> None:
    await fill(library)
    await elsewhere.replace_catalog_data(await library.read_catalog_data())
    assert await everything(elsewhere) == await everything(library)


async def test_taking_over_again_changes_nothing(library: Library, elsewhere: Library) -> None:
    await fill(elsewhere)
    catalog_data = await elsewhere.read_catalog_data()
    await library.replace_catalog_data(catalog_data)
    once = await everything(library)
    await library.replace_catalog_data(catalog_data)
    assert await everything(library) == once
    await library.replace_catalog_data(await library.read_catalog_data())
    assert await everything(library) == once


async def test_what_is_not_among_them_is_given_up(library: Library, elsewhere: Library) -> None:
    await fill(library)
    await elsewhere.create("only", "")
    await elsewhere.set_note("seen", "2")
    await elsewhere.add_token(Token("t3", "tablet", DAY_ONE), "hash 3")
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    assert await everything(library) == await everything(elsewhere)
    assert [project.name for project in await library.list_projects()] == ["only"]
    assert await library.get_note("größe") is None
    assert await library.list_off_periods() == []
    with pytest.raises(NotFound):
        await library.open("shop")


async def test_everything_may_be_given_up(library: Library) -> None:
    await fill(library)
    await library.replace_catalog_data(CatalogData())
    assert told(await library.read_catalog_data()) == told(CatalogData())
    assert (await library.create("shop", "anew")).description == "anew"
    assert await ids((await library.open("shop"))[1]) == []


async def test_what_holds_for_a_moment_stays_where_it_is(library: Library, elsewhere: Library) -> None:
    await library.set_note(f"{LEASE_PREFIX}here", "mine")
    await elsewhere.set_note(f"{LEASE_PREFIX}there", "theirs")
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    await library.replace_catalog_data(CatalogData(notes={f"{LEASE_PREFIX}there": "theirs"}))
    assert await library.list_notes(LEASE_PREFIX) == {f"{LEASE_PREFIX}here": "mine"}


async def test_what_was_asked_and_how_often_is_its_own(library: Library) -> None:
    search = SearchRecord(DAY_ONE, "recall", "What?", 1, 2.5, "s1", {"limit": 3})
    usage = ToolUsage("recall", 2, 1, 2.5, 2.0, DAY_ONE)
    await library.add_searches([search])
    await library.add_usage([usage])
    await library.replace_catalog_data(CatalogData())
    assert await library.list_searches() == [search]
    assert await library.list_usage() == [usage]


async def test_projects_that_stay_keep_their_records(library: Library, elsewhere: Library) -> None:
    shop = await library.create("shop", "")
    _, store = await library.open("shop")
    for number, each in enumerate((store, await library.open_user_store(), await library.open_history_store())):
        await each.commit(batch(entity(f"Ada {number}")))
    await elsewhere.create("other", "")
    await elsewhere.replace_catalog_data(
        CatalogData(projects=[*(await elsewhere.read_catalog_data()).projects, described(shop, "new words")])
    )
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    opened, again = await library.open("shop")
    assert opened.description == "new words"
    assert await ids(again) == await ids(store) == ["Ada 0"]
    assert await ids(await library.open_user_store()) == ["Ada 1"]
    assert await ids(await library.open_history_store()) == ["Ada 2"]
    _, new = await library.open("other")
    assert await ids(new) == []
    await new.commit(batch(entity("Bob")))
    assert await ids((await library.open("other"))[1]) == ["Bob"]


def described(project: Project, words: str) -> Project:
    return Project(project.id, project.name, words, project.status, project.created_at, DAY_ONE + 99)


async def test_records_outlast_that_a_project_is_archived_elsewhere(library: Library, elsewhere: Library) -> None:
    shop = await library.create("shop", "")
    await (await library.open("shop"))[1].commit(batch(entity("Ada")))
    await elsewhere.replace_catalog_data(await library.read_catalog_data())
    archived = await elsewhere.archive("shop")
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    assert await library.list_projects() == [archived]
    with pytest.raises(ProjectArchived):
        await library.open("shop")
    restored = await elsewhere.restore("shop")
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    assert await library.get_project("shop") == restored
    _, store = await library.open("shop")
    assert await ids(store) == ["Ada"]
    assert restored.id == shop.id


async def test_an_archived_project_that_is_new_can_be_restored(library: Library, elsewhere: Library) -> None:
    await fill(elsewhere)
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    assert (await library.restore("old")).status == "active"
    _, store = await library.open("old")
    await store.commit(batch(entity("Ada")))
    assert await ids(store) == ["Ada"]


async def test_another_project_of_the_same_name_has_nothing_of_the_old_one(
    library: Library, elsewhere: Library
) -> None:
    old = await library.create("shop", "")
    await (await library.open("shop"))[1].commit(batch(entity("Ada")))
    await library.link_workspace(SHOP, old)
    new = await elsewhere.create("shop", "another")
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    opened, store = await library.open("shop")
    assert opened == new
    assert await ids(store) == []
    assert await library.find_workspace_project(SHOP) is None


async def test_a_project_that_was_taken_over_is_a_project_like_any_other(library: Library, elsewhere: Library) -> None:
    await fill(elsewhere)
    await library.replace_catalog_data(await elsewhere.read_catalog_data())
    shop = await library.set_off("shop", off=False)
    assert not shop.is_off
    assert [s.until is None for s in await library.list_off_periods() if s.folder == SHOP] == [False]
    cafe = await library.get_project("café")
    assert await library.link_workspace(SHOP, cafe) == shop
    await library.delete("shop")
    assert await library.find_workspace_project(SHOP) is None
    assert await library.remove_token("t1")
    assert not await library.has_token("hash 1")
    with pytest.raises(Conflict):
        await library.create("café", "")
    with pytest.raises(Conflict):
        await library.add_token(Token("t9", "", DAY_ONE), "hash 2")


async def test_a_project_is_off_where_its_switching_says_so(library: Library) -> None:
    project = Project(str(uuid4()), "shop", "", "active", DAY_ONE, DAY_ONE, DAY_ONE + 5)
    switching = {project.id: OffHistory(((DAY_ONE + 5, None),))}
    await library.replace_catalog_data(CatalogData([project], {SHOP: project.id}, switching))
    assert await library.get_project("shop") == project
    assert await library.find_workspace_project(SHOP) == project
    assert [(s.folder, s.since) for s in await library.list_off_periods()] == [(SHOP, DAY_ONE + 5)]


async def test_a_project_may_be_made_with_an_id_of_its_own(library: Library) -> None:
    own = str(uuid4())
    made = await library.create("shop", "Sold.", project_id=own)
    assert made.id == own
    assert await library.get_project("shop") == made
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    assert UUID((await library.create("other", "")).id) != UUID(own)


@pytest.mark.parametrize("is_archived", [False, True])
async def test_an_id_is_given_once(library: Library, *, is_archived: bool) -> None:
    made = await library.create("shop", "")
    if is_archived:
        await library.archive("shop")
    with pytest.raises(Conflict):
        await library.create("other", "", project_id=made.id)
    assert [project.name for project in await library.list_projects()] == ["shop"]


async def test_an_id_that_is_free_again_may_be_given_again(library: Library) -> None:
    made = await library.create("shop", "")
    await (await library.open("shop"))[1].commit(batch(entity("Ada")))
    await library.delete("shop")
    again = await library.create("shop", "", project_id=made.id)
    assert again.id == made.id
    assert await ids((await library.open("shop"))[1]) == []


async def test_the_store_of_an_archived_project_is_there_for_who_copies_it(library: Library) -> None:
    shop = await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    assert await ids(await library.get_store(shop)) == ["Ada"]
    archived = await library.archive("shop")
    assert await ids(await library.get_store(archived)) == ["Ada"]
    assert await library.get_project("shop") == archived


async def test_a_project_that_is_no_more_has_no_store(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.delete("shop")
    with pytest.raises(NotFound):
        await library.get_store(shop)
