import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant_exports import build_chat, build_node, build_tree, write_zip
from foreign_stores import unpack_rival
from plugin_databases import read_files

Run = Callable[..., Any]


def test_memories_of_another_server_are_found_on_this_machine_and_imported_once(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack_rival("mcp-memory-service", tmp_path)
    monkeypatch.setenv("MCP_MEMORY_BASE_DIR", str(store))
    before = read_files(store)
    planned = everkept("import", "mcp-memory-service", "--dry-run")
    assert "procedural memory" in planned.out
    assert "Would add 3 memories" in planned.out
    assert everkept("list-projects", "--json").json == {"projects": []}
    first = everkept("import", "mcp-memory-service", "--json").json
    assert (first["memories"], first["projects"]) == (3, ["default", "shop"])
    again = everkept("import", "mcp-memory-service")
    assert "Added 0 memories" in again.out
    assert "1 skipped: deleted there" in again.err
    assert "PostgreSQL" in everkept("recall", "orders", "--project", "default").out
    assert read_files(store) == before


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="files have no owner that decides")
def test_data_that_another_user_put_there_is_not_found(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some programs keep data in /tmp, where anyone can prepare it."""
    monkeypatch.setenv("MCP_MEMORY_BASE_DIR", str(unpack_rival("mcp-memory-service", tmp_path)))
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "Cannot find data" in everkept("import", "mcp-memory-service").err
    assert everkept("import", "auto", "--json").json == {"found": []}


def test_with_a_project_everything_but_the_users_memories_goes_there(everkept: Run, tmp_path: Path) -> None:
    store = unpack_rival("mcp-memory-service", tmp_path)
    outcome = everkept("import", "mcp-memory-service", str(store), "--project", "web", "--json").json
    assert outcome["projects"] == ["web"]
    assert len(everkept("list", "--project", "web", "--scope", "project", "--json").json["memories"]) == 2


def test_memories_of_a_project_that_is_off_are_skipped(everkept: Run, tmp_path: Path) -> None:
    everkept("create-project", "shop")
    everkept("off", "--project", "shop")
    store = unpack_rival("mcp-memory-service", tmp_path)
    outcome = everkept("import", "mcp-memory-service", str(store), "--json").json
    assert outcome["skipped"]["project shop is off"] == 1
    assert outcome["memories"] == 2


def test_a_place_without_data_is_refused_and_makes_no_project(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_MEMORY_BASE_DIR", str(tmp_path / "none"))
    nowhere = everkept("import", "mcp-memory-service")
    assert (nowhere.status, "Cannot find data" in nowhere.err) == (2, True)
    missing = everkept("import", "mcp-memory-service", str(tmp_path / "none.db"))
    assert (missing.status, "does not exist" in missing.err) == (2, True)
    assert everkept("list-projects", "--json").json == {"projects": []}


def test_conversations_go_to_the_history_once_and_memories_to_the_user(everkept: Run, tmp_path: Path) -> None:
    chats = [build_chat("c1"), build_chat("c2", chat_messages=[])]
    memory = {"conversations_memory": "Builds a shop in Python."}
    place = write_zip(tmp_path / "data.zip", {"conversations.json": chats, "memories.json": [memory]})
    planned = everkept("import", "claude-ai", str(place), "--dry-run")
    assert "Would add 1 conversation, 2 turns and 1 memory" in planned.out
    assert everkept("history", "list", "--json").json == {"conversations": []}
    first = everkept("import", "claude-ai", str(place), "--json").json
    assert (first["conversations"], first["turns"], first["memories"]) == (1, 2, 1)
    assert "Would add 0 memories" in everkept("import", "claude-ai", str(place), "--dry-run").out
    again = everkept("import", "claude-ai", str(place), "--json").json
    assert (again["conversations"], again["turns"], again["memories"]) == (0, 0, 0)
    write_zip(place, {"conversations.json": [build_chat("c1"), build_chat("c3")]})
    newer = everkept("import", "claude-ai", str(place), "--json").json
    assert (newer["conversations"], newer["turns"]) == (1, 2)


def test_a_conversation_with_a_secret_is_masked(everkept: Run, tmp_path: Path) -> None:
    secret = f"sk-ant-api03-{'a' * 93}AA"
    node = build_node("u1", "root", "user", f"My key is {secret}")
    place = write_zip(tmp_path / "export.zip", {"conversations.json": [build_tree("g1", "Keys", node)]})
    outcome = everkept("import", "chatgpt", str(place))
    assert "masked" in outcome.err
    exported = tmp_path / "out"
    everkept("export", str(exported))
    assert secret not in "".join(each.read_text(encoding="utf-8") for each in exported.rglob("*") if each.is_file())
