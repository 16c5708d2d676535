"""Threads that wait."""

import threading

import pytest

from everkept.engines.postgres.database import ThreadPool

PATIENCE = 30  # seconds


def test_so_many_work_at_once_and_no_more() -> None:
    threads = ThreadPool("test", 3)
    together = threading.Barrier(4)

    def work() -> str:
        together.wait(PATIENCE)
        return threading.current_thread().name

    first = [threads.submit(work) for _ in range(3)]
    waiting = threads.submit(lambda: threading.current_thread().name)
    together.wait(PATIENCE)
    names = {each.result(PATIENCE) for each in first}
    assert len(names) == 3
    assert waiting.result(PATIENCE) in names
    threads.shut_down()


def test_an_idle_thread_is_used_before_a_new_one_is_begun() -> None:
    threads = ThreadPool("test", 3)
    names = {threads.submit(lambda: threading.current_thread().name).result(PATIENCE) for _ in range(2)}
    assert len(names) <= 2
    threads.shut_down()


def test_what_nobody_has_taken_up_can_be_cancelled() -> None:
    threads, go, done = ThreadPool("test", 1), threading.Event(), list[str]()
    busy = threads.submit(lambda: go.wait(PATIENCE))
    waiting = threads.submit(lambda: done.append("never"))
    assert waiting.cancel()
    go.set()
    assert busy.result(PATIENCE)
    assert threads.submit(lambda: done).result(PATIENCE) == []
    threads.shut_down()


def test_what_was_raised_reaches_whoever_waits_and_the_thread_goes_on() -> None:
    threads = ThreadPool("test", 1)
    with pytest.raises(ZeroDivisionError):
        threads.submit(lambda: 1 // 0).result(PATIENCE)
    assert threads.submit(lambda: 2).result(PATIENCE) == 2
    threads.shut_down()


def test_a_crew_that_was_dismissed_can_work_again_and_its_threads_have_ended() -> None:
    threads = ThreadPool("test", 2)
    thread = threads.submit(threading.current_thread).result(PATIENCE)
    threads.shut_down()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert threads.submit(lambda: 1).result(PATIENCE) == 1
    threads.shut_down()
