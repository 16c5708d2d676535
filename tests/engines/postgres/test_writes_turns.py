"""The store's own row, and what is asked of all that was written."""

import asyncio
from collections.abc import Callable

import pytest

from everkept.core.records import Record, RecordLink
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.store import PostgresStore
from everkept.engines.postgres.writes import (
    StorePlace,
    advance_state,
    build_link_columns,
    build_record_columns,
    insert,
    lock_store,
)
from everkept.errors import Conflict
from postgres_libraries import Shelf
from postgres_server import shared
from records import batch, entity, link

PLACE = StorePlace(1, "user")


def put(*things: Record | RecordLink) -> Callable[[Cursor], None]:
    """Writes them whatever is there: nobody plans."""

    def work(cursor: Cursor) -> None:
        state = lock_store(cursor, PLACE)
        with advance_state(cursor, PLACE, seq=state.seq + 1, ages=state.ages + len(things)):
            for age, thing in enumerate(things, state.ages + 1):
                is_record = isinstance(thing, Record)
                columns = build_record_columns(thing) if is_record else build_link_columns(thing)
                table = "records" if is_record else "links"
                insert(cursor, table, PLACE.number, [{**columns, "age": age}])

    return work


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (entity("Ada", id="one"), entity("Ada", id="two")),
        (link("a", "knows", "b", id="one"), link("a", "knows", "b", id="two")),
    ],
    ids=["records", "links"],
)
async def test_what_no_plan_has_noticed_is_still_a_conflict(
    shelf: Shelf, store: PostgresStore, first: Record | RecordLink, second: Record | RecordLink
) -> None:
    database = shared().database(shelf.schema)
    with pytest.raises(Conflict):
        await database.write(put(first, second))
    assert await store.get_stamp() == (0, 0)
    await database.write(put(first))
    with pytest.raises(Conflict):
        await database.write(put(second))
    assert await store.get_stamp() == (1, 0)
    await database.close()


async def test_whoever_listens_hears_of_each_commit(shelf: Shelf) -> None:
    listening, store = shared().database(shelf.schema), await shelf.library().open_history_store()
    heard: asyncio.Queue[int | None] = asyncio.Queue()
    listening.listen(heard.put_nowait)
    async with asyncio.timeout(30):
        while await heard.get() is not None:
            pass
        await store.commit(batch(entity("Ada")))
        numbers = shelf.ask("SELECT number FROM stores WHERE name = 'history'")
        while (number := await heard.get()) is None:
            pass
    assert [(number,)] == numbers
    await listening.close()
