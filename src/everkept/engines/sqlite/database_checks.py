"""Checks of each database: integrity, version, word index and pending vectors, with their fixes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everkept.core.care import DOCTOR_FIX, Finding, Waiting
from everkept.core.sessions import is_home
from everkept.core.store import CountVectors
from everkept.core.text import clipped, counted
from everkept.core.times import Clock, parsed
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import Connection, connect, fold, transaction, translated
from everkept.engines.sqlite.library import SqliteLibrary, list_files
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.snapshot import (
    HISTORY,
    META,
    USER,
    Kept,
    catalogue,
    index_faults,
    looked_at,
    page_faults,
    project_files,
    schema_of,
    shown_project,
)
from everkept.engines.sqlite.store import DELETED_GENERATION, generation_of
from everkept.engines.sqlite.vectors import vector_counts
from everkept.engines.sqlite.word_index import index
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
            off = {project.id for project in project_list.projects(meta, None) if project.is_off}
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


ROWS = 1_000  # that one transaction indexes: nobody else waits long

_UNINDEXED = (
    "SELECT r.key FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
    "WHERE r.deleted_at IS NULL AND d.id IS NULL LIMIT ?"
)
_STALE = (
    "SELECT d.id FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
    "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL LIMIT ?"
)


def mend_word_index(path: Path, *, anew: bool = False) -> int:
    """Brings the word index in step with the records; says how many entries that took.

    `anew` begins with an empty one. What cuts it short leaves records that are not indexed, which
    the next time goes on with.
    """
    done = 0
    with translated(path), closing(connect(path, PROJECT)) as db:
        if anew:
            with transaction(db):
                db.execute("INSERT INTO words(words) VALUES ('delete-all')")
        for statement in (_STALE, _UNINDEXED):
            while True:
                with transaction(db):
                    keys = [int(key) for (key,) in db.execute(statement, (ROWS,))]
                    index(db, keys)
                done += len(keys)
                if len(keys) < ROWS:
                    break
    return done


def mend_generation(folder: Path, kept: Kept) -> None:
    """Lets the catalogue and a project's file say the same, so that it can be written again."""
    path = folder / kept.path
    with (
        translated(folder / META, LIBRARY),
        closing(connect(folder / META, LIBRARY)) as meta,
        transaction(meta),
        translated(path, title=kept.title),
        closing(connect(path, PROJECT, title=kept.title)) as db,
        transaction(db),
    ):
        generation = max(abs(generation_of(db)), kept.generation) + 1
        signed = -generation if kept.status == "archived" else generation
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (signed,))
        meta.execute("UPDATE projects SET generation = ? WHERE id = ?", (generation, kept.id))


def unfreeze(path: Path) -> None:
    """Lets a store that belongs to no project be written again."""
    with translated(path), closing(connect(path, PROJECT)) as db, transaction(db):
        generation = max(abs(generation_of(db)), 1) + 1
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (generation,))


async def adopt(folder: Path, clock: Clock) -> None:
    """Lists the files of projects that the catalogue does not name."""
    list_files(folder, folder / META, clock)
    await settle_moves(folder)


async def relocate(folder: Path, kept: Kept) -> None:
    """Looks where a project's file is, as after a move that was cut short."""
    with translated(folder / META, LIBRARY), closing(connect(folder / META, LIBRARY)) as meta:
        meta.execute("UPDATE projects SET transition = 'archiving' WHERE id = ?", (kept.id,))
    await settle_moves(folder)


async def settle_moves(folder: Path) -> None:
    """Finishes or takes back moves that a crash interrupted."""
    library = SqliteLibrary(folder)
    try:
        await library.projects()
    finally:
        await library.close()


def is_deleted(generation: int) -> bool:
    return generation == DELETED_GENERATION


def bring_all_back(folder: Path) -> str:
    return f"everkept restore FILE --replace{_known(folder)}"


def bring_project_back(folder: Path, name: str, *, is_off: bool) -> str:
    """For a project whose file is not in its place: the others stay as they are.

    What is an account's alone comes back with everything else, and never as a project.
    """
    if is_home(name):
        return bring_all_back(folder)
    steps = (
        f'everkept delete-project "{name}"; then everkept restore FILE --project "{name}"'
        f"{_known(folder)}"
    )
    return f'{steps}; then everkept off --project "{name}"' if is_off else steps


def _known(folder: Path) -> str:
    files = sorted(folder.parent.glob(f"{folder.name}-before-restore-*.zip"), reverse=True)[:1]
    last = last_backup(folder)
    if last is not None and last[0].is_file():
        files.insert(0, last[0])
    return f" (there is {' and '.join(str(file) for file in files)})" if files else ""


LAST = "backup.last"


def last_backup(folder: Path) -> tuple[Path, int] | None:
    """None where nobody knows."""
    meta = folder / META
    try:
        with looked_at(meta, LIBRARY) as db:
            moment, _, file = (project_list.note(db, LAST) or "").partition(" ")
        return (Path(file), parsed(moment)) if file else None
    except (EverkeptError, ValueError):
        return None


def note_backup(folder: Path, file: Path, at: str) -> None:
    """Where nothing can be noted, the backup is as good."""
    meta = folder / META
    with (
        suppress(EverkeptError),
        translated(meta, LIBRARY),
        closing(connect(meta, LIBRARY)) as db,
        transaction(db),
    ):
        db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (LAST, f"{at} {file}"))


_OF_OTHERS = (
    "SELECT count(*) FROM records WHERE embedded IS NOT NULL "
    "AND embedded NOT IN ('', ?) AND deleted_at IS NULL"
)


def texts_that_wait(folder: Path, model: str, kinds: Sequence[str]) -> list[Waiting]:
    known = owned_files(folder) or {}
    found: list[Waiting] = []
    for name in database_names(folder):
        if name == META or Path(name).parts[0] == "archive":
            continue
        try:
            with looked_at(folder / name) as db:
                if int(db.pragma("user_version")) < PROJECT.version:
                    continue  # the next start brings it up to date, and its texts wait then
                waiting = vector_counts(db, CountVectors(model, kinds))[1]
                others = int(db.execute(_OF_OTHERS, (model,)).get)
        except StorageFull:
            raise
        except EverkeptError:
            continue  # the check of databases says what is wrong with it
        title = known[name].title if name in known else name
        found.append(Waiting(title, waiting, others))
    return found
