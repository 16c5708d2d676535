"""What a store is when others make it, put it away or have a newer one."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from everkept.core.answers import StorePage
from everkept.core.ports import RecordStore
from everkept.core.records import Record, RecordFilter, Weights
from everkept.engines.surreal.schema import VERSION
from everkept.engines.surreal.store import SurrealStore
from everkept.errors import InvalidInput, NotFound, ProjectArchived, StoreTooNew
from everkept.language.words import WordPhrase
from records import DAY_ONE, batch, entity, memory
from surreal_libraries import Shelf
from surreal_stores import DATABASE, WatchedConnection, store_over


async def test_nothing_is_asked_before_the_first_use(namespace: Shelf) -> None:
    watched = WatchedConnection(namespace.connection())
    store = store_over(watched)
    assert watched.texts == 0
    assert await store.scan(RecordFilter()) == []


QUESTIONS: dict[str, Callable[[RecordStore], Awaitable[object]]] = {
    "changes": lambda store: store.read_changes(),
    "newest changes": lambda store: store.read_changes(newest_first=True, limit=1),
    "match": lambda store: store.match(WordPhrase(("ada",)), RecordFilter(), Weights(), 5),
    "near": lambda store: store.find_near("model", np.eye(2, dtype=np.float32)[0], RecordFilter(), 5),
    "restock": lambda store: store.replicate(StorePage(records=[entity("Bob")])),
    "check": lambda store: store.find_faults(),
    "accesses": lambda store: store.note_accesses({"Ada": 1}, DAY_ONE),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_any_question_may_be_the_first(namespace: Shelf, question: str) -> None:
    await store_over(namespace.connection()).commit(batch(entity("Ada")))
    store = store_over(namespace.connection())
    await QUESTIONS[question](store)
    assert await store.find_faults() == []


@pytest.mark.parametrize("record", [memory("a \udc80 b"), memory("a", id="\udc80")], ids=["text", "id"])
async def test_half_a_character_is_refused(namespace: Shelf, record: Record) -> None:
    store = store_over(namespace.connection())
    with pytest.raises(InvalidInput):
        await store.commit(batch(record))
    assert await store.scan(RecordFilter(deleted=None)) == []


async def test_several_may_make_it_at_once(namespace: Shelf) -> None:
    stores = [store_over(namespace.connection()) for _ in range(4)]
    await asyncio.gather(*(store.get_revision() for store in stores))
    await asyncio.gather(*(s.commit(batch(entity(f"e{n}"))) for n, s in enumerate(stores)))
    assert await stores[0].count_live() == {"entity": 4, "link": 0}


async def test_it_is_made_once(namespace: Shelf) -> None:
    first = store_over(namespace.connection())
    await first.commit(batch(entity("Ada")))
    watched = WatchedConnection(namespace.connection())
    assert await store_over(watched).get_revision() == 1
    assert watched.texts == 2


async def test_one_of_a_newer_program_is_left_alone(namespace: Shelf) -> None:
    connection = namespace.connection()
    await store_over(connection).commit(batch(entity("Ada")))
    newer = f"UPDATE meta:store SET schema = {VERSION + 1}"
    await connection.run(DATABASE, newer)
    store = store_over(namespace.connection())
    with pytest.raises(StoreTooNew):
        await store.commit(batch(entity("Bob")))
    [found] = await connection.run(DATABASE, "SELECT VALUE name FROM record")
    assert found == ["Ada"]


async def test_what_was_put_away_can_be_read_and_not_written(namespace: Shelf) -> None:
    connection = namespace.connection()
    store = store_over(connection, "shop")
    await store.commit(batch(memory("a")))
    await connection.run(DATABASE, "UPDATE meta:store SET status = 'archived'")
    for write in (store.commit(batch(entity("Bob"))), store.purge([memory("a").ref])):
        with pytest.raises(ProjectArchived) as caught:
            await write
        assert caught.value.facts["project"] == "shop"
    assert [r.id for r in await store.scan(RecordFilter())] == ["a"]
    await connection.run(DATABASE, "UPDATE meta:store SET status = 'active'")
    await store.commit(batch(entity("Bob")))


async def test_who_writes_while_it_is_put_away_writes_nothing(namespace: Shelf) -> None:
    connection = namespace.connection()
    watched = WatchedConnection(namespace.connection())
    store = store_over(watched)
    await store.commit(batch(entity("Ada")))
    put_away = "UPDATE meta:store SET status = 'archived'"
    watched.disturb = lambda: connection.run(DATABASE, put_away)
    with pytest.raises(ProjectArchived):
        await store.commit(batch(entity("Bob")))
    assert [r.id for r in await store.scan(RecordFilter())] == ["Ada"]


@pytest.mark.parametrize(
    "removal", ["UPDATE meta:store SET status = 'deleted'", f"REMOVE DATABASE `{DATABASE}`"], ids=["said", "done"]
)
async def test_what_was_deleted_is_no_more(namespace: Shelf, removal: str) -> None:
    connection = namespace.connection()
    store = store_over(connection)
    await store.commit(batch(entity("Ada")))
    await connection.run(DATABASE, removal)
    with pytest.raises(NotFound):
        await store.commit(batch(entity("Bob")))


@pytest.mark.parametrize("question", ["commit", "revision"])
async def test_one_of_no_project_is_made_anew_when_the_server_has_lost_it(namespace: Shelf, question: str) -> None:
    connection = namespace.connection()
    store = SurrealStore(connection, DATABASE, of_project=False)
    await store.commit(batch(entity("Ada")))
    await connection.run(DATABASE, f"REMOVE DATABASE `{DATABASE}`")
    if question == "commit":
        await store.commit(batch(entity("Bob")))
    elif question == "revision":
        assert await store.get_revision() == 0
    await store.commit(batch(entity("Eve")))
    assert "Ada" not in [r.id for r in await store.scan(RecordFilter())]
    assert await store.find_faults() == []
