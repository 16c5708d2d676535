import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.ports import RecordVector
from everkept.core.store import CountVectors, FindUnembedded, GetVectors
from everkept.engines.postgres.vectors import (
    count_vectors,
    find_unembedded,
    forget_vectors,
    format_halves,
    get_vectors,
    parse_halves,
    put_vectors,
)
from postgres_tables import MODEL, Tables, said

EAST = np.array([1, 0], np.float32)


def moves(tables: Tables) -> int:
    return tables.value("SELECT moves FROM stores WHERE number = %s", tables.store)


def waiting(tables: Tables, model: str = MODEL, limit: int = 10) -> list[str]:
    return [r.id for r in find_unembedded(tables.cursor, tables.store, FindUnembedded(model, ["memory"], limit))]


def put(tables: Tables, *ids: str, model: str = MODEL) -> int:
    items = [RecordVector(record_id, 1, EAST) for record_id in ids]
    return put_vectors(tables.cursor, tables.store, model, items)


def test_each_vector_that_comes_or_goes_is_a_move(tables: Tables) -> None:
    tables.add(said("a"), said("b"))
    assert put(tables, "a", "b", "nobody") == 2
    assert moves(tables) == 2
    for gone in (["a", "nobody"], ["a"], []):
        cursor = tables.cursor
        forget_vectors(cursor, tables.store, gone)
        cursor.finish()
        assert moves(tables) == 3
    assert put(tables, "nobody") == 0
    assert moves(tables) == 3


def test_a_vector_that_is_given_twice_is_kept_once(tables: Tables) -> None:
    tables.add(said("a"))
    assert put(tables, "a", "a") == 1


def test_a_record_has_a_vector_of_one_model(tables: Tables) -> None:
    tables.add(said("a"))
    put(tables, "a", model="older")
    put(tables, "a")
    assert get_vectors(tables.cursor, tables.store, GetVectors("older", ["a"])) == {}
    assert get_vectors(tables.cursor, tables.store, GetVectors(MODEL, ["a"])).keys() == {"a"}


def test_the_newest_wait_first_whatever_they_have_instead(tables: Tables) -> None:
    tables.add(*(said(name) for name in "abcdefg"))
    put(tables, "a", "f", model="older")
    put(tables, "b", "e", model="oldest")
    put(tables, "c")
    assert waiting(tables) == ["g", "f", "e", "d", "b", "a"]
    assert waiting(tables, limit=3) == ["g", "f", "e"]
    assert waiting(tables, "older") == ["g", "e", "d", "c", "b"]
    assert count_vectors(tables.cursor, tables.store, CountVectors(MODEL, ["memory"])) == (1, 6)


def test_who_has_a_vector_and_lost_its_text_waits_for_no_other(tables: Tables) -> None:
    tables.add(said("", id="a"))
    assert waiting(tables) == []
    put(tables, "a")
    assert waiting(tables, "another") == []
    assert count_vectors(tables.cursor, tables.store, CountVectors(MODEL, ["memory"])) == (1, 0)
    assert count_vectors(tables.cursor, tables.store, CountVectors("another", ["memory"])) == (0, 0)


def test_the_queue_is_read_from_its_index(tables: Tables) -> None:
    tables.add(*(said(f"m{n}") for n in range(2_000)))
    put(tables, *(f"m{n}" for n in range(1_990)))
    tables.connection.execute("ANALYZE records")
    tables.connection.execute("SET enable_seqscan = off")
    assert len(waiting(tables, limit=100)) == 10
    scans = "SELECT pg_stat_get_xact_numscans(to_regclass('records_embedded'))"
    with tables.connection.transaction():
        before = tables.value(scans)
        waiting(tables)
        assert tables.value(scans) > before


@pytest.mark.parametrize("include_deleted", [False, True])
def test_what_is_deleted_gets_a_vector_only_from_who_copies(tables: Tables, include_deleted: bool) -> None:
    tables.add(said("a"))
    tables.remove("a")
    items = [RecordVector("a", 1, EAST)]
    kept = put_vectors(tables.cursor, tables.store, MODEL, items, include_deleted=include_deleted)
    assert kept == include_deleted


def test_ids_of_any_characters_have_vectors(tables: Tables) -> None:
    name = "a\0b\x01'%s"
    tables.add(said("text", id=name))
    assert put(tables, name, model="100%'s") == 1
    assert get_vectors(tables.cursor, tables.store, GetVectors("100%'s", [name])).keys() == {name}


@settings(deadline=None)
@given(st.lists(st.floats(-1, 1, width=16), min_size=1, max_size=8))
def test_a_half_comes_back_as_it_went(values: list[float]) -> None:
    given_halves = np.array(values, np.float32)
    read = np.array([float(x) for x in format_halves(given_halves)[1:-1].split(",")], np.float16)
    assert np.array_equal(read, given_halves.astype(np.float16))


def test_vectors_are_read_as_the_database_sends_them(tables: Tables) -> None:
    vector = np.array([0.5, -0.25, 1 / 3], np.float32)
    sent = tables.value("SELECT halfvec_send(%s::halfvec)", format_halves(vector))
    assert np.array_equal(parse_halves(sent), vector.astype(np.float16).astype(np.float32))
