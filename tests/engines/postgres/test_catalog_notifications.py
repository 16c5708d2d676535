"""Who follows hears of everything that others change, and of nothing else."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import psycopg

from everkept.core.answers import LEASE_PREFIX, CatalogData
from everkept.core.ports import Token
from postgres_libraries import Shelf
from records import DAY_ONE, batch, entity

PATIENCE = 30  # seconds; nothing takes that long unless it hangs


class Ear:
    """Of who follows a library."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def hears_of(self, change: Awaitable[object]) -> None:
        self.heard.clear()
        await change
        async with asyncio.timeout(PATIENCE):
            await self.heard.wait()


def next_told(connection: "psycopg.Connection[tuple[Any, ...]]") -> list[str]:
    notices = connection.notifies(timeout=PATIENCE, stop_after=1)
    return [notice.payload for notice in notices]


async def test_who_follows_hears_of_whatever_others_change(shelf: Shelf) -> None:
    ours, theirs, ear = shelf.library(), shelf.library(), Ear()
    shop = await theirs.create("shop", "")
    _, store = await theirs.open("shop")
    # That it listens is told too: what came before that it has not heard.
    await ear.hears_of(ours.on_change(ear.heard.set))
    await ear.hears_of(store.commit(batch(entity("Ada"))))
    await ear.hears_of((await theirs.open_user_store()).commit(batch(entity("Ada"))))
    await ear.hears_of(theirs.create("other", ""))
    await ear.hears_of(theirs.link_workspace("/work", shop))
    await ear.hears_of(theirs.set_off("shop", off=True))
    await ear.hears_of(theirs.archive("shop"))
    await ear.hears_of(theirs.restore("shop"))
    await ear.hears_of(theirs.delete("shop"))
    await ear.hears_of(theirs.set_note("key", "value"))
    await ear.hears_of(theirs.set_note("key", None))
    await ear.hears_of(theirs.add_token(Token("1", "laptop", DAY_ONE), "hash"))
    await ear.hears_of(theirs.remove_token("1"))
    await ear.hears_of(theirs.replace_catalog_data(CatalogData()))


async def test_what_is_refused_or_holds_for_a_moment_wakes_nobody(shelf: Shelf) -> None:
    theirs = shelf.library()
    with shelf.connection() as connection:
        connection.execute("LISTEN everkept")
        await theirs.create("shop", "")
        assert await asyncio.to_thread(next_told, connection)
        await theirs.set_note(f"{LEASE_PREFIX}work", "ours")
        await theirs.remove_token("none")
        await asyncio.gather(theirs.create("shop", ""), theirs.restore("shop"), return_exceptions=True)
        await theirs.create("end", "")
        told = await asyncio.to_thread(next_told, connection)
    [(number,)] = shelf.ask("SELECT store FROM projects WHERE name = 'end'")
    assert told == [f"{shelf.schema}:{number}"]
