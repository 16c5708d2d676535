"""A memory bank on a temporary folder, and an assistant that works with it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assistant import Time
from everkept.core.files import FileStores
from everkept.core.ports import Library, RecordStore
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import compute_digest
from everkept.engines.memory.library import MemoryLibrary
from everkept.engines.memory.store import MemoryStore
from everkept.errors import NotFound
from everkept.families.bank.banks import Bank, Banks, StoreRegistry
from everkept.families.bank.model import BankOptions, rephrase_errors
from everkept.files.resolver import FileStoreResolver
from everkept.tools.tool import ToolFamily, ToolResult, Toolset


class HomeRecords:
    """The records of a bank: one project for each folder that banks lie in."""

    def __init__(self, library: Library) -> None:
        self._library = library

    async def find_project_id(self, bank: Bank) -> str | None:
        try:
            return (await self._library.get_project(_project_name(bank))).id
        except NotFound:
            return None

    async def open_to_read(self, bank: Bank) -> RecordStore:
        if await self.find_project_id(bank) is None:
            return MemoryStore()
        _, store = await self._library.open(_project_name(bank))
        return store

    async def open_to_write(self, bank: Bank) -> RecordStore:
        if await self.find_project_id(bank) is None:
            await self._library.create(_project_name(bank), "")
        return await self.open_to_read(bank)


@dataclass
class Banking:
    """Everything that the bank's families are built from; `folder` is the bank's on disk."""

    home: Path
    folder: Path
    files: FileStores
    library: Library
    banks: Banks
    bank: Bank
    session: Session
    clock: Time = field(default_factory=Time)
    tools: Toolset = field(default_factory=lambda: Toolset([]))

    @property
    def records(self) -> HomeRecords:
        return HomeRecords(self.library)

    def offer(self, *families: ToolFamily) -> None:
        """From now on the tools of these families can be called."""
        self.tools = Toolset([rephrase_errors(tool) for family in families for tool in family.list_tools()])

    def call(self, tool: str = "test") -> ToolCall:
        return ToolCall(self.session, tool)

    async def result(self, tool: str, **arguments: Any) -> ToolResult:
        return await self.tools.get(tool).run(self.call(tool), arguments)

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return (await self.result(tool, **arguments)).facts

    async def text(self, tool: str, **arguments: Any) -> str:
        return (await self.result(tool, **arguments)).text

    def put(self, name: str, text: str | bytes) -> None:
        """As an editor does: straight to the disk, line ends as they are."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)

    def get(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode("utf-8")

    def names(self) -> list[str]:
        """What lies in the bank's folder, locks and other hidden files left out."""
        return sorted(p.name for p in self.folder.iterdir() if not p.name.startswith("."))


@asynccontextmanager
async def bank_in(
    home: Path,
    *,
    options: BankOptions | None = None,
    library: Library | None = None,
    session: Session | None = None,
    made: bool = True,
    files: FileStores | None = None,
) -> AsyncGenerator[Banking, None]:
    """A bank in the folder; `made` says whether its own folder is there at the beginning.

    With `files` of one's own the bank may lie elsewhere: in the place that the options name.
    """
    library = library or MemoryLibrary()
    is_elsewhere = files is not None
    files = files or FileStoreResolver()
    options = options or BankOptions(place=str(home))
    banks = Banks(files, StoreRegistry(library), options)
    folder = home / options.folder
    if made:
        folder.mkdir(parents=True, exist_ok=True)
    bank = await (banks.open_in_folder(options.place or "") if is_elsewhere else banks.open_at(str(folder)))
    session = session or Session(client="test", id="one")
    try:
        yield Banking(home, folder, files, library, banks, bank, session)
    finally:
        await files.close()


def _project_name(bank: Bank) -> str:
    return f"bank-{compute_digest(bank.home.address)[:8]}"
