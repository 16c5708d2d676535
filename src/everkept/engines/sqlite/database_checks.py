"""Checks of each database, with fixes: integrity, version, word index and pending embeddings."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from everkept.core.care_results import FIX_COMMAND, DoctorFinding, PendingEmbeddings
from everkept.core.sessions import is_private_name
from everkept.core.store import CountVectors
from everkept.core.text import clip_text, format_count
from everkept.core.times import Clock, parse_time
from everkept.engines.sqlite import project_list
from everkept.engines.sqlite.connection import (
    Connection,
    connect,
    fold,
    measure_log,
    open_transaction,
    translate_errors,
)
from everkept.engines.sqlite.library import SqliteLibrary, add_unlisted_files
from everkept.engines.sqlite.schema import LIBRARY, PROJECT, Schema
from everkept.engines.sqlite.snapshot import (
    HISTORY,
    META,
    USER,
    ProjectFile,
    SchemaDifference,
    count_index_faults,
    find_page_faults,
    find_row_faults,
    find_schema_differences,
    find_value_faults,
    format_project,
    get_schema,
    list_databases,
    list_project_files,
    open_checked,
)
from everkept.engines.sqlite.store import DELETED_GENERATION, read_generation
from everkept.engines.sqlite.vectors import count_vectors
from everkept.engines.sqlite.word_index import index_records
from everkept.errors import EverkeptError, StorageFull, StoreDamaged, StoreTooNew

LARGE_LOG_BYTES = 64_000_000  # without a blocking reader, SQLite folds the log at 4 MB
FOLD_SECONDS = 5.0
UNCHECKED = "Only records and links have checksums; a changed letter elsewhere is not seen."
_WORD_INDEX_MODULE = "fts5"  # occurs in SQLite's messages about a damaged word index


def check_databases(folder: Path, check: str, *, full: bool) -> Iterator[DoctorFinding]:
    """Check all databases. Without `full`, do not compare indexes with their tables."""
    names = list_databases(folder)
    if not names:
        yield DoctorFinding(check, "ok", "No database exists yet.")
        return
    look = _DatabaseCheck(folder, check, full)
    found = [each for name in names for each in look.run(name)]
    if any(finding.severity == "problem" for finding in found):
        yield from found
        return
    depth = f"in full. {UNCHECKED}" if full else "quickly. To compare indexes too, pass --full."
    yield DoctorFinding(check, "ok", f"Checked {format_count(len(names), 'database')} {depth}")
    yield from found


def find_damage(folder: Path) -> StoreDamaged | None:
    """Return the first damage of a data folder, which explains an error that nothing else explains."""
    for finding in check_databases(folder, "", full=True):
        if finding.severity == "problem":
            return StoreDamaged(finding.what, hint="To see what can be done, run `everkept doctor --full`.")
    return None


class OwnedFile(NamedTuple):
    path: str
    project: str
    is_off: bool

    @property
    def title(self) -> str:
        """The path and the project's name."""
        return f"{self.path} ({format_project(self.project)})"


def find_owned_files(folder: Path) -> dict[str, OwnedFile] | None:
    """Map the path of each project's file to its owner. Return None if the catalog cannot be read."""
    try:
        with open_checked(folder / META, LIBRARY) as meta:
            off = {project.id for project in project_list.list_projects(meta, None) if project.is_off}
            return {kept.path: OwnedFile(kept.path, kept.name, kept.id in off) for kept in list_project_files(meta)}
    except (EverkeptError, ValueError, TypeError):  # damage, which the check of the catalog reports
        return None


class _DatabaseCheck:
    """Check of one database after the other."""

    def __init__(self, folder: Path, check: str, full: bool) -> None:
        self._folder = folder
        self._check = check
        self._full = full
        self._owned = find_owned_files(folder)

    def run(self, name: str) -> Iterator[DoctorFinding]:
        path, schema = self._folder / name, get_schema(name)
        owned = (self._owned or {}).get(name)
        title = owned.title if owned else name
        try:
            with open_checked(path, schema, title=title) as db:
                yield from self._check_version(db, schema, title)
                if differences := find_schema_differences(db, schema):
                    yield self._report_differences(name, schema, title, differences)
                else:
                    db.execute("BEGIN")
                    yield from self._check_content(db, name, schema, title)
        except StoreTooNew as error:
            yield self._report_problem(error.message, "update Everkept")
        except StoreDamaged as error:
            yield self._report_damage(name, error.message)
        except StorageFull:
            raise  # the disk is full for all of them
        except EverkeptError as error:
            yield self._report_problem(error.message, error.hint)
        yield from self._check_log(path, schema, title)

    def _check_version(self, db: Connection, schema: Schema, title: str) -> Iterator[DoctorFinding]:
        version = int(db.pragma("user_version"))
        if version < schema.version:
            what = f"{title} has the older schema {version}. The next start upgrades it to {schema.version}."
            yield DoctorFinding(self._check, "ok", what)

    def _report_differences(
        self, name: str, schema: Schema, title: str, found: Sequence[SchemaDifference]
    ) -> DoctorFinding:
        what = f"{title} is not as Everkept creates it: {', '.join(each.description for each in found[:3])}."
        if all(each.is_removable for each in found):
            return self._report_problem(what, FIX_COMMAND, lambda: drop_parts(self._folder / name, schema))
        return self._report_damage(name, what)

    def _check_content(self, db: Connection, name: str, schema: Schema, title: str) -> Iterator[DoctorFinding]:
        path = self._folder / name
        faults = find_page_faults(db, full=self._full)
        if schema is LIBRARY:
            if faults := faults or find_value_faults(db):
                yield self._report_damage(name, f"{title} is damaged: {clip_text(faults[0], 200)}.")
            return
        if path.name in (USER, HISTORY) and read_generation(db) <= 0:
            what = f"{title} cannot be written because a restore was interrupted."
            yield self._report_problem(what, FIX_COMMAND, lambda: unfreeze(path))
        of_words = [fault for fault in faults if _WORD_INDEX_MODULE in fault.lower()]
        if len(faults) > len(of_words):
            other = next(fault for fault in faults if fault not in of_words)
            yield self._report_damage(name, f"{title} is damaged: {clip_text(other, 200)}.")
        elif of_words:
            what = f"The word index of {title} is damaged. Searches may miss results."
            yield self._report_problem(what, FIX_COMMAND, lambda: _fix_index(path, anew=True))
        else:
            yield from self._check_index(db, path, title)
        if rows := [*find_row_faults(db), *find_value_faults(db)]:
            yield self._report_rows(name, f"{title} has wrong rows: {', '.join(rows)}.")

    def _check_index(self, db: Connection, path: Path, title: str) -> Iterator[DoctorFinding]:
        unindexed, stale = count_index_faults(db)
        if unindexed or stale:
            missing, extra = format_count(unindexed, "record"), format_count(stale, "stale entry", "stale entries")
            what = f"The word index of {title} is out of date: it lacks {missing} and has {extra}."
            yield self._report_problem(what, FIX_COMMAND, lambda: _fix_index(path, anew=False))

    def _check_log(self, path: Path, schema: Schema, title: str) -> Iterator[DoctorFinding]:
        size = measure_log(path)
        if size > LARGE_LOG_BYTES:
            what = f"The write-ahead log of {title} has grown to {size / 1_000_000:,.0f} MB."
            yield DoctorFinding(self._check, "advice", what, FIX_COMMAND, partial(_fix_log, path, schema, title))

    def _report_damage(self, name: str, what: str) -> DoctorFinding:
        """Report damage without a fix: the file may be all that is left of the data."""
        path = self._folder / name
        owned = (self._owned or {}).get(name)
        is_strayed = "/" in name and (self._owned is not None or path.stat().st_size == 0)
        if owned:
            back = format_restore_project(self._folder, owned.project, is_off=owned.is_off)
            return self._report_problem(what, f"move {path} out of the data folder; then {back}")
        if is_strayed:
            return self._report_problem(f"{what} It belongs to no project.", f"move {path} to another folder")
        return self._report_problem(what, format_restore_all(self._folder))

    def _report_rows(self, name: str, what: str) -> DoctorFinding:
        """Report rows that another program or the disk changed. Everything else in the file is whole."""
        owned = (self._owned or {}).get(name)
        if owned is None or is_private_name(owned.project):
            return self._report_problem(what, format_restore_all(self._folder))
        copy = f'everkept restore FILE --project "{owned.project}"{_format_known_backups(self._folder)}'
        return self._report_problem(what, f"compare them with a backup, which this adds as a project: {copy}")

    def _report_problem(self, what: str, command: str | None, mend: Callable[[], str] | None = None) -> DoctorFinding:
        return DoctorFinding(self._check, "problem", what, command, mend)


def _fix_index(path: Path, *, anew: bool) -> str:
    return f"indexed {format_count(fix_word_index(path, anew=anew), 'entry', 'entries')} again"


def _fix_log(path: Path, schema: Schema, title: str) -> str:
    if fold(path, schema, FOLD_SECONDS, title=title):
        return "folded it into the database"
    return "nothing changed: another process still reads the log, and SQLite folds it when that process ends"


BATCH_ROWS = 1_000  # indexed per transaction, so that other writers do not wait long

_SELECT_UNINDEXED = (
    "SELECT r.key FROM records r LEFT JOIN words_docsize d ON d.id = r.key "
    "WHERE r.deleted_at IS NULL AND d.id IS NULL LIMIT ?"
)
_SELECT_STALE = (
    "SELECT d.id FROM words_docsize d LEFT JOIN records r ON r.key = d.id "
    "WHERE r.key IS NULL OR r.deleted_at IS NOT NULL LIMIT ?"
)


def fix_word_index(path: Path, *, anew: bool = False) -> int:
    """Bring the word index up to date with the records. Return the number of entries written.

    Pass `anew` to begin with an empty index. If interrupted, the next call continues with the missing records.
    """
    done = 0
    with translate_errors(path), closing(connect(path, PROJECT)) as db:
        if anew:
            with open_transaction(db):
                db.execute("INSERT INTO words(words) VALUES ('delete-all')")
        for statement in (_SELECT_STALE, _SELECT_UNINDEXED):
            while True:
                with open_transaction(db):
                    keys = [int(key) for (key,) in db.execute(statement, (BATCH_ROWS,))]
                    index_records(db, keys)
                done += len(keys)
                if len(keys) < BATCH_ROWS:
                    break
    return done


def drop_parts(path: Path, schema: Schema) -> str:
    """Drop the indexes, triggers and views that Everkept did not create. No data is in them."""
    with translate_errors(path, schema), closing(connect(path, schema)) as db, open_transaction(db):
        extra = [each for each in find_schema_differences(db, schema) if each.is_removable]
        for each in extra:
            quoted = each.name.replace('"', '""')
            db.execute(f'DROP {each.kind} "{quoted}"')
    return f"dropped {', '.join(each.description.rpartition(' was ')[0] for each in extra)}"


def fix_generation(folder: Path, kept: ProjectFile) -> str:
    """Give the catalog and a project's file the same generation. Return what was done, as all fixes do."""
    path = folder / kept.path
    with (
        translate_errors(folder / META, LIBRARY),
        closing(connect(folder / META, LIBRARY)) as meta,
        open_transaction(meta),
        translate_errors(path, title=kept.title),
        closing(connect(path, PROJECT, title=kept.title)) as db,
        open_transaction(db),
    ):
        generation = max(abs(read_generation(db)), kept.generation) + 1
        signed = -generation if kept.status == "archived" else generation
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (signed,))
        meta.execute("UPDATE projects SET generation = ? WHERE id = ?", (generation, kept.id))
    return f"{kept.label} can be written again"


def unfreeze(path: Path) -> str:
    """Make a store that belongs to no project writable again."""
    with translate_errors(path), closing(connect(path, PROJECT)) as db, open_transaction(db):
        db.execute("UPDATE meta SET value = ? WHERE key = 'generation'", (max(abs(read_generation(db)), 1) + 1,))
    return f"{path.name} can be written again"


async def add_orphans(folder: Path, clock: Clock) -> str:
    """Add project files that are missing in the catalog."""
    add_unlisted_files(folder, folder / META, clock)
    await settle_moves(folder)
    return "added it to the catalog under its own name, or the next free one"


async def fix_location(folder: Path, kept: ProjectFile) -> str:
    """Correct the catalog's location of a project's file, as after an interrupted move."""
    with translate_errors(folder / META, LIBRARY), closing(connect(folder / META, LIBRARY)) as meta:
        meta.execute("UPDATE projects SET transition = 'archiving' WHERE id = ?", (kept.id,))
    await settle_moves(folder)
    return f"corrected the location of {kept.label} in the catalog"


async def settle_moves(folder: Path) -> None:
    """Finish or reverse moves that a crash interrupted."""
    library = SqliteLibrary(folder)
    try:
        await library.list_projects()
    finally:
        await library.close()


def is_deleted(generation: int) -> bool:
    return generation == DELETED_GENERATION


def format_restore_all(folder: Path) -> str:
    return f"everkept restore FILE --replace{_format_known_backups(folder)}"


def format_restore_project(folder: Path, name: str, *, is_off: bool) -> str:
    """Format the commands that restore a project whose file is missing, without changing other projects.

    The private data of an account is never restored as a project, only with the whole backup.
    """
    if is_private_name(name):
        return format_restore_all(folder)
    steps = (
        f'everkept delete-project "{name}"; then everkept restore FILE --project "{name}"'
        f"{_format_known_backups(folder)}"
    )
    return f'{steps}; then everkept off --project "{name}"' if is_off else steps


def _format_known_backups(folder: Path) -> str:
    files = sorted(folder.parent.glob(f"{folder.name}-before-restore-*.zip"), reverse=True)[:1]
    last = find_last_backup(folder)
    if last is not None and last[0].is_file():
        files.insert(0, last[0])
    return f" (found {' and '.join(str(file) for file in files)})" if files else ""


LAST_BACKUP_KEY = "backup.last"


def find_last_backup(folder: Path) -> tuple[Path, int] | None:
    """Return the file and time of the last backup, or None if they are unknown."""
    try:
        with open_checked(folder / META, LIBRARY) as db:
            moment, _, file = (project_list.find_note(db, LAST_BACKUP_KEY) or "").partition(" ")
        return (Path(file), parse_time(moment)) if file else None
    except (EverkeptError, ValueError):
        return None


def note_backup(folder: Path, file: Path, at: str) -> None:
    """Note the backup in the catalog. Ignore errors: the backup is valid without the note."""
    meta = folder / META
    with (
        suppress(EverkeptError),
        translate_errors(meta, LIBRARY),
        closing(connect(meta, LIBRARY)) as db,
        open_transaction(db),
    ):
        db.execute("INSERT OR REPLACE INTO notes VALUES (?,?)", (LAST_BACKUP_KEY, f"{at} {file}"))


_COUNT_OTHER_MODELS = (
    "SELECT count(*) FROM records WHERE embedded IS NOT NULL AND embedded NOT IN ('', ?) AND deleted_at IS NULL"
)


def count_pending_embeddings(folder: Path, model: str, kinds: Sequence[str]) -> list[PendingEmbeddings]:
    known = find_owned_files(folder) or {}
    found: list[PendingEmbeddings] = []
    for name in list_databases(folder):
        if name == META or Path(name).parts[0] == "archive":
            continue
        try:
            with open_checked(folder / name) as db:
                if int(db.pragma("user_version")) < PROJECT.version:
                    continue  # the next start upgrades it, and its texts are pending then
                stored, waiting = count_vectors(db, CountVectors(model, kinds))
                others = int(db.execute(_COUNT_OTHER_MODELS, (model,)).get)
        except StorageFull:
            raise
        except EverkeptError:
            continue  # the check of databases reports the error
        found.append(PendingEmbeddings(known[name].title if name in known else name, waiting, others, stored))
    return found
