"""Taking over what another library has, with names traded and the connection lost."""

from itertools import count

import pytest

from catalog_data import everything, found_in, project, put_something_in
from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.ports import Library, Token
from everkept.core.records import RecordFilter
from everkept.errors import NotFound, ProjectArchived, StoreUnreachable
from everkept.values import replace
from records import batch, entity
from surreal_libraries import DATABASE, LosingConnection, Shelf, library_over


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
    assert len(await shelf.databases()) == 4
    await library.replace_catalog_data(CatalogData(projects=[project("c")]))
    _, store = await library.open("c")
    assert await store.scan(RecordFilter()) == []
    assert len(await shelf.databases()) == 2


async def test_who_has_a_project_open_learns_what_became_of_it(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    both = [project("a"), project("b")]
    await ours.replace_catalog_data(CatalogData(projects=both))
    stores = [(await ours.open(name))[1] for name in "ab"]
    await theirs.replace_catalog_data(CatalogData(projects=[replace(both[0], status="archived")]))
    for store, refusal in zip(stores, (ProjectArchived, NotFound), strict=True):
        with pytest.raises(refusal):
            await store.commit(batch(entity("late")))
    await theirs.replace_catalog_data(CatalogData(projects=both[:1]))
    await stores[0].commit(batch(entity("again")))


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


@pytest.mark.parametrize("arrives", [False, True])
async def test_what_was_cut_off_has_happened_or_not_and_the_next_mends_it(shelf: Shelf, *, arrives: bool) -> None:
    library = shelf.library()
    before = CatalogData(projects=[project("old"), project("shop")], notes={"key": "value"}, tokens=[])
    texts = 0
    for texts in count():
        await library.replace_catalog_data(before)
        for name in ("old", "shop"):
            await put_something_in_once(library, name)
        losing = LosingConnection(shelf.connection(), texts, arrives=arrives)
        try:
            await library_over(losing).replace_catalog_data(everything())
        except StoreUnreachable:
            assert await library.read_catalog_data() in (before, everything())
            await library.replace_catalog_data(everything())
        else:
            break
        finally:
            # Nothing that stays is touched, and what does not stay is gone.
            _, store = await library.open("shop")
            assert len(await store.scan(RecordFilter())) == 1
            assert len(await shelf.databases() - {DATABASE}) == 1
    assert texts > 3


async def put_something_in_once(library: Library, name: str) -> None:
    _, store = await library.open(name)
    if not await store.scan(RecordFilter()):
        await store.commit(batch(entity(f"in {name}")))
