import pytest

from everkept.engines.postgres.indexes import MIN_ANALYZED_ROWS, StoreGrowth, is_stale
from everkept.engines.postgres.statements import open_cursor
from everkept.engines.postgres.store import PostgresStore
from postgres_libraries import Shelf
from records import batch, memory
from upstreams import until


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0, MIN_ANALYZED_ROWS - 1, False),
        (MIN_ANALYZED_ROWS - 1, MIN_ANALYZED_ROWS, True),
        (0, 5 * MIN_ANALYZED_ROWS, True),
        (MIN_ANALYZED_ROWS, 2 * MIN_ANALYZED_ROWS - 1, False),
        (2 * MIN_ANALYZED_ROWS - 1, 2 * MIN_ANALYZED_ROWS, True),
        (MIN_ANALYZED_ROWS, MIN_ANALYZED_ROWS, False),
        (0, 0, False),
    ],
)
def test_a_store_has_doubled_when_it_passes_a_power_of_two(before: int, after: int, expected: bool) -> None:
    assert StoreGrowth(before, after).is_doubling == expected


def looked_at(shelf: Shelf) -> set[str]:
    rows = shelf.ask("SELECT tablename FROM pg_stats WHERE schemaname = current_schema()")
    return {name for (name,) in rows}


def known(shelf: Shelf) -> float:
    return shelf.ask("SELECT reltuples FROM pg_class WHERE oid = to_regclass('records')")[0][0]


async def fill(store: PostgresStore, first: int, size: int) -> None:
    await store.commit(batch(*(memory(f"text {n}", id=str(n)) for n in range(first, first + size))))


async def test_what_a_growing_store_has_becomes_known_to_the_server(shelf: Shelf, store: PostgresStore) -> None:
    await store.get_revision()
    with shelf.connection() as connection:
        for table in ("records", "vectors", "edits"):  # what is to look by itself stays away
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)".encode())
    await fill(store, 0, MIN_ANALYZED_ROWS - 1)
    assert looked_at(shelf) == set()
    await fill(store, MIN_ANALYZED_ROWS, 1)
    await until(lambda: known(shelf) == MIN_ANALYZED_ROWS)
    await until(lambda: looked_at(shelf) >= {"records", "edits"})
    await fill(store, 2 * MIN_ANALYZED_ROWS, 3 * MIN_ANALYZED_ROWS)
    await until(lambda: known(shelf) == 4 * MIN_ANALYZED_ROWS)
    with shelf.connection() as connection:
        assert not is_stale(open_cursor(connection))
