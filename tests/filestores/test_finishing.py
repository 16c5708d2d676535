import asyncio
import threading

import pytest

from recollect.filestores.finishing import finished, in_thread


async def test_a_thread_that_was_begun_has_ended_when_its_caller_is_cancelled() -> None:
    begun, go_on, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        ended.set()

    task = asyncio.create_task(in_thread(work))
    await begun.wait()
    for _ in range(3):  # as often as it likes
        task.cancel()
        await asyncio.wait((task,), timeout=0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_work_is_carried_to_its_end() -> None:
    steps: list[str] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> str:
        begun.set()
        await go_on.wait()
        steps.append("done")
        return "result"

    task = asyncio.create_task(finished(work()))
    await begun.wait()
    task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["done"]
    assert await finished(work()) == "result"


@pytest.mark.parametrize("cancelled", [False, True])
async def test_an_error_is_raised_unless_the_caller_is_gone(cancelled: bool) -> None:
    go_on = asyncio.Event()

    async def fail() -> None:
        await go_on.wait()
        raise LookupError

    task = asyncio.create_task(finished(fail()))
    await asyncio.sleep(0)
    if cancelled:
        task.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError if cancelled else LookupError):
        await task
