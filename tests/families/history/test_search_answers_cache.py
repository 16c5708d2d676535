from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from everkept.families.history.search_answers import (
    CACHE_MICROSECONDS,
    MAX_CACHED_ANSWERS,
    MAX_CACHED_RESULTS,
    AnswerCache,
)


@dataclass
class World:
    """What answers rest on; a question costs a look at it."""

    now: int = 0
    stamp: int = 0
    made: list[str] = field(default_factory=list[str])

    def clock(self) -> int:
        return self.now

    async def stamped(self) -> object:
        return self.stamp

    def cache(self, weigh: Callable[[str], int | None] = len, **more: int) -> AnswerCache[str]:
        return AnswerCache(self.clock, weigh, **more)

    async def ask(self, cache: AnswerCache[str], key: str) -> str:
        async def make() -> str:
            self.made.append(key)
            return f"{key} at {self.stamp}"

        return await cache.get_or_make(key, self.stamped, make)


async def test_a_question_that_was_answered_is_not_asked_again() -> None:
    world = World()
    cache = world.cache()
    first, second = [await world.ask(cache, "a") for _ in range(2)]
    assert first == second
    assert world.made == ["a"]


async def test_an_answer_is_dropped_once_what_it_rests_on_has_changed() -> None:
    world = World()
    cache = world.cache()
    await world.ask(cache, "a")
    world.stamp += 1
    assert await world.ask(cache, "a") == "a at 1"


async def test_what_changes_while_an_answer_is_made_makes_it_invalid() -> None:
    world = World()
    cache = world.cache()

    async def make() -> str:
        world.stamp += 1
        return "old"

    assert await cache.get_or_make("a", world.stamped, make) == "old"
    assert await world.ask(cache, "a") == "a at 1"


async def test_an_answer_lives_for_five_minutes_from_its_last_use() -> None:
    world = World()
    cache = world.cache()
    for _ in range(3):
        await world.ask(cache, "a")
        world.now += CACHE_MICROSECONDS
    assert world.made == ["a"]
    world.now += 1
    await world.ask(cache, "a")
    assert world.made == ["a", "a"]


async def test_the_answers_that_nobody_asked_for_longest_go_first() -> None:
    world = World()
    cache = world.cache(largest=2)
    for key in ("a", "b", "a", "c", "a", "b"):
        await world.ask(cache, key)
    assert world.made == ["a", "b", "c", "b"]


async def test_an_answer_without_a_weight_is_not_kept() -> None:
    world = World()
    cache = world.cache(lambda _: None)
    await world.ask(cache, "a")
    await world.ask(cache, "a")
    assert world.made == ["a", "a"]


def test_a_thousand_answers_are_kept() -> None:
    assert (MAX_CACHED_ANSWERS, CACHE_MICROSECONDS) == (1_000, 300_000_000)


STEPS = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12), st.booleans()), max_size=60)


@given(STEPS)
async def test_no_answer_is_older_than_the_world_it_speaks_of(steps: list[tuple[str, int, bool]]) -> None:
    """With what is kept within its bounds at each step."""
    world = World()
    cache = world.cache(largest=3, heaviest=25, lifetime=10)
    used: dict[str, int] = {}
    for key, passes, changes in steps:
        world.now += passes
        world.stamp += changes
        before = len(world.made)
        assert await world.ask(cache, key) == f"{key} at {world.stamp}"
        if len(world.made) == before:
            assert world.now - used[key] <= 10
        used[key] = world.now
        assert len(cache) <= 3


async def test_many_small_answers_and_few_large_ones_take_the_same_room() -> None:
    world = World()
    cache = world.cache(lambda _: MAX_CACHED_RESULTS // 2)
    for key in ("a", "b", "c"):
        await world.ask(cache, key)
    assert len(cache) == 2
