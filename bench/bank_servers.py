"""The servers of a memory bank: how each is installed, given a folder, started and asked."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from everkept.cli.selftest_workers import SelftestConnection
from servers import CHECKOUT, own_environment
from servers import node_program as node
from servers import npm_command as npm

TOOLS = CHECKOUT / ".tools" / "memory-bank"
PACKAGE = "@movibe/memory-bank-mcp"
FOLDER = "memory-bank"
CORE = {
    "product-context.md": "# Project Overview\n\n## Description\n\n{text}\n",
    "active-context.md": "# Current Context\n\n## Ongoing Tasks\n\n- {text}\n\n## Known Issues\n\n"
    "## Next Steps\n\n## Current Session Notes\n",
    "progress.md": "# Project Progress\n\n## Update History\n\n{entries}\n",
    "decision-log.md": "# Decision Log\n\n{decisions}\n",
    "system-patterns.md": "# System Patterns\n\n## Code Patterns\n\n{text}\n",
}
STEMS = ("order", "invoice", "cache", "token", "queue", "index", "login", "worker", "limit", "parser")
ENDINGS = tuple(f"{first}{second}" for first in "bdfgklmnprst" for second in ("ade", "ine", "olt"))

Operation = Callable[[SelftestConnection, "BankFolder"], Any]


class BankFolder:
    """A bank with as many files as asked for, the same for the same size."""

    def __init__(self, home: Path, size: int) -> None:
        self._chance = random.Random(size)
        self._written = 0
        self.home = home
        self.path = home / FOLDER
        self.path.mkdir(parents=True)
        for name, text in CORE.items():
            self._put(name, self._filled(text))
        self.notes = [f"note-{number}.md" for number in range(max(0, size - len(CORE)))]
        for name in self.notes:
            self._put(name, f"# {self.words(3)}\n\n{self.words(60)}\n\n## Detail\n\n{self.words(60)}\n")

    def some_name(self) -> str:
        return self._chance.choice(self.notes or list(CORE))

    def words(self, count: int) -> str:
        chance = self._chance
        return " ".join(chance.choice(STEMS) + chance.choice(ENDINGS) for _ in range(count))

    def new_text(self) -> str:
        self._written += 1
        return f"# Written {self._written}\n\n{self.words(100)}\n"

    def _filled(self, text: str) -> str:
        entries = [f"- [2026-02-{d:02} 10:30:00] [Ada] - Work: {self.words(12)}" for d in range(1, 29)]
        decisions = [
            f"## {self.words(4)}\n- **Date:** 2026-02-{day:02} 10:30:00\n- **Context:** "
            f"{self.words(15)}\n- **Decision:** {self.words(15)}\n"
            for day in range(1, 21)
        ]
        return text.format(text=self.words(80), entries="\n".join(entries[::-1]), decisions="\n".join(decisions))

    def _put(self, name: str, text: str) -> None:
        (self.path / name).write_text(text, "utf-8")


def _read(wire: SelftestConnection, bank: BankFolder) -> object:
    return wire.call("read_memory_bank_file", {"filename": bank.some_name()})


def _write(wire: SelftestConnection, bank: BankFolder) -> object:
    arguments = {"filename": "written.md", "content": bank.new_text()}
    return wire.call("write_memory_bank_file", arguments)


def _track(wire: SelftestConnection, bank: BankFolder) -> object:
    return wire.call("track_progress", {"action": "Work", "description": bank.words(8)})


class BankServer(Protocol):
    name: str
    operations: Mapping[str, Operation]

    def start(self, folder: Path, bank: BankFolder) -> SelftestConnection: ...


class Everkept:
    name = "everkept"

    def __init__(self, bytecode: Path) -> None:
        self._environment = own_environment(bytecode)
        self.operations: Mapping[str, Operation] = {
            "read": _read,
            "write": _write,
            "track progress": _track,
            "status": lambda wire, _: wire.call("get_memory_bank_status", {}),
            "search": lambda wire, bank: wire.call("search_memory_bank", {"query": bank.words(2)}),
            "digest": lambda wire, _: wire.call("get_context_digest", {}),
        }

    def start(self, folder: Path, bank: BankFolder) -> SelftestConnection:
        options = ("--toolsets", "bank", "--data-dir", str(folder), "--path", str(bank.home))
        wire = SelftestConnection((sys.executable, "-m", "everkept", "serve", *options), environment=self._environment)
        wire.initialize("bench")
        return wire


class Ancestor:
    """The server that the public one grew out of: files and progress, no graph and no search."""

    name = "memory-bank-mcp"

    def __init__(self) -> None:
        self._program = _install()
        self.operations: Mapping[str, Operation] = {
            "read": _read,
            "write": _write,
            "track progress": _track,
            "status": lambda wire, _: wire.call("get_memory_bank_status", {"random_string": ""}),
        }

    def start(self, folder: Path, bank: BankFolder) -> SelftestConnection:
        command = (node(), str(self._program), "--path", str(bank.home))
        wire = SelftestConnection(command, environment={**os.environ})
        wire.initialize("bench")
        wire.call("set_memory_bank_path", {"path": str(bank.home)})
        return wire


def ancestor_version() -> str:
    described = TOOLS / "node_modules" / PACKAGE / "package.json"
    return json.loads(described.read_text("utf-8"))["version"]


def _install() -> Path:
    program = TOOLS / "node_modules" / PACKAGE / "build" / "index.js"
    if not program.exists():
        TOOLS.mkdir(parents=True, exist_ok=True)
        command = [*npm(), "install", "--silent", "--prefix", str(TOOLS), PACKAGE]
        subprocess.run(command, stdout=sys.stderr, check=True)
    return program
