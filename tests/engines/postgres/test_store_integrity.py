"""Damage that somebody else has done is found and said."""

import pytest

from everkept.engines.postgres.store import SAMPLE_RECORDS, PostgresStore
from everkept.errors import StoreDamaged
from postgres_libraries import Shelf
from records import batch, entity, link, memory, note


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE records SET words = NULL WHERE id = 'Ada'", "not in the word index"),
        ("UPDATE records SET deleted_at = 1 WHERE id = 'turn'", "deleted but still in the word index"),
        ("DELETE FROM records WHERE id = 'Ada'", "with a missing parent"),
        ("DELETE FROM records WHERE id = 'Bob'", "with a missing end"),
        ("UPDATE records SET stands_for = NULL WHERE id = 'Ada'", "1 name not protected from duplicates"),
        ("UPDATE links SET says = NULL", "1 link not protected from duplicates"),
        ("UPDATE records SET age = 99 WHERE id = 'Ada'", "1 record with an age above"),
        ("UPDATE links SET age = 99", "1 link with an age above"),
        ("UPDATE changes SET seq = 99 WHERE seq = 2", "with a number above the store's counter"),
        ("DELETE FROM changes", "without a change"),
        ("INSERT INTO vectors VALUES (1, 'm', 1, 'gone', '[1]')", "1 vector without a record"),
        ("UPDATE records SET words = 'a b' WHERE id = 'turn'", "with outdated words"),
        ("UPDATE records SET text = 'changed by hand' WHERE id = 'turn'", "with outdated words"),
    ],
)
async def test_what_does_not_fit_is_said(shelf: Shelf, store: PostgresStore, damage: str, found: str) -> None:
    turns = [memory(f"turn{n or ''}", session="s", position=n) for n in range(3)]
    await store.commit(batch(entity("Ada"), entity("Bob"), link("Ada", "knows", "Bob"), *turns))
    await store.commit(batch(note("Ada", "lived in London")))
    assert await store.find_faults() == []
    shelf.ask(f"{damage} RETURNING 1")
    faults = await store.find_faults()
    assert any(found in fault for fault in faults), faults
    assert all(fault[0].isdigit() for fault in faults)


@pytest.mark.parametrize(
    "damage",
    [
        "facets = 'no json'",
        "facets = '[1]'",
        "facets = repeat('[', 5000) || repeat(']', 5000)",
        "created_at = 9223372036854775807",
        "importance = 'NaN'",
        "tags = ARRAY[NULL]::text[]",
        "tags = ARRAY[['a', 'b'], ['c', 'd']]::text[]",
    ],
)
async def test_a_row_that_everkept_did_not_write_is_damage(shelf: Shelf, store: PostgresStore, damage: str) -> None:
    await store.commit(batch(entity("Ada")))
    shelf.ask(f"UPDATE records SET {damage} RETURNING 1")
    with pytest.raises(StoreDamaged, match="not written by Everkept"):
        await store.get(["Ada"])


async def test_what_a_sample_leaves_out_is_no_fault(store: PostgresStore) -> None:
    owners = [entity(f"owner {n}") for n in range(SAMPLE_RECORDS)]
    owned = [note(owner.name or "", f"said of {n}") for n, owner in enumerate(owners)]
    turns = [memory(f"turn {n}", session="s", position=n) for n in range(2 * SAMPLE_RECORDS)]
    await store.commit(batch(*owners, *owned, *turns))
    for _ in range(3):
        assert await store.find_faults() == []
