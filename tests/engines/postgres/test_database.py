"""Questions and transactions while the server is well: what they see, and how long they take."""

import asyncio
import threading
from typing import Any

import pytest
from psycopg import errors

from everkept.engines.postgres.database import Database
from everkept.engines.postgres.schema import Layout
from everkept.engines.postgres.statements import Cursor
from everkept.errors import InvalidInput, NotFound, QueryTimeout, StorageFull, StoreUnreachable
from postgres_server import PATIENCE, Server
from upstreams import until

COUNTERS = Layout(
    steps=(
        (
            "CREATE TABLE counters (name text PRIMARY KEY, n integer NOT NULL DEFAULT 0)",
            "INSERT INTO counters VALUES ('a'), ('b')",
        ),
    )
)


@pytest.fixture
def database(common: Server) -> Database:
    return common.database(layout=COUNTERS)


def count(cursor: Cursor, name: str = "a") -> int:
    row = cursor.execute("SELECT n FROM counters WHERE name = %s", [name]).fetchone()
    assert row is not None
    return row[0]


def add(cursor: Cursor, name: str = "a") -> None:
    cursor.execute("UPDATE counters SET n = n + 1 WHERE name = %s", [name])


async def test_what_was_written_is_read(database: Database) -> None:
    await database.write(add)
    assert await database.read(count) == 1


async def test_a_question_sees_one_moment_and_cannot_write(database: Database) -> None:
    seen, written = threading.Event(), threading.Event()

    def question(cursor: Cursor) -> tuple[int, int]:
        before = count(cursor)
        seen.set()
        assert written.wait(PATIENCE)
        return before, count(cursor)

    asked = asyncio.ensure_future(database.read(question))
    assert await asyncio.to_thread(seen.wait, PATIENCE)
    await database.write(add)
    written.set()
    assert await asked == (0, 0)
    with pytest.raises(StoreUnreachable, match="read-only"):
        await database.read(add)
    assert await database.read(count) == 1


async def test_what_raises_has_written_nothing_and_the_connection_goes_on(database: Database) -> None:
    def work(cursor: Cursor) -> None:
        add(cursor)
        raise NotFound("thing", "a")

    def wrong(cursor: Cursor) -> None:
        add(cursor)
        cursor.execute("SELECT nothing FROM nowhere")

    with pytest.raises(NotFound):
        await database.write(work)
    with pytest.raises(RuntimeError, match="42P01"):
        await database.write(wrong)
    assert await database.read(count) == 0


async def test_a_failure_that_was_passed_over_is_no_success(database: Database) -> None:
    def work(cursor: Cursor) -> None:
        add(cursor)
        with pytest.raises(errors.DivisionByZero):
            cursor.execute("SELECT 1 / 0")

    with pytest.raises(RuntimeError, match="continued after"):
        await database.write(work)
    assert await database.read(count) == 0


async def test_statements_that_fail_together_do_not_spoil_what_comes_after_it(database: Database) -> None:
    def work(cursor: Cursor) -> None:
        for statement in ("SELECT 1", "SELECT 1 / 0", "SELECT 2"):
            cursor.ask(statement)

    with pytest.raises(RuntimeError, match="22012"):
        await database.write(work)
    await database.write(add)
    assert await database.read(count) == 1


@pytest.mark.parametrize("value", ["a\0b", "\0"])
async def test_a_nul_is_an_error_of_whoever_said_it(database: Database, value: str) -> None:
    def work(cursor: Cursor) -> None:
        cursor.execute("INSERT INTO counters VALUES (%s)", [value])

    def inside(cursor: Cursor) -> None:
        cursor.execute("SELECT %s::jsonb ->> 'a'", ['{"a": "\\u0000"}'])

    for each in (work, inside):
        with pytest.raises(InvalidInput, match="NUL"):
            await database.write(each)


async def test_transactions_that_are_in_each_others_way_are_done_again(database: Database) -> None:
    await database.read(count)  # who makes the tables would wait for who writes
    meeting = threading.Barrier(2)

    def crossing(first: str, second: str) -> Any:
        is_again = False

        def work(cursor: Cursor) -> None:
            nonlocal is_again
            add(cursor, first)
            if not is_again:
                is_again = True
                meeting.wait(PATIENCE)
            add(cursor, second)

        return work

    await asyncio.gather(database.write(crossing("a", "b")), database.write(crossing("b", "a")))
    assert await database.read(count) == 2


async def test_a_hundred_questions_at_once_share_eight_connections(database: Database) -> None:
    def question(cursor: Cursor) -> int:
        row = cursor.execute("SELECT pg_backend_pid(), pg_sleep(0.002)").fetchone()
        assert row is not None
        return row[0]

    servers = await asyncio.gather(*(database.read(question) for _ in range(100)))
    assert len(set(servers)) <= 8


async def test_writes_that_wait_hold_up_no_question(database: Database) -> None:
    locked, go = threading.Event(), threading.Event()

    def hold(cursor: Cursor) -> None:
        add(cursor)
        locked.set()
        assert go.wait(PATIENCE)

    first = asyncio.ensure_future(database.write(hold))
    assert await asyncio.to_thread(locked.wait, PATIENCE)
    others = [asyncio.ensure_future(database.write(add)) for _ in range(20)]
    assert await database.read(count) == 0
    go.set()
    await asyncio.gather(first, *others)
    assert await database.read(count) == 21


async def test_a_statement_that_is_remembered_is_planned_for_its_values(database: Database) -> None:
    def plans(cursor: Cursor) -> tuple[int, int]:
        for _ in range(30):
            count(cursor)
        row = cursor.execute(
            "SELECT sum(custom_plans)::integer, sum(generic_plans)::integer "
            "FROM pg_prepared_statements WHERE statement LIKE %s",
            ["%FROM counters%"],
        ).fetchone()
        assert row is not None
        return row[0], row[1]

    custom, generic = await database.read(plans)
    assert custom > 20
    assert generic == 0


async def test_who_gets_no_connection_in_time_has_stored_nothing(common: Server) -> None:
    database = common.database(layout=COUNTERS, readers=1, writers=1)
    await database.read(count)
    hurried = common.database(database.schema, layout=COUNTERS, readers=1, time_limit=1)
    await hurried.read(count)  # it has its connection from here on
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def stay(_cursor: Cursor) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return go.wait(PATIENCE)

    staying = asyncio.ensure_future(hurried.read(stay))
    await begun.wait()
    with pytest.raises(QueryTimeout, match="were in use"):
        await hurried.read(count)
    go.set()
    await asyncio.wait({staying})


async def test_what_takes_too_long_is_ended_on_the_server(common: Server, database: Database) -> None:
    await database.read(count)
    slow = common.database(database.schema, layout=COUNTERS, time_limit=1)
    with pytest.raises(QueryTimeout, match="Nothing was stored"):
        await slow.read(lambda c: c.execute("SELECT pg_sleep(61) /* question */"))
    assert common.at_work("/* question */") == 0
    assert await slow.read(count) == 0


async def test_many_short_statements_may_take_no_longer_than_one_long_one(common: Server) -> None:
    slow = common.database(layout=COUNTERS, time_limit=1)

    def work(cursor: Cursor) -> None:
        while True:
            cursor.execute("SELECT pg_sleep(0.05)")

    with pytest.raises(QueryTimeout):
        await slow.read(work)


async def test_where_a_commit_may_have_happened_nobody_says_that_nothing_was_stored(
    common: Server, database: Database
) -> None:
    slow = common.database(database.schema, layout=COUNTERS, time_limit=0.3)
    await database.read(count)
    go = threading.Event()

    def work(cursor: Cursor) -> None:
        add(cursor)
        assert go.wait(PATIENCE)

    with pytest.raises(StoreUnreachable, match="unknown"):
        await slow.write(work)
    go.set()


async def test_what_failed_by_itself_is_told_though_it_was_stopped(common: Server, database: Database) -> None:
    slow = common.database(database.schema, layout=COUNTERS, time_limit=0.3)
    await database.read(count)

    def work(cursor: Cursor) -> None:
        cursor.execute("SET LOCAL statement_timeout = 0")
        cursor.execute(
            "DO $$ BEGIN PERFORM pg_sleep(61); EXCEPTION WHEN query_canceled THEN "
            "RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END $$"
        )

    with pytest.raises(StorageFull):
        await slow.write(work)


async def test_a_question_that_nobody_waits_for_is_ended_on_the_server(common: Server, database: Database) -> None:
    asked = asyncio.ensure_future(database.read(lambda c: c.execute("SELECT pg_sleep(61) /* left */")))
    await until(lambda: common.at_work("/* left */") == 1)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await until(lambda: common.at_work("/* left */") == 0)
    assert await database.read(count) == 0


async def test_a_write_goes_on_though_nobody_waits_for_it(database: Database) -> None:
    begun, go = threading.Event(), threading.Event()

    def work(cursor: Cursor) -> None:
        begun.set()
        assert go.wait(PATIENCE)
        add(cursor)

    asked = asyncio.ensure_future(database.write(work))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    go.set()
    for _ in range(PATIENCE * 100):
        if await database.read(count):
            break
    assert await database.read(count) == 1


async def test_closing_is_not_final_and_ends_what_is_under_way(common: Server, database: Database) -> None:
    asked = asyncio.ensure_future(database.read(lambda c: c.execute("SELECT pg_sleep(61) /* closed */")))
    await until(lambda: common.at_work("/* closed */") == 1)
    await database.close()
    with pytest.raises(StoreUnreachable, match="closed"):
        await asked
    assert await database.read(count) == 0


@pytest.mark.parametrize("name", ["", "pg_mine", "information_schema", "a" * 64, "a\nb"])
def test_what_cannot_be_a_schema_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="PostgreSQL schema"):
        Database("postgresql://ada@127.0.0.1/a", name)


async def test_a_schema_may_have_any_name_that_can_be_one(common: Server) -> None:
    database = common.database('My "own" – schema', layout=COUNTERS)
    await database.write(add)
    assert await database.read(count) == 1
    with common.connect() as connection:
        connection.execute('DROP SCHEMA "My ""own"" – schema" CASCADE')
