"""Tools for stores: named banks that a user registers and a session selects."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from everkept.core.sessions import ToolCall
from everkept.core.text import has_control_characters
from everkept.core.times import Clock, format_iso
from everkept.errors import BankNotFound, EverkeptError, InvalidInput, NotFound, ReadOnly, Refused, Unavailable
from everkept.families.bank.banks import (
    FILE_SUFFIXES,
    SSH_SCHEME,
    Bank,
    Banks,
    StoreKind,
    StoreRegistration,
    exists,
    get_last_part,
    resolve_allowed,
)
from everkept.families.bank.core_files import ensure_core_files
from everkept.families.bank.graph.graph_events import LOG_PATH
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, ToolFamily, ToolWarning, tool
from everkept.values import Value, replace

LOOK_SECONDS = 3.0  # so that a machine that is off does not delay the list

StoreName = Annotated[str, Field("Id of the registered bank", name="storeId", max_length=200, blank=False)]
ProjectPath = Annotated[str, Field("Project folder, or ssh://user@host/path", max_length=4_096, blank=False)]
StoreKindChoice = Annotated[StoreKind, Field("local or remote; default: derived from the path", listed=False)]


class BankStoreView(Value):
    """One listed store. A store that did not answer is not available and has no details."""

    id: str
    path: str
    kind: StoreKind
    is_active: Annotated[bool, Field(name="isActive")]
    has_graph: Annotated[bool, Field(name="hasGraph")]
    file_count: Annotated[int, Field(name="fileCount")]
    last_used_at: Annotated[str, Field(name="lastUsedAt")]
    available: bool


class SelectedStore(Value):
    selected: bool
    id: str
    path: str
    memory_bank_dir: Annotated[str, Field(name="memoryBankDir")]
    created_files: Annotated[list[str] | None, Field(name="createdFiles")] = None
    note: str | None = None


class RegisteredView(Value):
    store_id: Annotated[str, Field(name="storeId")]
    project_path: Annotated[str, Field(name="projectPath")]
    kind: StoreKind
    last_used_at: Annotated[str, Field(name="lastUsedAt")]
    registered_at: Annotated[str, Field(name="registeredAt")]

    @classmethod
    def from_registration(cls, store: StoreRegistration) -> "RegisteredView":
        return cls(
            store.store_id, store.path, store.kind, format_iso(store.last_used_at), format_iso(store.registered_at)
        )


class RegisteredStore(Value):
    """Result of register_store. `available` is false if the store did not answer; it is registered anyway."""

    registered: bool
    store: RegisteredView
    available: bool | None = None
    warnings: list[ToolWarning] | None = None


class UnregisteredStore(Value):
    store_id: Annotated[str, Field(name="storeId")]
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class StoreAction(Value):
    """Result of `select_store` for the actions register and unregister."""

    success: bool
    action: Literal["register", "unregister"]
    store: RegisteredView | None = None
    store_id: Annotated[str | None, Field(name="storeId")] = None
    message: str | None = None
    available: bool | None = None
    warnings: list[ToolWarning] | None = None


class _StoreLook(Value):
    bank: Bank | None = None
    available: bool = False
    has_graph: bool = False
    file_count: int = 0


class StoreTools(ToolFamily):
    """Tools for stores, which are registered for the user and selected for the session."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock

    @tool()
    async def list_stores(self, call: ToolCall) -> dict[str, Any]:
        """List the active and the registered memory banks. Bank tools accept their storeId."""
        registered = await self._banks.registry.list_stores()
        active, *looks = await self._look_at_all(call, [store.path for store in registered])
        meant = call.session.bank or self._banks.options.place
        views = [
            _build_view(store, look, is_active=self._is_active(store, look, active, meant))
            for store, look in zip(registered, looks, strict=True)
        ]
        # If a bank has two names, the one used last is the active one.
        views.sort(key=lambda view: view.last_used_at, reverse=True)
        views.sort(key=lambda view: not view.is_active)
        if meant is not None and not (views and views[0].is_active):
            taken = {store.store_id for store in registered}
            views.insert(0, self._build_unregistered_view(active, meant, taken))
        # A dictionary, because null is part of the result.
        selected = None if meant is None else views[0].id
        return {"stores": to_json(views), "selectedStoreId": selected}

    # Also offered in read-only mode, in which it can only select.
    @tool(Effect.SESSION_ONLY)
    async def select_store(
        self,
        call: ToolCall,
        action: Annotated[Literal["select", "register", "unregister"], Field("What to do; default select")] = "select",
        path: ProjectPath | None = None,
        store_id: StoreName | None = None,
        kind: StoreKindChoice | None = None,
    ) -> SelectedStore | StoreAction:
        """Make a bank active for this session and create its missing core files."""
        if action == "select":
            return await self._select(call, path, store_id)
        if self._banks.options.read_only:
            raise ReadOnly(f"select_store cannot {action} in read-only mode.")
        if action == "register":
            if path is None or store_id is None:
                message = "Both path and storeId are required for register action."
                raise InvalidInput(message, hint="Pass both arguments.")
            made = await self.register_store(store_id, path, kind)
            return StoreAction(True, action, made.store, available=made.available, warnings=made.warnings)
        if store_id is None:
            message = "storeId is required for unregister action."
            raise InvalidInput(message, hint="Pass an id from list_stores.")
        gone = await self.unregister_store(store_id)
        return StoreAction(True, action, store_id=gone.store_id, message=gone.message)

    @tool(Effect.REPEATABLE)
    async def register_store(
        self, store_id: StoreName, path: ProjectPath, kind: StoreKindChoice | None = None
    ) -> RegisteredStore:
        """Register a memory bank folder under a name, or change the folder of a name."""
        if has_control_characters(store_id):
            message = "`storeId` contains a control character."
            raise InvalidInput(message, hint="Remove that character.", argument="storeId")
        address = await resolve_allowed(self._banks, path)
        derived = _get_kind(address)
        if kind not in (None, derived):
            raise InvalidInput(
                f"`kind` is {kind}, but {path} is a {derived} path.",
                hint="Omit kind, or pass a matching path. Remote paths begin with ssh://.",
                argument="kind",
            )
        try:
            silent = None
            address = await self._require_folder(address)
        except (Unavailable, Refused) as error:
            if derived == "local":
                raise
            silent = error
        view = RegisteredView.from_registration(await self._register(store_id, address, derived))
        if silent is None:
            return RegisteredStore(True, view)
        message = f"Registered {address}, although it could not be checked: {silent}"
        return RegisteredStore(True, view, False, [ToolWarning("store_unavailable", message)])

    @tool(Effect.REPEATABLE)
    async def unregister_store(self, store_id: StoreName) -> UnregisteredStore:
        """Remove a registered name. The bank's files stay."""
        await self._banks.registry.get(store_id)
        await self._banks.registry.remove(store_id)
        return UnregisteredStore(store_id, f'Store "{store_id}" removed from registry')

    async def _select(self, call: ToolCall, path: str | None, store_id: str | None) -> SelectedStore:
        if (path is None) == (store_id is None):
            wanted = "Either path or storeId is required for select action"
            raise InvalidInput(f"{wanted}{', not both' if path else ''}.", hint="Pass exactly one of them.")
        bank = None
        if path is not None:
            address = await resolve_allowed(self._banks, path)
        else:
            bank = await self._banks.find_bank(call, store_id)
            address = await self._get_address(bank, store_id or "")
        address = await self._require_folder(address)
        bank = bank or await self._banks.open_in_folder(address)
        made = await self._prepare_bank(bank)
        note = self._banks.select(call, bank)
        used = await self._note_use(address, store_id)
        return SelectedStore(note is None, used or get_last_part(address), address, bank.address, made or None, note)

    async def _get_address(self, bank: Bank | None, store_id: str) -> str:
        try:
            return (await self._banks.registry.get(store_id)).path
        except NotFound:
            if bank is None:
                raise
            return bank.home.address  # the active bank, which is not registered

    async def _prepare_bank(self, bank: Bank) -> list[str]:
        if not self._banks.options.read_only:
            return await ensure_core_files(bank)
        if not await exists(bank):
            raise BankNotFound(bank.address)
        return []

    async def _note_use(self, address: str, store_id: str | None) -> str | None:
        """Update the time of use. Return the name of the store if it is registered."""
        for store in await self._banks.registry.list_stores():
            if store.store_id == store_id or (store_id is None and store.path == address):
                if not self._banks.options.read_only:
                    await self._banks.registry.put(replace(store, last_used_at=self._clock()))
                return store.store_id
        return None

    async def _register(self, store_id: str, address: str, kind: StoreKind) -> StoreRegistration:
        now = self._clock()
        known = [s for s in await self._banks.registry.list_stores() if s.store_id == store_id]
        since = known[0].registered_at if known else now
        store = StoreRegistration(store_id, address, kind, since, now)
        await self._banks.registry.put(store)
        return store

    async def _require_folder(self, address: str) -> str:
        place = await self._banks.open_at(address)
        if await exists(place):
            return place.address
        is_file = await _is_file(place)
        wrong = "Path is a file, not a folder" if is_file else "Path does not exist"
        raise NotFound(
            "path",
            address,
            message=f"{wrong}: {place.address}.",
            hint="Pass the folder of a project or of a memory bank.",
        )

    async def _look_at_all(self, call: ToolCall, paths: Sequence[str]) -> list[_StoreLook]:
        """Check the session's bank, then the folders. A store that does not answer in time is skipped."""
        tasks = [asyncio.create_task(self._scan_files(call, path)) for path in (None, *paths)]
        try:
            await asyncio.wait(tasks, timeout=LOOK_SECONDS)
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() if task.done() else _StoreLook() for task in tasks]

    async def _scan_files(self, call: ToolCall, path: str | None) -> _StoreLook:
        bank = None
        try:
            if path is None:
                bank = await self._banks.find_bank(call)
            else:
                bank = await self._banks.open_in_folder(path)
            if bank is None or not await exists(bank):
                return _StoreLook(bank)
            seen = await bank.files.survey()
            count = sum(name.lower().endswith(FILE_SUFFIXES) for name in seen.files)
            has_graph = await bank.files.read_info(LOG_PATH) is not None
            return _StoreLook(bank, available=True, has_graph=has_graph, file_count=count)
        except EverkeptError:
            return _StoreLook(bank)

    def _is_active(self, store: StoreRegistration, look: _StoreLook, active: _StoreLook, meant: str | None) -> bool:
        if active.bank is not None and look.bank is not None:
            return active.bank.address == look.bank.address
        # One of them did not answer, so compare the paths.
        path = store.path.rstrip("/")
        return meant is not None and meant in (path, f"{path}/{self._banks.options.folder}")

    def _build_unregistered_view(self, look: _StoreLook, meant: str, taken: Collection[str]) -> BankStoreView:
        path = look.bank.home.address if look.bank else meant
        name = get_last_part(path)
        now = self._clock()
        unnamed = StoreRegistration(path if name in taken else name, path, _get_kind(path), now, now)
        return _build_view(unnamed, look, is_active=True)


def _build_view(store: StoreRegistration, look: _StoreLook, *, is_active: bool) -> BankStoreView:
    return BankStoreView(
        store.store_id,
        store.path,
        store.kind,
        is_active,
        look.has_graph,
        look.file_count,
        format_iso(store.last_used_at),
        look.available,
    )


async def _is_file(place: Bank) -> bool:
    try:
        found = await place.home.read_info(place.folder)
    except Refused:  # not a valid name
        return False
    return found is not None and not found.is_folder


def _get_kind(address: str) -> StoreKind:
    return "remote" if address.startswith(SSH_SCHEME) else "local"
