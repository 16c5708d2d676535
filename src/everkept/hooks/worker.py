"""The one process that works off what hooks leave behind, felt by nobody and bounded in all."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.locks import FileLock
from everkept.core.times import now
from everkept.errors import EverkeptError, InvalidInput, NotFound
from everkept.hooks import workspace
from everkept.hooks.session_end import SESSION_END, WISHES, Job, Jobs, lock_path, turn_to_start
from everkept.hooks.unhandled import end_after
from everkept.hooks.workspace import hooks_folder
from everkept.hooks.workspace import prune as prune_ledgers
from everkept.settings import Settings
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    from everkept.app.hook_tasks import Closing

TIME_LIMIT = 300.0  # seconds; what is left then is the next one's
GRACE = 15.0  # seconds that it gets for ending in order
MOST_MEMORY = 1024**3  # bytes
# Where the system does not see to it. Windows does not, and has no cheap way to ask for it either:
# there only the size of the portions that are taken in bounds it.
MOST_RESIDENT = MOST_MEMORY if sys.platform == "darwin" else inf
NICENESS = 10

MOST_FAILURES = 3  # of one job
PASSING = 86_400 * 1_000_000  # microseconds in which what will pass does not count as a failure
MOST_STARTS = 10  # that bring a job no further: whatever it is that kills the worker, it stays


def main(settings: Settings, *, time_limit: float = TIME_LIMIT, grace: float = GRACE) -> None:
    """Works until nothing waits or the time is up; ends at once where another one is at work."""
    folder = hooks_folder(settings)
    lock = FileLock.handed_over(lock_path(settings))
    if settings.read_only or not folder.is_dir() or not lock.take():
        return
    turn_to_start(settings).end()
    _bound(time_limit + grace)
    worker = Worker(settings, folder, time.monotonic() + time_limit, MOST_RESIDENT)
    while True:
        try:
            asyncio.run(worker.work_off())
            worker.tidy()
        finally:
            lock.release()
        # What came while the lock was still held was left to us.
        if not worker.has_more() or not lock.take():
            return


class _TooLarge(Exception):
    """The process has become larger than it may; the next one begins small."""


class Worker(Value, frozen=False):
    """Takes each job once; what fails is left for another time, and in the end given up."""

    settings: Settings
    folder: Path
    ends_at: float  # on the monotonic clock
    most_resident: float = inf  # bytes
    _tried: set[str] = field(default_factory=set[str])

    @property
    def _jobs(self) -> Jobs:
        return Jobs(self.folder)

    def has_more(self) -> bool:
        return time.monotonic() < self.ends_at and bool(self._untried())

    async def work_off(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self.ends_at - time.monotonic())):
                while names := self._untried():
                    self._tried.add(names[0])
                    job = self._jobs.get(names[0])
                    if job is not None:
                        await self._try(job)
        except (TimeoutError, _TooLarge) as error:
            self.ends_at = 0.0
            what = "memory" if isinstance(error, _TooLarge) else "time"
            waiting = len(self._jobs.names())
            self._tell("Worker", f"out of {what}: {waiting} jobs are left to the next one")

    def tidy(self) -> None:
        """Removes what sessions that are long over have left."""
        self._jobs.prune()
        prune_ledgers(self.folder, now())

    def _untried(self) -> list[str]:
        return [name for name in self._jobs.names() if name not in self._tried]

    async def _try(self, job: Job) -> None:
        # Kept before the work: it counts also where the work is the end of this process.
        job = replace(job, starts=job.starts + 1)
        self._jobs.keep(job)
        if job.starts > MOST_STARTS:
            reason = f"it was begun {MOST_STARTS} times and came no further"
            self._jobs.give_up(job, reason)
            self._tell(job.event, f"{job.transcript or job.session} is given up: {reason}")
            return
        try:
            await self._do(job)
        except _TooLarge:
            raise
        except Exception as error:  # noqa: BLE001 (one job must not stop the others)
            self._fail(self._jobs.get(job.name) or job, error)
        else:
            self._jobs.done(job)

    async def _do(self, job: Job) -> None:
        # Imported here: whoever finds the lock taken needs nothing of it.
        from everkept.app.app import App
        from everkept.app.hook_tasks import Closing

        app = App(_settings_of(job, self.settings))
        try:
            closing = Closing(app)
            if await closing.is_off():
                return
            await self._take_in(job, closing)
            if job.event == SESSION_END:
                if job.session and app.settings.consolidation_on_shutdown:
                    await self._sum_up(job, closing)
                await closing.fade()
        finally:
            await app.close()

    async def _take_in(self, job: Job, closing: "Closing") -> None:
        if job.transcript is None or job.source is None:
            return
        try:
            report = self._reporting(job)
            await closing.take_in(Path(job.transcript), job.source, job.session, report)
        except (NotFound, InvalidInput) as error:  # it will be so the next time too
            self._tell(job.event, error)

    async def _sum_up(self, job: Job, closing: "Closing") -> None:
        try:
            await closing.sum_up(job.session)
        except (TimeoutError, InvalidInput) as error:
            reason = "out of time" if isinstance(error, TimeoutError) else error
            self._tell(job.event, f"session {job.session} is not summed up: {reason}")

    def _reporting(self, job: Job) -> Callable[[int, int], None]:
        reached = job.reached

        def report(done: int, _total: int) -> None:
            nonlocal reached
            if done > reached:
                reached = done
                self._jobs.keep(replace(job, starts=0, reached=done))
            if self.most_resident < inf and _resident() > self.most_resident:
                raise _TooLarge

        return report

    def _fail(self, job: Job, error: Exception) -> None:
        failed = replace(job, failures=job.failures + 1)
        if _will_pass(job, error):
            self._jobs.keep(replace(job, starts=max(0, job.starts - 1)))
        elif failed.failures < MOST_FAILURES:
            self._jobs.keep(failed)
        else:
            # An error that nobody foresaw may quote what was said.
            told = str(error) if isinstance(error, EverkeptError) else type(error).__name__
            self._jobs.give_up(failed, told)
        self._tell(job.event, error)

    def _tell(self, event: str, cause: BaseException | str) -> None:
        workspace.record(self.folder, event, cause)


def _will_pass(job: Job, error: Exception) -> bool:
    """As a restore that is under way does, or another process's lock."""
    is_passing = isinstance(error, EverkeptError) and error.retry_possible
    return is_passing and now() - job.at < PASSING


def _settings_of(job: Job, settings: Settings) -> Settings:
    """Those of the hook where it may have had others, and nothing that embeds."""
    wishes = {name: value for name, value in job.wishes.items() if name in WISHES}
    return replace(
        settings,
        **wishes,
        path=None if job.folder is None else Path(job.folder),
        toolsets="memories,history",
        dialect="everkept",
        transport="stdio",
        embedding_model="none",
        session_id=None,
    )


def _resident() -> float:
    """Bytes of memory that the process had at most."""
    if sys.platform == "win32":
        return 0.0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _bound(seconds: float) -> None:
    """Ends the process after so long even where it hangs, and keeps it small and polite."""
    end_after(seconds)
    if sys.platform != "win32":  # there its priority is given to it at birth
        import resource

        os.nice(NICENESS)
        # Where the system counts it so, what the process allocates; files that are mapped are free.
        least = MOST_MEMORY
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        for limit in (soft, hard):
            least = least if limit == resource.RLIM_INFINITY else min(least, limit)
        with suppress(OSError, ValueError):  # a system that knows no such limit
            resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
