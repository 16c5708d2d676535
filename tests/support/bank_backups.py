"""A bank with a graph in its simplest form, and the tools that back both up."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broken_files import BreakingStores, Fuse
from everkept.core.sessions import ToolCall
from everkept.core.times import Clock
from everkept.errors import InvalidInput
from everkept.families.bank.backup_tools import BackupTools
from everkept.families.bank.banks import Bank, Banks
from everkept.families.bank.model import BankOptions
from everkept.families.bank.store_tools import StoreTools
from everkept.files.resolver import FileStoreResolver
from everkept.tools.tool import ToolWarning
from memory_bank import Banking, bank_in
from ssh_servers import LOOPBACK, Keys, asyncssh_server

GRAPH = "graph/graph.jsonl"


@dataclass
class LineGraph:
    """Stands for the mirror: the state is a text, and its file begins with a marker."""

    state: str = ""
    changes: int = 0
    failing: list[str] = field(default_factory=list[str])

    async def append_changes(self, bank: Bank) -> list[ToolWarning]:
        if "follow" in self.failing:
            return [ToolWarning("graph_file_behind", "The graph's file is broken.")]
        if self.state:
            await bank.files.write(GRAPH, f"marker {self.state}".encode())
        return []

    def parse_state(self, data: bytes) -> str:
        if not data.startswith(b"marker "):
            raise InvalidInput("There is no marker.")
        return data.removeprefix(b"marker ").decode()

    async def set_state(self, bank: Bank, state: Any, call: ToolCall) -> None:
        if "set_state" in self.failing:
            raise InvalidInput("The records could not be changed.")
        self.state = state
        self.changes += 1
        await self.append_changes(bank)


@dataclass
class BackingUp:
    """A bank, what it is backed up with, and the fuse that all its folders hang on."""

    banking: Banking
    graph: LineGraph
    fuse: Fuse

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return await self.banking(tool, **arguments)

    @property
    def home(self) -> Path:
        return self.banking.home

    @property
    def folder(self) -> Path:
        return self.banking.folder

    def put(self, name: str, text: str | bytes) -> None:
        self.banking.put(name, text)

    def get(self, name: str) -> str:
        return self.banking.get(name)

    def backups(self) -> list[Path]:
        """Everything in the home that has to do with backups, hidden or not."""
        return sorted(path for path in self.home.iterdir() if "backup" in path.name)

    def state(self) -> dict[str, bytes]:
        return state_of(self.folder)


@asynccontextmanager
async def backing_up(home: Path, *, clock: Clock | None = None, **more: Any) -> AsyncGenerator[BackingUp, None]:
    async with bank_in(home, **more) as banking:
        fuse = Fuse()
        files = BreakingStores(banking.files, fuse)
        banks = Banks(files, banking.banks.registry, banking.banks.options)
        graph = LineGraph()
        banking.offer(BackupTools(banks, files, graph, clock or banking.clock))
        yield BackingUp(banking, graph, fuse)


@asynccontextmanager
async def backing_up_far_away(scratch: Path) -> AsyncGenerator[BackingUp, None]:
    """The same over SSH: the server shows the folder `there` of the scratch folder."""
    keys = Keys.made_in(scratch / "keys")
    home = scratch / "there" / "project"
    async with bank_in(home) as banking, asyncssh_server(scratch / "there", keys) as server:
        files = FileStoreResolver(server.options)
        place = f"ssh://{server.user}@{LOOPBACK}:{server.port}/project"
        banks = Banks(files, banking.banks.registry, BankOptions(place=place))
        graph = LineGraph()
        banking.offer(BackupTools(banks, files, graph, banking.clock), StoreTools(banks, banking.clock))
        try:
            yield BackingUp(banking, graph, Fuse())
        finally:
            await files.close()


def state_of(folder: Path) -> dict[str, bytes]:
    """All files of a folder with all below it, without what locks leave."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".lock")
    }
