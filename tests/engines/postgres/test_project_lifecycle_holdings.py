"""Taking over what another library has, with names traded and others at work."""

import asyncio

import pytest

from catalog_data import everything, found_in, project, put_something_in
from concurrent_calls import outcomes
from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.ports import Token
from everkept.core.projects import OffHistory
from everkept.core.records import RecordFilter
from everkept.engines.postgres.library import PostgresLibrary
from everkept.errors import Conflict, InvalidInput, NotFound, ProjectArchived
from everkept.values import replace
from postgres_libraries import Shelf
from records import DAY_ONE, batch, entity

SERVERS = 4


@pytest.fixture
def libraries(shelf: Shelf) -> list[PostgresLibrary]:
    return [shelf.library() for _ in range(SERVERS)]


async def test_what_was_taken_over_is_what_is_given_out(shelf: Shelf) -> None:
    library = shelf.library()
    for _ in range(2):
        await library.replace_catalog_data(everything())
        assert await shelf.library().read_catalog_data() == everything()
    assert [silence.folder for silence in await library.list_off_periods()] == [
        "/work/gone",
        "/work/läden",
        "/work/shop",
        "/work/shop",
    ]
    await library.replace_catalog_data(CatalogData())
    assert await library.read_catalog_data() == CatalogData(projects=[], tokens=[])
    assert await library.list_off_periods() == []


async def test_projects_that_stay_keep_their_records_and_others_have_none(shelf: Shelf) -> None:
    library = shelf.library()
    await library.replace_catalog_data(CatalogData(projects=[project("a"), project("b"), project("c")]))
    for name in "abc":
        await put_something_in(library, name)
    traded = [replace(project("a"), name="b"), replace(project("b"), name="a"), project("d")]
    await library.replace_catalog_data(CatalogData(projects=traded))
    found = {name: await found_in(library, name) for name in "abd"}
    assert found == {"a": ["in b"], "b": ["in a"], "d": []}
    await library.replace_catalog_data(CatalogData(projects=[project("c")]))
    assert await found_in(library, "c") == []
    assert shelf.ask("SELECT count(*) FROM records") == [(0,)]
    assert shelf.ask("SELECT count(*) FROM stores") == [(3,)]


async def test_a_new_project_may_have_the_name_of_one_that_is_renamed(shelf: Shelf) -> None:
    library = shelf.library()
    await library.replace_catalog_data(CatalogData(projects=[project("a")]))
    await put_something_in(library, "a")
    renamed, new = replace(project("a"), name="b"), replace(project("new"), name="a")
    await library.replace_catalog_data(CatalogData(projects=[new, renamed]))
    assert await found_in(library, "a") == []
    assert await found_in(library, "b") == ["in a"]


async def test_who_has_a_project_open_learns_what_became_of_it(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    both = [project("a"), project("b")]
    await ours.replace_catalog_data(CatalogData(projects=both))
    stores = [(await ours.open(name))[1] for name in "ab"]
    renamed = replace(both[0], name="renamed", status="archived")
    await theirs.replace_catalog_data(CatalogData(projects=[renamed]))
    for store, refusal in zip(stores, (ProjectArchived, NotFound), strict=True):
        with pytest.raises(refusal):
            await store.commit(batch(entity("again")))
    await theirs.replace_catalog_data(CatalogData(projects=both))
    await stores[0].commit(batch(entity("again")))
    with pytest.raises(NotFound):
        await stores[1].commit(batch(entity("again")))


async def test_notes_that_hold_for_a_moment_stay_where_they_are(shelf: Shelf) -> None:
    library = shelf.library()
    await library.set_note(f"{LEASE_PREFIX}work", "ours")
    await library.set_note("default", "shop")
    assert (await library.read_catalog_data()).notes == {"default": "shop"}
    await library.replace_catalog_data(CatalogData(notes={f"{LEASE_PREFIX}work": "theirs", "other": "x"}))
    assert await library.list_notes("") == {f"{LEASE_PREFIX}work": "ours", "other": "x"}


async def test_hashes_may_be_traded(shelf: Shelf) -> None:
    library = shelf.library()
    one, two = Token("1", "laptop", 1), Token("2", "phone", 2)
    await library.replace_catalog_data(CatalogData(tokens=[(one, "a"), (two, "b")]))
    await library.replace_catalog_data(CatalogData(tokens=[(one, "b"), (two, "a")]))
    assert (await library.read_catalog_data()).tokens == [(one, "b"), (two, "a")]


@pytest.mark.parametrize(
    ("bad", "refusal"),
    [
        (CatalogData(projects=[project("a"), replace(project("b"), name="a")]), InvalidInput),
        (CatalogData(projects=[project("a"), replace(project("b"), id="id of a")]), InvalidInput),
        (CatalogData(projects=[project("a", description="a\0b")]), InvalidInput),
        (CatalogData(workspaces={"\ud800": "id of a"}), InvalidInput),
        (CatalogData(switching={"a": OffHistory(((1, 2),), ("\0",), 3)}), InvalidInput),
        (CatalogData(projects=[replace(project("a"), id="user")]), Conflict),
        (CatalogData(tokens=[(Token("1", "", 1), "h"), (Token("2", "", 1), "h")]), Conflict),
    ],
)
async def test_what_no_library_could_hold_is_refused_and_changes_nothing(
    shelf: Shelf, bad: CatalogData, refusal: type[Exception]
) -> None:
    library = shelf.library()
    await library.replace_catalog_data(everything())
    await put_something_in(library, "shop")
    with pytest.raises(refusal):
        await library.replace_catalog_data(bad)
    assert await library.read_catalog_data() == everything()
    assert await found_in(library, "shop") == ["in shop"]


async def test_a_folder_of_a_project_that_there_is_not_is_left_out(shelf: Shelf) -> None:
    library = shelf.library()
    await library.replace_catalog_data(CatalogData([project("a")], {"/a": "id of a", "/b": "id of b"}))
    assert (await library.read_catalog_data()).workspaces == {"/a": "id of a"}


async def test_taking_over_what_is_there_waits_for_nobody(shelf: Shelf) -> None:
    """No store that stays as it is is touched: whoever commits to it need not wait."""
    library = shelf.library()
    await library.replace_catalog_data(everything())
    [before] = shelf.ask("SELECT array_agg(xmin::text ORDER BY number) FROM stores")
    await library.replace_catalog_data(everything())
    assert shelf.ask("SELECT array_agg(xmin::text ORDER BY number) FROM stores") == [before]


async def test_who_reads_meanwhile_sees_all_that_was_taken_over_or_nothing(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    worlds: list[CatalogData] = []
    for name in ("one", "two"):
        project = await ours.create(name, "")
        await ours.link_workspace(f"/work/{name}", project)
        await ours.set_note("here", name)
        worlds.append(await ours.read_catalog_data())
        await ours.replace_catalog_data(CatalogData())
    is_over = asyncio.Event()

    async def look() -> int:
        looks = 0
        while not is_over.is_set():
            assert await theirs.read_catalog_data() in (*worlds, CatalogData(projects=[], tokens=[]))
            looks += 1
        return looks

    looking = asyncio.create_task(look())
    for _ in range(5):
        for world in worlds:
            await ours.replace_catalog_data(world)
    is_over.set()
    assert await looking > 0
    assert await theirs.read_catalog_data() == worlds[-1]


async def test_of_several_that_take_over_at_once_one_is_the_last(libraries: list[PostgresLibrary]) -> None:
    worlds: list[CatalogData] = []
    for number, library in enumerate(libraries):
        project = await library.create("shop", f"{number}")
        await library.link_workspace("/work/shop", project)
        await library.set_note("here", f"{number}")
        await library.add_token(Token("1", f"{number}", DAY_ONE), "hash")
        worlds.append(await library.read_catalog_data())
        await library.replace_catalog_data(CatalogData())
    for _ in range(5):
        await asyncio.gather(*(each.replace_catalog_data(world) for each, world in zip(libraries, worlds, strict=True)))
        assert await libraries[0].read_catalog_data() in worlds


async def test_taking_over_while_others_change_everything_ends(libraries: list[PostgresLibrary]) -> None:
    first, *others = libraries
    kept = await first.create("kept", "")
    catalog_data = await first.read_catalog_data()
    _, store = await first.open("kept")

    async def change(number: int, library: PostgresLibrary) -> None:
        name = f"project {number}"
        for time in range(5):
            await store.commit(batch(entity(f"{number} {time}")))
            await outcomes(library.create(name, ""))
            await outcomes(library.set_off(name, off=True))
            await outcomes(library.link_workspace(f"/work/{number}", kept))
            await outcomes(library.archive(name), library.set_note(name, "x"))
            await outcomes(library.delete(name))

    changing = asyncio.gather(*(change(*each) for each in enumerate(others)))
    for _ in range(5):
        await first.replace_catalog_data(catalog_data)
    await changing
    await first.replace_catalog_data(catalog_data)
    assert await first.read_catalog_data() == catalog_data
    assert len(await store.scan(RecordFilter())) == 5 * len(others)
