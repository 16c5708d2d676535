import asyncio
import threading

import pytest

from everkept.core.runtime import run_without_loop
from everkept.files.local_disk import run_in_thread


async def test_a_thread_that_was_begun_has_ended_when_its_caller_is_cancelled() -> None:
    begun, go_on, ended = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        ended.set()

    task = asyncio.create_task(run_in_thread(work))
    await begun.wait()
    for _ in range(3):  # as often as it likes
        task.cancel()
        await asyncio.wait((task,), timeout=0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_a_coroutine_that_is_driven_in_a_thread_stays_there() -> None:
    work = run_in_thread(threading.current_thread)
    assert await asyncio.to_thread(lambda: run_without_loop(work) is threading.current_thread())


async def test_a_canceled_caller_says_so_while_the_thread_works() -> None:
    begun, canceled = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        canceled.wait()

    task = asyncio.create_task(run_in_thread(work, on_cancel=canceled.set))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
