"""PreCompact and SessionEnd: what was said waits in a queue, and another process takes it in."""

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
from everkept.hooks import workspace
from everkept.hooks.events import HookAnswer, HookContext, HookEvent
from everkept.hooks.workspace import compute_mark, get_hooks_folder
from everkept.settings import NO_FILE, Settings, build_engine_flags, build_hook_environment, read_client_environment
from everkept.values import Value, as_dict, field, replace

JOBS_FOLDER = "jobs"  # inside the folder of the hooks
FAILED_FOLDER = "failed"  # likewise: what was tried in vain

MAX_PENDING_JOBS = 1_000  # files; before more, the oldest go
MAX_FAILED_JOBS = 50
FAILED_JOB_SECONDS = 30 * 86_400  # seconds that one is kept for somebody to look at
STALE_DRAFT_SECONDS = 3_600  # seconds after which a file that was never finished is nobody's any more

_SUFFIX = ".json"
_SESSION_MARK_CHARACTERS = 12  # characters that tell sessions apart in the name of a file
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
    """One transcript to take in, and at its end a session to sum up.

    `wishes` are settings of the hook that wrote it: whoever works it off may have others.
    """

    event: str
    session: str
    at: int  # microseconds since 1970
    transcript: str | None = None
    source: str | None = None  # the program that wrote the transcript
    folder: str | None = None  # where the assistant worked
    wishes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failures: int = 0
    starts: int = 0  # since it last came further
    reached: int = 0  # how far that was, in bytes
    name: str = ""  # of its file, once it has one


class JobQueue:
    """A file is written once by a hook and is the worker's from then on, so no two ever meet."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the hooks' own, inside the data folder; it is made for the first job."""
        self._folder = folder / JOBS_FOLDER
        self._aside = folder / FAILED_FOLDER

    def add(self, job: SessionJob) -> int:
        """Says how many of the oldest had to go for it."""
        disk.make_folder(self._folder)
        oldest = self.list_names()[: -MAX_PENDING_JOBS + 1]
        for name in oldest:
            self._remove(name)
        session = compute_mark(job.session)[:_SESSION_MARK_CHARACTERS]
        self.save(replace(job, name=f"{job.at:017d}-{session}-{os.urandom(4).hex()}{_SUFFIX}"))
        return len(oldest)

    def list_names(self) -> list[str]:
        """Of all that waits, the oldest first."""
        return [path.name for path in _list_files(self._folder)]

    def read_job(self, name: str) -> SessionJob | None:
        """None for what is no job; it is put aside."""
        try:
            return _parse_job(name, (self._folder / name).read_bytes())
        except OSError:  # it is gone, or no file
            return None
        except (ValueError, TypeError) as error:
            self._move_to_failed(name, {"reason": f"it cannot be read: {error}"})
            return None

    def save(self, job: SessionJob) -> None:
        """Writes it as it is now."""
        values = {name: value for name, value in as_dict(job).items() if name != "name"}
        _write_values(self._folder / job.name, values)

    def remove(self, job: SessionJob) -> None:
        self._remove(job.name)

    def reject(self, job: SessionJob, reason: str) -> None:
        """Puts it where nobody tries it again, with the reason."""
        self._move_to_failed(job.name, {**as_dict(job), "reason": reason})

    def list_failed(self) -> list[Mapping[str, Any]]:
        """What was given up, the oldest first, each with its `reason`."""
        return [_read_failed(path) for path in _list_files(self._aside)]

    def retry_failed(self) -> tuple[int, int]:
        """Lets all that was given up wait once more, and removes what is no job.

        Says how many of each there were.
        """
        again = removed = 0
        for path in _list_files(self._aside):
            try:
                job = _parse_job("", path.read_bytes())
            except OSError:
                continue
            except (ValueError, TypeError):
                removed += 1
            else:
                self.add(replace(job, failures=0, starts=0, reached=0))
                again += 1
            path.unlink(missing_ok=True)
        return again, removed

    def list_unreadable(self) -> list[Path]:
        """What waits with the jobs and is none."""
        return [path for path in _list_files(self._folder) if not _is_job(path)]

    def list_older_than(self, seconds: float) -> list[str]:
        """The names of those that have waited longer than that."""
        now = time.time()
        return [path.name for path in _list_files(self._folder) if _get_age(path, now) > seconds]

    def prune(self) -> None:
        """Removes what nobody will come back for."""
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
    except FileNotFoundError:  # it was one, and is worked off
        return True
    except (OSError, ValueError, TypeError):
        return False
    return True


def _parse_job(name: str, data: bytes) -> SessionJob:
    value: Any = json.loads(data)
    if not isinstance(value, dict):
        raise TypeError("it is no object")
    told = cast(dict[str, Any], value)
    given: dict[str, Any] = {key: told.get(key) for key in _FIELD_TYPES}
    for key, kinds in _FIELD_TYPES.items():
        if not isinstance(given[key], kinds):
            raise TypeError(f"`{key}` is {given[key]!r}")
    return SessionJob(**given, name=name)


def _read_failed(path: Path) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(path.read_bytes())
    except (OSError, ValueError):
        value = None
    unknown = {"reason": "it cannot be read"}
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else unknown


def _write_values(path: Path, values: Mapping[str, Any]) -> None:
    disk.replace(path, json.dumps(values).encode("ascii"), is_synced=False)


def _list_files(folder: Path, ending: str = _SUFFIX) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.endswith(ending))
    except FileNotFoundError:
        return []


def _get_age(path: Path, now: float) -> float:
    """In seconds; none where it went away meanwhile."""
    try:
        return now - path.stat().st_mtime
    except OSError:
        return 0.0


WORKER_FLAG = "--worker"  # what `everkept hook` is told in place of an event
WORKER_START_SECONDS = 30.0  # seconds that a worker may take until it has its lock


def get_lock_path(settings: Settings) -> Path:
    """Whoever holds the lock on it is the one worker of this data folder."""
    return get_hooks_folder(settings) / "worker.lock"


def get_start_turn(settings: Settings) -> ExpiringLock:
    """Of whoever starts the worker; it ends when that has its lock."""
    return ExpiringLock(get_hooks_folder(settings) / "worker.starting", WORKER_START_SECONDS)


def wake_worker(settings: Settings) -> bool:
    """Starts the worker where something waits and none is at work; says whether it did.

    A worker that is at work looks again after it has let its lock go, so what was written before
    it was found locked does not wait for the next one. Of many who come at once, one starts a
    process.
    """
    if settings.read_only or not JobQueue(get_hooks_folder(settings)).list_names():
        return False
    return _start_with_lock(settings) if IS_INHERITED else _start_in_turn(settings)


def _start_with_lock(settings: Settings) -> bool:
    """The worker is born with the lock, so there is no moment in which nobody has it."""
    lock = FileLock(get_lock_path(settings))
    if not lock.take():
        return False
    try:
        _start_process(settings, lock.descriptor)
    finally:
        lock.leave()
    return True


def _start_in_turn(settings: Settings) -> bool:
    """The worker takes the lock itself; until then nobody else touches it."""
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
    # Imported here: most hooks find nothing that waits, and must not pay for it.
    import subprocess

    # Variables that are meant for the assistant's own Python are not for this one.
    command = [sys.executable, "-E", "-P", "-m", "everkept", "hook", WORKER_FLAG]
    command += ["--data-dir", str(settings.data_dir), "--config", str(settings.config or NO_FILE)]
    command += build_engine_flags(settings)
    # One thread for arithmetic: the worker is to be felt by nobody, and its memory is bounded.
    environment = {**build_hook_environment(), "OPENBLAS_NUM_THREADS": "1"}
    inherited = subprocess.DEVNULL if standard_input is None else standard_input
    if sys.platform == "win32":
        subprocess.Popen(
            command,
            stdin=inherited,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=settings.data_dir,
            env=environment,
            close_fds=True,
            creationflags=subprocess.DETACHED_PROCESS
            | subprocess.CREATE_NEW_PROCESS_GROUP
            | subprocess.CREATE_NO_WINDOW
            | subprocess.BELOW_NORMAL_PRIORITY_CLASS,
        )
    else:
        subprocess.Popen(
            command,
            stdin=inherited,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=settings.data_dir,
            env=environment,
            close_fds=True,
            start_new_session=True,
        )


SESSION_END = "SessionEnd"
# What another hook may have set otherwise, and whoever works the job off has to respect.
JOB_SETTINGS = ("project", "mask_secrets", "history_exclude", "consolidation_on_shutdown")


def handle_session_end(event: HookEvent, around: HookContext) -> HookAnswer | None:
    """Says nothing: an assistant that ends waits for nobody."""
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
        said = f"{dropped} of the oldest jobs are dropped: more than {MAX_PENDING_JOBS} wait"
        workspace.record_fault(get_hooks_folder(settings), event.name, said)
    wake_worker(settings)
    return None


def _make_absolute(path: Path | None) -> Path | None:
    """The worker has another working folder."""
    try:
        return None if path is None else path.expanduser().absolute()
    except (OSError, RuntimeError):  # nobody knows that home folder, or ours is gone
        return path


def _find_source(transcript: Path, event: HookEvent, settings: Settings) -> str | None:
    """The program whose transcript it is; None where there is nothing to take in."""
    from everkept.transcripts.source_programs import find_source, get_client_folders

    source = find_source(transcript, get_client_folders(read_client_environment(), Path.home(), sys.platform))
    kind = _detect_kind(transcript)
    if source is not None and kind == "file":
        return source
    # A session in which nothing was said has no transcript, and ends like any other.
    if source is None or kind != "nothing" or event.name != SESSION_END:
        reason = f"{kind} is there" if source else "no assistant keeps its transcripts there"
        said = f"{transcript} is not taken in: {reason}"
        workspace.record_fault(get_hooks_folder(settings), event.name, said)
    return None


def _detect_kind(path: Path) -> str:
    try:
        return "file" if stat.S_ISREG(path.stat().st_mode) else "no file"
    except OSError:
        return "nothing"
