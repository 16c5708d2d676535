"""Tables that are made and changed while others use them, and databases that will not do."""

import asyncio
import threading

import pytest

from everkept.engines.postgres.connection import Credentials
from everkept.engines.postgres.schema import EMPTY_LAYOUT, Layout
from everkept.engines.postgres.statements import Cursor
from everkept.errors import InvalidInput, Refused, StoreDamaged, StoreTooNew, StoreUnreachable, Unavailable
from postgres_server import PATIENCE, Server, fresh_schema
from upstreams import until

FIRST = ("CREATE TABLE things (name text)", "INSERT INTO things VALUES ('a')")
SECOND = ("ALTER TABLE things ADD COLUMN size integer NOT NULL DEFAULT 7",)
OLD, NEW = Layout((FIRST,)), Layout((FIRST, SECOND))


def things(cursor: Cursor) -> list[tuple[object, ...]]:
    return cursor.execute("SELECT * FROM things").fetchall()


def add(cursor: Cursor) -> None:
    cursor.execute("INSERT INTO things(name) VALUES ('b')")


def ask(cursor: Cursor) -> int:
    return len(cursor.execute("SELECT 1").fetchall())


async def test_tables_are_made_once_and_brought_up_to_date_step_by_step(common: Server) -> None:
    schema = fresh_schema()
    assert await common.database(schema, layout=OLD).read(things) == [("a",)]
    assert await common.database(schema, layout=OLD).read(things) == [("a",)]
    assert await common.database(schema, layout=NEW).read(things) == [("a", 7)]
    assert await common.database(fresh_schema(), layout=NEW).read(things) == [("a", 7)]


async def test_who_founds_nothing_makes_no_schema_and_is_told_of_those_that_there_are(common: Server) -> None:
    schema, known = fresh_schema(), f"a_{fresh_schema()}"  # the first of those that are told
    tables = (*FIRST, "CREATE TABLE stores (name text)")
    reading = Layout((tables,), founds=False)
    with pytest.raises(InvalidInput, match=f'no schema "{schema}"'):
        await common.database(schema, layout=reading).read(things)
    await common.database(known, layout=Layout((tables,))).read(things)
    with pytest.raises(InvalidInput) as told:
        await common.database(schema, layout=reading).write(add)
    assert (told.value.facts["argument"], told.value.facts["value"]) == ("namespace", schema)
    assert known in told.value.facts["others"]
    with common.connect() as connection:
        made = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [schema])
        assert made.rowcount == 0
    assert await common.database(known, layout=reading).read(things) == [("a",)]


async def test_an_older_program_is_refused_when_it_opens_and_when_it_goes_on(common: Server) -> None:
    schema = fresh_schema()
    older = common.database(schema, layout=OLD)
    await older.write(add)
    newer = common.database(schema, layout=NEW)
    assert len(await newer.read(things)) == 2
    for call in (older.write(add), older.read(things)):
        with pytest.raises(StoreTooNew, match="schema 2; this version supports 1"):
            await call
    with pytest.raises(StoreTooNew):
        await common.database(schema, layout=OLD).read(things)
    assert len(await newer.read(things)) == 2


async def test_nobody_changes_the_tables_under_a_transaction(common: Server) -> None:
    schema = fresh_schema()
    older, newer = (common.database(schema, layout=each) for each in (OLD, NEW))
    begun, go = threading.Event(), threading.Event()

    def work(cursor: Cursor) -> None:
        add(cursor)
        begun.set()
        assert go.wait(PATIENCE)

    writing = asyncio.ensure_future(older.write(work))
    assert await asyncio.to_thread(begun.wait, PATIENCE)
    upgrading = asyncio.ensure_future(newer.read(things))
    await until(lambda: _waits_for_a_lock(common))
    go.set()
    await writing
    assert await upgrading == [("a", 7), ("b", 7)]


def _waits_for_a_lock(server: Server) -> bool:
    with server.connect() as connection:
        row = connection.execute(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)"
        ).fetchone()
    assert row is not None
    return row[0]


async def test_a_step_that_fails_leaves_the_version_before_it(common: Server) -> None:
    schema = fresh_schema()
    broken = Layout((FIRST, ("ALTER TABLE things ADD COLUMN size integer", "SELECT 1 / 0")))
    with pytest.raises(RuntimeError):
        await common.database(schema, layout=broken).read(things)
    assert await common.database(schema, layout=OLD).read(things) == [("a",)]
    assert await common.database(schema, layout=NEW).read(things) == [("a", 7)]


async def test_tables_that_were_removed_while_they_were_in_use_are_not_made_anew(common: Server) -> None:
    database = common.database(layout=OLD)
    await asyncio.gather(*(database.write(add) for _ in range(3)))
    with common.connect() as connection:
        connection.execute(f"DROP SCHEMA {database.schema} CASCADE".encode())
    for work in (things, add):
        with pytest.raises(StoreDamaged, match="deleted while in use"):
            await database.write(work)
    restarted = common.database(database.schema, layout=OLD)
    assert await restarted.read(things) == [("a",)]
    await database.write(add)
    assert await restarted.read(things) == [("a",), ("b",)]


async def test_tables_that_do_not_tell_their_version_are_left_alone(common: Server) -> None:
    schema = fresh_schema()
    with common.connect() as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"CREATE TABLE {schema}.meta (key text, value text)".encode())
    with pytest.raises(StoreDamaged, match="no valid schema version"):
        await common.database(schema, layout=OLD).read(things)


@pytest.mark.parametrize("version", ["abc", "", "²", "-1", "9" * 5_000])
async def test_a_version_that_is_none_is_damage_also_in_use(common: Server, version: str) -> None:
    database = common.database(layout=OLD)
    await database.write(add)
    with common.connect() as connection:
        connection.execute(f"UPDATE {database.schema}.meta SET value = %s".encode(), [version])
    for each in (database, common.database(database.schema, layout=OLD)):
        with pytest.raises(StoreDamaged, match="no valid schema version"):
            await each.read(things)


async def test_a_user_without_the_right_to_make_tables_is_refused(common: Server) -> None:
    name = fresh_schema()
    with common.connect() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN".encode())
    user = Credentials(name)
    with pytest.raises(Refused, match="GRANT CREATE ON DATABASE"):
        await common.database(fresh_schema(), layout=OLD, credentials=user).read(things)
    own = fresh_schema()
    with common.connect() as connection:
        connection.execute(f"CREATE SCHEMA {own} AUTHORIZATION {name}".encode())
    database = common.database(own, layout=OLD, credentials=user)
    await database.write(add)
    assert len(await database.read(things)) == 2


async def test_a_server_that_can_only_be_read_takes_nothing_and_answers(common: Server) -> None:
    name, schema = fresh_schema(), fresh_schema()
    await common.database(schema, layout=OLD).write(add)
    with common.connect() as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER".encode())
        connection.execute(f"ALTER ROLE {name} SET default_transaction_read_only = on".encode())
    reader = common.database(schema, layout=OLD, credentials=Credentials(name))
    assert len(await reader.read(things)) == 2
    with pytest.raises(StoreUnreachable, match="read-only"):
        await reader.write(add)


async def test_a_database_that_will_not_do_is_refused_with_what_to_do(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE ROLE ada LOGIN")
        connection.execute("CREATE DATABASE bare OWNER ada")
        connection.execute("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    bare, latin = (server.url.replace("/postgres", f"/{n}") for n in ("bare", "latin"))
    with pytest.raises(Unavailable, match="CREATE EXTENSION vector"):
        await server.database(url=bare, layout=EMPTY_LAYOUT, credentials=Credentials("ada")).read(ask)
    with pytest.raises(Refused, match=r"LATIN1.*ENCODING 'UTF8'"):
        await server.database(url=latin, layout=EMPTY_LAYOUT).read(ask)
    assert await server.database(url=bare, layout=EMPTY_LAYOUT).read(ask) == 1
    assert await server.database(url=bare, layout=EMPTY_LAYOUT, credentials=Credentials("ada")).read(ask) == 1


async def test_an_old_extension_is_refused_and_one_in_another_schema_is_found(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE SCHEMA extensions")
        connection.execute("CREATE EXTENSION vector SCHEMA extensions")
    database = server.database(layout=Layout((("CREATE TABLE points (at vector(2))",),)))
    near = "SELECT '[1,2]'::vector <=> at FROM points"
    assert await database.read(lambda cursor: cursor.execute(near).fetchall()) == []
    with server.connect() as connection:
        connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    with pytest.raises(Unavailable, match=r"version 0\.7\.4.*ALTER EXTENSION vector UPDATE"):
        await server.database(layout=EMPTY_LAYOUT).read(ask)
