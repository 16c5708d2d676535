"""The tools for stores: banks with a name, registered by a user, selected by a session."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal

from everkept.core.sessions import Call
from everkept.core.text import has_control_characters
from everkept.core.times import Clock, iso
from everkept.errors import (
    BankNotFound,
    EverkeptError,
    InvalidInput,
    NotFound,
    ReadOnly,
    Refused,
    Unavailable,
)
from everkept.families.bank.banks import (
    ENDINGS,
    SSH,
    Bank,
    Banks,
    Registered,
    StoreKind,
    exists,
    last_part,
    reached,
)
from everkept.families.bank.core_files import ensure_core_files
from everkept.families.bank.graph.events import LOG
from everkept.tools.schema import Field, to_json
from everkept.tools.tool import Effect, Family, Warned, tool
from everkept.values import Value, replace

LOOKING = 3.0  # seconds, so that a machine that is off does not hold up the list

Id = Annotated[str, Field("Name of the store.", name="storeId", max_length=200, blank=False)]
ProjectPath = Annotated[
    str, Field("Project folder, or ssh://user@host/path.", max_length=4_096, blank=False)
]
Kind = Annotated[StoreKind, Field("Default: what the path says.")]


class StoreView(Value):
    """One line of the list; a store that did not answer is not available, and tells nothing."""

    id: str
    path: str
    kind: StoreKind
    is_active: Annotated[bool, Field(name="isActive")]
    has_graph: Annotated[bool, Field(name="hasGraph")]
    file_count: Annotated[int, Field(name="fileCount")]
    last_used_at: Annotated[str, Field(name="lastUsedAt")]
    available: bool


class Selected(Value):
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
    def of(cls, store: Registered) -> "RegisteredView":
        return cls(
            store.store_id,
            store.path,
            store.kind,
            iso(store.last_used_at),
            iso(store.registered_at),
        )


class RegisteredStore(Value):
    """`available` is there where the store did not answer: it is registered all the same."""

    registered: bool
    store: RegisteredView
    available: bool | None = None
    warnings: list[Warned] | None = None


class UnregisteredStore(Value):
    store_id: Annotated[str, Field(name="storeId")]
    message: str

    @property
    def sentence(self) -> str:
        return self.message


class StoreAction(Value):
    """What `select_store` answers to the other two actions."""

    success: bool
    action: Literal["register", "unregister"]
    store: RegisteredView | None = None
    store_id: Annotated[str | None, Field(name="storeId")] = None
    message: str | None = None
    available: bool | None = None
    warnings: list[Warned] | None = None


class _Look(Value):
    """What a store shows at a glance."""

    bank: Bank | None = None
    available: bool = False
    has_graph: bool = False
    file_count: int = 0


class StoreTools(Family):
    """Stores are registered for the user, and selected for the session."""

    def __init__(self, banks: Banks, clock: Clock) -> None:
        self._banks = banks
        self._clock = clock

    @tool()
    async def list_stores(self, call: Call) -> dict[str, Any]:
        """List the active memory bank store and the registered ones."""
        registered = await self._banks.registry.all()
        active, *looks = await self._looks(call, [store.path for store in registered])
        meant = call.session.bank or self._banks.options.place
        views = [
            _view(store, look, is_active=self._is_active(store, look, active, meant))
            for store, look in zip(registered, looks, strict=True)
        ]
        # Of two names for one bank the session means the one that was used last.
        views.sort(key=lambda view: view.last_used_at, reverse=True)
        views.sort(key=lambda view: not view.is_active)
        if meant is not None and not (views and views[0].is_active):
            taken = {store.store_id for store in registered}
            views.insert(0, self._unregistered(active, meant, taken))
        # As a dictionary, because the null is part of the answer.
        selected = None if meant is None else views[0].id
        return {"stores": to_json(views), "selectedStoreId": selected}

    # Offered where only reading is allowed too: it then selects, and does nothing else.
    @tool(Effect.SELECTS)
    async def select_store(
        self,
        call: Call,
        action: Annotated[
            Literal["select", "register", "unregister"], Field("What to do.")
        ] = "select",
        path: ProjectPath | None = None,
        store_id: Id | None = None,
        kind: Kind | None = None,
    ) -> Selected | StoreAction:
        """Make a store the session's memory bank, creating core files that it lacks."""
        if action == "select":
            return await self._selected(call, path, store_id)
        if self._banks.options.read_only:
            raise ReadOnly(f"select_store may not {action} here: only reading is allowed.")
        if action == "register":
            if path is None or store_id is None:
                raise InvalidInput("Both path and storeId are required for register action.")
            made = await self.register_store(store_id, path, kind)
            return StoreAction(
                True, action, made.store, available=made.available, warnings=made.warnings
            )
        if store_id is None:
            raise InvalidInput("storeId is required for unregister action.")
        gone = await self.unregister_store(store_id)
        return StoreAction(True, action, store_id=gone.store_id, message=gone.message)

    @tool(Effect.REPEATABLE)
    async def register_store(
        self, store_id: Id, path: ProjectPath, kind: Kind | None = None
    ) -> RegisteredStore:
        """Give a folder with a memory bank a name, or an existing name another folder."""
        if has_control_characters(store_id):
            raise InvalidInput("`storeId` holds a control character.", argument="storeId")
        address = await reached(self._banks, path)
        derived = _kind_of(address)
        if kind not in (None, derived):
            raise InvalidInput(
                f"`kind` is {kind}, but {path} is a {derived} path.",
                hint="A remote store has a path like ssh://user@host/path; kind may be left out.",
                argument="kind",
            )
        try:
            silent = None
            address = await self._existing_folder(address)
        except (Unavailable, Refused) as error:
            if derived == "local":
                raise
            silent = error
        view = RegisteredView.of(await self._noted(store_id, address, derived))
        if silent is None:
            return RegisteredStore(True, view)
        message = f"{address} is registered, though it could not be looked at: {silent}"
        return RegisteredStore(True, view, False, [Warned("store_unavailable", message)])

    @tool(Effect.REPEATABLE)
    async def unregister_store(self, store_id: Id) -> UnregisteredStore:
        """Forget a store's name; its files stay."""
        await self._banks.registry.get(store_id)
        await self._banks.registry.remove(store_id)
        return UnregisteredStore(store_id, f'Store "{store_id}" removed from registry')

    async def _selected(self, call: Call, path: str | None, store_id: str | None) -> Selected:
        if (path is None) == (store_id is None):
            wanted = "Either path or storeId is required for select action"
            raise InvalidInput(f"{wanted}{', not both' if path else ''}.")
        if store_id is not None:
            address = (await self._banks.registry.get(store_id)).path
        else:
            address = await reached(self._banks, path or "")
        address = await self._existing_folder(address)
        bank = await self._banks.in_folder(address)
        made = await self._made_whole(bank)
        note = self._banks.select(call, bank)
        used = await self._noted_use(address, store_id)
        return Selected(
            note is None, used or last_part(address), address, bank.address, made or None, note
        )

    async def _made_whole(self, bank: Bank) -> list[str]:
        if not self._banks.options.read_only:
            return await ensure_core_files(bank)
        if not await exists(bank):
            raise BankNotFound(bank.address)
        return []

    async def _noted_use(self, address: str, store_id: str | None) -> str | None:
        """The name under which the store is registered, if it is."""
        for store in await self._banks.registry.all():
            if store.store_id == store_id or (store_id is None and store.path == address):
                if not self._banks.options.read_only:
                    await self._banks.registry.put(replace(store, last_used_at=self._clock()))
                return store.store_id
        return None

    async def _noted(self, store_id: str, address: str, kind: StoreKind) -> Registered:
        now = self._clock()
        known = [s for s in await self._banks.registry.all() if s.store_id == store_id]
        since = known[0].registered_at if known else now
        store = Registered(store_id, address, kind, since, now)
        await self._banks.registry.put(store)
        return store

    async def _existing_folder(self, address: str) -> str:
        place = await self._banks.at(address)
        if await exists(place):
            return place.address
        is_file = await _is_file(place)
        wrong = "Path is a file, not a folder" if is_file else "Path does not exist"
        raise NotFound(
            "path",
            address,
            message=f"{wrong}: {place.address}.",
            hint="A store is a folder: that of a project, or of a memory bank itself.",
        )

    async def _looks(self, call: Call, paths: Sequence[str]) -> list[_Look]:
        """At what the session means, then at the folders; nobody waits for one that hangs."""
        tasks = [asyncio.create_task(self._look(call, path)) for path in (None, *paths)]
        try:
            await asyncio.wait(tasks, timeout=LOOKING)
        finally:
            for task in tasks:
                task.cancel()
        return [task.result() if task.done() else _Look() for task in tasks]

    async def _look(self, call: Call, path: str | None) -> _Look:
        bank = None
        try:
            if path is None:
                bank = await self._banks.chosen(call)
            else:
                bank = await self._banks.in_folder(path)
            return await _looked(bank) if bank and await exists(bank) else _Look(bank)
        except EverkeptError:
            return _Look(bank)

    def _is_active(self, store: Registered, look: _Look, active: _Look, meant: str | None) -> bool:
        if active.bank is not None and look.bank is not None:
            return active.bank.address == look.bank.address
        # One of them did not answer: then what is written must do.
        path = store.path.rstrip("/")
        return meant is not None and meant in (path, f"{path}/{self._banks.options.folder}")

    def _unregistered(self, look: _Look, meant: str, taken: Collection[str]) -> StoreView:
        path = look.bank.home.address if look.bank else meant
        name = last_part(path)
        now = self._clock()
        unnamed = Registered(path if name in taken else name, path, _kind_of(path), now, now)
        return _view(unnamed, look, is_active=True)


async def _looked(bank: Bank) -> _Look:
    seen = await bank.files.survey()
    count = sum(name.lower().endswith(ENDINGS) for name in seen.files)
    has_graph = await bank.files.info(LOG) is not None
    return _Look(bank, available=True, has_graph=has_graph, file_count=count)


def _view(store: Registered, look: _Look, *, is_active: bool) -> StoreView:
    return StoreView(
        store.store_id,
        store.path,
        store.kind,
        is_active,
        look.has_graph,
        look.file_count,
        iso(store.last_used_at),
        look.available,
    )


async def _is_file(place: Bank) -> bool:
    try:
        found = await place.home.info(place.folder)
    except Refused:  # no name that a folder of ours can hold
        return False
    return found is not None and not found.is_folder


def _kind_of(address: str) -> StoreKind:
    return "remote" if address.startswith(SSH) else "local"
