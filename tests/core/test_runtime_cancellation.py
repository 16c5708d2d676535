import asyncio

import pytest

from everkept.core.runtime import is_on_event_loop, wait_finished


async def test_work_is_carried_to_its_end() -> None:
    steps: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        steps.append("done")
        return "result"

    task = asyncio.create_task(wait_finished(work()))
    await begun.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["done"]
    assert await wait_finished(work()) == "result"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_error_is_raised_unless_the_caller_is_gone(cancelled: bool) -> None:
    go_on = asyncio.Event()

    async def fail() -> None:
        await go_on.wait()
        raise LookupError

    task = asyncio.create_task(wait_finished(fail()))
    await asyncio.sleep(0)
    if cancelled:
        task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError if cancelled else LookupError):
        await task


async def test_a_thread_without_an_event_loop_is_told_from_one_with_it() -> None:
    assert is_on_event_loop()
    assert not await asyncio.to_thread(is_on_event_loop)
