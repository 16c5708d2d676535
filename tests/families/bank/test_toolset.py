import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.families.bank.model import MODES, get_tool_names
from everkept.settings import read_settings
from everkept.tools.tool import Tool

JSON = dict[str, Any]
CONTRACT: dict[str, JSON] = json.loads((Path(__file__).parent / "contract.json").read_text(encoding="utf-8"))
SEED = [name for name, tool in CONTRACT.items() if tool["seed"]]


def offered(tmp_path: Path, **flags: Any) -> dict[str, Tool]:
    chosen = {"data_dir": tmp_path, "path": tmp_path, "toolsets": "bank", **flags}
    return {tool.name: tool for tool in App(read_settings(chosen, {}), library=MemoryLibrary()).tools}


def test_the_tools_of_the_seed_are_offered_and_the_others_on_request(tmp_path: Path) -> None:
    assert len(SEED) == 38
    assert set(offered(tmp_path)) == set(SEED)
    assert set(offered(tmp_path, bank_extras=True)) == set(CONTRACT)


@pytest.mark.parametrize("mode", ["architect", "ask", "code", "debug", "test"])
def test_only_the_tools_of_the_mode_are_offered_where_that_is_asked_for(tmp_path: Path, mode: Any) -> None:
    names = set(offered(tmp_path, mode=mode, mode_tools=True))
    assert names == get_tool_names(mode) & set(SEED)
    assert len(names) < len(SEED)


@pytest.mark.parametrize("flags", [{}, {"mode_tools": True, "mode": "ask"}, {"read_only": True}])
async def test_what_a_mode_recommends_is_offered(tmp_path: Path, flags: JSON) -> None:
    start = {"data_dir": tmp_path, "path": tmp_path, "toolsets": "bank", **flags}
    app = App(read_settings(start, {}), library=MemoryLibrary())
    there = {tool.name for tool in app.tools}
    for mode in MODES:
        answer = await app.call(Session(), "switch_mode", {"mode": mode})
        named = set(re.findall(r"[a-z]+(?:_[a-z]+)+", answer.text))
        assert named <= there
        assert set(answer.facts["tools"]) <= there
    await app.close()


@pytest.mark.parametrize("name", CONTRACT)
def test_the_input_is_the_contracts(tmp_path: Path, name: str) -> None:
    ours = offered(tmp_path, bank_extras=True)[name].input_schema
    theirs = CONTRACT[name]["inputSchema"]
    assert missing(theirs, ours) == []
    # One of entity and observationId is enough, as the contract's notes say, and a server knows its folder.
    if name not in ("graph_delete_entity", "initialize_memory_bank"):
        assert set(ours.get("required", [])) == set(theirs.get("required", []))


def missing(theirs: JSON, ours: JSON, path: str = "") -> list[str]:
    """What the contract says of an argument and we do not."""
    numbers = {"number", "integer"}
    if "oneOf" in ours:  # a list that may be given as its only item
        ours = ours["oneOf"][1]
    kinds = {theirs.get("type"), ours.get("type")}
    lost = [f"{path} type"] if len(kinds) > 1 and not kinds <= numbers else []
    lost += [f"{path} {c}" for c in theirs.get("enum", []) if c not in choices(ours)]
    for name, property_schema in theirs.get("properties", {}).items():
        if name not in ours["properties"]:
            lost.append(f"{path}.{name}")
        else:
            lost += missing(property_schema, ours["properties"][name], f"{path}.{name}")
    if "items" in theirs and "items" in ours:
        lost += missing(theirs["items"], ours["items"], f"{path}[]")
    return lost


def choices(schema: JSON) -> list[Any]:
    """What may be chosen; numbers that follow each other are given by the first and the last."""
    if "enum" in schema:
        return schema["enum"]
    if {"minimum", "maximum"} <= schema.keys():
        return list(range(schema["minimum"], schema["maximum"] + 1))
    return []


@pytest.mark.parametrize("name", CONTRACT)
def test_the_annotations_are_true_to_the_contract(tmp_path: Path, name: str) -> None:
    annotations = offered(tmp_path, bank_extras=True)[name].annotations
    hints = CONTRACT[name]["hints"]
    assert annotations["readOnlyHint"] == hints["readOnly"]
    assert annotations["destructiveHint"] == hints["destructive"]


def test_what_leaves_more_behind_each_time_does_not_call_itself_idempotent(tmp_path: Path) -> None:
    tools = offered(tmp_path, bank_extras=True).values()
    assert {tool.name for tool in tools if not tool.annotations["idempotentHint"]} >= {
        *("track_progress", "add_progress_entry", "add_session_note", "log_decision"),
        *("create_backup", "restore_backup"),
        *("sequential_thinking", "finalize_thinking_session"),
    }
    assert all(
        tool.annotations["idempotentHint"]
        for tool in tools
        if tool.name in ("update_active_context", "update_tasks", "unregister_store")
    )


async def test_an_answer_of_every_tool_fits_its_output_schema(tmp_path: Path) -> None:
    flags = {"data_dir": tmp_path / "data", "path": tmp_path, "toolsets": "bank"}
    app = App(read_settings(flags | {"bank_extras": True, "embedding_model": "none"}, {}))
    session = Session()
    entity = {"name": "Shop API", "entityType": "service"}
    edge = {"from": "Shop API", "relationType": "uses", "to": "Orders DB"}
    calls: list[tuple[str, JSON]] = [
        ("initialize_memory_bank", {"path": str(tmp_path)}),
        ("track_progress", {"action": "a", "description": "b"}),
        ("add_progress_entry", {"type": "fix", "summary": "s"}),
        ("update_active_context", {"tasks": ["one"]}),
        ("add_session_note", {"note": "n"}),
        ("update_tasks", {"add": ["two"]}),
        ("log_decision", {"title": "t", "context": "c", "decision": "d"}),
        ("write_memory_bank_file", {"filename": "x.md", "content": "x"}),
        ("batch_write_files", {"files": [{"filename": "y.md", "content": "y"}]}),
        ("read_memory_bank_file", {"filename": "x.md"}),
        ("batch_read_files", {"files": ["x.md", "gone.md"]}),
        ("list_memory_bank_files", {}),
        ("get_memory_bank_status", {}),
        ("search_memory_bank", {"query": "x"}),
        ("get_context_bundle", {}),
        ("get_context_digest", {}),
        ("set_memory_bank_path", {"path": str(tmp_path)}),
        ("switch_mode", {"mode": "ask"}),
        ("get_current_mode", {}),
        ("process_umb_command", {"command": "UMB"}),
        ("complete_umb", {}),
        ("graph_upsert_entity", entity),
        ("graph_upsert_entity", {"name": "Orders DB", "entityType": "database"}),
        ("graph_add_observation", {"entity": "Shop API", "text": "o"}),
        ("graph_add_doc_pointer", {"entityNameOrId": "Shop API", "docPath": "x.md"}),
        ("graph_link_entities", edge),
        ("graph_search", {"query": "shop"}),
        ("graph_open_nodes", {"nodes": ["Shop API"]}),
        ("get_targeted_context", {"query": "shop"}),
        ("graph_unlink_entities", edge),
        ("graph_rebuild", {}),
        ("graph_compact", {}),
        ("graph_maintain", {"operation": "stats"}),
        ("graph_delete_entity", {"entity": "Orders DB"}),
        ("register_store", {"storeId": "here", "path": str(tmp_path)}),
        ("list_stores", {}),
        ("select_store", {"storeId": "here"}),
        ("unregister_store", {"storeId": "here"}),
        ("create_backup", {}),
        ("list_backups", {}),
        ("get_instructions", {}),
        ("debug_mcp_config", {}),
        ("migrate_file_naming", {}),
        ("sequential_thinking", {"thought": "t", "thoughtNumber": 1, "totalThoughts": 1, "nextThoughtNeeded": False}),
        ("finalize_thinking_session", {"summary": "s"}),
    ]
    for name, arguments in calls:
        answer = await app.call(session, name, arguments)
        schema = app.tools.get(name).output_schema
        if schema is not None:
            jsonschema.validate(answer.facts, schema)
    opened = await app.call(session, "graph_open_nodes", {"nodes": ["Shop API"]})
    observation = opened.facts["observations"][0]["id"]
    await app.call(session, "graph_delete_observation", {"observationId": observation})
    [backup] = (await app.call(session, "list_backups", {})).facts["backups"]
    await app.call(session, "restore_backup", {"backupId": backup["id"]})
    called = {name for name, _ in calls} | {"graph_delete_observation", "restore_backup"}
    assert called == set(CONTRACT)
    await app.close()
