import asyncio

import pytest

from everkept.errors import QueryTimeout
from everkept.retrieval.profile import Deadline


async def soon(value: int) -> int:
    return value


async def never(seen: list[str]) -> int:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise
    return 0


async def test_what_is_done_in_time_is_given() -> None:
    assert await Deadline.from_seconds(None).run_both(soon(1), soon(2)) == (1, 2)
    assert await Deadline.from_seconds(60).run(soon(1)) == 1


async def test_what_is_late_is_cancelled_and_missing() -> None:
    seen: list[str] = []
    deadline = Deadline.from_seconds(0.01)
    assert await deadline.run_both(soon(1), never(seen)) == (1, None)
    assert seen == ["cancelled"]
    assert deadline.has_passed
    assert await deadline.run(never(seen)) is None


async def test_an_error_is_raised_and_ends_the_other_work() -> None:
    async def fails() -> int:
        raise ValueError

    seen: list[str] = []
    with pytest.raises(ValueError):
        await Deadline.from_seconds(None).run_both(never(seen), fails())
    assert seen == ["cancelled"]


async def test_who_is_cancelled_cancels_the_work() -> None:
    seen: list[str] = []
    task = asyncio.create_task(Deadline.from_seconds(None).run(never(seen)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_no_limit_never_passes() -> None:
    assert not Deadline.from_seconds(None).has_passed
    assert not Deadline.from_seconds(None).with_reserve(1).has_passed


async def test_a_sooner_deadline_leaves_a_share_of_the_time() -> None:
    deadline = Deadline.from_seconds(60)
    assert deadline.with_reserve(1).has_passed
    assert not deadline.with_reserve(0.5).has_passed


async def test_what_a_database_gives_up_on_is_missing_and_the_rest_is_there() -> None:
    async def too_slow() -> int:
        raise QueryTimeout("It took longer than 10 seconds.")

    assert await Deadline.from_seconds(None).run(too_slow()) is None
    assert await Deadline.from_seconds(60).run_both(too_slow(), soon(2)) == (None, 2)
