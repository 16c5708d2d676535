"""The list of projects against their files, and what the program notes for itself."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from recollect.app.care.backups import last_backup
from recollect.app.care.findings import DOCTOR_FIX, Finding, Patient
from recollect.app.care.place import is_there
from recollect.core.text import counted
from recollect.core.times import ago
from recollect.engines.sqlite import listing
from recollect.engines.sqlite.connections import connect, translated, unlink_logs
from recollect.engines.sqlite.copying import META, Kept, catalogue, project_files
from recollect.engines.sqlite.examining import in_use
from recollect.engines.sqlite.mending import (
    adopt,
    is_deleted,
    mend_generation,
    relocate,
    settle_moves,
)
from recollect.engines.sqlite.schema import LIBRARY
from recollect.engines.sqlite.store import generation_of
from recollect.errors import RecollectError

CHECK = "projects"
LEASE = "lease."
DAY = 86_400 * 1_000_000  # microseconds
OLD_BACKUP = 30 * DAY


def check_catalogue(patient: Patient) -> Iterator[Finding]:
    if not patient.is_on_disk or not is_there(patient.folder):
        if patient.is_on_disk and (files := project_files(patient.folder)):
            what = f"_meta.db is missing, and there are {counted(len(files), 'project')}."
            command = "any command lists them anew, such as recollect status"
            yield Finding(CHECK, "problem", what, command, lambda: _settled(patient.folder))
        return
    path = patient.folder / META
    with translated(path, LIBRARY), closing(in_use(path)) as meta:
        projects = catalogue(meta)
        off = [project.name for project in listing.projects(meta, None) if project.is_off]
        notes = listing.notes(meta, LEASE)
    wrong = [each for kept in projects for each in _of_project(patient.folder, kept)]
    wrong += [*_orphans(patient, projects), *_stale_leases(patient, notes)]
    if not any(finding.severity == "problem" for finding in wrong):
        yield Finding(CHECK, "ok", f"{counted(len(projects), 'project')}, each with its file.")
    yield from wrong
    yield _of_backup(patient)
    for name in off:
        what = f'Project "{name}" is switched off: nothing of it is stored or given out.'
        yield Finding(CHECK, "ok", what, f'recollect on --project "{name}"')


def _of_backup(patient: Patient) -> Finding:
    last = last_backup(patient.folder)
    if last is None:
        return Finding(CHECK, "advice", "There is no backup yet.", "recollect backup FILE")
    file, at = last
    when = ago(at, patient.clock())
    if not file.is_file():
        what = f"The last backup was written {when}, and is not at {file} any more."
        return Finding(CHECK, "advice", what, "recollect backup FILE")
    severity = "advice" if patient.clock() - at > OLD_BACKUP else "ok"
    command = "recollect backup FILE" if severity == "advice" else None
    return Finding(CHECK, severity, f"The last backup was written {when}: {file}.", command)


def _of_project(folder: Path, kept: Kept) -> Iterator[Finding]:
    if kept.transition is not None:
        what = f'Project "{kept.name}" was left in the middle of a move ({kept.transition}).'
        yield Finding(CHECK, "problem", what, DOCTOR_FIX, lambda: _settled(folder))
    elif not (folder / kept.path).exists():
        yield _missing(folder, kept)
    elif (found := _generation(folder / kept.path)) is not None:
        expected = -kept.generation if kept.status == "archived" else kept.generation
        if found != expected:
            what = f'Project "{kept.name}" cannot be written: its file and the list differ.'
            yield Finding(CHECK, "problem", what, DOCTOR_FIX, lambda: _renumbered(folder, kept))


def _missing(folder: Path, kept: Kept) -> Finding:
    elsewhere = [name for name in project_files(folder) if Path(name).stem == kept.id]
    if elsewhere:
        what = f'The file of project "{kept.name}" is in {elsewhere[0]}, not in {kept.path}.'
        return Finding(CHECK, "problem", what, DOCTOR_FIX, lambda: _relocated(folder, kept))
    what = f'The file of project "{kept.name}" is gone ({kept.path}).'
    command = (
        f'put {kept.path} back from a copy, or: recollect delete-project "{kept.name}"; then '
        f'recollect restore FILE --project "{kept.name}"'
    )
    return Finding(CHECK, "problem", what, command)


def _orphans(patient: Patient, projects: list[Kept]) -> Iterator[Finding]:
    known = {kept.id for kept in projects}
    for name in project_files(patient.folder):
        path = patient.folder / name
        if path.stem in known:
            continue
        generation = _generation(path)
        if generation is None:
            continue  # the check of databases says what is wrong with it
        if is_deleted(generation):
            what = f"{name} is what is left of a project that was deleted."
            yield Finding(CHECK, "advice", what, DOCTOR_FIX, partial(_removed, path))
        else:
            what = f"{name} holds a project that the list of projects does not have."
            yield Finding(CHECK, "problem", what, DOCTOR_FIX, lambda: _adopted(patient))


def _stale_leases(patient: Patient, notes: Mapping[str, str]) -> Iterator[Finding]:
    now = patient.clock()
    for key, value in notes.items():
        until = value.rpartition(" ")[2]
        if not until.isdecimal() or int(until) < now - DAY:
            what = f"A process that died long ago still has the turn for {key.removeprefix(LEASE)}."
            mend = partial(_ended, patient.folder / META, key)
            yield Finding(CHECK, "advice", what, DOCTOR_FIX, mend)


def _generation(path: Path) -> int | None:
    """None where the file cannot be read."""
    try:
        with translated(path), closing(in_use(path)) as db:
            return generation_of(db)
    except (RecollectError, TypeError):
        return None


def _settled(folder: Path) -> str:
    asyncio.run(settle_moves(folder))
    return "finished it, or took it back"


def _renumbered(folder: Path, kept: Kept) -> str:
    mend_generation(folder, kept)
    return f'project "{kept.name}" can be written again'


def _relocated(folder: Path, kept: Kept) -> str:
    asyncio.run(relocate(folder, kept))
    return f'the list now has project "{kept.name}" where its file is'


def _adopted(patient: Patient) -> str:
    asyncio.run(adopt(patient.folder, patient.clock))
    return "listed it under its own name, or the next free one"


def _removed(path: Path) -> str:
    path.unlink(missing_ok=True)
    unlink_logs(path)
    return f"removed {path.name}"


def _ended(meta: Path, key: str) -> str:
    with translated(meta, LIBRARY), closing(connect(meta, LIBRARY)) as db:
        db.execute("DELETE FROM notes WHERE key = ?", (key,))
    return "ended it"
