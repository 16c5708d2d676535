"""The bank that a call means: a registered store, the session's bank, or a path in the call."""

import json
import posixpath
from pathlib import PurePath
from typing import Any, Literal, Protocol, cast
from urllib.parse import quote

from everkept.core.files import FileStore, FileStores
from everkept.core.ports import Library, RecordStore
from everkept.core.sessions import Call
from everkept.errors import NOWHERE, BankNotFound, InvalidInput, NotFound, Refused
from everkept.families.bank.model import LEGACY_NAMES, BankOptions
from everkept.values import Value

StoreKind = Literal["local", "remote"]
_PREFIX = "bank store "


class Registered(Value):
    store_id: str
    path: str  # of the folder around the bank, or of the bank itself
    kind: StoreKind
    registered_at: int
    last_used_at: int


class Registry:
    """One note for each store, so that two who register at once do not undo each other."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def all(self) -> list[Registered]:
        """In the order they were registered."""
        notes = await self._library.notes(_PREFIX)
        found = [_read(key.removeprefix(_PREFIX), value) for key, value in notes.items()]
        return sorted(found, key=lambda store: (store.registered_at, store.store_id))

    async def get(self, store_id: str) -> Registered:
        value = await self._library.note(_PREFIX + store_id)
        if value is None:
            raise NotFound(
                "store",
                store_id,
                message=f'Store "{store_id}" not found in registry.',
                hint="list_stores shows what there is; register_store adds one.",
            )
        return _read(store_id, value)

    async def put(self, store: Registered) -> None:
        value = {
            "path": store.path,
            "kind": store.kind,
            "registered_at": store.registered_at,
            "last_used_at": store.last_used_at,
        }
        await self._library.set_note(
            _PREFIX + store.store_id, json.dumps(value, ensure_ascii=False)
        )

    async def remove(self, store_id: str) -> bool:
        """False where there was none."""
        if await self._library.note(_PREFIX + store_id) is None:
            return False
        await self._library.set_note(_PREFIX + store_id, None)
        return True


def _read(store_id: str, value: str) -> Registered:
    return Registered(store_id, **cast(dict[str, Any], json.loads(value)))


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


async def reached(banks: Banks, path: str) -> str:
    """The address of a folder that a caller may use; Refused for others."""
    address = resolved(path, banks.options.place)
    await banks.check_named(address)
    return address


def resolved(path: str, place: str | None) -> str:
    """The address of a folder; relative paths begin at `place`, the folder of the start.

    Where that is on another machine, so is every path that names none itself.
    """
    if "://" in path:
        return _checked(path)
    if place is not None and place.startswith(SSH):
        return _there(path, place)
    if path.startswith("~") or PurePath(path).is_absolute():
        return path
    if place is None:
        raise InvalidInput(
            f'"{path}" is relative, and no folder was chosen at the start.',
            hint="Give an absolute path.",
            argument="path",
            value=path,
        )
    return str(_without_dots(PurePath(place) / path))


def _checked(path: str) -> str:
    """As it was given: once the bank's folder is joined to it, nobody knows it again.

    What an address with an `@` lacks is told by who opens it, without what may be a password.
    """
    scheme, _, rest = path.partition("://")
    if scheme.lower() != "ssh":
        raise _invalid(f'"{scheme}://…" is no address that is known here.')
    authority = rest.partition("/")[0]
    if "@" not in authority:
        raise _invalid(f'"{path}" names no {"user" if authority else "machine"}.')
    return SSH + rest


def _invalid(message: str) -> InvalidInput:
    hint = "Give a path, or an address as in ssh://me@example.com/home/me/project."
    return InvalidInput(message, hint=hint, argument="path")


def _there(path: str, place: str) -> str:
    host, slash, start = place.removeprefix(SSH).partition("/")
    if path == "~" or path.startswith("~/"):
        return f"{SSH}{host}/{quote(path)}"
    joined = posixpath.normpath(posixpath.join(f"{slash}{start}" or "/", quote(path)))
    return f"{SSH}{host}{joined}"


def _without_dots(path: PurePath) -> PurePath:
    """Names of the folder itself and of the one above are worked out, as people mean them."""
    kept: list[str] = []
    for part in path.parts[1:]:
        if part == "..":
            kept = kept[:-1]
        elif part != ".":
            kept.append(part)
    return PurePath(path.anchor, *kept)
