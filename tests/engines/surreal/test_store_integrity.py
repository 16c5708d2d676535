"""A store that somebody else has had their hands in."""

import pytest

from records import batch, entity, link, note
from surreal_libraries import Shelf
from surreal_stores import DATABASE, store_over


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        ("DELETE word WHERE name = ' ada '", "1 record not in the word index"),
        ("UPDATE record SET deleted_at = 1 WHERE name = 'Ada'", "1 record deleted but still in the word index"),
        ("UPDATE meta:store SET ages = 3", "1 link with an age above the store's counter"),
        ("UPDATE meta:store SET seq = 1", "1 change with a number above the store's counter"),
    ],
)
async def test_what_does_not_fit_is_told(namespace: Shelf, damage: str, finding: str) -> None:
    connection = namespace.connection()
    store = store_over(connection)
    await store.commit(batch(entity("Ada"), entity("Bob"), note("Ada", "told")))
    await store.commit(batch(link("Ada", "knows", "Bob")))
    assert await store.find_faults() == []
    [rows] = await connection.run(DATABASE, damage)
    assert await store.find_faults() == [finding], rows
