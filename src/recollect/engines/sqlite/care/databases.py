"""Every database: whether it is sound, of this version, and its word index in step."""

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from recollect.core.care import DOCTOR_FIX, Finding
from recollect.core.text import clipped, counted
from recollect.engines.sqlite.care.backup_note import last_backup
from recollect.engines.sqlite.care.copying import HISTORY, META, USER, catalogue, project_files
from recollect.engines.sqlite.care.mending import mend_word_index, unfreeze
from recollect.engines.sqlite.connections import fold, translated
from recollect.engines.sqlite.examining import (
    check_kind,
    in_use,
    index_faults,
    page_faults,
    schema_of,
)
from recollect.engines.sqlite.schema import LIBRARY, Schema
from recollect.engines.sqlite.sql import Connection
from recollect.engines.sqlite.store import generation_of
from recollect.errors import RecollectError, StoreDamaged, StoreTooNew

LARGE_LOG = 64_000_000  # bytes; SQLite folds it in at 4 MB where no reader keeps it from that
FOLD_PATIENCE = 5.0  # seconds
_OF_WORD_INDEX = "fts5"  # in what SQLite says of a damaged word index


def check_databases(folder: Path, check: str, *, full: bool) -> Iterator[Finding]:
    """Without `full`, indexes are not compared with their tables."""
    names = database_names(folder)
    if not names:
        yield Finding(check, "ok", "There is no database yet.")
        return
    known, look = titles(folder), _Look(folder, check, full)
    found = [each for name in names for each in look.at(name, known.get(name, name))]
    if any(finding.severity == "problem" for finding in found):
        yield from found
        return
    depth = "checked in full" if full else "looked through; --full compares indexes too"
    yield Finding(check, "ok", f"{counted(len(names), 'database')}: {depth}.")
    yield from found


def database_names(folder: Path) -> list[str]:
    owned = [name for name in (META, USER, HISTORY) if (folder / name).exists()]
    return [*owned, *project_files(folder)]


def titles(folder: Path) -> dict[str, str]:
    """What people know the files by, as far as that can be told."""
    try:
        with translated(folder / META, LIBRARY), closing(in_use(folder / META)) as meta:
            return {kept.path: f'{kept.path} (project "{kept.name}")' for kept in catalogue(meta)}
    except RecollectError:
        return {}


class _Look:
    """A look at one database after the other."""

    def __init__(self, folder: Path, check: str, full: bool) -> None:
        self._folder = folder
        self._check = check
        self._full = full

    def at(self, name: str, title: str) -> Iterator[Finding]:
        path, schema = self._folder / name, schema_of(name)
        try:
            with translated(path, schema, title=title), closing(in_use(path)) as db:
                check_kind(db, path, schema, title)
                yield from self._of_version(db, schema, title)
                db.execute("BEGIN")
                yield from self._of_content(db, path, schema, title)
        except StoreTooNew as error:
            yield self._problem(error.message, "update Recollect")
        except StoreDamaged as error:
            yield self._damaged(error.message)
        except RecollectError as error:
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
        self, db: Connection, path: Path, schema: Schema, title: str
    ) -> Iterator[Finding]:
        faults = page_faults(db, full=self._full)
        if schema is LIBRARY:
            if faults:
                yield self._damaged(f"{title} is damaged: {clipped(faults[0], 200)}.")
            return
        if path.name in (USER, HISTORY) and generation_of(db) <= 0:
            what = f"{title} is closed to writers: a restore was cut short."
            yield self._problem(what, DOCTOR_FIX, lambda: _opened(path))
        of_words = [fault for fault in faults if _OF_WORD_INDEX in fault.lower()]
        if len(faults) > len(of_words):
            other = next(fault for fault in faults if fault not in of_words)
            yield self._damaged(f"{title} is damaged: {clipped(other, 200)}.")
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

    def _damaged(self, what: str) -> Finding:
        """Never mended here: what is left of it may be all that there is."""
        folder = self._folder
        files = sorted(folder.parent.glob(f"{folder.name}-before-restore-*.zip"), reverse=True)[:1]
        last = last_backup(folder)
        if last is not None and last[0].is_file():
            files.insert(0, last[0])
        command = "recollect restore FILE --replace"
        if files:
            command += f"; there is {' and '.join(str(file) for file in files)}"
        return self._problem(what, command)

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
