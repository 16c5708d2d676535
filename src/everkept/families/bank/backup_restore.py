"""Putting a bank back into the state of a backup."""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from everkept.core.files import FileInfo
from everkept.core.sessions import Call
from everkept.core.times import Clock
from everkept.errors import MOST_LISTED, EverkeptError, NotFound, Refused, Unavailable
from everkept.families.bank import bank_files
from everkept.families.bank.bank_backups import (
    Backup,
    Kept,
    Progress,
    each,
    files_below,
    make,
    problems_of,
    shelf_kept,
    summed,
)
from everkept.families.bank.banks import Bank
from everkept.families.bank.mirror.graph_events import INDEX, LOG, SNAPSHOT
from everkept.families.bank.mirror.graph_files import VIEW
from everkept.families.bank.mirror.mirror import Mirror
from everkept.families.bank.model import LEGACY_NAMES, TODAYS_NAMES
from everkept.tools.tool import Warned
from everkept.values import Value, field

# Written by the mirror from the records alone: an older copy would contradict them.
GRAPH_VIEWS = frozenset({SNAPSHOT, INDEX, VIEW})
T = TypeVar("T")


class Restored(Value, frozen=False):
    """What a restore did; what the backup lacks was kept."""

    written: list[str] = field(default_factory=list[str])
    unchanged: list[str] = field(default_factory=list[str])
    kept: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    warnings: list[Warned] = field(default_factory=list[Warned])
    safety: Backup | None = None

    @property
    def files(self) -> list[str]:
        """All that are now as the backup has them."""
        return sorted([*self.written, *self.unchanged])


class _Plan(Value):
    """The files by their path in the backup; without a manifest nothing is known of them."""

    files: Mapping[str, FileInfo]
    sums: Mapping[str, Kept]
    graph: Any  # None where the backup has none

    def target_of(self, path: str) -> str:
        """A core file under its old name goes where it is looked for today."""
        today = TODAYS_NAMES.get(path, path)
        return path if today in self.files else today

    def kept(self, before: Iterable[str]) -> list[str]:
        """What the bank had that the backup lacks."""
        touched = {self.target_of(path) for path in self.files}
        if self.graph is not None:
            touched |= GRAPH_VIEWS | {LOG}
        there = set(before)
        # A file that had only its old name has moved to the new one.
        moved = {old for old, today in TODAYS_NAMES.items() if today in touched - there}
        return sorted(there - touched - moved)


class Restoring:
    """Everything is checked before the first byte of the bank changes.

    A crash in the middle leaves each file old or new, and the same call again finishes it.
    """

    def __init__(self, mirror: Mirror, clock: Clock) -> None:
        self._mirror = mirror
        self._clock = clock

    async def restore(self, bank: Bank, backup: Backup, call: Call, *, safely: bool) -> Restored:
        progress = Progress(call.report)
        restored = Restored()
        plan = await self._planned(backup, restored, progress)
        async with AsyncExitStack() as held:
            if safely:
                await _before_all(held.enter_async_context(shelf_kept(bank.home)))
            await held.enter_async_context(bank.files.lock(bank_files.LOCK))
            before = await files_below(bank.files)
            if safely and before:
                restored.safety = await _before_all(make(bank, bank.home, self._clock, progress))
            await _write(bank, backup, plan, before, restored, progress)
        # The mirror has a lock of its own; whoever holds that one may want the bank's.
        if plan.graph is not None:
            await self._set_graph(bank, plan, restored, call)
        restored.kept = plan.kept(before)
        return restored

    async def _planned(self, backup: Backup, restored: Restored, progress: Progress) -> _Plan:
        problems = await problems_of(backup, progress)
        if problems:
            raise Refused(
                f"{backup.id} is damaged, and nothing was restored: {_listed(problems)}.",
                hint="list_backups with verify shows which backups are whole.",
                damagedFiles=problems,
            )
        there = await files_below(backup.shelf, backup.id)
        sums: Mapping[str, Kept] = backup.manifest.files if backup.manifest else {}
        meant = {path for path in there if not sums or path in sums}
        if not meant:
            raise NotFound("file", backup.id, message=f"{backup.id} holds no file to restore.")
        graph = await self._graph_of(backup, restored) if LOG in meant else None
        files = {path: there[path] for path in sorted(meant - GRAPH_VIEWS - {LOG})}
        done = {*files, LOG} if graph is not None else set(files)
        restored.skipped = sorted(set(there) - done)
        return _Plan(files, sums, graph)

    async def _graph_of(self, backup: Backup, restored: Restored) -> Any:
        try:
            return await asyncio.to_thread(self._mirror.state_of, await backup.read(LOG))
        except EverkeptError as error:
            # It was broken when the backup was made; the other files are none the worse for it.
            message = f"The graph stays as it is: that of the backup cannot be read. {error}"
            restored.warnings.append(Warned("graph_not_restored", message))
            return None

    async def _set_graph(self, bank: Bank, plan: _Plan, restored: Restored, call: Call) -> None:
        try:
            await self._mirror.set_state(bank, plan.graph, call)
        except EverkeptError as error:
            raise _stopped(["the graph"], error, restored) from error
        restored.written.append(LOG)


async def _write(
    bank: Bank,
    backup: Backup,
    plan: _Plan,
    before: Mapping[str, FileInfo],
    restored: Restored,
    progress: Progress,
) -> None:
    progress.expect(len(plan.files))
    waiting = {plan.target_of(path) for path in plan.files}

    async def write(path: str) -> None:
        target = plan.target_of(path)
        data = await _checked(backup, path, plan.sums.get(path))
        if target in LEGACY_NAMES:
            await bank_files.settled_name(bank, target)
        if await _has(bank, before.get(target), data):
            restored.unchanged.append(target)
        else:
            await bank.files.write(target, data)
            restored.written.append(target)
        waiting.remove(target)
        await progress.step("Restoring")

    try:
        await each(plan.files, write)
    except EverkeptError as error:
        raise _stopped(sorted(waiting), error, restored) from error


async def _checked(backup: Backup, path: str, kept: Kept | None) -> bytes:
    """What was whole a moment ago may not be so any more."""
    data = await backup.read(path)
    if kept is not None and await summed(data) != kept:
        raise Refused(f"{path} of {backup.id} was altered during the restore.")
    return data


async def _has(bank: Bank, entry: FileInfo | None, data: bytes) -> bool:
    if entry is None or entry.size != len(data):
        return False
    try:
        return await bank.files.read(entry.path) == data
    except NotFound:
        return False


async def _before_all(step: Awaitable[T]) -> T:
    try:
        return await step
    except EverkeptError as error:
        raise Unavailable(
            f"Nothing was restored: the safety backup could not be made. {error.message}",
            hint="Make room beside the bank, or call again with createPreRestoreBackup=false.",
            reason=error.code,
        ) from error


def _stopped(left: Sequence[str], error: EverkeptError, restored: Restored) -> Unavailable:
    """Each file is old or new; the caller learns which."""
    facts: dict[str, Any] = {"restoredFiles": restored.files, "reason": error.code}
    if restored.safety is not None:
        facts["preRestoreBackupPath"] = restored.safety.address
    return Unavailable(
        f"The restore stopped after {len(restored.files)} files, without {_listed(left)}."
        f" {error.message}",
        hint="Restore again to finish it.",
        **facts,
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return ", ".join(names[:MOST_LISTED]) + more
