"""A database that is no file of ours: whether it answers, and what waits for it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from everkept.app.care.findings import Finding, Patient
from everkept.app.emptiness import empty_library
from everkept.app.engines import Standby, left_elsewhere, make_library, standby_of
from everkept.core.accounts import is_home
from everkept.core.conditions import Condition
from everkept.core.text import counted
from everkept.errors import EverkeptError, StoreBusy
from everkept.settings import title_of

CHECK = "database"
JOURNAL = "everkept journal"
_BEFORE = "replica.before-*Z*"
_DAMAGED = "journal.damaged-*.db"  # what a journal is called that was moved away


def check_database(patient: Patient) -> Iterator[Finding]:
    for left in asyncio.run(left_elsewhere(patient.settings)):
        yield Finding(CHECK, "advice", left.sentence, left.hint)
    if patient.settings.engine == "sqlite":
        return
    yield _answering(patient)
    if standby := standby_of(patient.settings):
        yield from _waiting(standby)


def copies_kept(standby: Standby) -> list[Path]:
    """What a database had that came back with less, until somebody removes it."""
    return sorted(standby.folder.glob(_BEFORE))


def _answering(patient: Patient) -> Finding:
    try:
        if empty_library(patient.settings):  # a look makes nothing
            return Finding(CHECK, "ok", "Nothing is stored yet.")
        condition, projects = asyncio.run(_asked(patient))
    except StoreBusy as error:  # as it is while a server runs
        return Finding(CHECK, "advice", error.message, error.hint)
    except EverkeptError as error:
        is_new = error.facts.get("others") == []  # there is nothing yet that could be meant
        return Finding(CHECK, "advice" if is_new else "problem", error.message, error.hint)
    where = f" at {condition.place}" if condition.place else ""
    version = f" {condition.version}" if condition.version else ""
    title = title_of(condition.engine)
    what = f"{title}{version}{where} answers, with {counted(projects, 'project')}."
    return Finding(CHECK, "ok", what)


async def _asked(patient: Patient) -> tuple[Condition, int]:
    library = make_library(patient.settings, patient.clock, standing_by=False, founds=False)
    try:
        projects = [each for each in await library.projects() if not is_home(each.name)]
        return library.condition, len(projects)
    finally:
        await library.close()


def _waiting(standby: Standby) -> Iterator[Finding]:
    waiting, aside = asyncio.run(standby.counts())
    if waiting:
        verb = "waits" if waiting == 1 else "wait"
        what = f"{counted(waiting, 'write')} {verb} on this machine for a server to bring over."
        yield Finding(CHECK, "advice", what, JOURNAL)
    if aside:
        verb = "was" if aside == 1 else "were"
        what = f"{counted(aside, 'write')} could not be made there, and {verb} set aside."
        yield Finding(CHECK, "problem", what, JOURNAL)
    for path in copies_kept(standby):
        what = f"The database came back with less than it had; what it had is in {path}."
        yield Finding(CHECK, "problem", what, f"everkept migrate --from sqlite:{path} --to PLACE")
    for path in sorted(standby.folder.glob(_DAMAGED)):
        what = f"A journal was damaged and moved to {path}: what waited in it was not written."
        yield Finding(CHECK, "problem", what, "remove the file once you need it no more")
