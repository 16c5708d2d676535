import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from everkept.core.runtime import run_without_loop


async def at_once(value: int) -> int:
    return value


async def all_at_once(*values: int) -> int:
    return sum([await at_once(value) for value in values])


def test_a_coroutine_that_never_waits_ends_without_a_loop() -> None:
    assert run_without_loop(all_at_once(1, 2, 3)) == 6


def test_what_it_raises_is_raised() -> None:
    async def fails() -> None:
        await at_once(1)
        raise KeyError("gone")

    with pytest.raises(KeyError):
        run_without_loop(fails())


def test_one_that_waits_is_closed_and_refused() -> None:
    ended: list[str] = []

    class Wakened:
        def __await__(self) -> Generator[Any, None, None]:
            yield

    async def waits() -> None:
        try:
            await Wakened()
        finally:
            ended.append("yes")

    with pytest.raises(RuntimeError):
        run_without_loop(waits())
    assert ended == ["yes"]


async def test_inside_a_loop_it_works_as_well() -> None:
    assert run_without_loop(all_at_once(4, 5)) == 9
    await asyncio.sleep(0)
