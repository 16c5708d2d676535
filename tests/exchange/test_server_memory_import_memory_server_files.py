import json
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import ClientEnvironment
from everkept.exchange.server_memory_import import find_memory_files

SERVER = {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}


@pytest.fixture
def places(tmp_path: Path) -> ClientEnvironment:
    return ClientEnvironment({}, tmp_path / "home", "linux", tmp_path / "shop")


def write(file: Path, content: Any = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return file


def named(path: Path | str) -> dict[str, Any]:
    return {**SERVER, "env": {"MEMORY_FILE_PATH": str(path)}}


def test_files_are_found_by_variable_by_entries_of_clients_and_beside_the_program(
    places: ClientEnvironment, tmp_path: Path
) -> None:
    by_variable, by_cursor, by_claude, by_opencode, by_codex = (
        write(tmp_path / "files" / f"{number}.jsonl") for number in range(5)
    )
    home = places.home
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"memory": named(by_cursor), "again": named(by_cursor)}})
    write(home / ".claude.json", {"projects": {"/work": {"mcpServers": {"memory": named(by_claude)}}}})
    entry = {"command": ["npx", "@modelcontextprotocol/server-memory"], "environment": named(by_opencode)["env"]}
    write(home / ".config" / "opencode" / "opencode.json", {"mcp": {"memory": entry}})
    table = '[mcp_servers.memory]\ncommand = "npx"\nargs = ["@modelcontextprotocol/server-memory"]\n'
    write(home / ".codex" / "config.toml", f"{table}env = {{ MEMORY_FILE_PATH = {json.dumps(str(by_codex))} }}\n")
    script = tmp_path / "node_modules" / "server-memory" / "dist" / "index.js"
    beside = write(script.parent / "memory.jsonl")
    write(home / ".gemini" / "settings.json", {"mcpServers": {"m": {"command": "node", "args": [str(script)]}}})
    dist = home / ".npm" / "_npx" / "15b0" / "node_modules" / "@modelcontextprotocol" / "server-memory" / "dist"
    cached = write(dist / "memory.json")
    found = find_memory_files(ClientEnvironment({"MEMORY_FILE_PATH": str(by_variable)}, home, "linux", places.project))
    assert set(found) == {by_variable, by_cursor, by_claude, by_opencode, by_codex, beside, cached}
    assert len(found) == 7


@pytest.mark.parametrize(
    "entry",
    [
        named("memory.jsonl"),  # relative to a folder that only the program knows
        named("/none/memory.jsonl"),
        {**SERVER, "env": ["MEMORY_FILE_PATH"]},
        {"command": "other", "env": {"MEMORY_FILE_PATH": __file__}},
        "not an entry",
    ],
    ids=["relative", "missing", "list", "other program", "text"],
)
def test_other_entries_name_no_file(places: ClientEnvironment, entry: Any) -> None:
    write(places.home / ".cursor" / "mcp.json", {"mcpServers": {"memory": entry}})
    assert find_memory_files(places) == []


@pytest.mark.parametrize("content", ["{", "[]", '{"mcpServers": []}', '{"projects": 3}'])
def test_a_file_of_a_client_that_cannot_be_read_hides_no_other(
    places: ClientEnvironment, tmp_path: Path, content: str
) -> None:
    write(places.home / ".claude.json", content)
    path = write(tmp_path / "memory.jsonl")
    write(places.project / ".mcp.json", {"mcpServers": {"memory": named(path)}})
    assert find_memory_files(places) == [path]
