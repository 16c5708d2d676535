"""Telling what was changed: after commits, and once for many."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import psycopg
import pytest

from everkept.engines.postgres.database import Database, Work
from everkept.engines.postgres.schema import EMPTY_LAYOUT
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.transactions import note_change
from postgres_server import PATIENCE, Server, proxied


def change(*stores: int | None) -> Work[None]:
    def work(cursor: Cursor) -> None:
        for store in stores:
            note_change(cursor, store)

    return work


class Ear:
    """Hears what a server tells, in the order in which it comes."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]", schema: str) -> None:
        self._connection = connection
        self._schema = schema
        connection.execute("LISTEN everkept")

    def so_far(self) -> list[str]:
        """The server tells what there is before it answers."""
        self._connection.execute("SELECT 1")
        return self._ours(self._connection.notifies(timeout=0))

    async def heard(self, count: int) -> list[str]:
        told: list[str] = []
        async with asyncio.timeout(PATIENCE):
            while len(told) < count:
                await asyncio.sleep(0.01)
                told += self.so_far()
        return told

    def _ours(self, notices: Any) -> list[str]:
        payloads = (notice.payload.rpartition(":") for notice in notices)
        return [number for schema, _, number in payloads if schema == self._schema]


@pytest.fixture
def database(common: Server) -> Database:
    return common.database(layout=EMPTY_LAYOUT, readers=1)


@pytest.fixture
async def ear(common: Server, database: Database) -> AsyncGenerator[Ear, None]:
    with common.connect() as connection:
        yield Ear(connection, database.schema)


async def test_a_store_and_the_library_are_told_of(database: Database, ear: Ear) -> None:
    await database.write(change(7))
    assert await ear.heard(1) == ["7"]
    await database.write(change(None))
    assert await ear.heard(1) == [""]


async def test_no_commit_waits_until_others_are_told_and_many_are_told_of_once(database: Database, ear: Ear) -> None:
    reading, go = threading.Event(), threading.Event()

    def stay(_cursor: Cursor) -> None:
        reading.set()
        assert go.wait(PATIENCE)

    staying = asyncio.ensure_future(database.read(stay))
    assert await asyncio.to_thread(reading.wait, PATIENCE)
    await database.write(change(0))
    await asyncio.sleep(0)  # from here on that is being told
    for _ in range(5):
        await database.write(change(1, 2))
    assert ear.so_far() == []
    go.set()
    await staying
    assert sorted(await ear.heard(3)) == ["0", "1", "2"]
    await database.write(change(3))
    assert await ear.heard(1) == ["3"]


async def test_what_was_undone_is_not_told(database: Database, ear: Ear) -> None:
    def work(cursor: Cursor) -> None:
        note_change(cursor, 1)
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(work)
    await database.write(change(2))
    assert await ear.heard(1) == ["2"]


async def test_a_change_that_nobody_waits_for_is_told_too(database: Database, ear: Ear) -> None:
    begun, go = threading.Event(), threading.Event()

    def work(cursor: Cursor) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        note_change(cursor, 1)

    writing = asyncio.ensure_future(database.write(work))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    go.set()
    assert await ear.heard(1) == ["1"]


async def test_what_is_left_is_told_before_closing(database: Database, ear: Ear) -> None:
    await database.write(change(1))
    await database.write(change(2))
    await database.close()
    assert sorted(ear.so_far()) == ["1", "2"]


async def test_who_cannot_tell_does_not_fail_for_it_nor_keep_anybody_from_closing(common: Server) -> None:
    async with proxied(common) as proxy:
        database = proxy.database(layout=EMPTY_LAYOUT, writers=1)
        await database.write(change(1))
        proxy.stall()
        async with asyncio.timeout(PATIENCE):
            await database.close()
        proxy.flow()
        assert await database.read(lambda cursor: cursor.execute("SELECT 1").fetchone()) == (1,)
