"""The list of projects against their files, and what the program notes for itself."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from everkept.core.care import DOCTOR_FIX, Finding
from everkept.core.homes import is_home
from everkept.core.text import counted
from everkept.core.times import Clock, ago
from everkept.engines.sqlite import listing
from everkept.engines.sqlite.care.advice import bring_all_back, bring_project_back
from everkept.engines.sqlite.care.backup_note import last_backup
from everkept.engines.sqlite.care.copying import META, Kept, catalogue, project_files
from everkept.engines.sqlite.care.looking import looked_at
from everkept.engines.sqlite.care.mending import (
    adopt,
    is_deleted,
    mend_generation,
    relocate,
    settle_moves,
)
from everkept.engines.sqlite.connections import connect, translated, unlink_logs
from everkept.engines.sqlite.schema import LIBRARY
from everkept.engines.sqlite.store import generation_of
from everkept.errors import EverkeptError

LEASE = "lease."
DAY = 86_400 * 1_000_000  # microseconds
OLD_BACKUP = 30 * DAY


def check_catalogue(folder: Path, check: str, clock: Clock) -> Iterator[Finding]:
    return _Look(folder, check, clock).findings()


class _Look:
    """At the list of projects."""

    def __init__(self, folder: Path, check: str, clock: Clock) -> None:
        self._folder = folder
        self._check = check
        self._clock = clock
        self._off: list[str] = []  # the names of those that are switched off

    def findings(self) -> Iterator[Finding]:
        path = self._folder / META
        if not path.exists():
            if files := project_files(self._folder):
                yield self._unlisted(len(files))
            return
        with looked_at(path, LIBRARY) as meta:
            projects = catalogue(meta)
            every = [each for each in listing.projects(meta, None) if not is_home(each.name)]
            self._off = [each.name for each in every if each.is_off]
            notes = listing.notes(meta, LEASE)
        wrong = [each for kept in projects for each in self._of_project(kept)]
        wrong += [*self._orphans(projects), *self._stale_leases(notes)]
        if not any(finding.severity == "problem" for finding in wrong):
            yield Finding(self._check, "ok", f"{_counted(projects)}, each with its file.")
        yield from wrong
        yield self._of_backup()
        for name in self._off:
            what = f'Project "{name}" is switched off: nothing of it is stored or given out.'
            yield Finding(self._check, "ok", what, f'everkept on --project "{name}"')

    def _unlisted(self, files: int) -> Finding:
        what = (
            f"_meta.db is missing, and there {_are(files)} {counted(files, 'project file')}. Lost "
            "with it: which projects are switched off, tokens, and which folder belongs to which "
            "project. The next command lists the projects anew, and all of them are on then."
        )
        command = (
            "put _meta.db back before anything else, such as the one that is in the zip of a "
            f"backup; or {bring_all_back(self._folder)}"
        )
        return self._problem(what, command, lambda: _listed_anew(self._folder))

    def _of_backup(self) -> Finding:
        last, command = last_backup(self._folder), "everkept backup FILE"
        if last is None:
            return Finding(self._check, "advice", "There is no backup yet.", command)
        file, at = last
        when = ago(at, self._clock())
        if not file.is_file():
            what = f"The last backup was written {when}, and is not at {file} any more."
            return Finding(self._check, "advice", what, command)
        what = f"The last backup was written {when}: {file}."
        if self._clock() - at > OLD_BACKUP:
            return Finding(self._check, "advice", what, command)
        return Finding(self._check, "ok", what)

    def _of_project(self, kept: Kept) -> Iterator[Finding]:
        folder = self._folder
        if kept.transition is not None:
            what = f"{_begun(kept.shown)} was left in the middle of a move ({kept.transition})."
            yield self._problem(what, DOCTOR_FIX, lambda: _settled(folder))
        elif not (folder / kept.path).exists():
            yield self._missing(kept)
        elif (found := _generation(folder / kept.path)) is not None:
            expected = -kept.generation if kept.status == "archived" else kept.generation
            if found != expected:
                what = f"{_begun(kept.shown)} cannot be written: its file and the list differ."
                yield self._problem(what, DOCTOR_FIX, lambda: _renumbered(folder, kept))

    def _missing(self, kept: Kept) -> Finding:
        folder = self._folder
        elsewhere = [name for name in project_files(folder) if Path(name).stem == kept.id]
        if elsewhere:
            what = f"{kept.title} is in {elsewhere[0]}, not in {kept.path}."
            return self._problem(what, DOCTOR_FIX, lambda: _relocated(folder, kept))
        what = f"{kept.title} is gone ({kept.path})."
        back = bring_project_back(folder, kept.name, is_off=kept.name in self._off)
        return self._problem(what, f"put {folder / kept.path} back from a copy, or: {back}")

    def _orphans(self, projects: list[Kept]) -> Iterator[Finding]:
        known = {kept.id for kept in projects}
        for name in project_files(self._folder):
            path = self._folder / name
            if path.stem in known:
                continue
            generation = _generation(path)
            if generation is None:
                continue  # the check of databases says what is wrong with it
            if is_deleted(generation):
                what = f"{name} is what is left of a project that was deleted."
                yield Finding(self._check, "advice", what, DOCTOR_FIX, partial(_removed, path))
            else:
                what = f"{name} holds a project that the list of projects does not have."
                yield self._problem(what, DOCTOR_FIX, lambda: _adopted(self._folder, self._clock))

    def _stale_leases(self, notes: Mapping[str, str]) -> Iterator[Finding]:
        now = self._clock()
        for key, value in notes.items():
            until = value.rpartition(" ")[2]
            if not until.isdecimal() or int(until) < now - DAY:
                whose = key.removeprefix(LEASE)
                what = f"A process that died long ago still has the turn for {whose}."
                mend = partial(_ended, self._folder / META, key)
                yield Finding(self._check, "advice", what, DOCTOR_FIX, mend)

    def _problem(self, what: str, command: str, mend: Callable[[], str] | None = None) -> Finding:
        return Finding(self._check, "problem", what, command, mend)


def _generation(path: Path) -> int | None:
    """None where the file cannot be read."""
    try:
        with looked_at(path) as db:
            return generation_of(db)
    except (EverkeptError, TypeError):
        return None


def _counted(projects: list[Kept]) -> str:
    """What is accounts' alone as one number."""
    homes = sum(is_home(kept.name) for kept in projects)
    told = counted(len(projects) - homes, "project")
    return f"{told} and {counted(homes, 'store')} of accounts alone" if homes else told


def _begun(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed_anew(folder: Path) -> str:
    asyncio.run(settle_moves(folder))
    return "listed the projects anew; all of them are on, and tokens are to be made anew"


def _settled(folder: Path) -> str:
    asyncio.run(settle_moves(folder))
    return "finished it, or took it back"


def _renumbered(folder: Path, kept: Kept) -> str:
    mend_generation(folder, kept)
    return f"{kept.shown} can be written again"


def _relocated(folder: Path, kept: Kept) -> str:
    asyncio.run(relocate(folder, kept))
    return f"the list now has {kept.shown} where its file is"


def _adopted(folder: Path, clock: Clock) -> str:
    asyncio.run(adopt(folder, clock))
    return "listed it under its own name, or the next free one"


def _removed(path: Path) -> str:
    path.unlink(missing_ok=True)
    unlink_logs(path)
    return f"removed {path.name}"


def _ended(meta: Path, key: str) -> str:
    with translated(meta, LIBRARY), closing(connect(meta, LIBRARY)) as db:
        db.execute("DELETE FROM notes WHERE key = ?", (key,))
    return "ended it"
