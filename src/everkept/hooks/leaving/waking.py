"""Seeing to it that somebody works off what waits, without waiting for that."""

import sys
from pathlib import Path

from everkept.core.locks import IS_INHERITED, FileLock, Turn
from everkept.hooks.files.jobs import Jobs
from everkept.hooks.places import hooks_folder
from everkept.settings import NO_FILE, Settings, engine_flags, environment_of_hook

WORKER = "--worker"  # what `everkept hook` is told in place of an event
STARTING = 30.0  # seconds that a worker may take until it has its lock


def lock_path(settings: Settings) -> Path:
    """Whoever holds the lock on it is the one worker of this data folder."""
    return hooks_folder(settings) / "worker.lock"


def turn_to_start(settings: Settings) -> Turn:
    """Of whoever starts the worker; it ends when that has its lock."""
    return Turn(hooks_folder(settings) / "worker.starting", STARTING)


def wake(settings: Settings) -> bool:
    """Starts the worker where something waits and none is at work; says whether it did.

    A worker that is at work looks again after it has let its lock go, so what was written before
    it was found locked does not wait for the next one. Of many who come at once, one starts a
    process.
    """
    if settings.read_only or not Jobs(hooks_folder(settings)).names():
        return False
    return _start_with_lock(settings) if IS_INHERITED else _start_in_turn(settings)


def _start_with_lock(settings: Settings) -> bool:
    """The worker is born with the lock, so there is no moment in which nobody has it."""
    lock = FileLock(lock_path(settings))
    if not lock.take():
        return False
    try:
        _start(settings, lock.descriptor)
    finally:
        lock.leave()
    return True


def _start_in_turn(settings: Settings) -> bool:
    """The worker takes the lock itself; until then nobody else touches it."""
    turn, lock = turn_to_start(settings), FileLock(lock_path(settings))
    if not turn.take():
        return False
    has_started = False
    try:
        if lock.take():
            lock.release()
            _start(settings, None)
            has_started = True
    finally:
        if not has_started:
            turn.end()
    return has_started


def _start(settings: Settings, standard_input: int | None) -> None:
    # Imported here: most hooks find nothing that waits, and must not pay for it.
    import subprocess

    # Variables that are meant for the assistant's own Python are not for this one.
    command = [sys.executable, "-E", "-P", "-m", "everkept", "hook", WORKER]
    command += ["--data-dir", str(settings.data_dir), "--config", str(settings.config or NO_FILE)]
    command += engine_flags(settings)
    # One thread for arithmetic: the worker is to be felt by nobody, and its memory is bounded.
    environment = {**environment_of_hook(), "OPENBLAS_NUM_THREADS": "1"}
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
