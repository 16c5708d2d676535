import asyncio

from hypothesis import given
from hypothesis import strategies as st

from everkept.transports.rate_limits import MAX_KEYS, KeyedQueues, RateLimiter


class Watch:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@given(per_minute=st.integers(1, 1000))
def test_as_many_as_a_minute_allows_may_come_at_once(per_minute: int) -> None:
    buckets = RateLimiter(per_minute, Watch())
    assert [buckets.take("a") for _ in range(per_minute)] == [0] * per_minute
    assert buckets.take("a") > 0


@given(per_minute=st.integers(1, 1000), waits=st.lists(st.floats(0, 90), max_size=50))
def test_who_waits_as_long_as_told_may_come(per_minute: int, waits: list[float]) -> None:
    watch = Watch()
    buckets = RateLimiter(per_minute, watch)
    for wait in waits:
        watch.now += wait
        buckets.take("a")
    while buckets.take("a") == 0:
        pass
    watch.now += buckets.compute_wait("a")
    assert buckets.take("a") == 0


@given(per_minute=st.integers(1, 60), gaps=st.lists(st.floats(0, 10), min_size=1, max_size=200))
def test_nobody_comes_more_often_than_twice_in_any_minute(per_minute: int, gaps: list[float]) -> None:
    watch = Watch()
    buckets = RateLimiter(per_minute, watch)
    came: list[float] = []
    for gap in gaps:
        watch.now += gap
        if buckets.take("a") == 0:
            came.append(watch.now)
    for start in came:
        assert sum(start <= at < start + 60 for at in came) <= 2 * per_minute


def test_asking_how_long_to_wait_takes_nothing() -> None:
    buckets = RateLimiter(1, Watch())
    assert [buckets.compute_wait("a"), buckets.compute_wait("a"), buckets.take("a")] == [0, 0, 0]
    assert buckets.compute_wait("a") == buckets.compute_wait("a") == 60


def test_one_does_not_use_up_what_another_has() -> None:
    buckets = RateLimiter(1, Watch())
    assert buckets.take("a") == 0
    assert buckets.take("a") > 0
    assert buckets.take("b") == 0


def test_of_many_the_one_is_forgotten_that_came_longest_ago() -> None:
    buckets = RateLimiter(1, Watch())
    for number in range(MAX_KEYS + 1):
        buckets.take(str(number))
    assert buckets.compute_wait("0") == 0
    assert buckets.compute_wait("1") > 0


async def test_those_of_one_key_come_in_turn_and_nobody_waits_for_another_key() -> None:
    queues = KeyedQueues(most=2)
    came: list[str] = []
    leave = asyncio.Event()

    async def come(key: str, name: str) -> None:
        async with queues.wait_turn(key):
            came.append(name)
            await leave.wait()

    tasks = [asyncio.create_task(come(*each)) for each in (("a", "1"), ("a", "2"), ("b", "3"))]
    await asyncio.sleep(0)
    assert came == ["1", "3"]
    assert (queues.is_full("a"), queues.is_full("b")) == (True, False)
    leave.set()
    await asyncio.gather(*tasks)
    assert came == ["1", "3", "2"]
    assert not queues.is_full("a")


async def test_who_gives_up_waiting_leaves_its_place_to_others() -> None:
    queues = KeyedQueues(most=2)
    async with queues.wait_turn("a"):
        waiting = asyncio.create_task(queues.wait_turn("a").__aenter__())
        await asyncio.sleep(0)
        assert queues.is_full("a")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not queues.is_full("a")
    async with asyncio.timeout(60), queues.wait_turn("a"):
        pass
