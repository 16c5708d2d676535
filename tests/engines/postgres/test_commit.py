"""How often a commit goes to the server and back, whatever its steps are."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from everkept.core.records import Batch, Delete, RecordFilter, Restore, Update
from everkept.engines.postgres.store import PostgresStore
from everkept.errors import Conflict
from postgres_libraries import library_over
from postgres_server import shared
from postgres_trips import COMMITTED_AND_TOLD, Way
from proxies import running
from records import batch, entity, link, memory, note, record_ref
from upstreams import until


@dataclass
class Distant:
    """A store that is reached by a way on which trips are counted."""

    store: PostgresStore
    way: Way
    told: int = 0

    async def trips(self, made: Batch) -> int:
        ways = self.way.count()
        change = await self.store.commit(made)
        trips = ways.trips
        if change.seq > self.told:  # others are told behind it, by the same way
            self.told = change.seq
            await until(lambda: self.way.transactions >= COMMITTED_AND_TOLD)
        return trips


@pytest.fixture
async def distant() -> AsyncGenerator[Distant, None]:
    async with running(Way(shared())) as way:
        library = library_over(way.database())
        store = await library.open_user_store()
        # Connections enough that none is opened while trips are counted.
        await asyncio.gather(*(store.get_revision() for _ in range(4)))
        yield Distant(store, way)
        await library.close()


async def test_a_record_takes_one_trip_to_read_and_one_to_write(distant: Distant) -> None:
    assert await distant.trips(batch(entity("Ada"), key="first")) == 2
    assert await distant.trips(batch(note("Ada", "lived in London"))) == 2
    assert await distant.trips(batch(entity("Bob"), link("Ada", "knows", "Bob"))) == 2
    assert await distant.trips(batch(Delete(record_ref("Ada")))) == 2


async def test_a_turn_of_a_conversation_takes_one_more_for_those_beside_it(distant: Distant) -> None:
    for place in range(3):
        turn = memory(f"turn {place}", session="s", position=place)
        assert await distant.trips(batch(turn)) == 3


async def test_many_steps_take_no_more_trips_than_one(distant: Distant) -> None:
    people = [entity(f"person {number}") for number in range(200)]
    said = [note(person.id, f"says {person.id}") for person in people]
    known = [link(one.id, "knows", two.id) for one, two in pairwise(people)]
    assert await distant.trips(batch(*people, *said, *known)) == 2
    renamed = [Update(p.id, {"name": f"{p.name}!", "name_key": f"{p.name}!"}, 1) for p in people]
    # Of names that are to come, and of the children that are found by them.
    assert await distant.trips(batch(*renamed)) <= 4
    gone = [Delete(record_ref(person.id)) for person in people]
    assert await distant.trips(batch(*gone)) == 2
    assert await distant.trips(batch(*(Restore(record_ref(p.id)) for p in people))) <= 3
    assert len(await distant.store.scan(RecordFilter())) == 200


async def test_the_same_batch_again_takes_two(distant: Distant) -> None:
    said = batch(memory("once"), key="once")
    await distant.trips(said)
    assert await distant.trips(said) <= 3


async def test_things_can_trade_names_in_one_batch(store: PostgresStore) -> None:
    await store.commit(batch(entity("Ada"), entity("Bob"), entity("Eve")))
    names = [
        Update("Eve", {"name": "x", "name_key": "x"}, 1),
        Update("Ada", {"name": "Eve", "name_key": "eve", "text": "was Ada"}, 1),
        Update("Bob", {"name": "Ada", "name_key": "ada"}, 1),
        Delete(record_ref("Eve")),
        entity("Bob", id="another Bob"),
    ]
    await store.commit(batch(*names))
    found = {record.name: record.id for record in await store.scan(RecordFilter())}
    assert found == {"Eve": "Ada", "Ada": "Bob", "Bob": "another Bob"}
    with pytest.raises(Conflict):
        await store.commit(batch(Restore(record_ref("Eve")), entity("X", id="y")))
    assert await store.find_faults() == []
