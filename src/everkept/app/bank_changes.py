"""Writes of memory bank files in the change log, and their undo."""

import logging

from everkept.app.bank import BANK_PROJECT_NOTE
from everkept.core.ports import Library
from everkept.core.projects import Project
from everkept.core.records import Change
from everkept.core.sessions import Session, ToolCall, get_acting_account
from everkept.core.text import compute_digest
from everkept.errors import EverkeptError, NotFound, Refused
from everkept.families.bank.banks import get_last_part, get_parent, is_ssh
from everkept.families.bank.file_versions import FileWrite
from everkept.families.bank.toolset import BankFamily
from everkept.values import Value

WRITE_MARK = "b"  # marks the id of a write
ID_CHARACTERS = 7
LOG_TOOL = "memory bank"  # in place of the tool, which the versions do not name

log = logging.getLogger(__name__)


class BankWrite(Value):
    """A write with the project of its bank, or an empty name if the bank has none yet."""

    write: FileWrite
    project: str

    @property
    def reference(self) -> str:
        place = get_last_part(get_parent(self.write.address)) or "bank"
        digest = compute_digest(f"{self.write.at} {self.write.address}")[:ID_CHARACTERS]
        return f"{place}:{WRITE_MARK}{digest}"

    @property
    def change(self) -> Change:
        return Change(0, self.write.at, LOG_TOOL, "", self.write.undoes, ())


class BankChanges:
    """The writes of all banks. Only the owner of this machine reads and writes banks."""

    def __init__(self, family: BankFamily, library: Library) -> None:
        self._family = family
        self._library = library

    async def list_writes(self, project: str | None = None) -> list[BankWrite]:
        """Return the writes to banks of one project, or of all that are not off."""
        versions = self._family.versions
        if versions is None or get_acting_account() is not None:
            return []
        known = {each.id: each for each in await self._library.list_projects(None)}
        found: list[BankWrite] = []
        for address in await versions.list_addresses():
            try:
                owner = await self._find_project(address, known)
            except (EverkeptError, OSError) as error:
                # One unreadable bank must not hide the changes of the others.
                log.warning("bank %s skipped in the log: %s", address, error)
                continue
            name = "" if owner is None else owner.name
            if project in (None, name) and not (owner is not None and owner.is_off):
                found += [BankWrite(write, name) for write in await versions.list_writes(address)]
        return found

    async def undo(self, written: BankWrite) -> str:
        """Undo a write, and return what that did. Raise Conflict if one of its files changed since."""
        versions, write = self._family.versions, written.write
        if versions is None or write.is_undone:
            raise Refused(
                f"Change {written.reference} is already undone.", hint="Run `everkept log` to see the changes."
            )
        bank = await self._family.banks.open_at(write.address)
        call = ToolCall(Session(client="undo", stateful=False), "undo")
        await versions.undo(self._family.banks.attach_history(bank, call), write)
        return write.describe("Restored")

    async def _find_project(self, address: str, known: dict[str, Project]) -> Project | None:
        """Return the project of a bank. Another machine is not contacted for it."""
        noted, _, _ = (await self._library.get_note(BANK_PROJECT_NOTE + address) or "").partition(" ")
        if noted in known or is_ssh(address):
            return known.get(noted)
        try:
            bank = await self._family.banks.open_at(address)
            return known.get(await self._family.records.find_project_id(bank) or "")
        except NotFound:
            return None
