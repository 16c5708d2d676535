"""A data folder with one of everything, and all that reads it."""

import asyncio
import contextlib
import io
import json
from pathlib import Path
from typing import Any

from everkept.app.app import App
from everkept.cli.main import main
from everkept.core.sessions import Session
from everkept.errors import EverkeptError
from everkept.settings import Settings, read_settings
from foreign_messages import ask_stdio
from hash_embedder import HashingEmbedder

WORKSPACE, BANK = "work", "work/memory-bank"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
#: Every tool that only reads, with arguments that find something.
READS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("recall_memories", {"query": "which port do services use", "explain": True}),
    ("recall_memories", {"query": "tabs", "strategy": "keyword"}),
    ("search_knowledge_graph", {"entity": "Ada"}),
    ("get_memory_status", {}),
    ("get_memory_context", {"task_description": "choose a port"}),
    ("list_projects", {}),
    ("get_current_project", {}),
    ("search_nodes", {"query": "tea"}),
    ("open_nodes", {"names": ["Ada", "Tea"]}),
    ("read_graph", {}),
    ("recall_previous_discussions", {"query": "how do we limit logins"}),
    ("find_similar_problems", {"problem_description": "too many logins"}),
    ("search_code_history", {"query": "limit"}),
    ("unified_memory_search", {"query": "tea"}),
    ("get_memory_bank_status", {}),
    ("list_memory_bank_files", {}),
    ("get_context_digest", {}),
    ("get_context_bundle", {}),
    ("search_memory_bank", {"query": "parser"}),
    ("get_targeted_context", {"query": "parser"}),
    ("graph_search", {"query": "Parser"}),
    ("graph_open_nodes", {"nodes": ["Parser"]}),
    ("list_backups", {}),
    ("list_stores", {}),
    ("get_instructions", {}),
    ("notes__search", {"text": "a"}),
)
METHODS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
RESOURCES = (
    "memory://status",
    "memory://project/knowledge-graph",
    "memory://session/summary",
    "memory://user/preferences",
)
COMMANDS = (("status", "--json"), ("log",), ("log", "--calls"), ("list",), ("history", "excluded"), ("account", "list"))


def build_flags(place: Path) -> dict[str, Any]:
    return {
        "config": place / "config.md",
        "data_dir": place / "data",
        "path": place / WORKSPACE,
        "project": "shop",
        "gateway_config": place / "gateway.json",
    }


def read_folder_settings(place: Path) -> Settings:
    more = {"toolsets": "memories,graph,history,bank,gateway", "bank_extras": True, "memory_bank": place / BANK}
    return read_settings({**build_flags(place), **more}, {"EVERKEPT_EMBEDDING_MODEL": "none"})


def make_everything(place: Path) -> None:
    """Store one of each thing, through tools and commands."""
    (place / WORKSPACE / ".git").mkdir(parents=True)
    (place / "config.md").write_text("---\nlog_level: info\n---\n# Notes\n", encoding="utf-8")
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tool = {"name": "notes__search", "description": "Finds notes.", "inputSchema": schema}
    gateway = {
        "upstream": {"command": "no-such-program"},
        "tools": [tool | {"upstream": {"tool": "search", "paramMapping": {"text": "text"}}}],
    }
    (place / "gateway.json").write_text(json.dumps(gateway, indent=1), encoding="utf-8")
    said = (("user", "How do we limit logins?"), ("assistant", "With this:\n```py\ndef limit(): pass\n```\n"))
    lines = [
        {"session": "one", "author": who, "timestamp": f"2026-03-02T09:0{n}:00Z", "text": text, "project": "/work/shop"}
        for n, (who, text) in enumerate(said)
    ]
    (place / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    asyncio.run(_store_everything(place))
    run_command(place, "import", "history", "--source", "jsonl", str(place / "talk.jsonl"))
    run_command(place, "token", "--user", "anna")
    run_command(place, "grant", "shop", "--user", "anna")


async def _store_everything(place: Path) -> None:
    app = App(read_folder_settings(place), embedder=HashingEmbedder())
    session = Session(client="test")

    async def call(tool: str, **arguments: Any) -> Any:
        return (await app.call(session, tool, arguments)).facts

    await call("create_project", name="old", description="Sold coffee")
    await call("create_project", name="shop", description="Sells tea")
    entities = [
        {"name": "Ada", "entity_type": "person", "observations": ["likes tea", "writes Python"]},
        {"name": "Tea", "entity_type": "drink", "observations": ["is hot"]},
    ]
    await call("create_entities", entities=entities)
    await call("create_relations", relations=[{"from": "Ada", "to": "Tea", "relation_type": "likes"}])
    port = await call("store_memory", content="Services use port 8400", type="semantic", tags=["net"])
    await call("store_memory", content="Prefers tabs", type="semantic", scope="user", importance=0.9)
    await call("store_memory", content="TODO: write the parser", type="episodic", scope="session")
    await call("update_memory", memory_id=port["memory_id"], content="Services use port 8500", pinned=True)
    await call("archive_project", name="old")
    await call("initialize_memory_bank", path=str(place / BANK))
    await call("track_progress", action="Added", description="a parser")
    await call("log_decision", title="Use SQLite", context="files", decision="SQLite")
    await call("graph_upsert_entity", name="Parser", entityType="module")
    await call("create_backup")
    await app.close()


def run_command(place: Path, *command: str) -> str:
    """Run a command in this process and return what it prints. It may raise nothing but an exit."""
    out = io.StringIO()
    flags = [f"--{name.replace('_', '-')}={build_flags(place)[name]}" for name in ("config", "data_dir")]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), contextlib.suppress(SystemExit):
        main([*command, *flags])
    return out.getvalue()


def read_everything(place: Path) -> dict[Any, Any]:
    """Return a server's answers to all questions, by the number of the question."""
    try:
        settings = read_folder_settings(place)
    except EverkeptError as error:
        return {"settings": str(error)}
    return asyncio.run(_read_everything(settings))


async def _read_everything(settings: Settings) -> dict[Any, Any]:
    app = App(settings, embedder=HashingEmbedder())
    calls = [("tools/call", {"name": tool, "arguments": arguments}) for tool, arguments in READS]
    uris = [("resources/read", {"uri": uri}) for uri in RESOURCES]
    asked = [("initialize", HELLO), *((method, {}) for method in METHODS), *calls, *uris]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(asked)
    ]
    try:
        answers = await ask_stdio(app, "\n".join(lines).encode() + b"\n")
    finally:
        await app.close()
    return {answer["id"]: answer for answer in answers if "id" in answer}
