"""Every database: whether it is sound, of this version, and its word index in step."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everkept.core.care import DOCTOR_FIX, Finding
from everkept.core.text import clipped, counted
from everkept.engines.sqlite import listing
from everkept.engines.sqlite.care.advice import bring_all_back, bring_project_back
from everkept.engines.sqlite.care.copying import (
    HISTORY,
    META,
    USER,
    catalogue,
    project_files,
    shown_project,
)
from everkept.engines.sqlite.care.looking import looked_at
from everkept.engines.sqlite.care.mending import mend_word_index, unfreeze
from everkept.engines.sqlite.connections import fold
from everkept.engines.sqlite.examining import index_faults, page_faults, schema_of
from everkept.engines.sqlite.schema import LIBRARY, Schema
from everkept.engines.sqlite.sql import Connection
from everkept.engines.sqlite.store import generation_of
from everkept.errors import EverkeptError, StorageFull, StoreDamaged, StoreTooNew

LARGE_LOG = 64_000_000  # bytes; SQLite folds it in at 4 MB where no reader keeps it from that
FOLD_PATIENCE = 5.0  # seconds
_OF_WORD_INDEX = "fts5"  # in what SQLite says of a damaged word index


def check_databases(folder: Path, check: str, *, full: bool) -> Iterator[Finding]:
    """Without `full`, indexes are not compared with their tables."""
    names = database_names(folder)
    if not names:
        yield Finding(check, "ok", "There is no database yet.")
        return
    look = _Look(folder, check, full)
    found = [each for name in names for each in look.at(name)]
    if any(finding.severity == "problem" for finding in found):
        yield from found
        return
    depth = "checked in full" if full else "looked through; --full compares indexes too"
    yield Finding(check, "ok", f"{counted(len(names), 'database')}: {depth}.")
    yield from found


def database_names(folder: Path) -> list[str]:
    owned = [name for name in (META, USER, HISTORY) if (folder / name).exists()]
    return [*owned, *project_files(folder)]


class Owned(NamedTuple):
    """The file of a project."""

    path: str
    project: str
    is_off: bool

    @property
    def title(self) -> str:
        """What people know it by."""
        return f"{self.path} ({shown_project(self.project)})"


def owned_files(folder: Path) -> dict[str, Owned] | None:
    """By their paths; None where nobody knows which file is whose."""
    try:
        with looked_at(folder / META, LIBRARY) as meta:
            off = {project.id for project in listing.projects(meta, None) if project.is_off}
            return {
                kept.path: Owned(kept.path, kept.name, kept.id in off) for kept in catalogue(meta)
            }
    except EverkeptError:
        return None


class _Look:
    """A look at one database after the other."""

    def __init__(self, folder: Path, check: str, full: bool) -> None:
        self._folder = folder
        self._check = check
        self._full = full
        self._owned = owned_files(folder)

    def at(self, name: str) -> Iterator[Finding]:
        path, schema = self._folder / name, schema_of(name)
        owned = (self._owned or {}).get(name)
        title = owned.title if owned else name
        try:
            with looked_at(path, schema, title=title) as db:
                yield from self._of_version(db, schema, title)
                db.execute("BEGIN")
                yield from self._of_content(db, name, schema, title)
        except StoreTooNew as error:
            yield self._problem(error.message, "update Everkept")
        except StoreDamaged as error:
            yield self._damaged(name, error.message)
        except StorageFull:
            raise  # it is the same with all of them
        except EverkeptError as error:
            yield self._problem(error.message, error.hint)
        yield from self._of_log(path, schema, title)

    def _of_version(self, db: Connection, schema: Schema, title: str) -> Iterator[Finding]:
        version = int(db.pragma("user_version"))
        if version < schema.version:
            what = (
                f"{title} has the form {version} of an older version; the next start brings it to "
                f"{schema.version}."
            )
            yield Finding(self._check, "ok", what)

    def _of_content(
        self, db: Connection, name: str, schema: Schema, title: str
    ) -> Iterator[Finding]:
        path = self._folder / name
        faults = page_faults(db, full=self._full)
        if schema is LIBRARY:
            if faults:
                yield self._damaged(name, f"{title} is damaged: {clipped(faults[0], 200)}.")
            return
        if path.name in (USER, HISTORY) and generation_of(db) <= 0:
            what = f"{title} is closed to writers: a restore was cut short."
            yield self._problem(what, DOCTOR_FIX, lambda: _opened(path))
        of_words = [fault for fault in faults if _OF_WORD_INDEX in fault.lower()]
        if len(faults) > len(of_words):
            other = next(fault for fault in faults if fault not in of_words)
            yield self._damaged(name, f"{title} is damaged: {clipped(other, 200)}.")
        elif of_words:
            what = f"The word index of {title} is damaged: searches may find too little."
            yield self._problem(what, DOCTOR_FIX, lambda: _indexed(path, anew=True))
        else:
            yield from self._of_index(db, path, title)

    def _of_index(self, db: Connection, path: Path, title: str) -> Iterator[Finding]:
        unindexed, stale = index_faults(db)
        if unindexed or stale:
            what = (
                f"The word index of {title} is out of step: it lacks "
                f"{counted(unindexed, 'record')}, and {counted(stale, 'entry', 'entries')} of it "
                "stand for none."
            )
            yield self._problem(what, DOCTOR_FIX, lambda: _indexed(path, anew=False))

    def _of_log(self, path: Path, schema: Schema, title: str) -> Iterator[Finding]:
        log = path.with_name(path.name + "-wal")
        size = log.stat().st_size if log.exists() else 0
        if size > LARGE_LOG:
            what = f"The write-ahead log of {title} has grown to {size / 1_000_000:,.0f} MB."
            mend = partial(_folded, path, schema, title)
            yield Finding(self._check, "advice", what, DOCTOR_FIX, mend)

    def _damaged(self, name: str, what: str) -> Finding:
        """Never mended here: what is left of it may be all that there is."""
        path = self._folder / name
        owned = (self._owned or {}).get(name)
        is_strayed = "/" in name and (self._owned is not None or path.stat().st_size == 0)
        if owned:
            back = bring_project_back(self._folder, owned.project, is_off=owned.is_off)
            return self._problem(what, f"move {path} out of the data folder; {back}")
        if is_strayed:
            return self._problem(f"{what} It belongs to no project.", f"move {path} elsewhere")
        return self._problem(what, bring_all_back(self._folder))

    def _problem(
        self, what: str, command: str | None, mend: Callable[[], str] | None = None
    ) -> Finding:
        return Finding(self._check, "problem", what, command, mend)


def _opened(path: Path) -> str:
    unfreeze(path)
    return f"{path.name} can be written again"


def _indexed(path: Path, *, anew: bool) -> str:
    return f"indexed {counted(mend_word_index(path, anew=anew), 'entry', 'entries')} anew"


def _folded(path: Path, schema: Schema, title: str) -> str:
    if fold(path, schema, FOLD_PATIENCE, title=title):
        return "folded it into the database"
    return "a reader needs it still; it goes when that one is closed"
