"""Only what lost something is gone over, and that to its end."""

import asyncio
from typing import Any

import numpy as np
import psycopg
import pytest

from everkept.core.answers import StorePage
from everkept.core.ports import RecordVector
from everkept.engines.postgres import store as stores
from everkept.engines.postgres.store import PostgresStore
from postgres_libraries import Shelf
from postgres_server import shared
from records import DAY_ONE, batch, entity, link, memory, record_ref
from upstreams import until


def vacuumed(shelf: Shelf) -> dict[str, int]:
    """How often each table was gone over on demand; the server says so a little later."""
    rows = shelf.ask("SELECT relname, vacuum_count FROM pg_stat_user_tables WHERE schemaname = current_schema()")
    return {name: count for name, count in rows if count}


async def test_only_tables_that_lost_something_are_gone_over(shelf: Shelf, store: PostgresStore) -> None:
    await store.commit(batch(memory("one"), memory("two"), memory("three")))
    await store.commit(batch(entity("Ada"), entity("Bob"), link("Ada", "knows", "Bob")))
    vector = np.ones(3, np.float32)
    await store.put_vectors("m", [RecordVector(i, 1, vector) for i in ("two", "three")])
    before = vacuumed(shelf)
    expected = dict(before)

    async def are_gone_over(*tables: str) -> None:
        for table in tables:
            expected[table] = expected.get(table, 0) + 1
        await until(lambda: vacuumed(shelf) == expected)

    assert (await store.purge([record_ref("nobody")])).complete
    await are_gone_over()
    assert (await store.purge([record_ref("one")])).complete
    await are_gone_over("records", "edits")
    assert (await store.purge([record_ref("two")])).complete
    await are_gone_over("records", "edits", "vectors")
    await store.note_accesses({"Ada": 1}, DAY_ONE)
    assert (await store.purge([record_ref("Ada")])).complete
    await are_gone_over("records", "edits", "links", "accesses")
    redacted = await store.redact([record_ref("three")], lambda _, values: {**values, "text": "nothing"})
    assert redacted.complete
    await are_gone_over("records", "vectors")
    await store.replicate(StorePage(gone=[record_ref("Bob")]))
    await are_gone_over("records", "edits")


async def test_what_takes_longer_than_a_purge_waits_goes_on_behind_it(
    shelf: Shelf, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.commit(batch(*(memory(str(n)) for n in range(5))))
    before = vacuumed(shelf).get("records", 0)
    monkeypatch.setattr(stores, "VACUUM_SECONDS", 0.05)
    with shared().connect() as other:
        with other.transaction():
            hold(shelf, other)
            for n in range(3):
                assert not (await store.purge([record_ref(str(n))])).complete
        # The two who came while the first was held up share one round.
        await until(lambda: vacuumed(shelf).get("records", 0) == before + 2)
    monkeypatch.setattr(stores, "VACUUM_SECONDS", 30)
    assert (await store.purge([record_ref("3")])).complete
    await until(lambda: vacuumed(shelf)["records"] == before + 3)


async def test_nothing_is_begun_after_the_library_is_closed(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    library = shelf.library()
    store = await library.open_user_store()
    await store.commit(batch(*(memory(str(n)) for n in range(5))))
    monkeypatch.setattr(stores, "VACUUM_SECONDS", 0.05)
    with shared().connect() as other, other.transaction():
        hold(shelf, other)
        assert not (await store.purge([record_ref("1")])).complete
        assert not (await store.purge([record_ref("2")])).complete
        underway = [task for task in asyncio.all_tasks() if "_run_round" in repr(task.get_coro())]
        assert len(underway) == 2
        await library.close()
        # The first was cut. The second would be held up.
        _, pending = await asyncio.wait(underway, timeout=30)
        assert not pending


def hold(shelf: Shelf, other: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """While its transaction lasts nobody else goes over the records; they can be written."""
    text = f'LOCK TABLE "{shelf.schema}".records IN SHARE UPDATE EXCLUSIVE MODE'
    other.execute(text.encode())
