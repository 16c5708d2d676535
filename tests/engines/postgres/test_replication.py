"""Copies into a store that others use at the same time."""

import asyncio

from everkept.core.answers import StorePage
from everkept.core.records import Change, Edit, RecordFilter
from everkept.engines.postgres.store import PostgresStore
from postgres_libraries import Shelf
from records import DAY_ONE, batch, entity, link, memory, record_ref


async def test_what_is_copied_can_trade_places_with_what_is_there(store: PostgresStore) -> None:
    await store.commit(batch(entity("a"), entity("b"), link("a", "to", "b", id="x")))
    await store.commit(batch(link("b", "to", "a", id="y")))
    one, two = entity("a", id="b", text="new"), entity("b", id="a")
    ends = [link("b", "to", "a", id="x"), link("a", "to", "b", id="y")]
    await store.replicate(StorePage(records=[one, two], links=ends))
    assert await store.scan(RecordFilter()) == [two, one]
    assert await store.scan_links(deleted=None) == ends
    assert await store.find_faults() == []


async def test_what_goes_and_comes_in_one_copy_is_what_came(store: PostgresStore) -> None:
    await store.commit(batch(entity("a", text="old"), memory("child", parent="a")))
    told = Change(7, DAY_ONE, "t", "", None, (Edit("insert", "record", "a"),))
    await store.replicate(StorePage(records=[entity("a", text="new")], gone=[record_ref("a")], changes=[told]))
    assert [(r.id, r.text) for r in await store.scan(RecordFilter(deleted=None))] == [("a", "new")]
    assert await store.read_changes(after=1) == [told]
    assert await store.read_history([record_ref("child")]) == []
    assert (await store.commit(batch(entity("b")))).seq == 8


async def test_copies_and_commits_take_turns(shelf: Shelf) -> None:
    one, two = [await shelf.library().open_history_store() for _ in range(2)]

    async def copy(number: int) -> None:
        await one.replicate(StorePage(records=[memory(f"copied {number}")]))

    async def commit(number: int) -> None:
        await two.commit(batch(memory(f"committed {number}")))

    await asyncio.gather(*(work(number) for number in range(15) for work in (copy, commit)))
    assert len(await one.scan(RecordFilter())) == 30
    assert await one.get_revision() == 15
    ages = shelf.ask("SELECT age FROM records ORDER BY age")
    assert ages == [(age,) for age in range(1, 31)]
    assert await two.find_faults() == []
