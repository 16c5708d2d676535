"""The tools that make, list and restore backups of a bank."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import PurePath
from typing import Annotated, Literal

from everkept.core.files import FileStore, FileStores
from everkept.core.sessions import Call
from everkept.core.times import Clock, iso
from everkept.errors import (
    MOST_LISTED,
    BankNotFound,
    EverkeptError,
    InvalidInput,
    NotFound,
    ReadOnly,
    Refused,
)
from everkept.families.bank import bank_files
from everkept.families.bank.backup_restore import Restored, Restoring
from everkept.families.bank.bank_backups import (
    Backup,
    Progress,
    all_backups,
    get_backup,
    make,
    problems_of,
    shelf_kept,
)
from everkept.families.bank.banks import NOWHERE, SSH, Bank, Banks, exists, last_part, reached
from everkept.families.bank.mirror.mirror import Mirror
from everkept.families.bank.model import StoreId
from everkept.tools.schema import Field
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value, replace

MOST_NAMED = 1_000  # files in one answer
PASS_IT_ON = "Pass the same backupDir to list_backups and restore_backup."

BackupDir = Annotated[
    str, Field("Folder of backups; default beside the bank.", name="backupDir", blank=False)
]
Verified = Literal["whole", "damaged", "unchecked", "unknown"]


class CreatedBackup(Value):
    success: bool
    message: str
    backup_path: Annotated[str, Field(name="backupPath")]
    timestamp: str
    id: str
    file_count: Annotated[int, Field(name="fileCount")]
    bytes: int
    note: str | None = None
    warnings: list[Warned] | None = None


class BackupView(Value):
    """`verified` is unknown where another server made it: there is nothing to compare with.

    `otherBank` is there where it is no backup of the bank that was asked for.
    """

    id: str
    timestamp: str
    path: str
    verified: Verified
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
    """The lists name a thousand files at most; the counts are of all."""

    success: bool
    message: str
    restored_files: Annotated[list[str], Field(name="restoredFiles")]
    restored_count: Annotated[int, Field(name="restoredCount")]
    changed_count: Annotated[int, Field(name="changedCount")]
    kept_files: Annotated[list[str], Field(name="keptFiles")]
    timestamp: str
    pre_restore_backup_path: Annotated[str | None, Field(name="preRestoreBackupPath")] = None
    skipped_files: Annotated[list[str] | None, Field(name="skippedFiles")] = None
    warnings: list[Warned] | None = None


class BackupTools(Family):
    """Copies of a whole bank, its graph included."""

    def __init__(self, banks: Banks, files: FileStores, mirror: Mirror, clock: Clock) -> None:
        self._banks = banks
        self._files = files
        self._mirror = mirror
        self._clock = clock
        self._restoring = Restoring(mirror, clock)

    @tool(Effect.WRITES)
    async def create_backup(
        self,
        call: Call,
        backup_dir: BackupDir | None = None,
        list_only: Annotated[bool, Field("List instead of create.", name="listOnly")] = False,
        store_id: StoreId | None = None,
    ) -> CreatedBackup | BackupList:
        """Copy all files of the memory bank and its graph into a timestamped folder."""
        if list_only:
            return await self.list_backups(call, backup_dir, store_id=store_id)
        bank = await self._banks.existing(call, store_id)
        shelf = await self._shelf(bank, backup_dir)
        warnings = [*await self._mirror.follow(bank)]
        async with shelf_kept(shelf), AsyncExitStack() as held_bank:
            try:
                await held_bank.enter_async_context(bank.files.lock(bank_files.LOCK))
            except ReadOnly as error:
                warnings.append(_without_lock(bank, error))
            backup = await make(bank, shelf, self._clock, Progress(call.report))
        if backup.left_out:
            warnings.append(_left_out(backup.left_out))
        held = backup.manifest
        return CreatedBackup(
            True,
            "Backup created successfully",
            backup.address,
            iso(backup.taken_at),
            backup.id,
            len(held.files) if held else 0,
            held.size if held else 0,
            PASS_IT_ON if backup_dir else None,
            warnings or None,
        )

    @tool()
    async def list_backups(
        self,
        call: Call,
        backup_dir: BackupDir | None = None,
        verify: Annotated[bool, Field("Check each file of each backup.")] = False,
        store_id: StoreId | None = None,
    ) -> BackupList:
        """List the memory bank's backups, newest first."""
        bank = await self._chosen(call, store_id)
        found = await self._all(bank, backup_dir)
        progress = Progress(call.report)
        views = [
            replace(
                await _view(backup, progress, verify=verify),
                other_bank=await self._is_of_another(backup, bank) or None,
            )
            for backup in found
        ]
        return BackupList(views, ListMetadata(len(views), iso(self._clock())))

    @tool(Effect.DESTROYS, adds_each_time=True)
    async def restore_backup(
        self,
        call: Call,
        backup_id: Annotated[str, Field("As list_backups names it.", name="backupId")],
        create_pre_restore_backup: Annotated[
            bool, Field("Back up the present state first.", name="createPreRestoreBackup")
        ] = True,
        backup_dir: BackupDir | None = None,
        other_bank: Annotated[
            bool, Field("Accept a backup of another bank.", name="otherBank")
        ] = False,
        store_id: StoreId | None = None,
    ) -> RestoredBackup:
        """Set files and graph to a backup's state; files that it lacks are kept."""
        bank = await self._chosen(call, store_id)
        backup = await get_backup(await self._shelf(bank, backup_dir), backup_id)
        is_of_another = await self._is_of_another(backup, bank)
        if is_of_another and not other_bank:
            raise Refused(
                f"{backup.id} is a backup of {_source(backup)}, and not of {bank.address}.",
                hint="list_backups marks such backups; otherBank=true restores one all the same.",
                bank=_source(backup),
            )
        there = await exists(bank)
        warnings = await self._mirror.follow(bank) if there else ()
        restored = await self._restoring.restore(
            bank, backup, call, safely=create_pre_restore_backup and there
        )
        if is_of_another:
            message = f"This is a backup of {_source(backup)}, restored to {bank.address}."
            restored.warnings.append(Warned("backup_of_another_bank", message))
        return self._answer(backup, restored, [*warnings, *restored.warnings])

    async def _is_of_another(self, backup: Backup, bank: Bank) -> bool:
        """One that was moved together with the backups beside it is the same bank."""
        source = _source(backup)
        if source in (None, bank.address):
            return False
        beside = backup.shelf.address == bank.home.address
        if source.startswith(SSH) or not beside or last_part(source) != bank.folder:
            return True
        try:
            return await exists(await self._banks.at(source))
        except EverkeptError:  # no place that this system knows
            return False

    async def _chosen(self, call: Call, store_id: str | None) -> Bank:
        """A bank whose folder is lost can be restored too."""
        bank = await self._banks.chosen(call, store_id)
        if bank is None:
            raise BankNotFound(NOWHERE)
        return bank

    async def _all(self, bank: Bank, backup_dir: str | None) -> list[Backup]:
        shelf = await self._shelf(bank, backup_dir)
        try:
            found = await all_backups(shelf)
        except NotFound as error:
            if backup_dir is None:
                raise BankNotFound(bank.address) from error
            raise NotFound(
                "folder",
                shelf.address,
                message=f"`backupDir` is {shelf.address}, and there is no such folder.",
                hint="Without backupDir the backups beside the bank are listed.",
            ) from error
        if not found and not await exists(bank):
            raise BankNotFound(bank.address)
        return found

    async def _shelf(self, bank: Bank, backup_dir: str | None) -> FileStore:
        if backup_dir is None:
            return bank.home
        shelf = await self._files.at(await reached(self._banks, backup_dir))
        if _is_inside(shelf, bank):
            raise InvalidInput(
                f"`backupDir` is {backup_dir}, which lies inside the memory bank.",
                hint="A backup would hold all backups before it: choose another folder.",
                argument="backupDir",
            )
        return shelf

    def _answer(
        self, backup: Backup, restored: Restored, warnings: Sequence[Warned]
    ) -> RestoredBackup:
        return RestoredBackup(
            True,
            f"Successfully restored from backup: {backup.id}",
            restored.files[:MOST_NAMED],
            len(restored.files),
            len(restored.written),
            restored.kept[:MOST_NAMED],
            iso(self._clock()),
            restored.safety.address if restored.safety else None,
            restored.skipped[:MOST_NAMED] or None,
            list(warnings) or None,
        )


async def _view(backup: Backup, progress: Progress, *, verify: bool) -> BackupView:
    problems: list[str] = []
    verified: Verified = "unknown"
    if backup.fault is not None or (backup.manifest is not None and verify):
        problems = await problems_of(backup, progress)
        verified = "damaged" if problems else "whole"
    elif backup.manifest is not None:
        verified = "unchecked"
    held = backup.manifest
    return BackupView(
        backup.id,
        iso(backup.taken_at),
        backup.address,
        verified,
        held.bank if held else None,
        len(held.files) if held else None,
        held.size if held else None,
        problems or None,
    )


def _source(backup: Backup) -> str | None:
    """The address of the bank that it was made of; another server kept none."""
    return backup.manifest.bank if backup.manifest else None


def _without_lock(bank: Bank, error: ReadOnly) -> Warned:
    """Where we may not write, a lock cannot be taken, and hardly anybody else writes either."""
    return Warned(
        "bank_not_locked",
        f"{bank.address} was copied without its lock, as it cannot be written to"
        f" ({error.message.rstrip('.')}). Whoever can may have changed a file meanwhile.",
    )


def _left_out(paths: Sequence[str]) -> Warned:
    shown = ", ".join(paths[:MOST_LISTED])
    more = f" and {len(paths) - MOST_LISTED} more" if len(paths) > MOST_LISTED else ""
    return Warned(
        "not_backed_up",
        f"{len(paths)} left out, because no file of the bank can be reached by it, as with a"
        f" symbolic link that leads out: {shown}{more}.",
    )


def _is_inside(shelf: FileStore, bank: Bank) -> bool:
    if shelf.is_remote or bank.files.is_remote:
        address = bank.address.rstrip("/")
        return f"{shelf.address.rstrip('/')}/".startswith(f"{address}/")
    return PurePath(shelf.address).is_relative_to(bank.address)
