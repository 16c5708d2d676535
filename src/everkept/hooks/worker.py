"""Background process that works through the jobs of hooks, with low priority and limited time and memory.

It also writes the backup of a schedule, once the jobs are done.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from everkept.core.locks import FileLock
from everkept.core.text import format_count
from everkept.core.times import read_clock
from everkept.errors import EverkeptError, InvalidInput, NotFound
from everkept.hooks import workspace
from everkept.hooks.session_end import (
    JOB_SETTINGS,
    SESSION_END,
    WORKER_STOP_SECONDS,
    JobQueue,
    SessionJob,
    get_lock_path,
    get_start_turn,
    get_stop_request,
)
from everkept.hooks.unhandled import end_after
from everkept.hooks.workspace import get_hooks_folder
from everkept.hooks.workspace import prune_sessions as prune_ledgers
from everkept.settings import Settings
from everkept.values import Value, field, replace

if TYPE_CHECKING:
    from everkept.app.hook_tasks import SessionEnd

WORK_SECONDS = 300.0  # remaining jobs are left to the next worker
GRACE_SECONDS = 15.0  # in addition, to end in an orderly way
MAX_MEMORY_BYTES = 1024**3
# For systems that do not enforce the limit. Windows does not either, and has no cheap way to read the size: there only
# the size of the imported portions limits it.
MAX_RESIDENT_BYTES = MAX_MEMORY_BYTES if sys.platform == "darwin" else inf
NICENESS = 10
STOP_CHECK_SECONDS = 0.2

MAX_FAILURES = 3  # of one job
# A temporary error does not count as a failure within this time.
TRANSIENT_MICROSECONDS = 86_400 * 1_000_000
MAX_STARTS = 10  # without progress: a job that kills the worker each time does so again


def main(settings: Settings, *, time_limit: float = WORK_SECONDS, grace: float = GRACE_SECONDS) -> None:
    """Work until no job is pending or the time is up. Return immediately if another worker holds the lock."""
    folder = get_hooks_folder(settings)
    lock = FileLock.from_parent(get_lock_path(settings))
    if settings.read_only or not folder.is_dir() or not lock.take():
        return
    get_start_turn(settings).end()
    _limit_process(time_limit + grace)
    worker = HookWorker(settings, folder, time.monotonic() + time_limit, MAX_RESIDENT_BYTES)
    while True:
        try:
            asyncio.run(worker.process_jobs())
            worker.back_up()
            worker.prune()
        finally:
            lock.release()
        # Hooks leave jobs to this worker while it holds the lock.
        if not worker.has_more() or not lock.take():
            return


def stop_worker(settings: Settings) -> bool:
    """End the worker of this data folder and wait for it. Return False if it still runs.

    Its jobs stay, and the next worker continues them.
    """
    lock, request = FileLock(get_lock_path(settings)), get_stop_request(settings)
    if not get_hooks_folder(settings).is_dir():
        return True
    request.take()
    try:
        return lock.wait(WORKER_STOP_SECONDS)
    finally:
        request.end()
        lock.release()


class _MemoryLimitExceeded(Exception):
    """The process has grown beyond its limit. The next worker starts small."""


class HookWorker(Value, frozen=False):
    """Worker that tries each job once. A failed job is tried again later and finally rejected."""

    settings: Settings
    folder: Path
    ends_at: float  # on the monotonic clock
    most_resident: float = inf  # bytes
    _tried: set[str] = field(default_factory=set[str])

    @property
    def _queue(self) -> JobQueue:
        return JobQueue(self.folder)

    def has_more(self) -> bool:
        return time.monotonic() < self.ends_at and bool(self._list_untried())

    async def process_jobs(self) -> None:
        try:
            async with asyncio.timeout(max(0.0, self.ends_at - time.monotonic())) as limit, self._watch_for_stop(limit):
                while names := self._list_untried():
                    self._tried.add(names[0])
                    job = self._queue.read_job(names[0])
                    if job is not None:
                        await self._try_job(job)
        except (TimeoutError, _MemoryLimitExceeded) as error:
            self.ends_at = 0.0
            if get_stop_request(self.settings).is_taken():
                return
            what = "memory" if isinstance(error, _MemoryLimitExceeded) else "time"
            waiting = len(self._queue.list_names())
            self._log_fault("Worker", f"out of {what}: {format_count(waiting, 'job')} left to the next worker")

    @asynccontextmanager
    async def _watch_for_stop(self, limit: asyncio.Timeout) -> AsyncGenerator[None]:
        """End the time when another process requests it."""
        request = get_stop_request(self.settings)

        async def watch() -> None:
            while True:
                if request.is_taken():
                    limit.reschedule(0.0)
                    return
                await asyncio.sleep(STOP_CHECK_SECONDS)

        watcher = asyncio.create_task(watch())
        try:
            yield
        finally:
            watcher.cancel()

    def back_up(self) -> None:
        """Write the scheduled backup, if it is due."""
        from everkept.care.backup_schedule import read_schedule, run_schedule

        schedule = read_schedule(self.settings)
        is_stopping = get_stop_request(self.settings).is_taken()
        if is_stopping or schedule is None or not schedule.is_due(read_clock()):
            return
        try:
            run_schedule(self.settings, schedule, read_clock, lambda _done, _total: None)
        except EverkeptError as error:
            self._log_fault("Worker", f"scheduled backup failed: {error}")

    def prune(self) -> None:
        """Delete files of sessions that ended long ago."""
        self._queue.prune()
        prune_ledgers(self.folder, read_clock())

    def _list_untried(self) -> list[str]:
        return [name for name in self._queue.list_names() if name not in self._tried]

    async def _try_job(self, job: SessionJob) -> None:
        # Saved before the work, so that the attempt counts even if the work kills this process.
        job = replace(job, starts=job.starts + 1)
        self._queue.save(job)
        if job.starts > MAX_STARTS:
            reason = f"no progress in {MAX_STARTS} attempts"
            self._queue.reject(job, reason)
            self._log_fault(job.event, f"job for {job.transcript or job.session} rejected: {reason}")
            return
        try:
            await self._process_job(job)
        except _MemoryLimitExceeded:
            raise
        except Exception as error:  # noqa: BLE001 (one job must not stop the others)
            self._record_failure(self._queue.read_job(job.name) or job, error)
        else:
            self._queue.remove(job)

    async def _process_job(self, job: SessionJob) -> None:
        # Imported here, because a process that finds the lock taken does not need it.
        from everkept.app.app import App
        from everkept.app.hook_tasks import SessionEnd

        app = App(_build_settings(job, self.settings))
        try:
            closing = SessionEnd(app)
            if await closing.is_off():
                return
            await self._import_transcript(job, closing)
            if app.settings.keep_candidates and job.session:
                await closing.keep_candidates(job.session)
            if job.event == SESSION_END:
                if job.session and app.settings.consolidation_on_shutdown:
                    await self._summarize_session(job, closing)
                await closing.fade_memories()
                await closing.empty_trash()
        finally:
            await app.close()

    async def _import_transcript(self, job: SessionJob, closing: "SessionEnd") -> None:
        if job.transcript is None or job.source is None:
            return
        try:
            report = self._build_progress(job)
            await closing.import_transcript(Path(job.transcript), job.source, job.session, report)
        except (NotFound, InvalidInput) as error:  # another attempt would fail the same way
            self._log_fault(job.event, error)

    async def _summarize_session(self, job: SessionJob, closing: "SessionEnd") -> None:
        try:
            await closing.summarize(job.session)
        except (TimeoutError, InvalidInput) as error:
            reason = "out of time" if isinstance(error, TimeoutError) else error
            self._log_fault(job.event, f"session {job.session} not summarized: {reason}")

    def _build_progress(self, job: SessionJob) -> Callable[[int, int], None]:
        reached = job.reached

        def report(done: int, _total: int) -> None:
            nonlocal reached
            if done > reached:
                reached = done
                self._queue.save(replace(job, starts=0, reached=done))
            if self.most_resident < inf and _read_resident_bytes() > self.most_resident:
                raise _MemoryLimitExceeded

        return report

    def _record_failure(self, job: SessionJob, error: Exception) -> None:
        failed = replace(job, failures=job.failures + 1)
        if _is_transient(job, error):
            self._queue.save(replace(job, starts=max(0, job.starts - 1)))
        elif failed.failures < MAX_FAILURES:
            self._queue.save(failed)
        else:
            # The text of an unexpected error may quote a conversation.
            told = str(error) if isinstance(error, EverkeptError) else type(error).__name__
            self._queue.reject(failed, told)
        self._log_fault(job.event, error)

    def _log_fault(self, event: str, cause: BaseException | str) -> None:
        workspace.record_fault(self.folder, event, cause)


def _is_transient(job: SessionJob, error: Exception) -> bool:
    """Return whether the error may pass, such as a running restore or another process's lock."""
    is_passing = isinstance(error, EverkeptError) and error.retry_possible
    return is_passing and read_clock() - job.at < TRANSIENT_MICROSECONDS


def _build_settings(job: SessionJob, settings: Settings) -> Settings:
    """Return the worker's settings with those of the hook that wrote the job, and without embeddings."""
    wishes = {name: value for name, value in job.wishes.items() if name in JOB_SETTINGS}
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


def _read_resident_bytes() -> float:
    """Return the largest amount of memory that the process has used, in bytes."""
    if sys.platform == "win32":
        return 0.0
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def _limit_process(seconds: float) -> None:
    """Limit the time, memory and priority of the process. It ends after `seconds` even if it hangs."""
    end_after(seconds)
    if sys.platform != "win32":  # on Windows the priority is set when the process starts
        import resource

        os.nice(NICENESS)
        # The limit applies to allocated memory, not to mapped files, on systems that support it.
        least = MAX_MEMORY_BYTES
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        for limit in (soft, hard):
            least = least if limit == resource.RLIM_INFINITY else min(least, limit)
        with suppress(OSError, ValueError):  # the system does not support this limit
            resource.setrlimit(resource.RLIMIT_DATA, (least, hard))
