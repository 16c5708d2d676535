"""Damage that somebody else has done is found and said."""

import pytest

from everkept.engines.postgres.store import SAMPLE_RECORDS, PostgresStore
from postgres_libraries import Shelf
from records import batch, entity, link, memory, note


@pytest.mark.parametrize(
    ("damage", "found"),
    [
        ("UPDATE records SET words = NULL WHERE id = 'Ada'", "not in the word index"),
        ("UPDATE records SET deleted_at = 1 WHERE id = 'turn'", "have no record"),
        ("DELETE FROM records WHERE id = 'Ada'", "belong to one that is not there"),
        ("DELETE FROM records WHERE id = 'Bob'", "have an end that is not there"),
        ("UPDATE records SET stands_for = NULL WHERE id = 'Ada'", "from being given twice"),
        ("UPDATE links SET says = NULL", "from being made twice"),
        ("UPDATE records SET age = 99 WHERE id = 'Ada'", "records are younger"),
        ("UPDATE links SET age = 99", "links are younger"),
        ("UPDATE changes SET seq = 99 WHERE seq = 2", "newer than the store says"),
        ("DELETE FROM changes", "belong to no change"),
        ("INSERT INTO vectors VALUES (1, 'm', 1, 'gone', '[1]')", "vectors belong to no record"),
        ("UPDATE records SET words = 'a b' WHERE id = 'turn'", "words that are not theirs"),
        ("UPDATE records SET text = 'changed by hand' WHERE id = 'turn'", "not theirs"),
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


async def test_what_a_sample_leaves_out_is_no_fault(store: PostgresStore) -> None:
    owners = [entity(f"owner {n}") for n in range(SAMPLE_RECORDS)]
    owned = [note(owner.name or "", f"said of {n}") for n, owner in enumerate(owners)]
    turns = [memory(f"turn {n}", session="s", position=n) for n in range(2 * SAMPLE_RECORDS)]
    await store.commit(batch(*owners, *owned, *turns))
    for _ in range(3):
        assert await store.find_faults() == []
