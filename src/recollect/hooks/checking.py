"""What is wrong with the hooks' own files, for `recollect doctor`."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from recollect.app.care.findings import DOCTOR_FIX, Finding, Patient
from recollect.core.text import clipped, counted
from recollect.core.times import parsed
from recollect.hooks import jobs as job_files
from recollect.hooks.faults import recent
from recollect.hooks.jobs import Job, Jobs
from recollect.hooks.ledger import FOLDER, KEPT_DAYS, prune
from recollect.hooks.locks import Lock
from recollect.hooks.places import hooks_folder
from recollect.hooks.waking import lock_path, wake

CHECK = "hooks"
WEEK = 7 * 86_400 * 1_000_000  # microseconds
PATIENCE = 600.0  # seconds after which a job should have been worked off
MANY_LEDGERS = 50


def check_hooks(patient: Patient) -> Iterator[Finding]:
    settings = patient.settings
    if not settings.hooks:
        yield Finding(CHECK, "ok", "They are switched off (hooks).")
        return
    folder = hooks_folder(settings)
    if not patient.is_on_disk or not folder.is_dir():
        yield Finding(CHECK, "ok", "None has left anything yet.")
        return
    found = [*_faults(patient, folder), *_jobs(patient, folder), *_ledgers(patient, folder)]
    yield from found or [Finding(CHECK, "ok", "Nothing failed, and nothing waits.")]


def _faults(patient: Patient, folder: Path) -> Iterator[Finding]:
    lately = [fault for fault in recent(folder) if patient.clock() - _moment(fault.at) < WEEK]
    if lately:
        last = lately[0]
        what = (
            f"{counted(len(lately), 'fault')} in the last week; the newest at {last.at[:16]}, "
            f"{last.event}: {clipped(last.reason, 200)}"
        )
        yield Finding(CHECK, "advice", what, f"see {folder / 'faults.log'}")


def _moment(at: str) -> int:
    try:
        return parsed(at)
    except ValueError:
        return 0


def _jobs(patient: Patient, folder: Path) -> Iterator[Finding]:
    waiting = [name for name in Jobs(folder).names() if _age(folder, name) > PATIENCE]
    if waiting and not _is_at_work(patient):
        what = f"{counted(len(waiting), 'session')} wait to be taken in, and nobody is at it."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _woken(patient))
    failed = sorted((folder / job_files.ASIDE).glob("*.json"))
    if failed:
        reasons = [str(job.get("reason", "")) for job in Jobs(folder).set_aside()]
        why = f" ({clipped(reasons[-1], 120)})" if reasons else ""
        what = f"{counted(len(failed), 'session')} could not be taken in{why}."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _queued(patient, folder))


def _age(folder: Path, name: str) -> float:
    with suppress(OSError):
        return time.time() - (folder / job_files.FOLDER / name).stat().st_mtime
    return 0.0


def _is_at_work(patient: Patient) -> bool:
    path = lock_path(patient.settings)
    if not path.exists():
        return False
    lock = Lock(path)
    if not lock.take():
        return True
    lock.release()
    return False


def _woken(patient: Patient) -> str:
    return "started the one that takes them in" if wake(patient.settings) else "one is at it now"


def _queued(patient: Patient, folder: Path) -> str:
    """Whatever kept them from being taken in may be gone."""
    jobs = Jobs(folder)
    known = {field.name for field in fields(Job)}
    count = 0
    for path in sorted((folder / job_files.ASIDE).glob("*.json")):
        told: Any = json.loads(path.read_bytes())
        values = cast(dict[str, Any], told) if isinstance(told, dict) else {}
        kept = {key: value for key, value in values.items() if key in known}
        if {"event", "session", "at"} <= kept.keys():
            fresh = {"failures": 0, "starts": 0, "reached": 0, "name": ""}
            jobs.add(cast(Any, Job)(**{**kept, **fresh}))
            count += 1
        path.unlink()
    wake(patient.settings)
    return f"gave {counted(count, 'session')} another try"


def _ledgers(patient: Patient, folder: Path) -> Iterator[Finding]:
    before = patient.clock() / 1e6 - KEPT_DAYS * 86_400
    old = [path for path in (folder / FOLDER).glob("*.txt") if path.stat().st_mtime < before]
    if len(old) > MANY_LEDGERS:
        what = f"{counted(len(old), 'file')} of sessions of long ago are kept."
        mend = lambda: f"removed {prune(folder, patient.clock())}"  # noqa: E731
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, mend)
