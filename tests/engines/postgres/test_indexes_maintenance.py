import asyncio
import logging
from collections.abc import AsyncIterator

import numpy as np
import psycopg
import pytest

from everkept.core.ports import RecordVector
from everkept.core.records import RecordFilter
from everkept.engines.postgres.database import Database
from everkept.engines.postgres.indexes import BACKOFF_FACTOR, IndexedVectors, IndexMaintenance, ask_usable
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.store import PostgresStore
from postgres_server import fresh_schema, shared
from postgres_tables import MODEL, said
from records import batch

SIZE = 50


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    made = shared().database(fresh_schema())
    yield made
    await made.close()


async def filled(database: Database) -> IndexedVectors:
    """A store with some vectors."""

    def found(cursor: Cursor) -> int:
        made = cursor.execute("INSERT INTO stores(name) VALUES ('project') RETURNING number")
        return made.fetchall()[0][0]

    number = await database.write(found)
    store = PostgresStore(database, number, "project")
    await store.commit(batch(*(said("text", id=str(n)) for n in range(SIZE))))
    vectors = np.eye(SIZE, dtype=np.float32)
    await store.put_vectors(MODEL, [RecordVector(str(n), 1, v) for n, v in enumerate(vectors)])
    return IndexedVectors(number, MODEL, SIZE)


async def is_indexed(database: Database, vectors: IndexedVectors) -> bool:
    return await database.read(lambda cursor: ask_usable(cursor, vectors).rowcount > 0)


@pytest.mark.parametrize(("many", "expected"), [(SIZE - 1, True), (SIZE, False)])
async def test_a_store_that_has_many_gets_an_index(database: Database, many: int, expected: bool) -> None:
    vectors = await filled(database)
    maintenance = IndexMaintenance(database, many=many)
    maintenance.note_vectors(vectors.store, 1)
    await maintenance.wait_until_settled()
    assert await is_indexed(database, vectors) == expected


async def test_a_store_is_looked_at_again_when_many_more_have_come(database: Database) -> None:
    vectors = await filled(database)
    maintenance = IndexMaintenance(database, many=SIZE - 1, every=10)
    maintenance.note_vectors(vectors.store, 0)
    await maintenance.wait_until_settled()
    assert not await is_indexed(database, vectors)
    maintenance.note_vectors(vectors.store, 1)
    await maintenance.wait_until_settled()

    def drop(cursor: Cursor) -> None:
        cursor.execute(f"DROP INDEX {vectors.name}".encode())

    await database.write(drop)
    maintenance.note_vectors(vectors.store, 9)
    await maintenance.wait_until_settled()
    assert not await is_indexed(database, vectors)
    maintenance.note_vectors(vectors.store, 1)
    await maintenance.wait_until_settled()
    assert await is_indexed(database, vectors)


async def grown_fast(database: Database, maintenance: IndexMaintenance) -> IndexedVectors:
    """A store that lost its index, in which ten more came a moment after the ten before."""
    vectors = await filled(database)
    maintenance.note_vectors(vectors.store, 10)
    await maintenance.wait_until_settled()

    def drop(cursor: Cursor) -> None:
        cursor.execute(f"DROP INDEX {vectors.name}".encode())

    await database.write(drop)
    maintenance.note_vectors(vectors.store, 10)
    return vectors


async def test_while_many_come_at_once_the_index_waits(database: Database) -> None:
    maintenance = IndexMaintenance(database, many=SIZE - 1, every=10, calm=3_600)
    vectors = await grown_fast(database, maintenance)
    maintenance.note_doubling(vectors.store)
    for _ in range(100):  # looks; it would be there by then
        assert not await is_indexed(database, vectors)
    await maintenance.wait_until_settled()
    assert await is_indexed(database, vectors)


async def test_the_index_does_not_wait_for_ever(database: Database) -> None:
    maintenance = IndexMaintenance(database, many=SIZE - 1, every=10, patience=0)
    vectors = await grown_fast(database, maintenance)
    async with asyncio.timeout(60):
        while not await is_indexed(database, vectors):
            pass
    await maintenance.close()


async def test_several_servers_that_notice_at_once_make_one_index(database: Database) -> None:
    vectors = await filled(database)
    others = [shared().database(database.schema) for _ in range(3)]
    keepers = [IndexMaintenance(each, many=10) for each in others]
    for maintenance in keepers:
        maintenance.note_vectors(vectors.store, 1)
    for maintenance, other in zip(keepers, others, strict=True):
        await maintenance.wait_until_settled()
        await other.close()
    assert await is_indexed(database, vectors)


async def test_while_an_index_is_made_and_cannot_be_finished_the_answers_are_the_same(database: Database) -> None:
    vectors = await filled(database)
    store = PostgresStore(database, vectors.store, "project")
    vector = np.eye(SIZE, dtype=np.float32)[7]
    before = await store.find_near(MODEL, vector, RecordFilter(), 5)
    maintenance = IndexMaintenance(database, many=10)
    with psycopg.connect(shared().url) as holding:
        holding.execute(f"UPDATE {database.schema}.vectors SET dims = dims".encode())
        maintenance.note_vectors(vectors.store, 1)
        async with asyncio.timeout(60):
            while not await is_being_made(database):
                pass
        assert await store.find_near(MODEL, vector, RecordFilter(), 5) == before
        await maintenance.close()
        async with asyncio.timeout(60):
            while await is_being_made(database):
                pass
    assert not await is_indexed(database, vectors)
    assert await store.find_near(MODEL, vector, RecordFilter(), 5) == before
    maintenance.note_vectors(vectors.store, 1)
    await maintenance.wait_until_settled()
    assert await is_indexed(database, vectors)
    assert (await store.find_near(MODEL, vector, RecordFilter(), 5))[0] == before[0]


async def is_being_made(database: Database) -> bool:
    return await maker(database) is not None


async def maker(database: Database) -> int | None:
    """The server's process that makes an index."""

    def asked(cursor: Cursor) -> int | None:
        row = cursor.execute(
            "SELECT pid FROM pg_stat_progress_create_index WHERE relid = to_regclass('vectors')"
        ).fetchone()
        return None if row is None else row[0]

    return await database.read(asked)


async def test_a_connection_that_is_lost_meanwhile_is_told_and_the_next_look_mends_it(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    vectors = await filled(database)
    maintenance = IndexMaintenance(database, many=10, every=1)
    with psycopg.connect(shared().url) as holding, caplog.at_level(logging.WARNING):
        holding.execute(f"UPDATE {database.schema}.vectors SET dims = dims".encode())
        maintenance.note_vectors(vectors.store, 1)
        async with asyncio.timeout(60):
            while (process := await maker(database)) is None:
                pass
        holding.execute("SELECT pg_terminate_backend(%s)", (process,))
        await maintenance.wait_until_settled()
    assert f"store {vectors.store}" in caplog.text
    assert not await is_indexed(database, vectors)
    # What failed once may do so again, and may have taken the whole server with it.
    maintenance.note_vectors(vectors.store, BACKOFF_FACTOR - 1)
    await maintenance.wait_until_settled()
    assert not await is_indexed(database, vectors)
    maintenance.note_vectors(vectors.store, 1)
    await maintenance.wait_until_settled()
    assert await is_indexed(database, vectors)
