"""Changes of whole projects in the change log, and their undo."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import InvalidInput, NotFound, ProjectExists, Refused
from everkept.settings import Settings
from records import DAY_ONE, MILLISECOND
from tool_calls import Client

ADA = {"name": "Ada", "entity_type": "person"}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    ticks = count(DAY_ONE, MILLISECOND)
    app = App(Settings(tmp_path / "data", embedding_model="none"), clock=lambda: next(ticks))
    yield app
    await app.close()


@pytest.fixture
async def shop(app: App) -> Client:
    client = Client(app, Session(client="editor"))
    await client("create_project", name="shop", description="All of it")
    await client("create_entities", entities=[ADA], project="shop")
    return client


async def listed(app: App, project: str | None = None) -> list[tuple[str, str, str]]:
    entries = await app.change_log.list_entries(project, 20)
    return [(entry.reference, entry.change.tool, entry.summary) for entry in entries]


async def undo(app: App, reference: str | None = None, project: str | None = None) -> str:
    return (await app.change_log.undo(reference, project, "command line", or_user=True)).effect


async def statuses(client: Client) -> dict[str, str]:
    return {each["name"]: each["status"] for each in (await client("list_projects", status="all"))["projects"]}


async def test_changes_of_a_project_are_in_the_log_with_who_made_them(app: App, shop: Client) -> None:
    await shop("archive_project", name="shop")
    await shop("restore_project", name="shop")
    deleted = await shop("delete_project", name="shop")
    [trashed] = (await shop("list_projects"))["trash"]
    label = trashed["id"][:8]
    assert trashed["until"] == deleted["until"]
    told = [
        (f"{label}:p4", "delete_project", 'Deleted project "shop"'),
        (f"{label}:p3", "restore_project", 'Restored project "shop"'),
        (f"{label}:p2", "archive_project", 'Archived project "shop"'),
        (f"{label}:p1", "create_project", 'Created project "shop"'),
    ]
    assert await listed(app) == await listed(app, "shop") == told
    await shop("restore_project", name="shop")
    [newest, *rest] = await listed(app, "shop")
    assert newest == ("shop:p5", "restore_project", 'Restored project "shop" from the trash')
    assert ("shop:1", "create_entities", "Added entity Ada") in rest
    [entry] = await app.change_log.list_entries("shop", 1)
    assert entry.change.client == "editor"


async def test_undo_brings_a_deleted_project_back_whole(app: App, shop: Client) -> None:
    await shop("delete_project", name="shop")
    assert await undo(app) == 'Restored project "shop" from the trash'
    assert await statuses(shop) == {"shop": "active"}
    assert await shop.names("Ada", project="shop") == ["Ada"]


async def test_a_project_that_was_archived_is_archived_again(app: App, shop: Client) -> None:
    await shop("archive_project", name="shop")
    await shop("delete_project", name="shop")
    await undo(app)
    assert await statuses(shop) == {"shop": "archived"}
    assert await undo(app) == 'Restored project "shop"'
    assert await statuses(shop) == {"shop": "active"}


async def test_an_undo_of_a_project_can_be_undone(app: App, shop: Client) -> None:
    await shop("archive_project", name="shop")
    await undo(app, "shop:p2")
    [newest, second, _, _] = await app.change_log.list_entries("shop", 4)
    assert (newest.change.tool, newest.change.undoes) == ("undo", 2)
    assert (second.reference, second.is_undone) == ("shop:p2", True)
    await undo(app, "shop:p3")
    assert await statuses(shop) == {"shop": "archived"}
    with pytest.raises(Refused):
        await undo(app, "shop:p1")
    with pytest.raises(InvalidInput):
        await undo(app, f"shop:p{'1' * 5_000}")


async def test_a_change_in_a_project_comes_before_an_older_deletion(app: App, shop: Client) -> None:
    await shop("create_project", name="old")
    await shop("delete_project", name="old")
    await shop("create_entities", entities=[{"name": "Grace", "entity_type": "person"}], project="shop")
    assert await undo(app, None, "shop") == "Deleted entity Grace"
    assert await undo(app, None, "shop") == 'Restored project "old" from the trash'


async def test_a_creation_is_undone_by_its_number_or_while_it_is_empty(app: App, shop: Client) -> None:
    assert await undo(app, None, "shop") == "Deleted entity Ada"
    with pytest.raises(Refused):
        await undo(app, None, "shop")
    assert await undo(app, "shop:p1") == 'Deleted project "shop"'
    await shop("create_project", name="empty")
    assert await undo(app, None, "empty") == 'Deleted project "empty"'
    assert [each["name"] for each in (await shop("list_projects"))["trash"]] == ["empty", "shop"]


async def test_the_name_of_a_deleted_project_may_be_taken(app: App, shop: Client) -> None:
    await shop("delete_project", name="shop")
    await shop("create_project", name="shop")
    for way in (
        undo(app, f"{(await shop('list_projects'))['trash'][0]['id'][:8]}:p2"),
        shop("restore_project", name="shop"),
    ):
        with pytest.raises(ProjectExists) as caught:
            await way
        assert "new_name" in str(caught.value.hint)
    restored = await shop("restore_project", name="shop", new_name="first shop")
    assert restored["description"] == "All of it"
    assert await statuses(shop) == {"first shop": "active", "shop": "active"}
    assert await shop.names("Ada", project="first shop") == ["Ada"]
    assert (await shop("list_projects")).get("trash") is None


async def test_the_last_deleted_project_of_a_name_is_restored_first_and_any_by_its_id(app: App, shop: Client) -> None:
    first = (await shop("list_projects"))["projects"][0]["id"]
    await shop("delete_project", name="shop")
    second = (await shop("create_project", name="shop"))["id"]
    await shop("delete_project", name="shop")
    assert (await shop("restore_project", name="shop"))["id"] == second
    assert (await shop("restore_project", name=first[:8], new_name="other"))["id"] == first
    with pytest.raises(NotFound):
        await shop("restore_project", name=first[:8])


async def test_a_project_that_was_off_is_off_again(app: App, shop: Client) -> None:
    await app.library.set_off("shop", off=True)
    await shop("delete_project", name="shop")
    assert not any(each.is_off for each in await app.library.list_projects())
    await shop("restore_project", name="shop")
    assert (await app.library.get_project("shop")).is_off


async def test_no_name_reaches_a_project_in_the_trash(app: App, shop: Client) -> None:
    await shop("delete_project", name="shop")
    [stored] = await app.library.list_projects()
    for tool in ("switch_project", "archive_project", "delete_project", "restore_project"):
        with pytest.raises(NotFound):
            await shop(tool, name=stored.name)
    with pytest.raises(NotFound):
        await shop("read_graph", project=stored.name)
