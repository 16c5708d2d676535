import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import CLIENTS
from server_processes import http_server, run

Run = Callable[..., Any]

VARIABLE = "EVERKEPT_TOKEN"
BEARER = {
    "claude-code": "Bearer ${EVERKEPT_TOKEN}",
    "copilot": "Bearer ${EVERKEPT_TOKEN}",
    "cursor": "Bearer ${env:EVERKEPT_TOKEN}",
    "gemini": "Bearer $EVERKEPT_TOKEN",
    "opencode": "Bearer {env:EVERKEPT_TOKEN}",
    "vscode": "Bearer ${input:everkept-token}",
    "windsurf": "Bearer ${env:EVERKEPT_TOKEN}",
}


@dataclass
class TeamServer:
    url: str
    token: str


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamServer]:
    data_dir = tmp_path_factory.mktemp("team")
    token = json.loads(run("token", "--user", "anna", "--json", "--data-dir", data_dir).stdout)["token"]
    with http_server(data_dir) as server:
        yield TeamServer(server.url, token)


@pytest.fixture
def setup(everkept: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("EVERKEPT_DATA_DIR")
    return lambda *arguments, **more: everkept("setup", *arguments, **more)


def read_state(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.parent.rglob("*") if path.is_file()}


def read_entry(written: Any) -> Any:
    """The entry in the only file that was changed."""
    (each,) = written["changed"]
    text = Path(each["file"]).read_text(encoding="utf-8")
    if each["file"].endswith(".toml"):
        return tomllib.loads(text)["mcp_servers"]["everkept"]
    values = json.loads(text)
    return next(values[name] for name in ("servers", "mcpServers", "mcp") if name in values)["everkept"]


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_gets_the_address_and_never_the_token(
    setup: Run, home: Path, team: TeamServer, client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, team.token)
    before = read_state(home)
    outcome = setup(client, "--url", team.url, "--token-env", VARIABLE, "--yes", "--json")
    assert outcome.status == 0, outcome.err
    assert f"{team.url} answers and offers " in outcome.err
    changed = read_state(home)
    assert team.token.encode() not in b"".join(changed.values())
    entry = read_entry(outcome.json)
    if client == "claude-desktop":
        assert entry["args"][:3] == ["-y", "mcp-remote", team.url]
        assert entry["args"][3] == "--header-file"
    elif client == "codex":
        assert entry == {"url": team.url, "bearer_token_env_var": VARIABLE}
    else:
        assert entry["serverUrl" if client == "windsurf" else "url"] == team.url
        assert entry["headers"] == {"Authorization": BEARER[client]}
    again = setup(client, "--url", team.url, "--token-env", VARIABLE, "--yes")
    assert (again.status, read_state(home)) == (0, changed)
    (row,) = [each for each in setup("--json").json["clients"] if each["client"] == client]
    assert (row["found"][0]["kind"], row["found"][0]["url"]) == ("remote", team.url)
    assert setup(client, "--undo", "--yes").status == 0
    left = {path: text for path, text in read_state(home).items() if "backup" not in path.name}
    assert {path: text for path, text in left.items() if text.split() not in ([], [b"{}"])} == before


def test_vs_code_asks_for_the_token_once(setup: Run, home: Path, team: TeamServer) -> None:
    file = home.parent / "shop" / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{\n  // ours\n  "inputs": [{"id": "other"}]\n}\n', encoding="utf-8")
    old = file.read_bytes()
    for _ in range(2):
        outcome = setup("vscode", "--scope", "project", "--url", team.url, "--token-env", VARIABLE, "--yes", "--force")
        assert outcome.status == 0
    text = file.read_text(encoding="utf-8").replace("// ours", "")
    assert [each["id"] for each in json.loads(text)["inputs"]] == ["other", "everkept-token"]
    assert setup("vscode", "--scope", "project", "--undo", "--yes").status == 0
    assert file.read_bytes() == old


def test_a_new_address_never_gets_the_old_token(setup: Run, home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    entry = {"url": "https://old.example/mcp", "headers": {"Authorization": "Bearer ${env:OLD}"}, "disabled": True}
    file.write_text(json.dumps({"mcpServers": {"everkept": entry}}), encoding="utf-8")
    assert setup("cursor", "--url", "https://new.example/mcp", "--yes", "--force").status == 0
    servers = json.loads(file.read_text(encoding="utf-8"))["mcpServers"]
    assert servers == {"everkept": {"url": "https://new.example/mcp", "disabled": True}}


@pytest.mark.parametrize(
    ("token", "options", "says"),
    [("evku_wrong", ["--token-env", VARIABLE], f"refuses the token in {VARIABLE}"), ("", [], "requires a token")],
)
def test_a_server_that_refuses_the_client_changes_nothing(
    setup: Run, home: Path, team: TeamServer, monkeypatch: pytest.MonkeyPatch, token: str, options: list[str], says: str
) -> None:
    monkeypatch.setenv(VARIABLE, token)
    before = read_state(home)
    outcome = setup("cursor", "--url", team.url, *options, "--yes")
    assert (outcome.status, read_state(home)) == (2, before)
    assert says in outcome.err


def test_a_token_that_is_not_set_here_is_not_checked(
    setup: Run, team: TeamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    outcome = setup("cursor", "--url", team.url, "--token-env", VARIABLE, "--yes")
    assert outcome.status == 0
    assert f"{VARIABLE} is not set here" in outcome.out


def test_a_server_that_does_not_answer_changes_nothing_without_force(setup: Run, home: Path) -> None:
    before = read_state(home)
    arguments = ("cursor", "--url", "http://127.0.0.1:1/mcp", "--yes")
    outcome = setup(*arguments)
    assert (outcome.status, read_state(home)) == (1, before)
    assert "--force" in outcome.err
    assert setup(*arguments, "--force").status == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--url", "memory.example/mcp"],
        ["--url", "http://memory.example/mcp"],
        ["--url", "https://anna:secret@memory.example/mcp"],
        ["--url", "https://memory.example/mcp?token=evku_9fKx2vQ8LmZr4TbWc7YdHs1NpJ3uEa6G"],
        ["--url", "https://memory.example/mcp", "--token-env", "evku_9fKx2vQ8LmZr4TbWc7YdHs1NpJ3uEa6G"],
        ["--url", "https://memory.example/mcp", "--token-env", "two words"],
        ["--url", "https://memory.example/mcp", "--project", "shop"],
        ["--token-env", VARIABLE],
    ],
)
def test_unsafe_options_are_refused_without_repeating_a_secret(setup: Run, home: Path, options: list[str]) -> None:
    before = read_state(home)
    outcome = setup("cursor", *options, "--print")
    assert (outcome.status, read_state(home)) == (2, before)
    assert "evku_9" not in outcome.err + outcome.out
    assert "secret" not in outcome.err


def test_local_and_remote_entries_do_not_replace_each_other(setup: Run, home: Path) -> None:
    remote = ("cursor", "--url", "http://127.0.0.1:1/mcp", "--force", "--yes")
    assert setup("cursor", "--yes").status == 0
    local = read_state(home)
    printed = setup(*remote[:3], "--yes")
    assert (printed.status, read_state(home)) == (1, local)
    assert setup(*remote).status == 0
    replaced = read_state(home)
    outcome = setup("cursor", "--yes")
    assert (outcome.status, read_state(home)) == (2, replaced)
    assert "--force" in outcome.err
