import threading
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest

from everkept.engines.postgres.indexes import (
    IndexedVectors,
    ask_usable,
    build_vector_index,
    compute_build_bytes,
    list_unindexed,
    remove_orphans,
)
from postgres_tables import MODEL, Tables

QUOTED = 'it\'s 100% \\ "new"'


def some(size: int, seed: int = 1) -> "np.typing.NDArray[np.float32]":
    found = np.random.default_rng(seed).normal(size=(size, 8))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def names(tables: Tables) -> list[str]:
    rows = tables.connection.execute("SELECT indexname FROM pg_indexes WHERE schemaname = %s", (tables.schema,))
    return [row[0] for row in rows if row[0].startswith("vectors_near")]


@pytest.mark.parametrize("model", [MODEL, QUOTED], ids=["plain", "quoted"])
def test_a_store_of_many_vectors_gets_an_index(tables: Tables, model: str) -> None:
    wanted = IndexedVectors(tables.store, model, 8)
    tables.embed(some(60), model)
    assert list_unindexed(tables.cursor, tables.store, 60) == []
    assert list_unindexed(tables.cursor, tables.store, 59) == [wanted]
    assert build_vector_index(tables.connection, wanted)
    assert ask_usable(tables.cursor, wanted).rowcount
    assert list_unindexed(tables.cursor, tables.store, 59) == []
    assert names(tables) == [wanted.name]


def test_vectors_that_are_too_long_for_an_index_have_none(tables: Tables) -> None:
    tables.embed(np.ones((3, 5_000), np.float32))
    assert list_unindexed(tables.cursor, tables.store, 1) == []


def test_each_store_and_model_has_an_index_of_its_own() -> None:
    every = {IndexedVectors(s, m, d).name for s in (1, 11) for m in "ab" for d in (8, 81)}
    assert len(every) == 8
    assert all(len(name) < 63 for name in every)


def test_what_is_left_of_a_broken_making_is_made_anew(tables: Tables) -> None:
    tables.embed(some(60))
    [wanted] = list_unindexed(tables.cursor, tables.store, 10)
    build_vector_index(tables.connection, wanted)
    oid = tables.value("SELECT to_regclass(%s)::oid", wanted.name)
    tables.connection.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s", (oid,))
    assert list_unindexed(tables.cursor, tables.store, 10) == [wanted]
    assert build_vector_index(tables.connection, wanted)
    assert ask_usable(tables.cursor, wanted).rowcount
    assert tables.value("SELECT to_regclass(%s)::oid", wanted.name) != oid


def test_of_several_servers_one_makes_it(tables: Tables) -> None:
    tables.embed(some(60))
    [wanted] = list_unindexed(tables.cursor, tables.store, 10)
    with tables.connected() as holding, tables.connected() as first, tables.connected() as second:
        # A transaction that has written keeps an index from being finished.
        holding.execute("BEGIN")
        holding.execute("UPDATE vectors SET dims = dims WHERE record = '1'")
        made: list[bool] = []
        making = threading.Thread(target=lambda: made.append(build_vector_index(first, wanted)))
        making.start()
        busy = "SELECT count(*) FROM pg_stat_progress_create_index WHERE pid = %s"
        while not tables.value(busy, first.info.backend_pid):
            assert making.is_alive()
        assert not ask_usable(tables.cursor, wanted).rowcount
        assert not build_vector_index(second, wanted)
        holding.execute("COMMIT")
        making.join(30)
        assert made == [True]
        assert ask_usable(tables.cursor, wanted).rowcount
        assert build_vector_index(second, wanted)
    assert names(tables) == [wanted.name]


def test_a_server_that_ends_while_it_makes_one_leaves_the_turn_to_others(tables: Tables) -> None:
    tables.embed(some(60))
    [wanted] = list_unindexed(tables.cursor, tables.store, 10)
    with tables.connected() as holding, tables.connected() as first:
        holding.execute("BEGIN")
        holding.execute("UPDATE vectors SET dims = dims WHERE record = '1'")
        failed: list[BaseException] = []

        def make() -> None:
            try:
                build_vector_index(first, wanted)
            except psycopg.Error as error:
                failed.append(error)

        making = threading.Thread(target=make)
        making.start()
        while wanted.name not in names(tables):
            assert making.is_alive()
        tables.value("SELECT pg_terminate_backend(%s, 5000)", first.info.backend_pid)
        making.join(30)
        holding.execute("COMMIT")
    assert len(failed) == 1
    assert not ask_usable(tables.cursor, wanted).rowcount
    assert build_vector_index(tables.connection, wanted)
    assert ask_usable(tables.cursor, wanted).rowcount


def test_the_index_of_a_store_that_is_gone_goes_too(tables: Tables) -> None:
    tables.embed(some(20))
    wanted = IndexedVectors(tables.store, MODEL, 8)
    build_vector_index(tables.connection, wanted)
    remove_orphans(tables.connection)
    assert names(tables) == [wanted.name]
    tables.connection.execute("DELETE FROM stores WHERE number = %s", (tables.store,))
    remove_orphans(tables.connection)
    assert names(tables) == []


@pytest.mark.parametrize(
    ("count", "dims", "expected"), [(1, 8, 2**26), (200_000, 384, 200_000 * 1_068), (10_000_000, 1_024, 2**30)]
)
def test_its_making_gets_memory_by_what_is_to_be_indexed(count: int, dims: int, expected: int) -> None:
    assert compute_build_bytes(count, dims) == expected


@pytest.mark.parametrize("code", ["53100", "53200", "58030"])
def test_where_several_processes_have_no_room_together_one_makes_it(tables: Tables, code: str) -> None:
    tables.embed(some(60))
    [wanted] = list_unindexed(tables.cursor, tables.store, 10)
    with refusing(tables, "max_parallel_maintenance_workers", "0", code):
        assert build_vector_index(tables.connection, wanted)
    assert ask_usable(tables.cursor, wanted).rowcount
    assert tables.value("SHOW maintenance_work_mem") == "64MB"


@pytest.mark.parametrize("code", ["53100", "42501"])
def test_what_fails_for_one_process_too_is_told(tables: Tables, code: str) -> None:
    tables.embed(some(60))
    [wanted] = list_unindexed(tables.cursor, tables.store, 10)
    with refusing(tables, "max_parallel_maintenance_workers", "never", code):
        with pytest.raises(psycopg.Error) as caught:
            build_vector_index(tables.connection, wanted)
        assert caught.value.sqlstate == code
    assert build_vector_index(tables.connection, wanted)


@contextmanager
def refusing(tables: Tables, setting: str, unless: str, code: str) -> Generator[None, None, None]:
    """While it lasts no index is made in these tables unless a setting is that."""
    name = f"refusing_{tables.schema}"
    tables.connection.execute(
        f"""
        CREATE FUNCTION {name}() RETURNS event_trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF current_schema() = '{tables.schema}' AND current_setting('{setting}') <> '{unless}'
            THEN RAISE EXCEPTION 'no room' USING ERRCODE = '{code}'; END IF;
        END $$;
        CREATE EVENT TRIGGER {name} ON ddl_command_start WHEN TAG IN ('CREATE INDEX')
            EXECUTE FUNCTION {name}();
        """.encode()
    )
    try:
        yield
    finally:
        tables.connection.execute(f"DROP EVENT TRIGGER {name}; DROP FUNCTION {name}".encode())
