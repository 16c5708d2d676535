"""The servers that keep memories: how each is filled, started and asked."""

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from everkept.cli.selftest_workers import JSON, CallFailed, SelftestConnection
from everkept.embedders.onnx import OnnxEmbedder
from everkept.engines.sqlite.library import SqliteLibrary
from memory_fill import fill
from memory_workload import Memory, MemoryWorkload, Question
from servers import PROJECT, own_environment

READY = 120.0  # seconds that a server gets until it searches by meaning
LIMIT = 10  # memories in an answer
TOKENS = 2_000  # of a context

# Says whether the answer held what was asked about; None where nothing certain was.
Operation = Callable[[SelftestConnection, MemoryWorkload], bool | None]

BY_WORDS = "recall, keyword"
BY_MEANING = "recall, vector"
HYBRID = "recall, hybrid"


class MemoryServer(Protocol):
    name: str
    largest: int  # memories that it is measured with
    operations: Mapping[str, Operation]

    def fill(self, folder: Path, workload: MemoryWorkload) -> None:
        """Makes its data in an empty folder."""
        ...

    def start(self, folder: Path) -> SelftestConnection:
        """A server on that data that has answered `initialize`."""
        ...

    def wait_until_ready(self, wire: SelftestConnection, workload: MemoryWorkload) -> None:
        """Returns when it searches by meaning too."""
        ...

    def store(self, wire: SelftestConnection, memory: Memory) -> str:
        """The id that it got."""
        ...

    def forget(self, wire: SelftestConnection, memory_id: str) -> None: ...

    def count(self, wire: SelftestConnection) -> int:
        """How many memories it has."""
        ...


class Everkept:
    name = "everkept"
    largest = sys.maxsize

    def __init__(self, bytecode: Path) -> None:
        self._environment = own_environment(bytecode)
        self.warnings: Counter[str] = Counter()  # their codes, of all answers since the start
        self.operations: Mapping[str, Operation] = {
            BY_WORDS: lambda wire, load: self._recall(wire, load.question(), "keyword"),
            BY_MEANING: lambda wire, load: self._recall(wire, load.question(), "vector"),
            HYBRID: lambda wire, load: self._recall(wire, load.question(), "hybrid"),
            "recall, graph": self._recall_by_graph,
            "context": self._context,
            "walk, 1 hop": lambda wire, load: self._walk(wire, load, 1),
            "walk, 3 hops": lambda wire, load: self._walk(wire, load, 3),
            "consolidate a session": self._consolidate,
        }

    def fill(self, folder: Path, workload: MemoryWorkload) -> None:
        async def work() -> None:
            library, embedder = SqliteLibrary(folder), OnnxEmbedder()
            await fill(library, PROJECT, workload, embedder)
            await library.close()
            await embedder.close()

        asyncio.run(work())

    def start(self, folder: Path) -> SelftestConnection:
        command = (sys.executable, "-m", "everkept", "serve")
        options = ("--data-dir", str(folder), "--project", PROJECT)
        log = sys.stderr.fileno()  # silent as long as all is well
        wire = SelftestConnection((*command, *options), environment=self._environment, log=log)
        wire.initialize("bench")
        return wire

    def wait_until_ready(self, wire: SelftestConnection, workload: MemoryWorkload) -> None:
        deadline = time.monotonic() + READY
        while True:
            answer = wire.call("recall_memories", {"query": workload.question().text})
            warnings = answer.get("warnings")
            if answer["strategy_used"] == "hybrid" and not warnings:
                return
            if time.monotonic() > deadline:
                sys.exit(f"No search by meaning within {READY:g} seconds: {warnings}")
            time.sleep(0.01)

    def store(self, wire: SelftestConnection, memory: Memory) -> str:
        entities = [
            {"name": entity.name, "type": entity.type, "relationship": verb} for entity, verb in memory.entities
        ]
        answer = self._call(
            wire,
            "store_memory",
            {
                "content": memory.content,
                "type": memory.type,
                "scope": "project",
                "importance": memory.importance,
                "tags": list(memory.tags),
                "source": {"conversation_turn": memory.turn},
                "related_entities": entities,
                "session_id": memory.session,
            },
        )
        return answer["memory_id"]

    def forget(self, wire: SelftestConnection, memory_id: str) -> None:
        wire.call("forget_memory", {"memory_id": memory_id})

    def count(self, wire: SelftestConnection) -> int:
        return wire.call("get_memory_status", {})["counts"]["total"]

    def _recall(self, wire: SelftestConnection, question: Question, strategy: str) -> bool:
        answer = self._asked(wire, question.text, strategy)
        return any(memory["content"] == question.about.content for memory in answer["memories"])

    def _recall_by_graph(self, wire: SelftestConnection, workload: MemoryWorkload) -> bool:
        query = f"What do we know about {workload.some_entity().name}?"
        return bool(self._asked(wire, query, "graph")["memories"])

    def _asked(self, wire: SelftestConnection, query: str, strategy: str) -> JSON:
        arguments = {"query": query, "strategy": strategy, "limit": LIMIT}
        answer = self._call(wire, "recall_memories", arguments)
        if answer["strategy_used"] != strategy:
            self.warnings[f"{answer['strategy_used']} instead of {strategy}"] += 1
        return answer

    def _context(self, wire: SelftestConnection, workload: MemoryWorkload) -> bool:
        arguments = {"task_description": workload.question().text, "max_tokens": TOKENS}
        return bool(self._call(wire, "get_memory_context", arguments)["memories_used"])

    def _walk(self, wire: SelftestConnection, workload: MemoryWorkload, depth: int) -> bool:
        arguments = {"entity": workload.some_entity().name, "depth": depth}
        return bool(self._call(wire, "search_knowledge_graph", arguments)["memories"])

    def _consolidate(self, wire: SelftestConnection, workload: MemoryWorkload) -> None:
        session = workload.next_session()
        answer = self._call(wire, "reflect_and_consolidate", {"session_id": session})
        if not answer["session_stats"]["memories_analyzed"]:
            self.warnings["nothing to consolidate"] += 1

    def _call(self, wire: SelftestConnection, tool: str, arguments: JSON) -> JSON:
        answer = wire.call(tool, arguments)
        self.warnings.update(warning["code"] for warning in answer.get("warnings") or ())
        return answer


class MemoryService:
    """mcp-memory-service from PyPI, offline and with the embedder that needs no model.

    That one hashes the whole text: its vectors cost next to nothing and mean nothing.
    """

    name = "mcp-memory-service"
    largest = 100_000

    def __init__(self, venv: Path) -> None:
        self._programs = venv / ("Scripts" if os.name == "nt" else "bin")
        self.operations: Mapping[str, Operation] = {
            BY_WORDS: lambda wire, load: self._search(wire, load.question(), "exact"),
            BY_MEANING: lambda wire, load: self._search(wire, load.question(), "semantic"),
            HYBRID: lambda wire, load: self._search(wire, load.question(), "hybrid"),
            "context": self._context,
            "walk, 1 hop": lambda wire, load: self._walk(wire, load, 1),
            "walk, 3 hops": lambda wire, load: self._walk(wire, load, 3),
        }

    def version(self) -> str:
        asked = "from importlib.metadata import version; print(version('mcp-memory-service'))"
        command = [str(self._programs / "python"), "-c", asked]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def fill(self, folder: Path, workload: MemoryWorkload) -> None:
        script = Path(__file__).parent / "peers" / "fill_memory_service.py"
        command = [str(self._programs / "python"), str(script), str(_database(folder))]
        lines = "\n".join(json.dumps(line) for line in _lines(workload))
        subprocess.run(command, input=lines.encode(), env=_environment(folder), stderr=subprocess.DEVNULL, check=True)

    def start(self, folder: Path) -> SelftestConnection:
        wire = SelftestConnection((str(self._programs / "memory"), "server"), environment=_environment(folder))
        wire.initialize("bench")
        return wire

    def wait_until_ready(self, wire: SelftestConnection, workload: MemoryWorkload) -> None:
        """It is from the first answer on."""
        self._search(wire, workload.question(), "hybrid")

    def store(self, wire: SelftestConnection, memory: Memory) -> str:
        metadata = {"tags": list(memory.tags), "type": "observation"}
        answer = _text(wire, "memory_store", {"content": memory.content, "metadata": metadata})
        if not answer.startswith("Memory stored successfully"):
            raise CallFailed("memory_store", answer)
        return _hash(memory.content)

    def forget(self, wire: SelftestConnection, memory_id: str) -> None:
        _text(wire, "memory_delete", {"content_hash": memory_id})

    def count(self, wire: SelftestConnection) -> int:
        health = _text(wire, "memory_health", {})
        found: Any = json.loads(health[health.index("{") :])
        return found["statistics"]["total_memories"]

    def _search(self, wire: SelftestConnection, question: Question, mode: str) -> bool:
        query = question.phrase if mode == "exact" else question.text
        answer = _text(wire, "memory_search", {"query": query, "mode": mode, "limit": LIMIT})
        return question.about.content in answer

    def _context(self, wire: SelftestConnection, workload: MemoryWorkload) -> None:
        task = workload.question().text
        arguments = {"agent_ids": ["bench"], "task_summary": task, "max_tokens": TOKENS}
        _text(wire, "get_bootstrap_profile", arguments)

    def _walk(self, wire: SelftestConnection, workload: MemoryWorkload, hops: int) -> bool:
        start = _hash(workload.question().about.content)
        arguments = {"action": "connected", "hash": start, "max_hops": hops}
        return bool(json.loads(_text(wire, "memory_graph", arguments))["connected"])


def _lines(workload: MemoryWorkload) -> Iterator[JSON]:
    """The memories; each is connected with the last ones that name the same entities."""
    last: dict[str, int] = {}
    now = time.time()
    for number in range(workload.size):
        memory = workload.memory(number)
        names = [entity.name for entity, _ in memory.entities]
        yield {
            "content": memory.content,
            "tags": list(memory.tags),
            "type": "observation",
            "at": now - memory.age,
            "related": sorted({last[name] for name in names if name in last}),
        }
        last.update(dict.fromkeys(names, number))


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MCP_")}
    return kept | {
        "MCP_MEMORY_STORAGE_BACKEND": "sqlite_vec",
        "MCP_MEMORY_BASE_DIR": str(folder),
        "MCP_MEMORY_SQLITE_PATH": str(_database(folder)),
        "MCP_MEMORY_BACKUPS_PATH": str(folder / "backups"),
        "MCP_MEMORY_OFFLINE": "1",
        "MCP_MEMORY_USE_ONNX": "0",
        "MCP_MEMORY_ALLOW_HASH_EMBEDDINGS": "1",
        "MCP_BOOTSTRAP_ENABLED": "true",  # what it calls a context is off otherwise
        "HF_HUB_OFFLINE": "1",
    }


def _database(folder: Path) -> Path:
    return folder / "memories.db"


def _hash(content: str) -> str:
    """The id that it gives a text."""
    return hashlib.sha256(content.strip().lower().encode()).hexdigest()


def _text(wire: SelftestConnection, tool: str, arguments: JSON) -> str:
    result = wire.request("tools/call", {"name": tool, "arguments": arguments})
    text = str(result["content"][0]["text"])
    if result.get("isError") or text.startswith("Error"):
        raise CallFailed(tool, text)
    return text
