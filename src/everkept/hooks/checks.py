"""What is wrong with the hooks' own files, for `everkept doctor`."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from everkept.care.findings import DOCTOR_FIX, Finding, Patient
from everkept.core.locks import FileLock
from everkept.core.text import clipped, counted
from everkept.core.times import parsed
from everkept.hooks.files import FOLDER, KEPT_DAYS, prune, recent
from everkept.hooks.worker_queue import Jobs, lock_path, wake
from everkept.hooks.workspace import hooks_folder

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
    jobs = Jobs(folder)
    strange = jobs.unreadable()
    if strange:
        shown = ", ".join(path.name for path in strange[:3]) + (", …" if len(strange) > 3 else "")
        what = f"{counted(len(strange), 'file')} in {strange[0].parent} can be no job: {shown}."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _removed(strange))
    unread = {path.name for path in strange}
    waiting = [name for name in jobs.waiting_for(PATIENCE) if name not in unread]
    if waiting and not _is_at_work(patient):
        what = f"{counted(len(waiting), 'session')} wait to be taken in, and nobody is at it."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _woken(patient))
    failed = jobs.set_aside()
    if failed:
        why = clipped(str(failed[-1].get("reason", "")), 120)
        what = f"{counted(len(failed), 'session')} could not be taken in ({why})."
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, lambda: _tried_again(patient, jobs))


def _is_at_work(patient: Patient) -> bool:
    path = lock_path(patient.settings)
    if not path.exists():
        return False
    lock = FileLock(path)
    if not lock.take():
        return True
    lock.release()
    return False


def _woken(patient: Patient) -> str:
    return "started the one that takes them in" if wake(patient.settings) else "one is at it now"


def _removed(files: Sequence[Path]) -> str:
    for path in files:
        path.unlink(missing_ok=True)
    return f"removed {counted(len(files), 'file')}"


def _tried_again(patient: Patient, jobs: Jobs) -> str:
    """Whatever kept them from being taken in may be gone."""
    again, removed = jobs.try_again()
    wake(patient.settings)
    did = [f"gave {counted(again, 'session')} another try"] if again else []
    did += [f"removed {counted(removed, 'file')} that no job can be read from"] if removed else []
    return " and ".join(did) or "nothing was left to do"


def _ledgers(patient: Patient, folder: Path) -> Iterator[Finding]:
    before = patient.clock() / 1e6 - KEPT_DAYS * 86_400
    old = [path for path in (folder / FOLDER).glob("*.txt") if path.stat().st_mtime < before]
    if len(old) > MANY_LEDGERS:
        what = f"{counted(len(old), 'file')} of sessions of long ago are kept."
        mend = lambda: f"removed {prune(folder, patient.clock())}"  # noqa: E731
        yield Finding(CHECK, "advice", what, DOCTOR_FIX, mend)
