"""Backups of a bank: names, manifests, creation, listing and checks."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import PurePath
from typing import Any, Protocol, cast

from everkept.core.files import FileInfo, FileStore, parse_path
from everkept.core.sessions import Report
from everkept.core.times import Clock, format_iso, parse_time
from everkept.errors import EverkeptError, InvalidInput, NotFound, ReadOnly, Refused, Unavailable
from everkept.families.bank.bank_files import group_by_size
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.graph_events import LOG_PATH
from everkept.families.bank.graph.graph_folder import LOCK as GRAPH_LOCK
from everkept.values import Value

BACKUP_PREFIX = "memory-bank-backup-"  # independent of the bank's folder name
# Not a valid name for a bank file, because of the dot. The public server copies only .md and .json files.
MANIFEST_NAME = ".backup-manifest"
MANIFEST_FORMAT = 1
_PARTIAL_SUFFIX = ".partial"
# Other servers write the name with or without Z and milliseconds.
_BACKUP_ID = re.compile(rf"{BACKUP_PREFIX}(\d{{4}}-\d{{2}}-\d{{2}})T([\d-]+)Z?", re.ASCII)


class FileChecksum(Value):
    size: int
    sha256: str

    @classmethod
    def from_data(cls, data: bytes) -> "FileChecksum":
        return cls(len(data), hashlib.sha256(data).hexdigest())


class BackupManifest(Value):
    """All files of a backup by path, and the address of the bank they were copied from."""

    bank: str
    created_at: int
    files: Mapping[str, FileChecksum]

    @property
    def size(self) -> int:
        return sum(kept.size for kept in self.files.values())

    def encode(self) -> bytes:
        value = {
            "format": MANIFEST_FORMAT,
            "bank": self.bank,
            "createdAt": format_iso(self.created_at),
            "files": {path: {"size": kept.size, "sha256": kept.sha256} for path, kept in sorted(self.files.items())},
        }
        return json.dumps(value, ensure_ascii=False, indent=1).encode("utf-8")


def decode_manifest(data: bytes) -> BackupManifest:
    """Parse a manifest. Raise ValueError with the reason if it is invalid."""
    try:
        value = cast(dict[str, Any], json.loads(data))
        if value["format"] != MANIFEST_FORMAT:
            raise ValueError(f"its format is {value['format']}, and only {MANIFEST_FORMAT} is supported")
        files = cast(dict[str, dict[str, Any]], value["files"])
        return BackupManifest(
            str(value["bank"]),
            parse_time(value["createdAt"]),
            {_check_file_path(path): FileChecksum(int(k["size"]), str(k["sha256"])) for path, k in files.items()},
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError("it is incomplete") from error
    except json.JSONDecodeError as error:
        raise ValueError("it is not JSON") from error
    except Refused as error:
        raise ValueError(error.message) from error


def format_backup_name(at: int) -> str:
    return BACKUP_PREFIX + format_iso(at).replace(":", "-").replace(".", "-")


def format_partial_name(name: str) -> str:
    """Return the name of the folder in which a backup is created. It is renamed when the backup is complete."""
    return f".{name}{_PARTIAL_SUFFIX}"


def is_partial(name: str) -> bool:
    return name.startswith(f".{BACKUP_PREFIX}") and name.endswith(_PARTIAL_SUFFIX)


def is_backup(name: str) -> bool:
    return _BACKUP_ID.fullmatch(name) is not None


def check_backup_id(backup_id: str) -> str:
    if not is_backup(backup_id):
        raise InvalidInput(
            f"Invalid backup ID format: {backup_id[:120]!a}.",
            hint="Pass an id from list_backups, such as memory-bank-backup-2026-02-13T10-30-00-000Z.",
            argument="backupId",
        )
    return backup_id


def parse_backup_time(backup_id: str) -> int | None:
    """Return the time in a backup's name, or None if it has none."""
    found = _BACKUP_ID.fullmatch(backup_id)
    if found is None:
        return None
    day, time = found.groups()
    clock, *fraction = [":".join(time.split("-")[:3]), *time.split("-")[3:]]
    try:
        return parse_time(f"{day}T{'.'.join([clock, *fraction])}Z")
    except (ValueError, OverflowError):
        return None


def _check_file_path(path: str) -> str:
    if not parse_path(path):
        raise ValueError("it lists a file without a name")
    return path


BACKUP_LOCK = "backup"  # lock of the folder that contains the backups
MILLISECOND_MICROSECONDS = 1_000
GRAPH_PREFIX = f"{LOG_PATH.rpartition('/')[0]}/"
# Version control keeps their history. Restoring an older copy over them would damage it.
VERSION_CONTROL_FOLDERS = frozenset({".git", ".hg", ".svn"})
MAX_FOLDER_DEPTH = 20  # nested folders; a link to a folder above would never end
MAX_FILES = 200_000
_LARGE_FILE_BYTES = 1_000_000  # larger files are hashed in a thread
_CONCURRENT_FILES = 16
_FILES_PER_REPORT = 50


class SizedFile(Protocol):
    @property
    def size(self) -> int: ...


class BankBackup(Value):
    """One backup. `manifest` is None if another server created it, or if it has a `fault`."""

    id: str
    backup_folder: FileStore
    taken_at: int
    manifest: BackupManifest | None = None
    fault: str | None = None
    left_out: tuple[str, ...] = ()  # only after create_backup: links that lead outside, and devices

    @property
    def address(self) -> str:
        if self.backup_folder.is_remote:
            return f"{self.backup_folder.address.rstrip('/')}/{self.id}"
        return str(PurePath(self.backup_folder.address) / self.id)

    async def read(self, path: str) -> bytes:
        return await self.backup_folder.read(f"{self.id}/{path}")


class ProgressReporter:
    """Occasional progress reports of a long task. Each part of the task adds its own steps."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._total = 0
        self._done = 0

    def expect(self, more: int) -> None:
        self._total += more

    async def step(self, message: str) -> None:
        self._done += 1
        if self._done % _FILES_PER_REPORT == 0 or self._done == self._total:
            await self._report(self._done, self._total, message)


@asynccontextmanager
async def lock_backup_folder(backup_folder: FileStore) -> AsyncGenerator[None, None]:
    """Lock the folder of backups, and delete partial backups that a crash left in it."""
    async with backup_folder.lock(BACKUP_LOCK):
        for entry in await backup_folder.list():
            if entry.is_folder and is_partial(entry.name):
                await backup_folder.remove(entry.path)
        yield


async def create_backup(bank: Bank, backup_folder: FileStore, clock: Clock, progress: ProgressReporter) -> BankBackup:
    """Create a complete backup, or none at all. The caller holds the locks of the backup folder and the bank."""
    left_out: list[str] = []
    found = await scan_files(bank.files, left_out=left_out)
    if not found:
        raise NotFound(
            "file",
            bank.address,
            message=f"{bank.address} has no files to back up.",
            hint="Use initialize_memory_bank to create the core files.",
        )
    backup_id, at = await _find_free_name(backup_folder, clock())
    partial = format_partial_name(backup_id)
    progress.expect(2 * len(found))
    try:
        copied = await _copy_files(bank, found, backup_folder, partial, progress)
        await _verify_copies(copied, backup_folder, partial, progress)
        manifest = BackupManifest(bank.address, at, copied)
        await backup_folder.write(f"{partial}/{MANIFEST_NAME}", manifest.encode())
        await backup_folder.rename(partial, backup_id)
    except BaseException:
        # After a crash the next backup deletes the partial folder.
        with suppress(EverkeptError):
            await backup_folder.remove(partial)
        raise
    return BankBackup(backup_id, backup_folder, at, manifest, left_out=tuple(left_out))


async def read_backups(backup_folder: FileStore) -> list[BankBackup]:
    """Return the backups, newest first. Raise NotFound if the folder does not exist."""
    entries = await backup_folder.list()
    names = [entry for entry in entries if entry.is_folder and is_backup(entry.name)]
    found = [await _open_backup(backup_folder, entry) for entry in names]
    return sorted(found, key=lambda backup: (backup.taken_at, backup.id), reverse=True)


async def read_backup(backup_folder: FileStore, backup_id: str) -> BankBackup:
    """Return one backup. Raise InvalidInput for an invalid id, and NotFound if it does not exist."""
    entry = await backup_folder.read_info(check_backup_id(backup_id))
    if entry is None or not entry.is_folder:
        what = "Backup path is not a directory" if entry else "Backup not found"
        raise NotFound(
            "backup",
            backup_id,
            message=f"{what}: {backup_id}, in {backup_folder.address}.",
            hint="List backups with list_backups. If the backup was created with backupDir, pass it again.",
        )
    return await _open_backup(backup_folder, entry)


async def find_problems(backup: BankBackup, progress: ProgressReporter) -> list[str]:
    """Return the problems of a backup's files, by name. A backup without a manifest cannot be checked."""
    if backup.fault is not None:
        return [f"{MANIFEST_NAME} ({backup.fault})"]
    if backup.manifest is None:
        return []
    kept = backup.manifest.files
    progress.expect(len(kept))
    found: dict[str, str] = {}

    async def check(path: str) -> None:
        problem = await find_problem(backup, path, kept[path])
        if problem is not None:
            found[path] = problem
        await progress.step(f"Checking {backup.id}")

    await run_for_each(kept, check)
    return [f"{path} ({problem})" for path, problem in sorted(found.items())]


async def find_problem(backup: BankBackup, path: str, kept: FileChecksum) -> str | None:
    try:
        data = await backup.read(path)
    except NotFound:
        return "missing"
    except Refused:
        return "not readable"
    return None if await compute_checksum(data) == kept else "altered"


async def scan_files(files: FileStore, folder: str = "", *, left_out: list[str] | None = None) -> dict[str, FileInfo]:
    """Return all files below a folder by relative path, if it exists. Add unreachable entries to `left_out`."""
    found: dict[str, FileInfo] = {}
    start = f"{folder}/" if folder else ""
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        try:
            entries = await files.list(place)
            if left_out is not None:
                above = f"{place}/" if place else ""
                left_out += [above + name for name in (await files.survey(place)).unreachable]
        except NotFound:
            continue
        for entry in entries:
            path = entry.path.removeprefix(start)
            if path == MANIFEST_NAME or entry.name in VERSION_CONTROL_FOLDERS:
                continue
            if entry.is_folder:
                waiting.append(entry.path)
            else:
                found[path] = entry
            _check_bounds(files, path, len(found))
    return dict(sorted(found.items()))


async def compute_checksum(data: bytes) -> FileChecksum:
    return (
        await asyncio.to_thread(FileChecksum.from_data, data)
        if len(data) > _LARGE_FILE_BYTES
        else FileChecksum.from_data(data)
    )


async def run_for_each(files: Mapping[str, SizedFile], step: Callable[[str], Awaitable[None]]) -> None:
    """Run a step for each file, a few at a time because most of the time is waiting, and large files one by one.

    If a step fails, the steps that had started end before its error is raised.
    """
    for group in group_by_size(files, lambda path: files[path].size, _LARGE_FILE_BYTES, _CONCURRENT_FILES):
        outcomes = await asyncio.gather(*(step(path) for path in group), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome


async def _copy_files(
    bank: Bank, found: Mapping[str, FileInfo], backup_folder: FileStore, partial: str, progress: ProgressReporter
) -> dict[str, FileChecksum]:
    """Copy the graph's folder first, under the graph's lock: its log is appended in parts of lines.

    A holder of the bank's lock may take the graph's lock, never the other way round.
    """
    copied: dict[str, FileChecksum] = {}

    async def copy(path: str) -> None:
        with suppress(NotFound):  # deleted by hand since the scan
            data = await bank.files.read(path)
            await backup_folder.write(f"{partial}/{path}", data)
            copied[path] = await compute_checksum(data)
        await progress.step("Copying")

    graph = {path: info for path, info in found.items() if path.startswith(GRAPH_PREFIX)}
    if LOG_PATH in graph:
        async with _lock_graph(bank):
            await run_for_each(graph, copy)
    else:
        await run_for_each(graph, copy)
    await run_for_each({path: info for path, info in found.items() if path not in graph}, copy)
    return copied


@asynccontextmanager
async def _lock_graph(bank: Bank) -> AsyncGenerator[None, None]:
    async with AsyncExitStack() as held:
        with suppress(ReadOnly):  # in a read-only bank other writers are unlikely
            await held.enter_async_context(bank.files.lock(GRAPH_LOCK))
        yield


async def _verify_copies(
    copied: Mapping[str, FileChecksum], backup_folder: FileStore, partial: str, progress: ProgressReporter
) -> None:
    async def check(path: str) -> None:
        if await compute_checksum(await backup_folder.read(f"{partial}/{path}")) != copied[path]:
            raise Unavailable(
                f"The copy of {path} in {backup_folder.address} differs from the original.",
                hint="The disk may be damaged. Pass another backupDir.",
            )
        await progress.step("Checking")

    await run_for_each(copied, check)


async def _find_free_name(backup_folder: FileStore, at: int) -> tuple[str, int]:
    """Return a name for this millisecond, or for the next one that is free."""
    while await backup_folder.read_info(format_backup_name(at)) is not None:
        at += MILLISECOND_MICROSECONDS
    return format_backup_name(at), at


async def _open_backup(backup_folder: FileStore, entry: FileInfo) -> BankBackup:
    named = parse_backup_time(entry.name)
    taken_at = entry.modified_at if named is None else named
    try:
        manifest = decode_manifest(await backup_folder.read(f"{entry.path}/{MANIFEST_NAME}"))
    except NotFound:
        return BankBackup(entry.name, backup_folder, taken_at)
    except ValueError as error:
        return BankBackup(entry.name, backup_folder, taken_at, fault=str(error))
    return BankBackup(entry.name, backup_folder, taken_at, manifest)


def _check_bounds(files: FileStore, path: str, count: int) -> None:
    if path.count("/") >= MAX_FOLDER_DEPTH:
        raise InvalidInput(
            f"{path} in {files.address} is nested more than {MAX_FOLDER_DEPTH} folders deep.",
            hint="Delete links to a folder above themselves, which never end.",
        )
    if count > MAX_FILES:
        raise InvalidInput(
            f"{files.address} contains more than {MAX_FILES:,} files.",
            hint="Move files that do not belong to the bank elsewhere.",
        )
