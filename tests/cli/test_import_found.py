"""`everkept import` alone, in a home of its own."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from foreign_stores import unpack_rival
from plugin_databases import make_folder

Run = Callable[..., Any]

SESSION = Path(__file__).parents[1] / "transcripts" / "samples" / "claude_code_session.jsonl"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    for name in ("HOME", "USERPROFILE", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "APPDATA", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_MEM_DATA_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "MEMORY_FILE_PATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_import_alone_shows_what_is_on_this_machine_and_imports_it_with_yes(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAUDE_MEM_DATA_DIR", str(unpack_rival("claude-mem", tmp_path)))
    monkeypatch.setenv("MCP_MEMORY_BASE_DIR", str(unpack_rival("mcp-memory-service", tmp_path)))
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))
    (tmp_path / "history.db").write_text("not a database", encoding="utf-8")
    shown = everkept("import")
    assert all(each in shown.out for each in ("claude-mem", "2 memories", "mcp-memory-service", "3 memories"))
    assert "Nothing was imported" in shown.out
    assert everkept("list-projects", "--json").json == {"projects": []}
    listed = {each["program"]: each for each in everkept("import", "--json").json["found"]}
    assert listed["claude-mem"]["counts"]["memory"] == 2
    assert "history.db" in listed["mem0"]["problem"]
    outcomes = everkept("import", "--yes", "--json").json
    assert {name: each["memories"] for name, each in outcomes.items()} == {"mcp-memory-service": 3, "claude-mem": 2}


def test_import_alone_finds_the_official_server_the_plugin_and_conversations(
    everkept: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = tmp_path / "memory.jsonl"
    ada = {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    graph.write_text(json.dumps(ada), encoding="utf-8")
    monkeypatch.setenv("MEMORY_FILE_PATH", str(graph))
    make_folder(home / ".claude" / "surrealdb-memory" / "data")
    transcripts = home / ".claude" / "projects" / "-shop"
    transcripts.mkdir(parents=True)
    shutil.copy(SESSION, transcripts / f"{'5' * 8}-6666-4777-8888-999999999999.jsonl")
    listed = {each["program"]: each["counts"] for each in everkept("import", "--json").json["found"]}
    assert listed == {
        "server-memory": {"entity": 1},
        "surrealdb-memory": {"memory": 7, "entity": 2},
        "history": {"conversation": 1},
    }
    assert everkept("list-projects", "--json").json == {"projects": []}
    done = everkept("import", "--yes")
    assert "Added 1 entity, 1 observation and 0 relations" in done.out
    assert "Added 6 memories, 2 entities" in done.out
    assert "Read 1 of 1 transcript" in done.out
    again = everkept("import", "--yes", "--json").json
    assert again["server-memory"]["entities"] == again["surrealdb-memory"]["memories"] == 0
    assert "history" not in again


def test_import_alone_says_what_to_do_if_there_is_nothing(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "everkept import SOURCE PATH" in everkept("import").out
