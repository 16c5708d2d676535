"""The memory bank's answers and errors, held against the contract that its clients know."""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import EverkeptError
from everkept.settings import read_settings
from everkept.tools.tool import ToolResult
from json_shapes import keys_of, pattern, unlike

JSON = dict[str, Any]
BANK = "families/bank/contract.json"
CONTRACT: dict[str, JSON] = json.loads((Path(__file__).parent.parent / BANK).read_text(encoding="utf-8"))
ENTITY = {"name": "Shop API", "entityType": "service", "attrs": {"port": 8443}}
EDGE = {"from": "Shop API", "relationType": "uses", "to": "Orders DB"}
THOUGHT = {"thought": "t", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}
DECISION = {"title": "t", "context": "c", "decision": "d"}


@dataclass
class Bank:
    """A client of the server, and the folder that the bank is or would be in."""

    app: App
    home: Path
    session: Session

    @property
    def folder(self) -> Path:
        return self.home / "memory-bank"

    async def call(self, tool: str, arguments: JSON) -> ToolResult:
        """`HOME` in an argument is the folder around the bank."""
        given = {
            name: value.replace("HOME", str(self.home)) if isinstance(value, str) else value
            for name, value in arguments.items()
        }
        return await self.app.call(self.session, tool, given)

    async def error(self, tool: str, arguments: JSON) -> EverkeptError:
        with pytest.raises(EverkeptError) as caught:
            await self.call(tool, arguments)
        return caught.value


@pytest.fixture
async def no_bank(tmp_path: Path) -> AsyncIterator[Bank]:
    home = tmp_path / "shop"
    home.mkdir()
    flags = {"data_dir": tmp_path / "data", "path": home, "toolsets": "bank"}
    app = App(read_settings(flags | {"bank_extras": True, "embedding_model": "none"}, {}))
    yield Bank(app, home, Session())
    await app.close()


@pytest.fixture
async def bank(no_bank: Bank) -> Bank:
    await no_bank.call("initialize_memory_bank", {"path": "HOME"})
    return no_bank


STATE = "# Current Context\n\n## Current Project State\n\nThe cart ships.\n"
PATTERNS = "# System Patterns\n\n## Layers\n\nPorts and adapters.\n"
# In an order in which each finds what it needs; in brackets, which other form the answer has.
CALLS: list[tuple[str, JSON]] = [
    ("write_memory_bank_file", {"filename": "active-context.md", "content": STATE}),
    ("write_memory_bank_file", {"filename": "system-patterns.md", "content": PATTERNS}),
    ("track_progress", {"action": "a", "description": "b"}),
    ("add_progress_entry", {"type": "fix", "summary": "s"}),
    ("update_active_context", {"tasks": ["one"], "issues": ["slow"], "nextSteps": ["measure"]}),
    ("add_session_note", {"note": "n"}),
    ("update_tasks", {"add": ["two"]}),
    ("log_decision", DECISION),
    ("write_memory_bank_file", {"filename": "x.md", "content": "# X\n\nabout x\n"}),
    (
        "batch_write_files",
        {"files": [{"filename": "y.md", "content": "y"}, {"filename": "x.md", "content": "", "ifMatchEtag": "0" * 16}]},
    ),
    ("read_memory_bank_file", {"filename": "x.md"}),
    ("read_memory_bank_file [bare]", {"filename": "x.md", "includeEtag": False}),
    ("batch_read_files", {"files": ["x.md", "gone.md"]}),
    ("list_memory_bank_files", {}),
    ("get_memory_bank_status", {}),
    ("search_memory_bank", {"query": "one"}),
    ("get_context_bundle", {}),
    ("set_memory_bank_path", {"path": "HOME"}),
    ("switch_mode", {"mode": "ask"}),
    ("switch_mode [without a mode]", {}),
    ("switch_mode [umb]", {"umb": True}),
    ("switch_mode [umb completed]", {"umb": False}),
    ("get_current_mode", {}),
    ("process_umb_command", {"command": "UMB"}),
    ("complete_umb", {}),
    ("graph_upsert_entity", ENTITY),
    ("graph_upsert_entity", {"name": "Orders DB", "entityType": "database"}),
    ("graph_add_observation", {"entity": "Shop API", "text": "o", "source": "a colleague"}),
    ("graph_add_doc_pointer", {"entityNameOrId": "Shop API", "docPath": "x.md", "heading": "X"}),
    ("graph_link_entities", EDGE),
    ("graph_search", {"query": "shop"}),
    ("graph_search", {"query": "o"}),
    ("graph_open_nodes", {"nodes": ["Shop API", "Orders DB"]}),
    ("get_context_digest", {"includeSystemPatterns": True}),
    ("get_targeted_context", {"query": "shop"}),
    ("graph_link_entities [unlink]", {"action": "unlink", **EDGE}),
    ("graph_unlink_entities", EDGE),
    ("graph_rebuild", {}),
    ("graph_compact", {}),
    ("graph_maintain", {"operation": "stats"}),
    ("graph_maintain", {"operation": "rebuild"}),
    ("graph_maintain", {"operation": "compact"}),
    ("graph_delete_entity", {"entity": "Orders DB"}),
    ("graph_delete_observation", {"observationId": "THE ONE"}),
    ("register_store", {"storeId": "here", "path": "HOME"}),
    ("select_store [register]", {"action": "register", "storeId": "again", "path": "HOME"}),
    ("list_stores", {}),
    ("select_store", {"storeId": "here"}),
    ("list_stores", {}),
    ("unregister_store", {"storeId": "here"}),
    ("select_store [unregister]", {"action": "unregister", "storeId": "again"}),
    ("create_backup", {}),
    ("create_backup [listOnly]", {"listOnly": True}),
    ("list_backups", {}),
    ("restore_backup", {"backupId": "THE ONE"}),
    ("get_instructions", {}),
    ("debug_mcp_config", {}),
    ("migrate_file_naming", {}),
    ("sequential_thinking", {**THOUGHT, "sessionId": "s", "branchId": "b", "branchFromThought": 1}),
    ("sequential_thinking [reset]", {"reset": True}),
    ("finalize_thinking_session", {"summary": "s", "sessionId": "s"}),
    ("initialize_memory_bank", {"path": "HOME"}),
]
ARGUMENTS = {name: arguments for name, arguments in reversed(CALLS) if "[" not in name}


async def the_one(bank: Bank, tool: str) -> str:
    """Of what there is now, the id that a call needs."""
    if tool == "restore_backup":
        return (await bank.call("list_backups", {})).facts["backups"][0]["id"]
    opened = await bank.call("graph_open_nodes", {"nodes": ["Shop API"]})
    return opened.facts["observations"][0]["id"]


async def test_every_answer_is_what_the_contract_says(bank: Bank) -> None:
    (bank.folder / "product-context.md").unlink()  # so that something is missing
    lost: list[str] = []
    seen: set[str] = set()
    for named, arguments in CALLS:
        tool, _, form = named.rstrip("]").partition(" [")
        given = {name: await the_one(bank, tool) if value == "THE ONE" else value for name, value in arguments.items()}
        answer = await bank.call(tool, given)
        promised = CONTRACT[tool]["returns"]
        lost += missing_from(answer, promised["alt"][form] if form else promised, named, seen)
    assert sorted(set(lost) - DIFFERENT) == []
    assert {tool for tool in CONTRACT if tool not in ARGUMENTS} == set()
    assert sorted(set(promises()) - seen - DIFFERENT) == []


# Where an answer of ours is another one on purpose.
DIFFERENT = {
    "track_progress text",  # has the whole line of progress.md
    "debug_mcp_config.system.nodeVersion",  # is written in Python, whose version it tells
    "select_store.note",  # is for a client whose sessions end with each call
}


def promises() -> list[str]:
    """Every key that some answer has to show, also those that an answer may go without."""
    found: list[str] = []
    for tool, said in CONTRACT.items():
        forms = {tool: said["returns"]}
        forms |= {f"{tool} [{form}]": alt for form, alt in said["returns"].get("alt", {}).items()}
        for named, promised in forms.items():
            if promised["format"] != "text":
                found += keys_of(promised["value"], named)
    return found


def missing_from(answer: ToolResult, promised: JSON, named: str, seen: set[str]) -> list[str]:
    """What the contract promises of an answer and is not so, by its path."""
    if promised["format"] == "text":
        return [] if re.match(pattern(promised["value"]), answer.text) else [f"{named} text"]
    heading, _, _ = answer.text.partition("{")
    is_headed = promised["format"] == "json after a heading"
    if bool(heading) != is_headed or json.loads(answer.text[len(heading) :]) != answer.facts:
        return [f"{named} text"]
    return unlike(answer.facts, promised["value"], named, seen)


WITHOUT_A_BANK = {
    "Memory Bank not found. Use initialize_memory_bank to create one.": [
        *("read_memory_bank_file", "write_memory_bank_file", "list_memory_bank_files"),
        *("get_memory_bank_status", "track_progress", "update_active_context", "log_decision"),
        "process_umb_command",
    ],
    "Memory Bank not initialized. Use set_memory_bank_path or initialize_memory_bank first.": [
        *("get_context_bundle", "get_context_digest", "batch_read_files", "batch_write_files")
    ],
    "Memory Bank not found in the provided directory. Use initialize_memory_bank to create one.": [
        "set_memory_bank_path"
    ],
}


@pytest.mark.parametrize(("tool", "text"), [(tool, text) for text, tools in WITHOUT_A_BANK.items() for tool in tools])
async def test_without_a_bank_a_tool_says_so_in_the_contracts_words(no_bank: Bank, tool: str, text: str) -> None:
    assert text in CONTRACT[tool]["errors"]["calls"]
    assert text in str(await no_bank.error(tool, ARGUMENTS[tool]))
    assert not no_bank.folder.exists()


# Which argument is missing is said by the schema, in one way for all tools.
# A server that knows its folder can initialize the bank there.
WITH_ARGUMENTS = [t for t, said in CONTRACT.items() if said["errors"]["arguments"] and t != "initialize_memory_bank"]


@pytest.mark.parametrize("tool", WITH_ARGUMENTS)
async def test_a_call_without_its_arguments_is_refused(bank: Bank, tool: str) -> None:
    assert (await bank.error(tool, {})).code == "invalid_input"


@dataclass(frozen=True)
class Failure:
    """A call, what is wrong in the folder before it, and the contract's words for that."""

    tool: str
    text: str
    arguments: JSON
    before: Callable[[Path], None] = lambda _: None


def a_file_beside_the_bank(home: Path) -> None:
    (home / "file").write_bytes(b"")


def no_core_files(home: Path) -> None:
    for path in (home / "memory-bank").glob("*.md"):
        path.unlink()


BACKUP = "memory-bank-backup-2026-02-13T10-30-00-000Z"


def a_file_named_as_a_backup(home: Path) -> None:
    (home / BACKUP).write_bytes(b"")


TO_NOBODY = {"from": "Shop API", "relationType": "uses", "to": "Nobody"}
FROM_NOBODY = {"from": "Nobody", "relationType": "uses", "to": "Shop API"}
# Not there, because it cannot happen here: there is always a mode, and one without a file has
# rules of its own, so that switching and updating go in every mode; a mode that does not exist is
# refused by the schema; progress.md is made where it is missing.
FAILURES = [
    Failure(
        "initialize_memory_bank",
        "Failed to initialize Memory Bank: <error>",
        {"path": "HOME/file"},
        a_file_beside_the_bank,
    ),
    Failure("read_memory_bank_file", "Error reading file <name>: ...", {"filename": "gone.md"}),
    Failure("read_memory_bank_file", "Error reading file <name>: ...", {"filename": "../x.md"}),
    Failure("write_memory_bank_file", "Error writing file <name>: ...", {"filename": "../x.md", "content": ""}),
    Failure("get_context_bundle", "No Memory Bank files found. Errors: ...", {}, no_core_files),
    Failure("search_memory_bank", "Search query cannot be empty.", {"query": ""}),
    Failure("search_memory_bank", "Search query cannot be empty.", {"query": " "}),
    Failure("process_umb_command", 'Invalid UMB command. Use "Update Memory Bank" or "UMB".', {"command": "number"}),
    Failure("complete_umb", "UMB mode is not active.", {}),
    Failure(
        "graph_add_observation",
        'Entity not found: "<x>". Create it first with graph_upsert_entity.',
        {"entity": "Nobody", "text": "o"},
    ),
    Failure("graph_link_entities", "Source entity not found: ...", FROM_NOBODY),
    Failure("graph_link_entities", "Target entity not found: ...", TO_NOBODY),
    Failure("graph_unlink_entities", "Source entity not found: ...", FROM_NOBODY),
    Failure("graph_unlink_entities", "Target entity not found: ...", TO_NOBODY),
    Failure("graph_open_nodes", "Some entities not found: a, b", {"nodes": ["a", "b"]}),
    Failure("select_store", 'Store "<id>" not found in registry', {"storeId": "none"}),
    Failure("select_store", "Path does not exist: ...", {"path": "HOME/none"}),
    Failure("register_store", "Path does not exist: ...", {"storeId": "a", "path": "HOME/none"}),
    # What is not found is an error here, and no answer.
    Failure("unregister_store", 'Store "<id>" not found in registry', {"storeId": "none"}),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda f: f"{f.tool}: {f.text}")
async def test_an_error_has_the_contracts_words(bank: Bank, failure: Failure) -> None:
    assert failure.text in CONTRACT[failure.tool]["errors"]["calls"]
    await bank.call("graph_upsert_entity", ENTITY)
    failure.before(bank.home)
    error = await bank.error(failure.tool, failure.arguments)
    assert re.search(pattern(failure.text), str(error))


# The contract has one prefix for all of them; here are the reasons that follow it.
@pytest.mark.parametrize(
    ("backup", "reason", "before"),
    [
        ("nonsense", "Invalid backup ID format", lambda _: None),
        ("../" + BACKUP, "Invalid backup ID format", lambda _: None),
        (BACKUP, "Backup not found", lambda _: None),
        (BACKUP, "Backup path is not a directory", a_file_named_as_a_backup),
    ],
)
async def test_a_backup_that_cannot_be_restored_says_why_in_the_contracts_words(
    bank: Bank, backup: str, reason: str, before: Callable[[Path], None]
) -> None:
    assert any(text.endswith(reason) for text in CONTRACT["restore_backup"]["errors"]["calls"])
    before(bank.home)
    assert reason in str(await bank.error("restore_backup", {"backupId": backup}))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "Either path or storeId is required for select action"),
        ({"action": "register"}, "Both path and storeId are required for register action"),
        ({"action": "unregister"}, "storeId is required for unregister action"),
    ],
)
async def test_what_an_action_of_select_store_needs_is_said_in_the_contracts_words(
    bank: Bank, arguments: JSON, text: str
) -> None:
    assert text in CONTRACT["select_store"]["errors"]["arguments"]
    assert text in str(await bank.error("select_store", arguments))


@pytest.mark.parametrize(
    ("filename", "code", "keys"),
    [
        ("progress.md", "ETAG_MISMATCH", {"message", "expectedEtag", "currentEtag"}),
        ("gone.md", "FILE_NOT_FOUND", {"message"}),
    ],
)
async def test_a_write_that_came_too_late_has_the_contracts_code_and_facts(
    bank: Bank, filename: str, code: str, keys: set[str]
) -> None:
    assert code in CONTRACT["write_memory_bank_file"]["errors"]["calls"]
    late = {"filename": filename, "content": "", "ifMatchEtag": "0" * 16}
    envelope = (await bank.error("write_memory_bank_file", late)).to_envelope()
    assert envelope["error"] == code
    assert keys <= envelope.keys()
