"""Connections to one schema, each lent to one transaction at a time, and the threads for them."""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

import psycopg

from everkept.engines.postgres.connection import Connection
from everkept.engines.postgres.failures import CONTENDED, Crowded, failure, pooled
from everkept.engines.postgres.migration import Layout, prepare
from everkept.engines.postgres.transactions import Call, Form, Line, Misplaced, Outdated, Work
from everkept.errors import StoreAway, StoreBusy, StoreDamaged

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


ATTEMPTS = 20
LONGEST_PAUSE = 0.2  # seconds between attempts
ANSWERING = 2.0  # seconds for one that nobody used for long
GLANCE = 0.1  # seconds after which who waits for another looks whether he still has to
CUT_SHORT = ("57014", "25P03", "25P04")  # a statement or a transaction that took too long


log = logging.getLogger(__name__)


class Pool:
    """As many as there are threads that use it; opened when none is idle."""

    def __init__(
        self,
        dial: Callable[[], Connection],
        schema: str,
        layout: Layout,
        place: str,
        *,
        time_limit: float,
        doubt_after: float,
    ) -> None:
        """`time_limit` is that of a question."""
        self._dial = dial
        self._schema = schema
        self._layout = layout
        self._place = place
        self._time_limit = time_limit
        self._doubt_after = doubt_after
        self._form = Form(schema, layout, place)
        self._search_path = ""
        self._idle: list[Line] = []  # the one that was used last is the next
        self._lent = 0
        self._epoch = 0  # how often all were discarded
        self._lock = threading.Condition()  # told of each that comes back
        self._is_pooled = False
        self._shares_sessions = False  # a session of ours was found to be set to something else
        self._has_warned = False

    def run(self, call: Call, work: Work[T]) -> T:
        """In one transaction, which is attempted again where another one was in its way."""
        for attempt in range(ATTEMPTS):
            try:
                return self._attempted(call, work)
            except Misplaced:  # somebody stands between who had not shown before
                self._shares_sessions = True
                self.discard()
                continue
            except psycopg.Error as error:
                if error.sqlstate not in CONTENDED:
                    raise self._cause(call, error) from None  # it may tell what was stored
            time.sleep(random.uniform(0, min(LONGEST_PAUSE, 0.002 * 2**attempt)))
        raise StoreBusy("Other processes keep writing to the database.", hint="Try again.")

    def apart(self, call: Call, work: Callable[[Connection], T]) -> T:
        """On a connection of its own, which is closed behind it."""
        try:
            line = self._opened(call)
            try:
                call.take(line, is_ready=True)
                self._check_session()
                # It has limits of its own, where it has any.
                text = (
                    f"RESET ALL; SET search_path = {self._search_path}; SET statement_timeout = 0"
                )
                line.connection.execute(text.encode(), prepare=False)
                return work(line.connection)
            finally:
                call.leave()
                line.close()
        except psycopg.Error as error:
            raise self._cause(call, error) from None

    def discard(self) -> None:
        """Closes those that are idle, and the others when they come back."""
        with self._lock:
            self._epoch += 1
            idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    def _attempted(self, call: Call, work: Work[T]) -> T:
        """On a line that was lost, or whose tables were, it is done again on another one."""
        line = self._rested()
        if line is not None:
            try:
                return self._done(line, call, work)
            except Outdated:
                self.discard()
            except psycopg.Error:
                if call.why is not None or not self._may_repeat(line, call):
                    raise
                self.discard()  # what ended this one has ended the others
        try:
            return self._done(self._another(call), call, work)
        except Outdated:
            raise StoreDamaged(
                f'The tables in the schema "{self._schema}" of PostgreSQL at {self._place} were '
                "removed while they were in use."
            ) from None

    def _may_repeat(self, line: Line, call: Call) -> bool:
        """Whether it was lost, and nothing can have been committed."""
        return line.connection.closed and not (call.alters and line.wire.has_answered)

    def _done(self, line: Line, call: Call, work: Work[T]) -> T:
        with self._lock:
            self._lent += 1
        try:
            call.take(line, is_ready=True)
            begin = self._form.writing if call.alters else self._form.question
            transaction = begin(line, self._search_path, call.limit)
            result = work(transaction)
            transaction.finish()
            call.news = transaction.news
            return result
        finally:
            self._give_back(line, call)

    def _rested(self) -> Line | None:
        """The one that was used last."""
        with self._lock:
            line = self._idle.pop() if self._idle else None
        if line is None or line.idle_for < self._doubt_after or line.answers(ANSWERING):
            return line
        line.close()
        self.discard()  # the others were idle for longer
        return None

    def _another(self, call: Call) -> Line:
        try:
            return self._opened(call)
        except Crowded:
            line = self._returned(call)
            if line is None:
                raise
            return line

    def _returned(self, call: Call) -> Line | None:
        """The next that comes back; None where none is lent. Raises why the call was stopped."""
        with self._lock:
            while not self._idle:
                if call.why is not None:
                    raise call.why
                if not self._lent:
                    return None
                self._lock.wait(GLANCE)
            return self._idle.pop()

    def _opened(self, call: Call) -> Line:
        epoch = self._epoch  # from before: all may be discarded meanwhile
        line = Line(self._dial(), epoch)
        try:
            call.take(line, is_ready=False)
            found = prepare(line.connection, self._schema, self._layout, self._place)
            is_pooled = found.is_pooled or self._shares_sessions
            if not is_pooled:
                line.own(self._form.settings(found.search_path, self._time_limit))
        except BaseException:
            call.leave()
            line.close()
            raise
        self._search_path, self._is_pooled = found.search_path, is_pooled
        return line

    def _give_back(self, line: Line, call: Call) -> None:
        line.settle()
        call.leave()
        with self._lock:
            is_kept = line.is_usable and line.epoch == self._epoch
            if is_kept:
                self._idle.append(line)
            self._lent -= 1
            self._lock.notify()
        if not is_kept:
            line.close()

    def _check_session(self) -> None:
        """Raises Pooled where what is set for a session may reach another."""
        if not self._is_pooled:
            return
        error = pooled(self._place)
        if not self._has_warned:
            self._has_warned = True
            log.warning("No upkeep is done from here. %s %s", error, error.hint)
        raise error

    def _cause(self, call: Call, error: psycopg.Error) -> Exception:
        """What has no code was no answer: whether a transaction took effect is then unknown."""
        is_ours = error.sqlstate in CUT_SHORT or (
            not error.sqlstate and isinstance(call.why, StoreAway)
        )
        if call.why is not None and is_ours:
            return call.why
        return failure(error, self._place)
