import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everkept.core.sessions import Session
from everkept.errors import Refused
from everkept.transports.connection import (
    MAX_SUBSCRIPTIONS,
    CallSequence,
    ClientConnection,
    NotificationQueue,
    deduplicate_uris,
)
from examples import examples


async def test_reads_run_side_by_side_and_a_write_waits_for_them() -> None:
    turns = CallSequence()
    told: list[str] = []
    both_reading = asyncio.Barrier(2)

    async def read(name: str) -> None:
        async with turns.reserve(writes=False):
            await both_reading.wait()
            told.append(name)

    async def write() -> None:
        async with turns.reserve(writes=True):
            told.append("write")

    await asyncio.gather(read("a"), read("b"), write())
    assert told[-1] == "write"


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.booleans()), max_size=12))
@settings(max_examples=examples(100))
def test_a_write_has_the_field_for_itself_and_keeps_its_place(calls: list[tuple[bool, int, bool]]) -> None:
    """Each call writes or reads, takes some steps, and may be cancelled at once."""
    turns = CallSequence()
    running: set[int] = set()
    began: list[int] = []

    async def call(number: int, steps: int, *, writes: bool) -> None:
        async with turns.reserve(writes=writes):
            others = {calls[other][0] for other in running}
            assert not others if writes else True not in others
            running.add(number)
            began.append(number)
            try:
                for _ in range(steps):
                    await asyncio.sleep(0)
            finally:
                running.discard(number)

    async def run() -> None:
        tasks = [
            asyncio.ensure_future(call(number, steps, writes=writes)) for number, (writes, steps, _) in enumerate(calls)
        ]
        await asyncio.sleep(0)
        for task, (_, _, cancelled) in zip(tasks, calls, strict=True):
            if cancelled:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [o for o in outcomes if isinstance(o, AssertionError)] == []

    asyncio.run(run())
    for place, number in enumerate(began):
        if calls[number][0]:
            assert all(other < number for other in began[:place])
            assert all(other > number for other in began[place + 1 :])


async def test_a_notice_is_told_once_however_often_a_thing_changed() -> None:
    notices = NotificationQueue()
    for uri in ("a", "b", "a"):
        await notices.add_resource(uri)
    notices.add_tools()
    notices.add_tools()
    updated = "notifications/resources/updated"
    assert await notices.wait_next() == (updated, {"uri": "a"})
    assert await notices.wait_next() == (updated, {"uri": "b"})
    assert await notices.wait_next() == ("notifications/tools/list_changed", {})
    notices.end()
    assert await notices.wait_next() is None


async def test_a_connection_has_so_many_subscriptions_and_no_more() -> None:
    connection, running = ClientConnection(Session()), set[str]()

    async def subscribe(uri: str) -> None:
        async def begin() -> Callable[[], None]:
            await asyncio.sleep(0)
            running.add(uri)
            return lambda: running.discard(uri)

        await connection.subscribe(uri, begin)

    some = [f"memory://projects/p{n}/knowledge-graph" for n in range(2 * MAX_SUBSCRIPTIONS)]
    outcomes = await asyncio.gather(*map(subscribe, some), return_exceptions=True)
    refused = [uri for uri, outcome in zip(some, outcomes, strict=True) if outcome is not None]
    assert refused == some[MAX_SUBSCRIPTIONS:]
    assert running == set(some[:MAX_SUBSCRIPTIONS])
    with pytest.raises(Refused, match="100 subscriptions"):
        await subscribe(some[-1])
    connection.unsubscribe(some[0])
    await subscribe(some[-1])
    assert len(running) == MAX_SUBSCRIPTIONS
    connection.close()
    assert not running


async def test_two_ways_to_write_an_address_are_one_subscription() -> None:
    connection, begun = ClientConnection(Session()), list[str]()

    async def subscribe(uri: str) -> None:
        async def begin() -> Callable[[], None]:
            begun.append(uri)
            return lambda: begun.remove(uri)

        await connection.subscribe(uri, begin)

    ways = ["memory://projects/a%20b", "memory://projects/%61%20b", "memory://projects/a b"]
    for uri in ways:
        await subscribe(uri)
    assert begun == ways[:1]
    assert deduplicate_uris([*ways, 5, "memory://x"]) == [ways[0], "memory://x"]
    connection.unsubscribe(ways[1])
    assert begun == []
