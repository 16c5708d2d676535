"""What every engine promises about projects in the trash: they keep all data, and their name and folder are free."""

import pytest

from everkept.accounts.account_library import GuardedLibrary
from everkept.accounts.project_changes import DAY_MICROSECONDS, ProjectChanges, empty_trash, open_trashed
from everkept.core.library import SetProjectStatus
from everkept.core.ports import Library
from everkept.core.projects import OffPeriod, Project, build_trash_name
from everkept.core.records import RecordFilter
from everkept.core.times import Clock
from everkept.errors import Conflict, NotFound, ProjectExists
from records import DAY_ONE, batch, entity, record_ref


async def trash(library: Library, project: Project) -> Project:
    return await library.apply(SetProjectStatus(project.name, "archived", build_trash_name(project.id)))


async def restore(library: Library, project: Project, name: str) -> Project:
    return await library.apply(SetProjectStatus(build_trash_name(project.id), "active", name))


@pytest.mark.smoke
@pytest.mark.parametrize("archived", [False, True])
async def test_a_project_comes_back_from_the_trash_whole(library: Library, *, archived: bool) -> None:
    shop = await library.create("shop", "what it is for")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    await library.link_workspace("/src/shop", shop)
    if archived:
        await library.archive("shop")
    deleted = await trash(library, shop)
    assert (deleted.id, deleted.name, deleted.status) == (shop.id, build_trash_name(shop.id), "archived")
    with pytest.raises(NotFound):
        await library.open("shop")
    assert await library.find_workspace_project("/src/shop") is None
    restored = await restore(library, shop, "shop")
    assert (restored.id, restored.name, restored.status) == (shop.id, "shop", "active")
    assert restored.description == "what it is for"
    assert await library.list_projects() == [restored]
    assert await library.find_workspace_project("/src/shop") == restored
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]
    await store.commit(batch(entity("Grace")))
    assert await store.find_faults() == []


@pytest.mark.smoke
async def test_a_new_project_takes_the_name_and_the_folder_of_one_in_the_trash(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.link_workspace("/src/shop", shop)
    await trash(library, shop)
    second = await library.create("shop", "")
    assert await library.link_workspace("/src/shop", second) == second
    assert await library.find_workspace_project("/src/shop") == second
    with pytest.raises(ProjectExists):
        await restore(library, shop, "shop")
    assert await library.get_project("shop") == second
    restored = await restore(library, shop, "old shop")
    assert [each.name for each in await library.list_projects("active")] == ["old shop", "shop"]
    assert await library.find_workspace_project("/src/shop") == second
    assert await library.list_workspaces(restored) == []


async def test_projects_of_one_name_are_in_the_trash_side_by_side(library: Library) -> None:
    made: list[Project] = []
    for _ in range(2):
        made.append(await library.create("shop", ""))
        await trash(library, made[-1])
    assert {each.name for each in await library.list_projects()} == {build_trash_name(each.id) for each in made}
    assert (await restore(library, made[0], "shop")).id == made[0].id


async def test_a_project_in_the_trash_can_become_archived_again(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.archive("shop")
    await trash(library, shop)
    again = await library.apply(SetProjectStatus(build_trash_name(shop.id), "archived", "shop"))
    assert (again.name, again.status) == ("shop", "archived")
    with pytest.raises(Conflict):
        await library.apply(SetProjectStatus("shop", "archived", "shop"))


async def test_a_project_is_deleted_from_the_trash(library: Library) -> None:
    shop = await library.create("shop", "")
    deleted = await trash(library, shop)
    await library.delete(deleted.name)
    assert await library.list_projects() == []
    with pytest.raises(NotFound):
        await restore(library, shop, "shop")


async def test_a_folder_remembers_when_its_deleted_project_was_off(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.link_workspace("/src/shop", shop)
    await library.set_off("shop", off=True, at=DAY_ONE + 1)
    await library.set_off("shop", off=False, at=DAY_ONE + 2)
    await trash(library, shop)
    was_off = [OffPeriod("/src/shop", DAY_ONE + 1, DAY_ONE + 2)]
    assert await library.list_off_periods() == was_off
    second = await library.create("shop", "")
    await library.link_workspace("/src/shop", second)
    assert await library.list_off_periods() == was_off


@pytest.mark.smoke
async def test_items_of_a_project_in_the_trash_can_be_purged_there(library: Library, clock: Clock) -> None:
    changes = ProjectChanges(library, GuardedLibrary(library, clock), clock, days=30)
    await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada"), entity("Grace")))
    deleted = await changes.delete("shop", "test")
    assert (deleted.name, deleted.until) == ("shop", deleted.deleted_at + 30 * DAY_MICROSECONDS)
    async with open_trashed(library, deleted) as store:
        await store.purge([record_ref("Ada")])
        assert [each.project.id for each in await changes.list_trash()] == [deleted.project.id]
    assert await library.list_projects("active") == []
    assert await empty_trash(library, 30, deleted.deleted_at) == []
    await changes.restore("shop", "test")
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter(deleted=None))] == ["Grace"]
    assert await changes.list_trash() == []


@pytest.mark.smoke
async def test_the_trash_is_emptied_when_its_days_are_over(library: Library, clock: Clock) -> None:
    changes = ProjectChanges(library, GuardedLibrary(library, clock), clock, days=30)
    for name in ("first", "second"):
        await library.create(name, "")
        await changes.delete(name, "test")
    second, first = await changes.list_trash()
    assert first.until is not None
    assert [each.name for each in await empty_trash(library, 30, first.until)] == ["first"]
    assert await changes.list_trash() == [second]
    assert await empty_trash(library, 0, first.until * 2) == []  # without an end
    assert [project.id for project in await library.list_projects()] == [second.project.id]
    assert [key for key in await library.list_notes("project.event.") if first.project.id in key] == []
