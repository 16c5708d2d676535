"""File of a backup: a zip with a copy of each database and a manifest.

The manifest has the size, the checksum and the row count of each copy, so that anyone can verify the file. A damaged
database is stored unchanged, under `damaged/`.
"""

import errno
import hashlib
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from everkept.core.care_results import DatabaseFacts, OwningProject
from everkept.core.disk import make_folder, open_private, translate_os_errors
from everkept.core.projects import Status
from everkept.core.sessions import is_private_name
from everkept.core.text import format_count
from everkept.errors import InvalidInput, StorageFull, StoreDamaged, StoreTooNew
from everkept.values import Value, as_dict, field

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare

BACKUP_FORMAT = 1
MANIFEST_FILE = "manifest.json"
DAMAGED_FOLDER = "damaged"  # folder of unreadable databases
CHUNK_BYTES = 1 << 20
COMPRESSION_LEVEL = 1  # 220 MB in 2 seconds; the next level takes half as long again for 4 %
MAX_MANIFEST_BYTES = 16 << 20
MAX_LISTING_BYTES = 16 << 20  # of the names in the zip


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


def add_copy(
    care: "SqliteCare", archive: zipfile.ZipFile, name: str, copy: Path, owner: OwningProject | None
) -> BackupDatabase:
    """Add a copy, and return its entry for the manifest."""
    facts = care.read_facts(copy, name)
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
def open_backup(care: "SqliteCare", file: Path) -> Generator[tuple[zipfile.ZipFile, ArchiveManifest], None, None]:
    """Open a backup to read. Raise InvalidInput for another file, and StoreDamaged for a broken one."""
    if not file.is_file():
        what = f"{file} is a folder." if file.is_dir() else f"Cannot find the file {file}."
        raise InvalidInput(what, hint="Specify the file of a backup.", value=str(file))
    if _read_listing_size(file) > MAX_LISTING_BYTES:
        raise _build_invalid_error(file)
    with _detect_damage(file), zipfile.ZipFile(file) as archive:
        yield archive, _read_manifest(care, archive, file)


def _read_listing_size(file: Path) -> int:
    """Return the size of the zip's list of names, which `zipfile` reads as a whole. Return 0 if it is unknown."""
    with file.open("rb") as source:
        source.seek(max(0, source.seek(0, os.SEEK_END) - 66_000))
        end = source.read(66_000)
        at = end.rfind(b"PK\x05\x06")
        if at < 0 or len(end) < at + 22:
            return 0
        size = int.from_bytes(end[at + 12 : at + 16], "little")
        locator = end[max(0, at - 20) : at]
        if locator[:4] != b"PK\x06\x07":
            return size
        # The sizes of a large zip are in the record that this names.
        try:
            source.seek(int.from_bytes(locator[8:16], "little"))
        except (OSError, OverflowError):
            return 0
        return int.from_bytes(source.read(56)[40:48], "little")


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


def _read_manifest(care: "SqliteCare", archive: zipfile.ZipFile, file: Path) -> ArchiveManifest:
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
        _check_names(care, archive, manifest, file)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _build_invalid_error(file) from error
    return manifest


def _check_names(care: "SqliteCare", archive: zipfile.ZipFile, manifest: ArchiveManifest, file: Path) -> None:
    """Accept only names of a data folder, so that nothing is written anywhere but there."""
    names = [copied.name for copied in manifest.databases]
    if (
        not all(map(care.is_database_name, (*names, *manifest.damaged)))
        or len({*names}) != len(names)
        or care.catalogue not in (*names, *manifest.damaged)
    ):
        raise _build_invalid_error(file)
    if lacking := {*names} - {*archive.namelist()}:
        raise _build_damaged_error(file, f"{min(lacking)} is missing")


def extract_databases(
    care: "SqliteCare", archive: zipfile.ZipFile, file: Path, manifest: ArchiveManifest, folder: Path
) -> None:
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
        extract_database(care, archive, file, copied, folder / copied.name)
    catalogue = folder / care.catalogue
    if catalogue.exists():
        _check_listed(file, manifest, care.read_owners(catalogue))


def extract_database(
    care: "SqliteCare", archive: zipfile.ZipFile, file: Path, copied: BackupDatabase, target: Path
) -> None:
    with translate_os_errors(target):
        make_folder(target.parent)
        with (
            _detect_damage(file),
            archive.open(copied.name) as source,
            open(target, "wb", opener=open_private) as written,
        ):
            checksum = _copy_stream(source, written, at_most=copied.size)
    facts = DatabaseFacts(copied.schema_version, copied.newest_change, copied.rows)
    if checksum != copied.sha256 or care.read_facts(target, copied.name) != facts:
        raise _build_damaged_error(file, f"{copied.name} differs from the stored copy")


def verify_backup(care: "SqliteCare", file: Path, manifest: ArchiveManifest) -> None:
    """Read the written backup again before anyone relies on it."""
    with open_backup(care, file) as (archive, found):
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
