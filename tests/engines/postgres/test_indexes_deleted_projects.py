"""Who removes what is left of deleted projects."""

import asyncio

from everkept.engines.postgres.indexes import LeftoverRemover
from postgres_libraries import Shelf
from postgres_server import shared
from records import batch, entity

PATIENCE = 30  # seconds; nothing takes that long unless it hangs


async def left(shelf: Shelf) -> None:
    """A project that was deleted by somebody who was killed then."""
    library = shelf.library()
    await library.create("shop", "")
    _, store = await library.open("shop")
    await store.commit(batch(entity("Ada"), entity("Bob")))
    with shelf.connection() as connection:
        connection.execute("DELETE FROM projects")
        connection.execute("UPDATE stores SET name = NULL WHERE title = 'shop'")


def count(shelf: Shelf) -> int:
    [(found,)] = shelf.ask("SELECT count(*) FROM records")
    return found


async def test_who_waits_is_told_when_it_is_gone(shelf: Shelf) -> None:
    await left(shelf)
    database = shared().database(shelf.schema)
    await LeftoverRemover(database).wait_until_removed()
    assert count(shelf) == 0
    await database.close()


async def test_what_another_was_removing_and_has_not_is_removed_later(shelf: Shelf) -> None:
    await left(shelf)
    database = shared().database(shelf.schema)
    remover = LeftoverRemover(database, again=0.01)
    with shelf.connection() as other, other.transaction():
        other.execute("SELECT FROM stores WHERE name IS NULL FOR UPDATE")
        await remover.wait_until_removed()
        assert count(shelf) == 2
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(count, shelf):
            pass
    await remover.close()
    await database.close()


async def test_who_stops_waiting_ends_nothing(shelf: Shelf) -> None:
    await left(shelf)
    database = shared().database(shelf.schema)
    remover = LeftoverRemover(database)
    waiting = asyncio.create_task(remover.wait_until_removed())
    await asyncio.sleep(0)
    waiting.cancel()
    async with asyncio.timeout(PATIENCE):
        while await asyncio.to_thread(count, shelf):
            pass
    await remover.close()
    await database.close()
