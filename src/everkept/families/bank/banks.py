"""Which bank a call means, and where it lies."""

from pathlib import PurePath
from typing import Protocol

from everkept.core.files import FileStore, FileStores
from everkept.core.ports import RecordStore
from everkept.core.sessions import Call
from everkept.errors import NOWHERE, BankNotFound, Refused
from everkept.families.bank.model import LEGACY_NAMES, BankOptions
from everkept.families.bank.registry import Registry
from everkept.values import Value

SSH = "ssh://"
# A folder with one of these is a bank; a progress.md alone may lie in any project.
TELLING = (*LEGACY_NAMES, *LEGACY_NAMES.values())
STATELESS = "This connection keeps no state: register the store and pass `storeId` with each call."


class Bank(Value):
    """One bank: its own folder, and the folder of the project around it."""

    files: FileStore
    home: FileStore

    @property
    def address(self) -> str:
        return self.files.address

    @property
    def folder(self) -> str:
        return last_part(self.files.address)


class BankRecords(Protocol):
    """The records of the project that a bank belongs to: its graph, and the index of its files."""

    async def project_id(self, bank: Bank) -> str | None:
        """None where it is yet to be made."""
        ...

    async def to_read(self, bank: Bank) -> RecordStore:
        """A project that is yet to be made reads as an empty one."""
        ...

    async def to_write(self, bank: Bank) -> RecordStore: ...


class Banks:
    """The call's store, then the one that the session chose, then the one of the start."""

    def __init__(self, files: FileStores, registry: Registry, options: BankOptions) -> None:
        self._files = files
        self.registry = registry
        self.options = options

    async def existing(self, call: Call, store_id: str | None = None) -> Bank:
        """Raises BankNotFound."""
        place = self.options.place
        if store_id is None and call.session.bank is None and place is not None:
            # Where nearly every call finds its bank, without looking at other places.
            bank = await self.at(self._inside(place))
            if await _is_inside(bank):
                return bank
        bank = await self.chosen(call, store_id)
        if bank is None:
            raise BankNotFound(NOWHERE)
        if not await exists(bank):
            raise BankNotFound(bank.address)
        return bank

    def _inside(self, address: str) -> str:
        return f"{address.rstrip('/')}/{self.options.folder}"

    async def chosen(self, call: Call, store_id: str | None = None) -> Bank | None:
        """It need not exist yet; None where no folder was ever named."""
        if store_id is not None:
            return await self.in_folder((await self.registry.get(store_id)).path)
        if call.session.bank is not None:
            return await self.at(call.session.bank)
        if self.options.place is None:
            return None
        return await self.in_folder(self.options.place)

    async def in_folder(self, address: str) -> Bank:
        """The bank of a project's folder; what is a bank itself counts as one."""
        inner = await self.at(self._inside(address))
        if await _is_inside(inner):
            return inner
        itself = last_part(address) == self.options.folder or await self._is_bank(address)
        return await self.at(address) if itself else inner

    async def at(self, address: str) -> Bank:
        return Bank(await self._files.at(address), await self._files.at(parent_of(address)))

    async def check_named(self, address: str) -> None:
        """Refused for a folder that a caller may not name: whoever calls from another machine
        gets no more of this one, and of its keys, than somebody here has named."""
        if self.options.free_paths:
            return
        place = self.options.place
        stores = [store.path for store in await self.registry.all()]
        named = [*stores, *([] if place is None else [place])]
        known = {await self._identity(each) for each in named}
        known |= {await self._identity(self._inside(each)) for each in named}
        if await self._identity(address) not in known:
            raise Refused(
                f"{address} is no memory bank that was named on this machine.",
                hint="On the machine: everkept register-store ID PATH. Then pass it as storeId.",
                argument="path",
            )

    async def _identity(self, address: str) -> str:
        """Equal for two ways to one folder of this machine; others are not asked."""
        if _is_ssh(address):
            return address.rstrip("/")
        return (await self._files.at(address)).address

    def select(self, call: Call, bank: Bank) -> str | None:
        """From now on the session means this bank; says so where it cannot be remembered."""
        if not call.session.stateful:
            return STATELESS
        call.session.bank = bank.address
        return None

    async def _is_bank(self, address: str) -> bool:
        files = await self._files.at(address)
        for name in TELLING:
            if await files.info(name) is not None:
                return True
        return False


async def exists(bank: Bank) -> bool:
    found = await bank.files.info()
    return found is not None and found.is_folder


async def _is_inside(bank: Bank) -> bool:
    """Whether the folder of a project has this bank; Refused where it is a link that leads out.

    Somebody else's repository must not make of any folder a bank. Who means the other folder
    names it.
    """
    found = await bank.home.info(bank.folder)
    return found is not None and found.is_folder


def last_part(address: str) -> str:
    return address.rstrip("/").rpartition("/")[2] if _is_ssh(address) else PurePath(address).name


def parent_of(address: str) -> str:
    if not _is_ssh(address):
        return str(PurePath(address).parent)
    host, _, path = address.removeprefix(SSH).partition("/")
    return f"{SSH}{host}/{path.rstrip('/').rpartition('/')[0]}"


def _is_ssh(address: str) -> bool:
    return address.startswith(SSH)
