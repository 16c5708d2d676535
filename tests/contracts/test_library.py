import pytest

from everkept.core.ports import Library, Token
from everkept.core.projects import Project, Status
from everkept.core.records import RecordFilter
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectArchived
from records import DAY_ONE, MILLISECOND, batch, entity

SHOP_ID = "99999999-8888-4777-8666-555555555555"


async def names(library: Library, *status: Status | None) -> list[str]:
    return [project.name for project in await library.list_projects(*status)]


async def test_a_new_library_is_empty(library: Library) -> None:
    assert await library.list_projects() == []
    assert await library.list_tokens() == []
    assert await library.get_note("anything") is None
    assert await library.find_workspace_project("/somewhere") is None


async def test_a_project_is_created_active_and_empty(library: Library) -> None:
    created = await library.create("shop", "What we sell.")
    assert created == Project(created.id, "shop", "What we sell.", "active", DAY_ONE, DAY_ONE)
    assert await library.get_project("shop") == created
    opened, store = await library.open("shop")
    assert opened == created
    assert await store.scan(RecordFilter(deleted=None)) == []
    assert await store.read_changes() == []


async def test_a_project_that_was_made_before_now_has_its_own_time(library: Library) -> None:
    earlier = DAY_ONE - 3 * MILLISECOND
    created = await library.create("shop", "", project_id=SHOP_ID, at=earlier)
    assert created == Project(SHOP_ID, "shop", "", "active", earlier, earlier)
    assert await library.list_projects() == [created]


async def test_projects_are_listed_by_name(library: Library) -> None:
    for name in ("b", "a", "Z", "ä", "c"):
        await library.create(name, "")
    await library.archive("b")
    assert await names(library) == ["Z", "a", "b", "c", "ä"]
    assert await names(library, "active") == ["Z", "a", "c", "ä"]
    assert await names(library, "archived") == ["b"]


@pytest.mark.smoke
async def test_projects_share_nothing(library: Library) -> None:
    for name in ("one", "two"):
        await library.create(name, "")
        _, store = await library.open(name)
        await store.commit(batch(entity("Ada", text=name)))
    _, store = await library.open("one")
    assert [record.text for record in await store.scan(RecordFilter())] == ["one"]


async def test_a_project_opened_twice_is_one(library: Library) -> None:
    await library.create("shop", "")
    _, first = await library.open("shop")
    _, second = await library.open("shop")
    await first.commit(batch(entity("Ada")))
    assert len(await second.scan(RecordFilter())) == 1


@pytest.mark.parametrize("operation", ["get_project", "open", "archive", "restore", "delete"])
async def test_an_unknown_project_is_not_found(library: Library, operation: str) -> None:
    with pytest.raises(NotFound) as caught:
        await getattr(library, operation)("nowhere")
    assert caught.value.facts["name"] == "nowhere"


async def test_a_name_is_taken_once(library: Library) -> None:
    first = await library.create("shop", "first")
    with pytest.raises(Conflict):
        await library.create("shop", "second")
    assert await library.list_projects() == [first]


async def test_a_name_stays_taken_while_its_project_is_archived(library: Library) -> None:
    await library.create("shop", "")
    await library.archive("shop")
    with pytest.raises(Conflict):
        await library.create("shop", "")


async def test_names_differ_by_case(library: Library) -> None:
    await library.create("shop", "")
    await library.create("Shop", "")
    assert await names(library) == ["Shop", "shop"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\t\n",
        "../x",
        "a/b",
        "/",
        "a\\b",
        "a\nb",
        "a\x00b",
        "\x00",
        "a\x7f",
        "a\x85b",
        "a\u2028b",
        " a",
        "a ",
        "x" * 101,
        ".",
        "..",
    ],
    ids=repr,
)
async def test_a_bad_name_is_refused_and_nothing_is_made(library: Library, name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await library.create(name, "")
    assert caught.value.facts["argument"] == "name"
    assert await library.list_projects() == []


@pytest.mark.parametrize("name", ["x" * 100, "a.b", "...", "日本語 🎉", 'O\'Neil "x"', "-", "%", "NUL"])
async def test_a_name_may_be_anything_that_people_write(library: Library, name: str) -> None:
    await library.create(name, "")
    assert await names(library) == [name]
    _, store = await library.open(name)
    await store.commit(batch(entity("Ada")))
    await library.archive(name)
    await library.restore(name)
    await library.delete(name)
    assert await names(library) == []


@pytest.mark.smoke
async def test_an_archived_project_is_refused_and_comes_back_as_it_was(library: Library) -> None:
    created = await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    archived = await library.archive("shop")
    assert (archived.id, archived.status, archived.created_at) == (created.id, "archived", DAY_ONE)
    assert archived.updated_at == DAY_ONE + MILLISECOND
    assert await library.get_project("shop") == archived
    with pytest.raises(ProjectArchived) as caught:
        await library.open("shop")
    assert caught.value.facts["project"] == "shop"
    restored = await library.restore("shop")
    assert (restored.status, restored.updated_at) == ("active", DAY_ONE + 2 * MILLISECOND)
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]
    await store.commit(batch(entity("Grace")))
    assert await store.find_faults() == []


async def test_a_project_can_be_archived_and_restored_again_and_again(library: Library) -> None:
    await library.create("shop", "")
    for number in range(4):
        _, store = await library.open("shop")
        await store.commit(batch(entity(f"entity {number}")))
        await library.archive("shop")
        await library.restore("shop")
    _, store = await library.open("shop")
    assert await store.count_live() == {"entity": 4, "link": 0}


async def test_archiving_twice_is_a_conflict(library: Library) -> None:
    await library.create("shop", "")
    await library.archive("shop")
    with pytest.raises(Conflict):
        await library.archive("shop")
    assert (await library.get_project("shop")).status == "archived"


async def test_restoring_what_is_not_archived_is_a_conflict(library: Library) -> None:
    await library.create("shop", "")
    with pytest.raises(Conflict):
        await library.restore("shop")
    assert (await library.get_project("shop")).status == "active"


@pytest.mark.smoke
@pytest.mark.parametrize("archived", [False, True])
async def test_a_deleted_project_is_gone_and_its_name_is_free(library: Library, *, archived: bool) -> None:
    first = await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada")))
    if archived:
        await library.archive("shop")
    await library.delete("shop")
    assert await library.list_projects() == []
    with pytest.raises(NotFound):
        await library.open("shop")
    second = await library.create("shop", "")
    assert second.id != first.id
    _, store = await library.open("shop")
    assert await store.scan(RecordFilter(deleted=None)) == []


async def test_a_workspace_belongs_to_whoever_comes_first(library: Library) -> None:
    first, second = await library.create("first", ""), await library.create("second", "")
    assert await library.link_workspace("/src/shop", first) == first
    assert await library.link_workspace("/src/shop", second) == first
    assert await library.find_workspace_project("/src/shop") == first
    assert await library.find_workspace_project("/src") is None


async def test_one_project_may_have_several_workspaces(library: Library) -> None:
    shop = await library.create("shop", "")
    for path in ("/src/shop", "/src/shop 2 – 日本"):
        await library.link_workspace(path, shop)
        assert await library.find_workspace_project(path) == shop


async def test_a_workspace_moves_to_another_project_and_can_be_released(library: Library) -> None:
    first, second = await library.create("first", ""), await library.create("second", "")
    await library.link_workspace("/src/shop", first)
    await library.move_workspace("/src/shop", second)
    assert await library.find_workspace_project("/src/shop") == second
    assert await library.list_workspaces(first) == []
    await library.move_workspace("/src/shop", None)
    assert await library.find_workspace_project("/src/shop") is None
    await library.delete("second")
    with pytest.raises(NotFound):
        await library.move_workspace("/src/shop", second)


async def test_a_workspace_outlives_the_archive_but_not_its_project(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.link_workspace("/src/shop", shop)
    archived = await library.archive("shop")
    assert await library.find_workspace_project("/src/shop") == archived
    await library.delete("shop")
    assert await library.find_workspace_project("/src/shop") is None
    other = await library.create("other", "")
    assert await library.link_workspace("/src/shop", other) == other


async def test_a_workspace_cannot_belong_to_a_deleted_project(library: Library) -> None:
    shop = await library.create("shop", "")
    await library.delete("shop")
    with pytest.raises(NotFound):
        await library.link_workspace("/src/shop", shop)
    assert await library.find_workspace_project("/src/shop") is None


async def test_notes_are_found_by_the_beginning_of_their_key(library: Library) -> None:
    await library.set_note("bank store 100%", "a")
    await library.set_note("bank store größe", "b")
    await library.set_note("Bank store other", "c")
    assert await library.list_notes("bank store ") == {"bank store 100%": "a", "bank store größe": "b"}
    assert await library.list_notes("none") == {}


@pytest.mark.smoke
async def test_a_note_is_kept_replaced_and_taken_away(library: Library) -> None:
    await library.set_note("default", "shop")
    await library.set_note("other", "")
    assert await library.get_note("default") == "shop"
    assert await library.get_note("other") == ""
    await library.set_note("default", "tools")
    assert await library.get_note("default") == "tools"
    await library.set_note("default", None)
    await library.set_note("never there", None)
    assert await library.get_note("default") is None
    assert await library.get_note("other") == ""


@pytest.mark.smoke
async def test_tokens_are_known_by_their_hashes_until_they_are_removed(library: Library) -> None:
    laptop, phone = Token("1", "laptop", 20), Token("2", "phone", 10)
    await library.add_token(laptop, "hash of laptop")
    await library.add_token(phone, "hash of phone")
    assert await library.list_tokens() == [phone, laptop]
    assert await library.has_token("hash of laptop")
    assert not await library.has_token("laptop")
    assert await library.remove_token("1")
    assert not await library.remove_token("1")
    assert not await library.has_token("hash of laptop")
    assert await library.list_tokens() == [phone]


async def test_a_token_is_added_once(library: Library) -> None:
    await library.add_token(Token("1", "laptop", 1), "hash")
    for again in (Token("1", "laptop", 1), Token("2", "phone", 1)):
        with pytest.raises(Conflict):
            await library.add_token(again, "hash")
    assert len(await library.list_tokens()) == 1


@pytest.mark.smoke
async def test_a_closed_library_may_be_closed_again(library: Library) -> None:
    await library.create("shop", "")
    await library.close()
    await library.close()
