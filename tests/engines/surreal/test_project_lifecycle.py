"""What a connection that is lost in the middle leaves of projects, and who mends it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count

import pytest

from everkept.core.ports import Library
from everkept.core.records import RecordFilter
from everkept.engines.surreal.project_lifecycle import WATCH_MICROSECONDS
from everkept.errors import NotFound, ProjectArchived, StoreUnreachable
from records import DAY_ONE, batch, entity
from surreal_libraries import DATABASE, LosingConnection, Shelf, library_over

OWN = {DATABASE}


async def lost_at_every_text(
    shelf: Shelf, work: Callable[[Library], Awaitable[object]], *, arrives: bool
) -> AsyncIterator[bool]:
    """Does the work again and again, lost one text later each time; False when it was not lost."""
    for texts in count():
        connection = LosingConnection(shelf.connection(), texts, arrives=arrives)
        try:
            await work(library_over(connection))
        except StoreUnreachable:
            yield True
        else:
            assert not connection.was_lost
            yield False
            return


async def put_something_in(library: Library, name: str) -> None:
    _, store = await library.open(name)
    await store.commit(batch(entity("Ada")))


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_deletion_that_was_cut_off_is_mended_by_the_next(shelf: Shelf, *, arrives: bool) -> None:
    library = shelf.library()
    await library.create("other", "")
    attempts = 0

    async def delete(losing: Library) -> None:
        await losing.delete("shop")

    async def anew() -> None:
        if not [each for each in await library.list_projects() if each.name == "shop"]:
            made = await library.create("shop", "")
            await put_something_in(library, "shop")
            await library.link_workspace("/work/shop", made)

    await anew()
    async for was_lost in lost_at_every_text(shelf, delete, arrives=arrives):
        attempts += 1
        there = [each for each in await library.list_projects() if each.name == "shop"]
        owner = await library.find_workspace_project("/work/shop")
        assert ([owner] if owner else []) == there
        if there:
            assert was_lost
            _, store = await library.open("shop")
            assert len(await store.scan(RecordFilter())) == 1
        await anew()
    assert attempts > 3
    await library.delete("shop")
    await library.delete("other")
    assert await shelf.databases() == OWN


@pytest.mark.parametrize("arrives", [False, True])
async def test_a_creation_that_was_cut_off_has_happened_or_not(shelf: Shelf, *, arrives: bool) -> None:
    library = shelf.library()

    async def create(losing: Library) -> None:
        await losing.create("shop", "")

    async for _ in lost_at_every_text(shelf, create, arrives=arrives):
        for project in await library.list_projects():
            await put_something_in(library, project.name)
            await library.delete(project.name)
    assert await shelf.databases() == OWN


async def test_a_database_that_a_late_reader_brought_back_goes_with_the_next_deletion(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await ours.create("shop", "")
    _, store = await theirs.open("shop")
    await ours.delete("shop")
    with pytest.raises(NotFound):
        await store.commit(batch(entity("Ada")))
    await ours.create("other", "")
    await ours.delete("other")
    assert await shelf.databases() == OWN


async def test_a_removed_database_is_watched_for_a_while_only(shelf: Shelf) -> None:
    library = shelf.library(clock=lambda: at)
    at = DAY_ONE
    for _ in range(2):
        await library.create("shop", "")
        await library.delete("shop")
        at += WATCH_MICROSECONDS + 1
    [leaving] = await shelf.connection().run(DATABASE, "SELECT VALUE at FROM leaving")
    assert leaving == [DAY_ONE + WATCH_MICROSECONDS + 1]


async def test_an_id_that_was_deleted_begins_anew(shelf: Shelf) -> None:
    library = shelf.library()
    for _ in range(2):
        await library.create("shop", "", project_id="an id")
        _, store = await library.open("shop")
        assert await store.scan(RecordFilter(deleted=None)) == []
        await store.commit(batch(entity("Ada")))
        await library.delete("shop")
        await library.create("other", "")
        await library.delete("other")


async def test_what_is_made_anew_is_not_taken_for_what_is_leaving(shelf: Shelf) -> None:
    libraries = [shelf.library() for _ in range(3)]
    first = libraries[0]
    for _ in range(3):
        await first.create("shop", "", project_id="an id")
        for number in range(2):
            await first.create(f"other {number}", "")
        await asyncio.gather(
            *(library.delete(name) for library, name in zip(libraries, ("shop", "other 0", "other 1"), strict=True))
        )
        sweeping = asyncio.gather(*(_make_and_delete(library) for library in libraries[1:]))
        await first.create("shop", "", project_id="an id")
        await put_something_in(first, "shop")
        await sweeping
        _, store = await first.open("shop")
        assert len(await store.scan(RecordFilter())) == 1
        await first.delete("shop")


async def test_who_copies_an_archived_project_that_nobody_opened_cannot_write_to_it(shelf: Shelf) -> None:
    library = shelf.library()
    made = await library.create("shop", "")
    await library.archive("shop")
    store = await library.get_store(made)
    with pytest.raises(ProjectArchived):
        await store.commit(batch(entity("Ada")))
    await library.restore("shop")
    await store.commit(batch(entity("Ada")))


async def test_an_archived_project_accepts_a_write_that_was_acknowledged_before(shelf: Shelf) -> None:
    library = shelf.library()
    made = await library.create("shop", "")
    await library.archive("shop")
    await (await library.get_store(made)).commit(batch(entity("Ada"), late=True))
    await library.restore("shop")
    _, store = await library.open("shop")
    assert [record.id for record in await store.scan(RecordFilter())] == ["Ada"]


async def _make_and_delete(library: Library) -> None:
    name = f"passing {id(library)}"
    await library.create(name, "")
    await library.delete(name)
