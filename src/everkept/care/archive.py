"""The file of a backup: a zip with a copy of each database, and a manifest that says what is in it.

The manifest has the size, the checksum and the number of rows of each copy, so that whoever has the
file can tell whether it is whole. What is damaged already is kept as it is, under `damaged/`.
"""

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

from everkept.core.care import Facts, Owner
from everkept.core.disk import make_folder, open_private, usable
from everkept.core.projects import Status
from everkept.core.sessions import is_home
from everkept.errors import InvalidInput, StorageFull, StoreDamaged, StoreTooNew
from everkept.values import Value, as_dict, field

if TYPE_CHECKING:
    from everkept.engines.sqlite.care import SqliteCare

FORMAT = 1
MANIFEST = "manifest.json"
DAMAGED = "damaged"  # folder of what could not be read
CHUNK = 1 << 20  # bytes
COMPRESSION = 1  # 220 MB in 2 seconds; the next better level takes half as long again for 4 %
LONGEST_MANIFEST = 64 << 20  # bytes


class Copied(Value):
    """One database of a backup. `project` is the name of the project whose it is."""

    name: str
    project: str | None
    status: Status | None
    schema_version: int
    size: int
    sha256: str
    newest_change: int
    rows: Mapping[str, int]


class Manifest(Value):
    version: str
    created_at: str
    databases: Sequence[Copied]
    damaged: Sequence[str] = field(default=())
    format: int = FORMAT

    @property
    def size(self) -> int:
        return sum(copied.size for copied in self.databases)

    @property
    def projects(self) -> list[Copied]:
        return [copied for copied in self.databases if copied.project is not None]

    @property
    def project_names(self) -> list[str]:
        """Without what is an account's alone."""
        names = [copied.project for copied in self.databases if copied.project is not None]
        return [name for name in names if not is_home(name)]


def add_copy(
    care: "SqliteCare", archive: zipfile.ZipFile, name: str, copy: Path, owner: Owner | None
) -> Copied:
    """Takes a copy in, and tells of it what the manifest will."""
    facts = care.facts(copy, name)
    with copy.open("rb") as source, archive.open(name, "w", force_zip64=True) as target:
        checksum = _passed_on(source, target)
    return Copied(
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
    """The bytes of what cannot be read as a database, for whoever can do something with them."""
    entry = f"{DAMAGED}/{name}"
    with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
        shutil.copyfileobj(source, target, CHUNK)


def add_manifest(archive: zipfile.ZipFile, manifest: Manifest) -> None:
    archive.writestr(MANIFEST, json.dumps(as_dict(manifest), ensure_ascii=False, indent=2))


@contextmanager
def opened(
    care: "SqliteCare", file: Path
) -> Generator[tuple[zipfile.ZipFile, Manifest], None, None]:
    """A backup to read. Raises InvalidInput for what is none, StoreDamaged for a broken one."""
    if not file.is_file():
        what = f"{file} is a folder." if file.is_dir() else f"There is no file {file}."
        raise InvalidInput(what, hint="Name the file of a backup.", value=str(file))
    with _intact(file), zipfile.ZipFile(file) as archive:
        yield archive, _manifest(care, archive, file)


@contextmanager
def _intact(file: Path) -> Generator[None, None, None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        with file.open("rb") as source:
            begins_as_zip = source.read(4) == b"PK\x03\x04"
        raise (_damaged(file, str(error)) if begins_as_zip else _no_backup(file)) from error


def _manifest(care: "SqliteCare", archive: zipfile.ZipFile, file: Path) -> Manifest:
    try:
        if archive.getinfo(MANIFEST).file_size > LONGEST_MANIFEST:
            raise _no_backup(file)
        told: dict[str, Any] = json.loads(archive.read(MANIFEST))
        if int(told["format"]) > FORMAT:
            raise StoreTooNew(
                f"{file} was made by Everkept {told.get('version')}, in a form that this one "
                "does not know.",
                hint="Update Everkept.",
                path=str(file),
            )
        databases = [Copied(**copied) for copied in told["databases"]]
        manifest = Manifest(told["version"], told["created_at"], databases, told["damaged"])
    except (KeyError, TypeError, ValueError) as error:
        raise _no_backup(file) from error
    _check_names(care, archive, manifest, file)
    return manifest


def _check_names(
    care: "SqliteCare", archive: zipfile.ZipFile, manifest: Manifest, file: Path
) -> None:
    """Only names that a data folder has: nothing is ever written anywhere else."""
    names = [copied.name for copied in manifest.databases]
    if (
        not all(map(care.is_name, names))
        or len({*names}) != len(names)
        or care.catalogue not in (*names, *manifest.damaged)
    ):
        raise _no_backup(file)
    if lacking := {*names} - {*archive.namelist()}:
        raise _damaged(file, f"{min(lacking)} is missing")


def take_out(
    care: "SqliteCare", archive: zipfile.ZipFile, file: Path, manifest: Manifest, folder: Path
) -> None:
    """Every database of a backup under its name in the folder, once all of them are verified."""
    free = shutil.disk_usage(folder).free
    if free < manifest.size:
        raise StorageFull(
            f"There is no room for the {manifest.size:,} bytes of {file} in {folder}: {free:,} "
            "bytes are free.",
            hint="Free some disk space, and try again.",
            path=str(folder),
            needed=manifest.size,
            free=free,
        )
    for copied in manifest.databases:
        take_out_one(care, archive, file, copied, folder / copied.name)
    catalogue = folder / care.catalogue
    if catalogue.exists():
        _check_listed(file, manifest, care.owners(catalogue))


def take_out_one(
    care: "SqliteCare", archive: zipfile.ZipFile, file: Path, copied: Copied, target: Path
) -> None:
    with usable(target):
        make_folder(target.parent)
        with (
            _intact(file),
            archive.open(copied.name) as source,
            open(target, "wb", opener=open_private) as written,
        ):
            checksum = _passed_on(source, written, at_most=copied.size)
    facts = Facts(copied.schema_version, copied.newest_change, copied.rows)
    if checksum != copied.sha256 or care.facts(target, copied.name) != facts:
        raise _damaged(file, f"{copied.name} is not what was taken in")


def check_whole(care: "SqliteCare", file: Path, manifest: Manifest) -> None:
    """Reads what was written once more, before anybody relies on it."""
    with opened(care, file) as (archive, found):
        if found != manifest:
            raise _damaged(file, "its manifest is not what was written")
        for copied in manifest.databases:
            with archive.open(copied.name) as source, Path(os.devnull).open("wb") as nowhere:
                if _passed_on(source, nowhere) != copied.sha256:
                    raise _damaged(file, f"{copied.name} is not what was taken in")


def _passed_on(source: IO[bytes], target: IO[bytes], at_most: int | None = None) -> str:
    """The checksum of what went from one to the other, which is never more than was promised."""
    checksum = hashlib.sha256()
    passed = 0
    while chunk := source.read(CHUNK):
        passed += len(chunk)
        if at_most is not None and passed > at_most:
            return "too long"
        checksum.update(chunk)
        target.write(chunk)
    return checksum.hexdigest()


def _check_listed(file: Path, manifest: Manifest, owners: Mapping[str, Owner]) -> None:
    """The catalogue names exactly the files that are there."""
    listed = {(path, *owner) for path, owner in owners.items()}
    told = {(copied.name, copied.project, copied.status) for copied in manifest.projects}
    beyond = {copied.name for copied in manifest.databases if copied.project is None}
    lost = {kept for kept in listed - told if kept[0] not in manifest.damaged}
    if lost or told - listed or any("/" in name for name in beyond):
        raise _damaged(file, "its list of projects does not fit its files")


def _no_backup(file: Path) -> InvalidInput:
    return InvalidInput(
        f"{file} is no backup of Everkept.",
        hint="`everkept backup FILE` makes one.",
        value=str(file),
    )


def _damaged(file: Path, reason: str) -> StoreDamaged:
    return StoreDamaged(
        f"The backup {file} is damaged: {reason}.",
        hint="Take another one; nothing was changed.",
        path=str(file),
    )
