"""The tables of a library as they are given out."""

from everkept.engines.postgres.library import open_database
from everkept.engines.postgres.schema import VERSION
from everkept.engines.postgres.statements import Cursor
from postgres_openers import open_and_count
from postgres_server import Server, fresh_schema
from processes import Actor


def version(cursor: Cursor) -> str:
    row = cursor.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    assert row is not None
    return row[0]


async def test_the_tables_say_their_version(common: Server) -> None:
    opened = open_database(common.url, fresh_schema())
    try:
        assert int(await opened.read(version)) == VERSION
    finally:
        await opened.close()


async def test_ten_programs_may_be_the_first_in_an_empty_database(server: Server) -> None:
    name = f"postgres_openers:{open_and_count.__name__}"
    actors = [Actor(name, server.url, "memory") for _ in range(10)]
    try:
        assert [actor.hear() for actor in actors] == ["there"] * 10
        for actor in actors:
            actor.tell()
        assert [actor.finish() for actor in actors] == [[2]] * 10
    finally:
        for actor in actors:
            actor.process.kill()
