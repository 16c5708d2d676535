"""Round trips and transactions of questions and writes, with a session of our own and without."""

from collections.abc import AsyncGenerator

import pytest

from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import Layout
from everkept.engines.postgres.statements import Cursor
from postgres_server import Server
from postgres_trips import Way
from proxies import Direction, running

NOTES = Layout(steps=(("CREATE TABLE notes (key text PRIMARY KEY)",),))
KEYS = "SELECT key FROM notes ORDER BY key"


class Pooler(Way):
    """Tells a client a process that is not the one that works for it, as poolers do."""

    def _altered(self, data: bytes, direction: Direction) -> bytes:
        sign = b"K\0\0\0\x0c"  # the process and its key follow
        at = data.find(sign) + len(sign)
        known = data if sign not in data else data[:at] + b"\0\0\0\1" + data[at + 4 :]
        return super()._altered(known, direction)


@pytest.fixture(params=[Way, Pooler], ids=["session", "pooler"])
async def way(common: Server, request: pytest.FixtureRequest) -> AsyncGenerator[Way, None]:
    async with running(request.param(common)) as way:
        yield way


@pytest.fixture
async def database(way: Way) -> Database:
    database = way.database(layout=NOTES, readers=1, writers=1)
    await database.write(lambda cursor: cursor.ask("INSERT INTO notes VALUES ('a')"))
    assert await database.read(last) == ["a"]
    return database


def last(cursor: Cursor) -> list[str]:
    return [key for (key,) in cursor.ask_last(KEYS)]


def several(cursor: Cursor) -> list[str]:
    cursor.ask("SELECT 1")
    return last(cursor)


def one_by_one(cursor: Cursor) -> list[str]:
    cursor.execute("SELECT 1")
    return [key for (key,) in cursor.execute(KEYS)]


def add(cursor: Cursor) -> None:
    for key in ("b", "c"):
        cursor.ask("INSERT INTO notes VALUES (%s) ON CONFLICT DO NOTHING", [key])


async def test_a_question_whose_last_statement_is_known_takes_one_trip(way: Way, database: Database) -> None:
    for question in (last, several):
        ways = way.count()
        assert await database.read(question) == ["a"]
        assert (ways.trips, way.transactions) == (1, 1)


async def test_a_question_that_looks_twice_takes_one_more_to_end(way: Way, database: Database) -> None:
    ways = way.count()
    assert await database.read(one_by_one) == ["a"]
    assert (ways.trips, way.transactions) == (3, 1)


async def test_a_question_that_asks_nothing_goes_nowhere(way: Way, database: Database) -> None:
    ways = way.count()
    assert await database.read(lambda _: "known") == "known"
    assert (ways.trips, way.transactions) == (0, 0)


async def test_a_write_takes_one_trip_to_begin_and_one_to_commit(way: Way, database: Database) -> None:
    ways = way.count()
    await database.write(add)
    assert (ways.trips, way.transactions) == (2, 1)
    assert await database.read(last) == ["a", "b", "c"]


async def test_a_question_cannot_go_on_after_its_last_statement(database: Database) -> None:
    def question(cursor: Cursor) -> None:
        last(cursor)
        cursor.ask("SELECT 1")

    with pytest.raises(RuntimeError, match="after its last statement"):
        await database.read(question)
    assert await database.read(last) == ["a"]
