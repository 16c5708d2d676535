"""Threads that wait for a database, and end with the process whatever they wait for."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple[Callable[[], Any], "Future[Any]"]


class Crew:
    """So many at most; a thread is begun when there is work and none is idle.

    Those of the standard library are waited for when the process ends: a server that does not
    answer would keep it from ending.
    """

    def __init__(self, name: str, size: int) -> None:
        self._name = name
        self._size = size
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = 0
        self._busy = 0  # or about to be: jobs that were given and have not ended
        self._lock = threading.Lock()

    def give(self, work: Callable[[], T]) -> "Future[T]":
        """Work that no thread has taken up can still be cancelled."""
        future: Future[T] = Future()
        with self._lock:
            self._busy += 1
            if self._busy > self._count < self._size:
                self._count += 1
                name = f"{self._name} {self._count}"
                threading.Thread(
                    target=self._labour, args=(self._jobs,), name=name, daemon=True
                ).start()
            self._jobs.put((work, future))
        return future

    def dismiss(self) -> None:
        """Each thread ends after what it does now; it can be given work again."""
        with self._lock:
            count, self._count = self._count, 0
            jobs, self._jobs = self._jobs, SimpleQueue()
            self._busy = 0
        for _ in range(count):
            jobs.put(None)

    def _labour(self, jobs: "SimpleQueue[_Job | None]") -> None:
        while (job := jobs.get()) is not None:
            _do(*job)
            del job  # the thread would keep what it has done until it gets the next
            with self._lock:
                if jobs is self._jobs:
                    self._busy -= 1


class _Telling:
    """Whoever waits gets what was raised, whatever it is."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: object, error: BaseException | None, _traceback: TracebackType | None
    ) -> bool:
        if error is not None:
            self._future.set_exception(error)
        return True


def _do(work: Callable[[], Any], future: "Future[Any]") -> None:
    if future.set_running_or_notify_cancel():
        with _Telling(future):
            future.set_result(work())
