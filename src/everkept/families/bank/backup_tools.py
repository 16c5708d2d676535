"""Tools that create, list and restore backups of a bank."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar

from everkept.core.files import FileInfo, FileStore, FileStores
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.core.times import Clock, format_iso
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, NotFound, ReadOnly, Refused, Unavailable
from everkept.families.bank import bank_files
from everkept.families.bank.bank_backups import (
    BankBackup,
    FileChecksum,
    ProgressReporter,
    compute_checksum,
    create_backup,
    find_problems,
    lock_backup_folder,
    read_backup,
    read_backups,
    run_for_each,
    scan_files,
)
from everkept.families.bank.banks import NO_FOLDER, SSH_SCHEME, Bank, Banks, exists, get_last_part, resolve_allowed
from everkept.families.bank.graph.graph_events import INDEX_PATH, LOG_PATH, SNAPSHOT_PATH
from everkept.families.bank.graph.graph_folder import VIEW_PATH
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.families.bank.model import CURRENT_NAMES, LEGACY_NAMES, StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value, field, replace

# The mirror writes these files from the records, so an older copy would contradict them.
GRAPH_VIEWS = frozenset({SNAPSHOT_PATH, INDEX_PATH, VIEW_PATH})
T = TypeVar("T")


class RestoreResult(Value, frozen=False):
    """Result of a restore. Files that the backup does not contain were kept."""

    written: list[str] = field(default_factory=list[str])
    unchanged: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    warnings: list[ToolWarning] = field(default_factory=list[ToolWarning])
    safety: BankBackup | None = None

    @property
    def files(self) -> list[str]:
        """Return all files that now match the backup."""
        return sorted([*self.written, *self.unchanged])


class _RestorePlan(Value):
    """Files by their path in the backup. `sums` is empty without a manifest."""

    files: Mapping[str, FileInfo]
    sums: Mapping[str, FileChecksum]
    graph: Any  # None if the backup has no graph

    def get_target(self, path: str) -> str:
        """Return the path to restore to: core files with an older name get their current name."""
        today = CURRENT_NAMES.get(path, path)
        return path if today in self.files else today

    def list_kept(self, before: Iterable[str]) -> list[str]:
        """Return the files of the bank that the backup does not contain."""
        touched = {self.get_target(path) for path in self.files}
        if self.graph is not None:
            touched |= GRAPH_VIEWS | {LOG_PATH}
        there = set(before)
        # A file with only its older name was renamed.
        moved = {old for old, today in CURRENT_NAMES.items() if today in touched - there}
        return sorted(there - touched - moved)


class BackupRestorer:
    """Restores a backup. Everything is checked before the first change of the bank.

    A crash leaves each file in its old or new state, and the same call again completes the restore.
    """

    def __init__(self, mirror: GraphMirror, clock: Clock) -> None:
        self._mirror = mirror
        self._clock = clock

    async def restore(self, bank: Bank, backup: BankBackup, call: ToolCall, *, safely: bool) -> RestoreResult:
        progress = ProgressReporter(call.report)
        restored = RestoreResult()
        plan = await self._plan_restore(backup, restored, progress)
        async with AsyncExitStack() as held:
            if safely:
                await _run_before_restore(held.enter_async_context(lock_backup_folder(bank.home)))
            await held.enter_async_context(bank.files.lock(bank_files.BANK_LOCK))
            before = await scan_files(bank.files)
            if safely and before:
                restored.safety = await _run_before_restore(create_backup(bank, bank.home, self._clock, progress))
            await _write_files(bank, backup, plan, before, restored, progress)
        # The mirror has its own lock, whose holder may request the bank's lock.
        if plan.graph is not None:
            await self._set_graph(bank, plan, restored, call)
        restored.kept = plan.list_kept(before)
        return restored

    async def _plan_restore(
        self, backup: BankBackup, restored: RestoreResult, progress: ProgressReporter
    ) -> _RestorePlan:
        problems = await find_problems(backup, progress)
        if problems:
            raise Refused(
                f"{backup.id} is damaged: {bank_files.format_names(problems)}. Nothing was restored.",
                hint="Find an intact backup with list_backups and verify=true.",
                damagedFiles=problems,
            )
        there = await scan_files(backup.backup_folder, backup.id)
        sums: Mapping[str, FileChecksum] = backup.manifest.files if backup.manifest else {}
        meant = {path for path in there if not sums or path in sums}
        if not meant:
            raise NotFound(
                "file",
                backup.id,
                message=f"{backup.id} has no files to restore.",
                hint="Choose another backup from list_backups.",
            )
        graph = await self._read_graph(backup, restored) if LOG_PATH in meant else None
        files = {path: there[path] for path in sorted(meant - GRAPH_VIEWS - {LOG_PATH})}
        done = {*files, LOG_PATH} if graph is not None else set(files)
        restored.skipped = sorted(set(there) - done)
        return _RestorePlan(files, sums, graph)

    async def _read_graph(self, backup: BankBackup, restored: RestoreResult) -> Any:
        try:
            return await asyncio.to_thread(self._mirror.parse_state, await backup.read(LOG_PATH))
        except EverkeptError as error:
            # It was already broken when the backup was created. The other files can still be restored.
            message = f"The graph was not restored because its copy in the backup cannot be read. {error}"
            restored.warnings.append(ToolWarning("graph_not_restored", message))
            return None

    async def _set_graph(self, bank: Bank, plan: _RestorePlan, restored: RestoreResult, call: ToolCall) -> None:
        try:
            await self._mirror.set_state(bank, plan.graph, call)
        except EverkeptError as error:
            raise _build_stopped_error(["the graph"], error, restored) from error
        restored.written.append(LOG_PATH)


async def _write_files(
    bank: Bank,
    backup: BankBackup,
    plan: _RestorePlan,
    before: Mapping[str, FileInfo],
    restored: RestoreResult,
    progress: ProgressReporter,
) -> None:
    progress.expect(len(plan.files))
    waiting = {plan.get_target(path) for path in plan.files}

    async def write(path: str) -> None:
        target = plan.get_target(path)
        data = await _read_checked(backup, path, plan.sums.get(path))
        if target in LEGACY_NAMES:
            await bank_files.settle_name(bank, target)
        if await _has_content(bank, before.get(target), data):
            restored.unchanged.append(target)
        else:
            if bank.history and target in before and "/" not in target:
                await bank.history.keep({target: (await bank.files.read(target), data)})
            await bank.files.write(target, data)
            restored.written.append(target)
        waiting.remove(target)
        await progress.step("Restoring")

    try:
        await run_for_each(plan.files, write)
    except EverkeptError as error:
        raise _build_stopped_error(sorted(waiting), error, restored) from error


async def _read_checked(backup: BankBackup, path: str, kept: FileChecksum | None) -> bytes:
    """Read a file and check it again: it may have changed since the first check."""
    data = await backup.read(path)
    if kept is not None and await compute_checksum(data) != kept:
        raise Refused(
            f"{path} of {backup.id} changed during the restore.",
            hint="Check the backups with list_backups and verify=true.",
        )
    return data


async def _has_content(bank: Bank, entry: FileInfo | None, data: bytes) -> bool:
    if entry is None or entry.size != len(data):
        return False
    try:
        return await bank.files.read(entry.path) == data
    except NotFound:
        return False


async def _run_before_restore(step: Awaitable[T]) -> T:
    try:
        return await step
    except EverkeptError as error:
        raise Unavailable(
            f"Nothing was restored because the safety backup failed. {error.message}",
            hint="Free disk space next to the bank, or call again with createPreRestoreBackup=false.",
            reason=error.code,
        ) from error


def _build_stopped_error(left: Sequence[str], error: EverkeptError, restored: RestoreResult) -> Unavailable:
    """Build the error of an incomplete restore, which lists the restored files."""
    facts: dict[str, Any] = {"restoredFiles": restored.files, "reason": error.code}
    if restored.safety is not None:
        facts["preRestoreBackupPath"] = restored.safety.address
    return Unavailable(
        f"The restore stopped after {format_count(len(restored.files), 'file')}. "
        f"Not restored: {bank_files.format_names(left)}. {error.message}",
        hint="Call restore_backup again to finish it.",
        **facts,
    )


MAX_FILES_NAMED = 1_000  # in one result
BACKUP_DIR_HINT = "Pass the same backupDir to list_backups and restore_backup."

BackupDir = Annotated[
    str, Field("Folder of the backups; default: next to the bank", name="backupDir", blank=False, listed=False)
]
BackupCondition = Literal["whole", "damaged", "unchecked", "unknown"]


class CreatedBackup(Value):
    success: bool
    message: str
    backup_path: Annotated[str, Field(name="backupPath")]
    timestamp: str
    id: str
    file_count: Annotated[int, Field(name="fileCount")]
    bytes: int
    note: str | None = None
    warnings: list[ToolWarning] | None = None


class BackupView(Value):
    """One listed backup. `verified` is unknown without a manifest. `otherBank` marks a backup of another bank."""

    id: str
    timestamp: str
    path: str
    verified: BackupCondition
    bank: str | None = None
    file_count: Annotated[int | None, Field(name="fileCount")] = None
    bytes: int | None = None
    problems: list[str] | None = None
    other_bank: Annotated[bool | None, Field(name="otherBank")] = None


class ListMetadata(Value):
    count: int
    timestamp: str


class BackupList(Value):
    backups: list[BackupView]
    metadata: ListMetadata


class RestoredBackup(Value):
    """Result of restore_backup. The lists name at most MAX_FILES_NAMED files; the counts include all."""

    success: bool
    message: str
    restored_files: Annotated[list[str], Field(name="restoredFiles")]
    restored_count: Annotated[int, Field(name="restoredCount")]
    changed_count: Annotated[int, Field(name="changedCount")]
    kept_files: Annotated[list[str], Field(name="keptFiles")]
    timestamp: str
    pre_restore_backup_path: Annotated[str | None, Field(name="preRestoreBackupPath")] = None
    skipped_files: Annotated[list[str] | None, Field(name="skippedFiles")] = None
    warnings: list[ToolWarning] | None = None


class BackupTools(ToolFamily):
    def __init__(self, banks: Banks, files: FileStores, mirror: GraphMirror, clock: Clock) -> None:
        self._banks = banks
        self._files = files
        self._mirror = mirror
        self._clock = clock
        self._restoring = BackupRestorer(mirror, clock)

    @tool(Effect.WRITES)
    async def create_backup(
        self,
        call: ToolCall,
        backup_dir: BackupDir | None = None,
        list_only: Annotated[bool, Field("true: list the backups instead; default false", name="listOnly")] = False,
        store_id: StoreId | None = None,
    ) -> CreatedBackup | BackupList:
        """Copy all files of the memory bank and its graph to a new backup folder."""
        if list_only:
            return await self.list_backups(call, backup_dir, store_id=store_id)
        bank = await self._banks.require_bank(call, store_id)
        backup_folder = await self._open_backup_folder(bank, backup_dir)
        warnings = [*await self._mirror.append_changes(bank)]
        async with lock_backup_folder(backup_folder), AsyncExitStack() as held_bank:
            try:
                await held_bank.enter_async_context(bank.files.lock(bank_files.BANK_LOCK))
            except ReadOnly as error:
                warnings.append(_build_unlocked_warning(bank, error))
            backup = await create_backup(bank, backup_folder, self._clock, ProgressReporter(call.report))
        if backup.left_out:
            warnings.append(_build_omitted_warning(backup.left_out))
        held = backup.manifest
        return CreatedBackup(
            True,
            "Backup created successfully",
            backup.address,
            format_iso(backup.taken_at),
            backup.id,
            len(held.files) if held else 0,
            held.size if held else 0,
            BACKUP_DIR_HINT if backup_dir else None,
            warnings or None,
        )

    @tool()
    async def list_backups(
        self,
        call: ToolCall,
        backup_dir: BackupDir | None = None,
        verify: Annotated[bool, Field("true: check each file of each backup; default false")] = False,
        store_id: StoreId | None = None,
    ) -> BackupList:
        """List the memory bank's backups, newest first."""
        bank = await self._require_bank(call, store_id)
        found = await self._list_all(bank, backup_dir)
        progress = ProgressReporter(call.report)
        views = [
            replace(
                await _build_view(backup, progress, verify=verify),
                other_bank=await self._is_from_other_bank(backup, bank) or None,
            )
            for backup in found
        ]
        return BackupList(views, ListMetadata(len(views), format_iso(self._clock())))

    @tool(Effect.DESTROYS, adds_each_time=True)
    async def restore_backup(
        self,
        call: ToolCall,
        backup_id: Annotated[str, Field("Id from list_backups", name="backupId")],
        create_pre_restore_backup: Annotated[
            bool, Field("true: back up the current state first; default true", name="createPreRestoreBackup")
        ] = True,
        backup_dir: BackupDir | None = None,
        other_bank: Annotated[
            bool, Field("true: accept a backup of another bank; default false", name="otherBank", listed=False)
        ] = False,
        store_id: StoreId | None = None,
    ) -> RestoredBackup:
        """Restore files and graph from a backup. Files not in the backup stay."""
        bank = await self._require_bank(call, store_id)
        backup = await read_backup(await self._open_backup_folder(bank, backup_dir), backup_id)
        is_of_another = await self._is_from_other_bank(backup, bank)
        if is_of_another and not other_bank:
            raise Refused(
                f"{backup.id} is a backup of {_get_source_address(backup)}, not of {bank.address}.",
                hint="Choose another backup from list_backups, or pass otherBank=true to restore this one anyway.",
                bank=_get_source_address(backup),
            )
        there = await exists(bank)
        warnings = await self._mirror.append_changes(bank) if there else ()
        restored = await self._restoring.restore(bank, backup, call, safely=create_pre_restore_backup and there)
        if is_of_another:
            message = f"Restored a backup of {_get_source_address(backup)} to {bank.address}."
            restored.warnings.append(ToolWarning("backup_of_another_bank", message))
        return RestoredBackup(
            True,
            f"Successfully restored from backup: {backup.id}",
            restored.files[:MAX_FILES_NAMED],
            len(restored.files),
            len(restored.written),
            restored.kept[:MAX_FILES_NAMED],
            format_iso(self._clock()),
            restored.safety.address if restored.safety else None,
            restored.skipped[:MAX_FILES_NAMED] or None,
            [*warnings, *restored.warnings] or None,
        )

    async def _is_from_other_bank(self, backup: BankBackup, bank: Bank) -> bool:
        """Return whether the backup is from another bank. A bank that was moved with its backups is the same bank."""
        source = _get_source_address(backup)
        if source in (None, bank.address):
            return False
        beside = backup.backup_folder.address == bank.home.address
        if source.startswith(SSH_SCHEME) or not beside or get_last_part(source) != bank.folder:
            return True
        try:
            return await exists(await self._banks.open_at(source))
        except EverkeptError:  # not a valid address on this system
            return False

    async def _require_bank(self, call: ToolCall, store_id: str | None) -> Bank:
        """Return the bank, even if its folder is lost: it can be restored."""
        bank = await self._banks.find_bank(call, store_id)
        if bank is None:
            raise BankNotFound(NO_FOLDER)
        return bank

    async def _list_all(self, bank: Bank, backup_dir: str | None) -> list[BankBackup]:
        backup_folder = await self._open_backup_folder(bank, backup_dir)
        try:
            found = await read_backups(backup_folder)
        except NotFound as error:
            if backup_dir is None:
                raise BankNotFound(bank.address) from error
            raise NotFound(
                "folder",
                backup_folder.address,
                message=f"`backupDir` is {backup_folder.address}, which does not exist.",
                hint="Omit backupDir to list the backups next to the bank.",
            ) from error
        if not found and not await exists(bank):
            raise BankNotFound(bank.address)
        return found

    async def _open_backup_folder(self, bank: Bank, backup_dir: str | None) -> FileStore:
        if backup_dir is None:
            return bank.home
        try:
            address = await resolve_allowed(self._banks, backup_dir)
        except Refused as error:
            error.message = f"`backupDir` is {backup_dir}, which a client of this server may not use for backups."
            error.hint = "Omit backupDir, or allow the folder: on the server, run `everkept register-store ID PATH`."
            error.facts = {**error.facts, "argument": "backupDir"}
            raise
        backup_folder = await self._files.open_folder(address)
        if _is_inside(backup_folder, bank):
            raise InvalidInput(
                f"`backupDir` is {backup_dir}, which is inside the memory bank.",
                hint="Choose a folder outside the bank. Otherwise each backup would contain the earlier ones.",
                argument="backupDir",
            )
        return backup_folder


async def _build_view(backup: BankBackup, progress: ProgressReporter, *, verify: bool) -> BackupView:
    problems: list[str] = []
    verified: BackupCondition = "unknown"
    if backup.fault is not None or (backup.manifest is not None and verify):
        problems = await find_problems(backup, progress)
        verified = "damaged" if problems else "whole"
    elif backup.manifest is not None:
        verified = "unchecked"
    held = backup.manifest
    return BackupView(
        backup.id,
        format_iso(backup.taken_at),
        backup.address,
        verified,
        held.bank if held else None,
        len(held.files) if held else None,
        held.size if held else None,
        problems or None,
    )


def _get_source_address(backup: BankBackup) -> str | None:
    """Return the address of the backed-up bank, or None if another server created the backup."""
    return backup.manifest.bank if backup.manifest else None


def _build_unlocked_warning(bank: Bank, error: ReadOnly) -> ToolWarning:
    """Build a warning about a read-only bank, which cannot be locked. Other writers are unlikely."""
    return ToolWarning(
        "bank_not_locked",
        f"{bank.address} was copied without a lock because it is read-only ({error.message.rstrip('.')}). "
        "Another program may have changed a file during the copy.",
    )


def _build_omitted_warning(paths: Sequence[str]) -> ToolWarning:
    return ToolWarning(
        "not_backed_up",
        f"Omitted {format_count(len(paths), 'entry', 'entries')} that cannot be read inside the bank, such as "
        f"symbolic links that lead outside: {bank_files.format_names(paths)}.",
    )


def _is_inside(backup_folder: FileStore, bank: Bank) -> bool:
    if backup_folder.is_remote or bank.files.is_remote:
        address = bank.address.rstrip("/")
        return f"{backup_folder.address.rstrip('/')}/".startswith(f"{address}/")
    return PurePath(backup_folder.address).is_relative_to(bank.address)
