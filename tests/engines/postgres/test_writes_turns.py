"""The store's own row, and what is asked of all that was written."""

import asyncio
from collections.abc import Callable

import pytest

from everkept.core.records import Link, Record
from everkept.engines.postgres.statements import Cursor
from everkept.engines.postgres.store import PostgresStore
from everkept.engines.postgres.writes import (
    StorePlace,
    insert,
    link_columns,
    record_columns,
    taken,
    written,
)
from everkept.errors import Conflict
from postgres_libraries import Shelf
from postgres_server import shared
from records import batch, entity, link

PLACE = StorePlace(1, "user")


def put(*things: Record | Link) -> Callable[[Cursor], None]:
    """Writes them whatever is there: nobody plans."""

    def work(cursor: Cursor) -> None:
        state = taken(cursor, PLACE)
        with written(cursor, PLACE, seq=state.seq + 1, ages=state.ages + len(things)):
            for age, thing in enumerate(things, state.ages + 1):
                is_record = isinstance(thing, Record)
                columns = record_columns(thing) if is_record else link_columns(thing)
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
    shelf: Shelf, store: PostgresStore, first: Record | Link, second: Record | Link
) -> None:
    database = shared().database(shelf.schema)
    with pytest.raises(Conflict):
        await database.write(put(first, second))
    assert await store.stamp() == (0, 0)
    await database.write(put(first))
    with pytest.raises(Conflict):
        await database.write(put(second))
    assert await store.stamp() == (1, 0)
    await database.close()


async def test_whoever_listens_hears_of_each_commit(shelf: Shelf) -> None:
    listening, store = shared().database(shelf.schema), await shelf.library().history()
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
