"""Being woken by what others have changed."""

import asyncio
from queue import Queue
from typing import Any, cast

from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import EMPTY_LAYOUT
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.transactions import ChangeListener
from postgres_server import Server, proxied


class Ear:
    """What a database has told, in order."""

    def __init__(self, database: Database) -> None:
        self._heard: asyncio.Queue[int | None] = asyncio.Queue()
        database.listen(self._heard.put_nowait)

    async def next(self) -> int | None:
        async with asyncio.timeout(30):
            return await self._heard.get()

    def is_silent(self) -> bool:
        return self._heard.empty()


async def tell(database: Database, text: str) -> None:
    def work(cursor: Cursor) -> None:
        cursor.execute("SELECT pg_notify('everkept', %s)", [text])

    await database.write(work)


async def test_a_change_wakes_every_server_of_its_schema_and_no_other(common: Server) -> None:
    database = common.database(layout=EMPTY_LAYOUT)
    same = common.database(database.schema, layout=EMPTY_LAYOUT)
    other = common.database(layout=EMPTY_LAYOUT)
    ears = [Ear(each) for each in (database, same, other)]
    for ear in ears:
        assert await ear.next() is None  # from now on nothing is missed
    await tell(database, f"{database.schema}:7")
    await tell(database, f"{database.schema}:{'9' * 5_000}")  # any user of the database can send that
    await tell(database, f"{other.schema}:8")
    assert [await ear.next() for ear in ears] == [7, 7, 8]
    assert [await ear.next() for ear in ears[:2]] == [None, None]
    assert ears[2].is_silent()


async def test_what_was_undone_wakes_nobody(common: Server) -> None:
    database = common.database(layout=EMPTY_LAYOUT)
    ear = Ear(database)
    assert await ear.next() is None

    def work(cursor: Cursor) -> None:
        cursor.execute("SELECT pg_notify('everkept', %s)", [f"{database.schema}:1"])
        raise ValueError

    try:
        await database.write(work)
    except ValueError:
        await tell(database, f"{database.schema}:2")
    assert await ear.next() == 2


async def test_after_a_break_anything_may_have_changed(common: Server) -> None:
    database = common.database(layout=EMPTY_LAYOUT)
    async with proxied(common) as proxy:
        far = proxy.database(database.schema, layout=EMPTY_LAYOUT)
        ear = Ear(far)
        assert await ear.next() is None
        proxy.cut()
        assert await ear.next() is None
        await tell(database, f"{database.schema}:3")
        assert await ear.next() == 3


async def test_closing_ends_it_and_listening_begins_anew(common: Server) -> None:
    database = common.database(layout=EMPTY_LAYOUT)
    ear = Ear(database)
    assert await ear.next() is None
    await database.close()
    later = Ear(database)
    assert await later.next() is None
    await tell(database, f"{database.schema}:4")
    assert await later.next() == 4
    assert ear.is_silent()


class Loop:
    """One that is busy: it does later what it is given."""

    def __init__(self) -> None:
        self.given: Queue[tuple[Any, ...]] = Queue()

    def call_soon_threadsafe(self, *what: Any) -> None:
        self.given.put(what)


async def test_what_was_on_its_way_when_it_was_closed_is_not_told(common: Server) -> None:
    heard: list[int | None] = []
    loop = Loop()
    listener = ChangeListener(common.connect, "test", heard.append, cast(asyncio.AbstractEventLoop, loop))
    do, *given = await asyncio.to_thread(loop.given.get, timeout=30)
    do(*given)
    assert heard == [None]
    listener.close()
    do(*given)
    assert heard == [None]
