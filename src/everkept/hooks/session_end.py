"""Handler of PreCompact and SessionEnd, which queues transcripts for another process to import."""

import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, cast

from everkept.core import disk
from everkept.core.locks import IS_INHERITED, ExpiringLock, FileLock
from everkept.core.text import format_count
from everkept.core.times import read_clock
from everkept.hooks import workspace
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.workspace import compute_mark, get_hooks_folder
from everkept.settings import (
    NO_FILE,
    Settings,
    build_engine_flags,
    build_hook_environment,
    get_schedule_path,
    read_client_environment,
)
from everkept.values import Value, as_dict, field, replace

JOBS_FOLDER = "jobs"  # inside the folder of the hooks
FAILED_FOLDER = "failed"  # inside the folder of the hooks, for rejected jobs

MAX_PENDING_JOBS = 1_000  # the oldest are dropped before another one is added
MAX_FAILED_JOBS = 50
FAILED_JOB_SECONDS = 30 * 86_400  # rejected jobs are kept this long for inspection
STALE_DRAFT_SECONDS = 3_600  # after this time an unfinished file counts as abandoned

_SUFFIX = ".json"
_SESSION_MARK_CHARACTERS = 12  # of the session's hash in a file name
_OPTIONAL_TEXT = (str, NoneType)
_FIELD_TYPES = {
    "event": str,
    "session": str,
    "at": int,
    "transcript": _OPTIONAL_TEXT,
    "source": _OPTIONAL_TEXT,
    "folder": _OPTIONAL_TEXT,
    "wishes": dict,
    "failures": int,
    "starts": int,
    "reached": int,
}


class SessionJob(Value):
    """Transcript to import and, at the end of a session, the session to summarize."""

    event: str
    session: str
    at: int  # microseconds since 1970
    transcript: str | None = None
    source: str | None = None  # program that wrote the transcript
    folder: str | None = None  # folder in which the assistant worked
    wishes: Mapping[str, Any] = field(default_factory=dict[str, Any])  # the hook's settings; the worker may have others
    failures: int = 0
    starts: int = 0  # since the last progress
    reached: int = 0  # progress in bytes
    name: str = ""  # of its file, once saved


class JobQueue:
    """Queue of job files. A hook writes each file once, and from then on only the worker uses it."""

    def __init__(self, folder: Path) -> None:
        """Use `folder`, the folder of the hooks inside the data folder. The first job creates it."""
        self._folder = folder / JOBS_FOLDER
        self._aside = folder / FAILED_FOLDER

    def add(self, job: SessionJob) -> int:
        """Add a job and return how many of the oldest jobs were dropped for it."""
        disk.make_folder(self._folder)
        oldest = self.list_names()[: -MAX_PENDING_JOBS + 1]
        for name in oldest:
            self._remove(name)
        session = compute_mark(job.session)[:_SESSION_MARK_CHARACTERS]
        self.save(replace(job, name=f"{job.at:017d}-{session}-{os.urandom(4).hex()}{_SUFFIX}"))
        return len(oldest)

    def list_names(self) -> list[str]:
        """Return the names of all pending jobs, oldest first."""
        return [path.name for path in _list_files(self._folder)]

    def read_job(self, name: str) -> SessionJob | None:
        """Read a job. Return None if it is gone. Reject a file that is not a job, and return None."""
        try:
            return _parse_job(name, (self._folder / name).read_bytes())
        except OSError:  # the file is gone, or is not a regular file
            return None
        except (ValueError, TypeError, RecursionError) as error:
            self._move_to_failed(name, {"reason": f"the job cannot be read: {error}"})
            return None

    def save(self, job: SessionJob) -> None:
        """Write the current state of the job to its file."""
        values = {name: value for name, value in as_dict(job).items() if name != "name"}
        _write_values(self._folder / job.name, values)

    def remove(self, job: SessionJob) -> None:
        self._remove(job.name)

    def reject(self, job: SessionJob, reason: str) -> None:
        """Move the job, with the reason, to the folder of jobs that are not tried again."""
        self._move_to_failed(job.name, {**as_dict(job), "reason": reason})

    def list_failed(self) -> list[Mapping[str, Any]]:
        """Return the rejected jobs, oldest first, each with its `reason`."""
        return [_read_failed(path) for path in _list_files(self._aside)]

    def retry_failed(self) -> tuple[int, int]:
        """Queue all rejected jobs again, and delete files that are not jobs. Return the number of each."""
        again = removed = 0
        for path in _list_files(self._aside):
            try:
                job = _parse_job("", path.read_bytes())
            except OSError:
                continue
            except (ValueError, TypeError, RecursionError):
                removed += 1
            else:
                self.add(replace(job, failures=0, starts=0, reached=0))
                again += 1
            path.unlink(missing_ok=True)
        return again, removed

    def list_unreadable(self) -> list[Path]:
        """Return the pending files that are not jobs."""
        return [path for path in _list_files(self._folder) if not _is_job(path)]

    def list_older_than(self, seconds: float) -> list[str]:
        """Return the names of jobs that have been pending for longer than this."""
        now = time.time()
        return [path.name for path in _list_files(self._folder) if _get_age(path, now) > seconds]

    def prune(self) -> None:
        """Delete old rejected jobs and abandoned drafts."""
        now = time.time()
        aside = _list_files(self._aside)
        for number, path in enumerate(aside):
            if number < len(aside) - MAX_FAILED_JOBS or _get_age(path, now) > FAILED_JOB_SECONDS:
                path.unlink(missing_ok=True)
        for folder in (self._folder, self._aside):
            for path in _list_files(folder, disk.DRAFT_SUFFIX):
                if _get_age(path, now) > STALE_DRAFT_SECONDS:
                    path.unlink(missing_ok=True)

    def _move_to_failed(self, name: str, values: Mapping[str, Any]) -> None:
        disk.make_folder(self._aside)
        _write_values(self._aside / name, values)
        self._remove(name)

    def _remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)


def _is_job(path: Path) -> bool:
    try:
        _parse_job("", path.read_bytes())
    except FileNotFoundError:  # it was a job, and is done
        return True
    except (OSError, ValueError, TypeError, RecursionError):
        return False
    return True


def _parse_job(name: str, data: bytes) -> SessionJob:
    value: Any = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("it is not an object")
    told = cast(dict[str, Any], value)
    given: dict[str, Any] = {key: told.get(key) for key in _FIELD_TYPES}
    for key, kinds in _FIELD_TYPES.items():
        if not isinstance(given[key], kinds):
            raise TypeError(f"`{key}` is {given[key]!r}")
    return SessionJob(**given, name=name)


def _read_failed(path: Path) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        value = None
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {"reason": "the job cannot be read"}


def _write_values(path: Path, values: Mapping[str, Any]) -> None:
    disk.replace(path, json.dumps(values).encode("ascii"), is_synced=False)


def _list_files(folder: Path, ending: str = _SUFFIX) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ending))
    except FileNotFoundError:
        return []


def _get_age(path: Path, now: float) -> float:
    """Return the age in seconds, or 0 if the file is gone."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


WORKER_FLAG = "--worker"  # argument of `everkept hook` that replaces the event
WORKER_START_SECONDS = 30.0  # time for a worker to take its lock
WORKER_STOP_SECONDS = 30.0  # time for a worker to end


def get_lock_path(settings: Settings) -> Path:
    """Return the path of the lock. The process that holds it is the one worker of this data folder."""
    return get_hooks_folder(settings) / "worker.lock"


def get_start_turn(settings: Settings) -> ExpiringLock:
    """Return the lock for starting the worker. It ends when the worker has its own lock."""
    return ExpiringLock(get_hooks_folder(settings) / "worker.starting", WORKER_START_SECONDS)


def get_stop_request(settings: Settings) -> ExpiringLock:
    """Return the request that the worker ends. Remaining jobs are left to the next worker."""
    return ExpiringLock(get_hooks_folder(settings) / "worker.stopping", WORKER_STOP_SECONDS)


def wake_worker(settings: Settings) -> bool:
    """Start the worker if a job or backup is pending and no worker runs. Return whether it was started.

    A running worker checks again after it releases its lock, so it also finds jobs written before that. Of several
    concurrent callers, one starts a process.
    """
    if settings.read_only or not (JobQueue(get_hooks_folder(settings)).list_names() or _is_backup_due(settings)):
        return False
    return _start_with_lock(settings) if IS_INHERITED else _start_in_turn(settings)


def _is_backup_due(settings: Settings) -> bool:
    if not get_schedule_path(settings).exists():
        return False
    from everkept.care.backup_schedule import is_backup_due  # most people have no schedule

    if not is_backup_due(settings, read_clock()):
        return False
    disk.make_folder(get_hooks_folder(settings))  # where the worker has its lock
    return True


def _start_with_lock(settings: Settings) -> bool:
    """Start a worker that inherits the lock, so that the lock is held at every moment."""
    lock = FileLock(get_lock_path(settings))
    if not lock.take():
        return False
    try:
        _start_process(settings, lock.descriptor)
    finally:
        lock.leave()
    return True


def _start_in_turn(settings: Settings) -> bool:
    """Start a worker that takes the lock itself. No other process takes it until then."""
    turn, lock = get_start_turn(settings), FileLock(get_lock_path(settings))
    if not turn.take():
        return False
    has_started = False
    try:
        if lock.take():
            lock.release()
            _start_process(settings, None)
            has_started = True
    finally:
        if not has_started:
            turn.end()
    return has_started


def _start_process(settings: Settings, standard_input: int | None) -> None:
    # Imported here because most hooks find no pending job and must not pay for the import.
    import subprocess

    # As `ISOLATED_MODULE` says, which takes too long to import here.
    command = [sys.executable, "-E", "-P", "-m", "everkept", "hook", WORKER_FLAG]
    command += ["--data-dir", str(settings.data_dir), "--config", str(settings.config or NO_FILE)]
    command += build_engine_flags(settings)
    # One thread for arithmetic, so that the worker does not slow the machine and its memory is bounded.
    environment = {**build_hook_environment(settings), "OPENBLAS_NUM_THREADS": "1"}
    inherited = subprocess.DEVNULL if standard_input is None else standard_input
    options: dict[str, Any] = {"start_new_session": True}
    if sys.platform == "win32":
        options = {
            "creationflags": subprocess.DETACHED_PROCESS
            | subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.CREATE_NO_WINDOW
            | subprocess.BELOW_NORMAL_PRIORITY_CLASS
        }
    subprocess.Popen(
        command,
        stdin=inherited,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=settings.data_dir,
        env=environment,
        close_fds=True,
        **options,
    )


SESSION_END = "SessionEnd"
# Settings that can differ between hooks, and that the worker must respect.
JOB_SETTINGS = ("project", "mask_secrets", "history_exclude", "consolidation_on_shutdown", "keep_candidates")


def handle_session_end(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Queue a job and return no answer, because an ending assistant does not wait."""
    settings = around.settings
    if settings.read_only:
        return None
    transcript = _make_absolute(event.transcript)
    source = None if transcript is None else _find_source(transcript, event, settings)
    is_end = event.name == SESSION_END and bool(event.session)
    if source is None and not is_end:
        return None
    folder = _make_absolute(event.folder)
    job = SessionJob(
        event=event.name,
        session=event.session,
        at=around.now,
        transcript=None if source is None else str(transcript),
        source=source,
        folder=None if folder is None else str(folder),
        wishes={name: getattr(settings, name) for name in JOB_SETTINGS},
    )
    dropped = JobQueue(get_hooks_folder(settings)).add(job)
    if dropped:
        said = f"{format_count(dropped, 'old job')} dropped: more than {MAX_PENDING_JOBS:,} are pending"
        workspace.record_fault(get_hooks_folder(settings), event.name, said)
    wake_worker(settings)
    return None


def _make_absolute(path: Path | None) -> Path | None:
    """Return an absolute path, because the worker has another working folder."""
    try:
        return None if path is None else path.expanduser().absolute()
    except (OSError, RuntimeError):  # the home folder is unknown, or the working folder is gone
        return path


def _find_source(transcript: Path, event: HookEvent, settings: Settings) -> str | None:
    """Return the program that wrote the transcript, or None if there is nothing to import."""
    from everkept.transcripts.source_programs import find_source, get_client_folders

    source = find_source(transcript, get_client_folders(read_client_environment(), Path.home(), sys.platform))
    kind = _detect_kind(transcript)
    if source is not None and kind == "a file":
        return source
    # A session without messages has no transcript, and ends like any other.
    if source is None or kind != "missing" or event.name != SESSION_END:
        reason = f"it is {kind}" if source else "no assistant keeps its transcripts there"
        said = f"transcript {transcript} skipped: {reason}"
        workspace.record_fault(get_hooks_folder(settings), event.name, said)
    return None


def _detect_kind(path: Path) -> str:
    try:
        return "a file" if stat.S_ISREG(path.stat().st_mode) else "not a file"
    except OSError:
        return "missing"
