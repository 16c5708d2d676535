"""File of a backup: a zip with a copy of each database and a manifest.

The manifest has the size, the checksum and the row count of each copy, so that anyone can verify the file. A damaged
database is stored unchanged, under `damaged/`.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

from everkept import __version__
from everkept.core.care_results import DatabaseFacts, OwningProject, Progress
from everkept.core.disk import make_folder, open_private, translate_os_errors, write_new_file
from everkept.core.projects import Status
from everkept.core.sessions import is_private_name
from everkept.core.text import format_count
from everkept.core.times import Clock, format_iso
from everkept.core.zip_files import open_zip
from everkept.engines.sqlite import snapshot
from everkept.engines.sqlite.connection import translate_errors
from everkept.engines.sqlite.snapshot import (
    META,
    FolderSnapshot,
    open_at_rest,
    open_scratch,
    open_snapshot,
    read_verified_facts,
)
from everkept.errors import InvalidInput, StorageFull, StoreDamaged, StoreTooNew
from everkept.values import Value, as_dict, field

BACKUP_FORMAT = 1
MANIFEST_FILE = "manifest.json"
DAMAGED_FOLDER = "damaged"  # folder of unreadable databases
CHUNK_BYTES = 1 << 20
COMPRESSION_LEVEL = 1  # 220 MB in 2 seconds; the next level takes half as long again for 4 %
MAX_MANIFEST_BYTES = 16 << 20
COPIES_PREFIX = ".everkept-copies-"  # prefix of the folder for copies beside a backup
_NAME_PATTERN = re.compile(r"(_meta|user|history)\.db|(projects|archive)/[^/\\:\0]+\.db")


def is_database_name(name: str) -> bool:
    """Return whether a data folder can have a database of this name."""
    return bool(_NAME_PATTERN.fullmatch(name)) and ".." not in name


def read_owners(catalogue: Path) -> Mapping[str, OwningProject]:
    """Return the owners in a copy of the catalog, by database name. Raise StoreDamaged for an invalid path."""
    with translate_errors(catalogue), closing(open_at_rest(catalogue)) as db:
        projects = snapshot.list_project_files(db)
    for kept in projects:
        # Later moves build the path from the id.
        if Path(kept.path).stem != kept.id or not is_database_name(kept.path):
            raise StoreDamaged("The list of projects names a file outside the data folder.", path=str(catalogue))
    return snapshot.get_owners(projects)


class BackupDatabase(Value):
    """One database of a backup. `project` is the name of its project."""

    name: str
    project: str | None
    status: Status | None
    schema_version: int
    size: int
    sha256: str
    newest_change: int
    rows: Mapping[str, int]


class ArchiveManifest(Value):
    version: str
    created_at: str
    databases: Sequence[BackupDatabase]
    damaged: Sequence[str] = field(default=())
    format: int = BACKUP_FORMAT

    @property
    def size(self) -> int:
        return sum(copied.size for copied in self.databases)

    @property
    def projects(self) -> list[BackupDatabase]:
        return [copied for copied in self.databases if copied.project is not None]

    @property
    def project_names(self) -> list[str]:
        """Return the names of projects, without private stores of accounts."""
        names = [copied.project for copied in self.databases if copied.project is not None]
        return [name for name in names if not is_private_name(name)]


def format_moment(at: int) -> str:
    """Format a time for the name of a file, with milliseconds, because two backups may follow within a second."""
    return format_iso(at)[:23].translate(str.maketrans({":": None, ".": "-", "T": "-"}))


def add_copy(archive: zipfile.ZipFile, name: str, copy: Path, owner: OwningProject | None) -> BackupDatabase:
    """Add a copy, and return its entry for the manifest."""
    facts = read_verified_facts(copy, name)
    with copy.open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
        checksum = _copy_stream(source, target)
    return BackupDatabase(
        name=name,
        project=owner.name if owner else None,
        status=owner.status if owner else None,
        schema_version=facts.schema_version,
        size=copy.stat().st_size,
        sha256=checksum,
        newest_change=facts.newest_change,
        rows=facts.rows,
    )


def add_damaged(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    """Add the bytes of a file that is not readable as a database, for a person who can repair it."""
    entry = f"{DAMAGED_FOLDER}/{name}"
    with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
        shutil.copyfileobj(source, target, CHUNK_BYTES)


def add_manifest(archive: zipfile.ZipFile, manifest: ArchiveManifest) -> None:
    archive.writestr(MANIFEST_FILE, json.dumps(as_dict(manifest), ensure_ascii=False, indent=2))


@contextmanager
def open_backup(file: Path) -> Generator[tuple[zipfile.ZipFile, ArchiveManifest], None, None]:
    """Open a backup to read. Raise InvalidInput for another file, and StoreDamaged for a broken one."""
    if not file.is_file():
        what = f"{file} is a folder." if file.is_dir() else f"Cannot find the file {file}."
        raise InvalidInput(what, hint="Specify the file of a backup.", value=str(file))
    with _detect_damage(file), file.open("rb") as source, open_zip(source) as archive:
        yield archive, _read_manifest(archive, file)


@contextmanager
def _detect_damage(file: Path) -> Generator[None, None, None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        with file.open("rb") as source:
            begins_as_zip = source.read(4) == b"PK\x03\x04"
        raise (_build_damaged_error(file, str(error)) if begins_as_zip else _build_invalid_error(file)) from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # of an offset before the file's beginning
            raise
        raise _build_damaged_error(file, "its list of files is wrong") from error


def _read_manifest(archive: zipfile.ZipFile, file: Path) -> ArchiveManifest:
    try:
        if archive.getinfo(MANIFEST_FILE).file_size > MAX_MANIFEST_BYTES:
            raise _build_invalid_error(file)
        told: dict[str, Any] = json.loads(archive.read(MANIFEST_FILE))
        if int(told["format"]) > BACKUP_FORMAT:
            raise StoreTooNew(
                f"{file} is a backup of Everkept {told.get('version')} in an unknown format.",
                hint="Update Everkept.",
                path=str(file),
            )
        databases = [BackupDatabase(**copied) for copied in told["databases"]]
        manifest = ArchiveManifest(told["version"], told["created_at"], databases, told["damaged"])
        _check_names(archive, manifest, file)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _build_invalid_error(file) from error
    return manifest


def _check_names(archive: zipfile.ZipFile, manifest: ArchiveManifest, file: Path) -> None:
    """Accept only names of a data folder, so that nothing is written anywhere but there."""
    names = [copied.name for copied in manifest.databases]
    if (
        not all(map(is_database_name, (*names, *manifest.damaged)))
        or len({*names}) != len(names)
        or META not in (*names, *manifest.damaged)
    ):
        raise _build_invalid_error(file)
    if lacking := {*names} - {*archive.namelist()}:
        raise _build_damaged_error(file, f"{min(lacking)} is missing")


def extract_databases(archive: zipfile.ZipFile, file: Path, manifest: ArchiveManifest, folder: Path) -> None:
    """Extract every database of a backup into the folder. Verify all of them first."""
    free = shutil.disk_usage(folder).free
    if free < manifest.size:
        raise StorageFull(
            f"{file} needs {format_count(manifest.size, 'byte')} of disk space in {folder}, and {free:,} are free.",
            hint="Free some disk space, then try again.",
            path=str(folder),
            needed=manifest.size,
            free=free,
        )
    for copied in manifest.databases:
        extract_database(archive, file, copied, folder / copied.name)
    catalogue = folder / META
    if catalogue.exists():
        _check_listed(file, manifest, read_owners(catalogue))


def extract_database(archive: zipfile.ZipFile, file: Path, copied: BackupDatabase, target: Path) -> None:
    with translate_os_errors(target):
        make_folder(target.parent)
        with (
            _detect_damage(file),
            archive.open(copied.name) as source,
            open(target, "wb", opener=open_private) as written,
        ):
            checksum = _copy_stream(source, written, at_most=copied.size)
    facts = DatabaseFacts(copied.schema_version, copied.newest_change, copied.rows)
    if checksum != copied.sha256 or read_verified_facts(target, copied.name) != facts:
        raise _build_damaged_error(file, f"{copied.name} differs from the stored copy")


def verify_backup(file: Path, manifest: ArchiveManifest) -> None:
    """Read the written backup again before anyone relies on it."""
    with open_backup(file) as (archive, found):
        if found != manifest:
            raise _build_damaged_error(file, "its manifest differs from what was written")
        for copied in manifest.databases:
            with archive.open(copied.name) as source, Path(os.devnull).open("wb") as nowhere:
                if _copy_stream(source, nowhere) != copied.sha256:
                    raise _build_damaged_error(file, f"{copied.name} differs from the stored copy")


def _copy_stream(source: IO[bytes], target: IO[bytes], at_most: int | None = None) -> str:
    """Return the checksum of the copied bytes, which must not exceed the expected size."""
    checksum = hashlib.sha256()
    passed = 0
    while chunk := source.read(CHUNK_BYTES):
        passed += len(chunk)
        if at_most is not None and passed > at_most:
            return "too long"
        checksum.update(chunk)
        target.write(chunk)
    return checksum.hexdigest()


def _check_listed(file: Path, manifest: ArchiveManifest, owners: Mapping[str, OwningProject]) -> None:
    """Check that the catalog names exactly the files in the backup."""
    listed = {(path, *owner) for path, owner in owners.items()}
    told = {(copied.name, copied.project, copied.status) for copied in manifest.projects}
    beyond = {copied.name for copied in manifest.databases if copied.project is None}
    lost = {kept for kept in listed - told if kept[0] not in manifest.damaged}
    if lost or told - listed or any("/" in name for name in beyond):
        raise _build_damaged_error(file, "its list of projects does not match its files")


def _build_invalid_error(file: Path) -> InvalidInput:
    return InvalidInput(
        f"{file} is not a backup of Everkept.", hint="To create one, run `everkept backup FILE`.", value=str(file)
    )


def _build_damaged_error(file: Path, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"The backup {file} is damaged: {reason}.", hint="Use another one. Nothing was changed.", path=str(file)
    )


class WrittenBackup(Value):
    """Backup that was written and verified."""

    file: Path
    size: int
    manifest: ArchiveManifest


def write_backup(
    folder: Path,
    file: Path,
    clock: Clock,
    report: Progress,
    *,
    force: bool = False,
    with_damaged: bool = False,
    is_locked: bool = False,
) -> WrittenBackup:
    """Write a backup to a checked target, for a caller that has locked the data folder."""
    with (
        # Next to the target, so that a rename puts it in its place.
        open_scratch(file.parent, COPIES_PREFIX) as scratch,
        translate_os_errors(scratch),
        open_snapshot(folder, lenient=with_damaged, is_locked=is_locked) as moment,
    ):
        draft = scratch / "backup.zip"
        manifest = _BackupWriter(folder, scratch, moment, report, with_damaged=with_damaged).write(draft, clock())
        verify_backup(draft, manifest)
        _publish(draft, file, force=force)
    return WrittenBackup(file, file.stat().st_size, manifest)


class _BackupWriter:
    """One backup while it is written."""

    def __init__(
        self, folder: Path, scratch: Path, moment: FolderSnapshot, report: Progress, *, with_damaged: bool
    ) -> None:
        self._folder = folder
        self._scratch = scratch
        self._moment = moment
        self._report = report
        self._with_damaged = with_damaged
        self._damaged: list[str] = []
        self._done = 0

    def write(self, draft: Path, at: int) -> ArchiveManifest:
        with _open_archive(draft) as target:
            copies = [copy for name in self._moment.databases if (copy := self._add(target, name))]
            for name in self._moment.damaged:
                self._damaged.append(name)
                for each in (name, f"{name}-wal"):
                    path = self._folder / each
                    if path.is_file():
                        add_damaged(target, each, path)
            manifest = ArchiveManifest(__version__, format_iso(at), copies, self._damaged)
            add_manifest(target, manifest)
        return manifest

    def _add(self, target: zipfile.ZipFile, name: str) -> BackupDatabase | None:
        copy = self._scratch / "copy.db"
        self._moment.copy(name, copy, self._build_progress())
        self._done += 1
        try:
            owner = self._moment.owners.get(name)
            return add_copy(target, name, copy, owner)
        except StoreDamaged as error:
            if not self._with_damaged:
                raise _build_refused_error(error) from error
            # The copy, because closing the file would release our locks on it.
            add_damaged(target, name, copy)
            self._damaged.append(name)
            return None
        finally:
            copy.unlink()

    def _build_progress(self) -> Progress:
        """Weigh each database equally, and its pages within it."""
        steps, total = 100, len(self._moment.databases)

        def report(done: int, pages: int) -> None:
            self._report(self._done * steps + steps * done // max(pages, 1), total * steps)

        return report


def build_exists_error(file: Path) -> InvalidInput:
    return InvalidInput(
        f"{file} already exists.",
        hint="Specify another one, or pass --force to replace it.",
        argument="FILE",
        value=str(file),
    )


def _build_refused_error(error: StoreDamaged) -> StoreDamaged:
    return StoreDamaged(
        f"{error.message} No backup was written.",
        hint="For details, run `everkept doctor`. To include it unchanged, pass --with-damaged.",
        **dict(error.facts),
    )


@contextmanager
def _open_archive(draft: Path) -> Generator[zipfile.ZipFile, None, None]:
    """Create a private zip that is on the disk when the block has ended."""
    with (
        write_new_file(draft) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as target,
    ):
        yield target


def _publish(draft: Path, file: Path, *, force: bool) -> None:
    if file.exists() and not force:  # another process has created it
        raise build_exists_error(file)
    draft.replace(file)
