"""Seeing to it that somebody works off what waits, without waiting for that."""

import sys
from pathlib import Path

from recollect.hooks.jobs import Jobs
from recollect.hooks.locks import IS_INHERITED, Lock
from recollect.hooks.places import hooks_folder
from recollect.settings import NO_FILE, Settings, environment_of_hook

WORKER = "--worker"  # what `recollect hook` is told in place of an event


def lock_path(settings: Settings) -> Path:
    """Whoever holds the lock on it is the one worker of this data folder."""
    return hooks_folder(settings) / "worker.lock"


def wake(settings: Settings) -> bool:
    """Starts the worker where something waits and none is at work; says whether it did.

    A worker that is at work looks again after it has let its lock go, so what was written before
    it was found locked does not wait for the next one.
    """
    if not Jobs(hooks_folder(settings)).names():
        return False
    lock = Lock(lock_path(settings))
    if not lock.take():
        return False
    try:
        # Born with the lock, so that of many who come at once one starts a process and no more.
        if not IS_INHERITED:
            lock.release()
        _start(settings, lock.descriptor if IS_INHERITED else None)
    finally:
        lock.leave()
    return True


def _start(settings: Settings, standard_input: int | None) -> None:
    # Imported here: most hooks find nothing that waits, and must not pay for it.
    import subprocess

    command = [sys.executable, "-P", "-m", "recollect", "hook", WORKER]
    command += ["--data-dir", str(settings.data_dir), "--config", str(settings.config or NO_FILE)]
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
