"""Projects with so many rows that they do not go in the call that puts them out of sight."""

import asyncio

import numpy as np
import pytest

from everkept.core.answers import CatalogData
from everkept.core.ports import RecordVector
from everkept.core.records import RecordFilter
from everkept.engines.postgres.indexes import IndexMaintenance
from everkept.engines.postgres.library import PostgresLibrary
from everkept.engines.postgres.project_lifecycle import MAX_DIRECT_ROWS
from everkept.engines.postgres.store import PostgresStore
from everkept.errors import NotFound
from postgres_libraries import Shelf
from postgres_server import shared
from records import batch, entity

PATIENCE = 30  # seconds; nothing takes that long unless it hangs


async def large(shelf: Shelf, library: PostgresLibrary, name: str) -> PostgresStore:
    """Two records of a project in which there might be many."""
    await library.create(name, "", project_id=f"id of {name}")
    _, store = await library.open(name)
    await store.commit(batch(entity("Ada", text="one"), entity("Bob", text="two")))
    with shelf.connection() as connection:
        connection.execute("UPDATE stores SET ages = %s WHERE title = %s", (MAX_DIRECT_ROWS, name))
    return store


def count(shelf: Shelf) -> int:
    [(found,)] = shelf.ask("SELECT count(*) FROM records")
    return found


def leave(shelf: Shelf, name: str) -> None:
    """As whoever deleted it and was killed then: nobody has begun to remove it."""
    with shelf.connection() as connection, connection.transaction():
        connection.execute("DELETE FROM projects WHERE name = %s", (name,))
        connection.execute("UPDATE stores SET name = NULL WHERE title = %s", (name,))


async def remembered(library: PostgresLibrary, text: str) -> None:
    """With a vector, as whoever stores something does."""
    store = await library.open_user_store()
    await store.commit(batch(entity(text, text=text)))
    await store.put_vectors("a model", [RecordVector(text, 1, np.ones(3, np.float32))])


async def rows_are(shelf: Shelf, expected: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(count, shelf) != expected:
            pass


async def test_a_large_project_is_gone_when_whoever_deletes_it_ends(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    store = await large(shelf, theirs, "shop")
    await ours.link_workspace("/shop", await ours.get_project("shop"))
    await ours.delete("shop")
    assert await theirs.list_projects() == []
    assert await theirs.find_workspace_project("/shop") is None
    for refused in (theirs.open("shop"), store.commit(batch(entity("Cy"))), store.get_stamp()):
        with pytest.raises(NotFound):
            await refused
    await ours.close()
    assert count(shelf) == 0
    assert shelf.ask("SELECT name FROM stores ORDER BY name") == [("history",), ("user",)]


async def test_who_stores_next_removes_what_was_left(shelf: Shelf) -> None:
    ours = shelf.library()
    await large(shelf, ours, "shop")
    leave(shelf, "shop")
    theirs = shelf.library()
    assert await theirs.list_projects() == []
    await theirs.create("shop", "", project_id="id of shop")
    _, store = await theirs.open("shop")
    assert await store.scan(RecordFilter(deleted=None)) == []
    await remembered(theirs, "something")
    await rows_are(shelf, 1)


async def test_a_running_server_removes_what_one_that_was_cut_short_has_left(shelf: Shelf) -> None:
    ours, theirs = shelf.library(), shelf.library()
    await large(shelf, ours, "shop")
    is_listening = asyncio.Event()
    await theirs.on_change(is_listening.set)
    await is_listening.wait()
    await remembered(theirs, "something")
    await theirs.wait_until_settled()  # it has looked, and found nothing
    with shelf.connection() as other, other.transaction():
        other.execute("SELECT FROM records FOR UPDATE")  # so the removal cannot end
        deleting = asyncio.create_task(ours.delete("shop"))
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(waits_for, shelf, other.info.backend_pid):
                pass
        deleting.cancel()
        await ours.close()
    await rows_are(shelf, 1)


async def test_a_server_that_starts_removes_what_was_left(shelf: Shelf) -> None:
    await large(shelf, shelf.library(), "shop")
    leave(shelf, "shop")
    await shelf.library().on_change(lambda: None)
    await rows_are(shelf, 0)


async def test_a_commit_that_waits_for_a_deletion_finds_nothing(shelf: Shelf) -> None:
    library = shelf.library()
    store = await large(shelf, library, "shop")
    with shelf.connection() as other:
        with other.transaction():
            other.execute("UPDATE stores SET name = NULL WHERE title = 'shop'")
            commit = asyncio.create_task(store.commit(batch(entity("Cy"))))
            async with asyncio.timeout(PATIENCE):
                while not await asyncio.to_thread(waits_for, shelf, other.info.backend_pid):
                    pass
        with pytest.raises(NotFound, match="shop"):
            await commit
    assert count(shelf) == 2


def waits_for(shelf: Shelf, backend: int) -> bool:
    return bool(shelf.ask(f"SELECT FROM pg_stat_activity WHERE {backend} = ANY(pg_blocking_pids(pid))"))


async def test_what_is_taken_over_lets_large_projects_go_alike(shelf: Shelf) -> None:
    library = shelf.library()
    await large(shelf, library, "kept")
    for name in ("shop", "other"):
        await large(shelf, library, name)
    await library.replace_catalog_data(CatalogData(projects=[await library.get_project("kept")]))
    await library.close()
    assert count(shelf) == 2
    assert [project.name for project in await library.list_projects()] == ["kept"]


async def test_what_another_is_removing_is_left_to_it(shelf: Shelf) -> None:
    library, database = shelf.library(), shared().database(shelf.schema)
    await large(shelf, library, "shop")
    leave(shelf, "shop")
    maintenance = IndexMaintenance(database)
    with shelf.connection() as other, other.transaction():
        other.execute("SELECT FROM stores WHERE name IS NULL FOR UPDATE")
        maintenance.note_deleted(1)
        async with asyncio.timeout(PATIENCE):
            await maintenance.wait_until_settled()
        assert count(shelf) == 2
    maintenance.note_deleted(1)
    await maintenance.wait_until_settled()
    assert count(shelf) == 0
    await database.close()
