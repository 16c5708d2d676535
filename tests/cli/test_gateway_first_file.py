import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from everkept.core.mcp import UpstreamProgram
from everkept.families.gateway.draft import list_ready_names
from everkept.families.gateway.file_reader import parse_file
from server_processes import http_server

Run = Callable[..., Any]
JSON = dict[str, Any]


@pytest.fixture
def command(actor: Run) -> list[str]:
    server = actor()
    return [server["command"], *server["args"]]


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the gateway's file will be; the folders above it are missing."""
    path = tmp_path / "config" / "everkept" / "tools.json"
    monkeypatch.setenv("EVERKEPT_GATEWAY_CONFIG", str(path))
    return path


def config_in(path: Path) -> JSON:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_server_is_asked_and_the_file_works(everkept: Run, target: Path, command: list[str], tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    outcome = everkept(*("gateway", "init", "--prefix", "notes__", "--", *command, "--starts", str(starts)))
    assert outcome.status == 0, outcome.err
    assert f"Wrote {target}.\n" in outcome.out
    assert "2 tools: notes__search, notes__add" in outcome.out
    assert "everkept gateway check" in outcome.out
    written = config_in(target)
    assert written["upstream"]["command"] == sys.executable
    assert [tool["name"] for tool in written["tools"]] == ["notes__search", "notes__add"]
    assert everkept("gateway", "check").status == 0
    called = everkept("notes-search", "tea", "--limit", "3").json
    assert called == {"tool": "search", "arguments": {"text": "tea", "limit": 3}}
    pid = int(starts.read_text(encoding="utf-8").split()[0])
    assert not psutil.pid_exists(pid)


def test_the_file_is_its_owners_alone(everkept: Run, target: Path, command: list[str]) -> None:
    assert everkept("gateway", "init", "--", *command).status == 0
    first = stat.S_IMODE(target.stat().st_mode)
    target.chmod(0o644)
    done = everkept("gateway", "init", "--force", "--json", "--", *command)
    assert done.status == 0
    if os.name == "posix":
        modes = [stat.S_IMODE(p.stat().st_mode) for p in (target, Path(done.json["kept"]))]
        assert [first, *modes] == [0o600] * 3


def test_a_command_needs_no_dashes_before_it(everkept: Run, target: Path, command: list[str]) -> None:
    outcome = everkept("gateway", "init", *command, "--name", "of the server's own options")
    assert outcome.status == 0, outcome.err
    assert config_in(target)["upstream"]["args"][-2:] == ["--name", "of the server's own options"]


def test_a_file_that_is_there_is_replaced_by_force_alone(everkept: Run, target: Path, command: list[str]) -> None:
    target.parent.mkdir(parents=True)
    target.write_text("mine", encoding="utf-8")
    refused = everkept("gateway", "init", "--", "no-such-program-at-all")
    assert (refused.status, refused.out) == (2, "")
    assert "--force" in refused.err
    assert target.read_text(encoding="utf-8") == "mine"
    done = everkept("gateway", "init", "--force", "--json", "--", *command)
    assert done.status == 0
    assert done.json["written"] == str(target)
    assert done.json["tools"] == ["search", "add"]
    assert Path(done.json["kept"]).read_text(encoding="utf-8") == "mine"
    assert Path(done.json["kept"]).parent == target.parent


@pytest.mark.parametrize(
    "words", [["no-such-program-at-all"], [sys.executable, "-c", "raise SystemExit('no token is set')"]]
)
def test_a_server_that_cannot_be_started_leaves_nothing(everkept: Run, target: Path, words: list[str]) -> None:
    outcome = everkept("gateway", "init", "--", *words)
    assert (outcome.status, outcome.out) == (1, "")
    assert "Traceback" not in outcome.err
    assert not target.parent.exists()


def test_the_reason_is_the_servers_own_word(everkept: Run, target: Path) -> None:
    words = [sys.executable, "-c", "raise SystemExit('no token is set')"]
    assert "no token is set" in everkept("gateway", "init", "--", *words).err


def test_environment_and_folder_go_into_the_file(
    everkept: Run, target: Path, actor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTES_TEAM", "blue")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    server = actor(tools=None)
    outcome = everkept(
        *("gateway", "init", "--env", "NOTES_TEAM", "--env", "NOTES_LEVEL=a=b", "--cwd", "notes"),
        *("--prefix", "notes_", "--", server["command"], *server["args"]),
    )
    assert outcome.status == 0, outcome.err
    upstream = config_in(target)["upstream"]
    assert upstream["env"] == {"NOTES_TEAM": "${NOTES_TEAM}", "NOTES_LEVEL": "a=b"}
    assert upstream["cwd"] == str(tmp_path / "notes")
    told = everkept("gateway", "call", "notes_env").json
    assert (told["NOTES_TEAM"], told["NOTES_LEVEL"]) == ("blue", "a=b")
    assert "EVERKEPT_GATEWAY_CONFIG" not in told
    assert everkept("gateway", "call", "notes_where").json == {"cwd": str(tmp_path / "notes")}


def test_what_is_typed_in_one_folder_works_from_every_other(
    everkept: Run, target: Path, actor: Run, tools_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [sys.executable, actor()["args"][0], "--tools", tools_file.name]
    outcome = everkept("gateway", "init", "--", *words)
    assert outcome.status == 0, outcome.err
    assert f"It runs in {tmp_path}" in outcome.out
    server = config_in(target)["upstream"]
    assert (server["cwd"], server["args"]) == (str(tmp_path), words[1:])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert everkept("gateway", "check").status == 0
    plain = everkept("gateway", "init", "--force", "--", *words[:2], "--tools", str(tools_file))
    assert plain.status == 0, plain.err
    assert "cwd" not in config_in(target)["upstream"]


def test_a_program_that_is_named_by_its_folder_is_written_with_its_whole_path(
    everkept: Run, target: Path, actor: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = Path(sys.executable)
    monkeypatch.chdir(python.parent.parent)
    typed = str(Path(python.parent.name) / python.name)
    outcome = everkept("gateway", "init", "--", typed, *actor()["args"])
    assert outcome.status == 0, outcome.err
    assert config_in(target)["upstream"]["command"] == str(python.parent.parent / typed)


def test_the_time_to_connect_goes_into_the_file(
    everkept: Run, target: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everkept.cli.gateway_call.SLOW_SECONDS", 0)
    outcome = everkept("gateway", "init", "--connect-timeout", "90", "--", *command)
    assert outcome.status == 0, outcome.err
    assert outcome.err.startswith(f"Waiting for {command[0]}"[:40])
    assert config_in(target)["upstream"]["connectTimeout"] == 90


def test_a_variable_that_is_not_set_is_named(everkept: Run, target: Path, command: list[str]) -> None:
    outcome = everkept("gateway", "init", "--env", "NOTES_TOKEN", "--", *command)
    assert outcome.status == 1
    assert "NOTES_TOKEN" in outcome.err
    assert not target.exists()


def test_a_server_with_a_name_leaves_room_for_others(everkept: Run, target: Path, command: list[str]) -> None:
    assert everkept("gateway", "init", "--name", "notes", "--", *command).status == 0
    assert list(config_in(target)["upstreams"]) == ["notes"]
    assert everkept("gateway", "check").status == 0


def test_names_that_we_have_ourselves_want_a_prefix(
    everkept: Run, target: Path, command: list[str], tools_file: Path
) -> None:
    listed = [{"name": "create_entities", "inputSchema": {"type": "object"}}]
    tools_file.write_text(json.dumps(listed), encoding="utf-8")
    refused = everkept("gateway", "init", "--", *command)
    assert refused.status == 2
    assert "create_entities" in refused.err
    assert "--prefix" in refused.err
    assert not target.exists()
    assert everkept("gateway", "init", "--prefix", "", "--", *command).status == 0
    assert config_in(target)["tools"][0]["name"] == "create_entities"


def test_a_server_without_tools_is_no_use(everkept: Run, target: Path, command: list[str], tools_file: Path) -> None:
    tools_file.write_text("[]", encoding="utf-8")
    outcome = everkept("gateway", "init", "--", *command)
    assert outcome.status == 2
    assert "no tools" in outcome.err
    assert not target.exists()


def test_printing_writes_nothing(everkept: Run, target: Path, command: list[str]) -> None:
    printed = everkept("gateway", "init", "--print", "--", *command)
    assert printed.status == 0
    assert [tool["name"] for tool in printed.json["tools"]] == ["search", "add"]
    assert not target.parent.exists()


@pytest.mark.parametrize("name", list_ready_names())
def test_a_ready_made_file_asks_nobody(everkept: Run, target: Path, name: str) -> None:
    outcome = everkept("gateway", "init", "--ready", name)
    assert outcome.status == 0, outcome.err
    found = parse_file(target.read_text(encoding="utf-8"), target.parent)
    assert found.problems == []
    assert all(tool.name in outcome.out for tool in found.config.tools)  # type: ignore[union-attr]


def test_the_file_of_the_graph_can_be_written_at_once(everkept: Run, target: Path) -> None:
    everkept("gateway", "init", "--ready", "server-memory")
    found = parse_file(target.read_text(encoding="utf-8"), target.parent)
    way = found.config.upstreams["upstream"].reach.way  # type: ignore[union-attr]
    assert isinstance(way, UpstreamProgram)
    file = Path(way.env["MEMORY_FILE_PATH"])
    assert (file.is_absolute(), file.parent.is_dir(), file.exists()) == (True, True, False)


def test_a_plain_secret_is_a_warning_that_does_not_repeat_it(everkept: Run, target: Path, command: list[str]) -> None:
    secret = "ghp_" + "a1B2" * 9
    outcome = everkept("gateway", "init", "--env", f"GITHUB_TOKEN={secret}", "--", *command)
    assert outcome.status == 0
    assert "GITHUB_TOKEN" in outcome.err
    assert secret not in outcome.out + outcome.err


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--url", "http://127.0.0.1:1/mcp", "--", "npx"],
        ["--url", "http://127.0.0.1:1/mcp", "--env", "A"],
        ["--url", "http://127.0.0.1:1/mcp", "--cwd", "x"],
        ["--url", "http://127.0.0.1:1/mcp", "--header", "Authorization"],
        ["--url", "ftp://127.0.0.1/mcp"],
        ["--header", "A=b", "--", "npx"],
        ["--env", "=x", "--", "npx"],
        ["--env", "bad name=1", "--", "npx"],
        ["--prefix", "a b", "--", "npx"],
        ["--connect-timeout", "0", "--", "npx"],
        ["--gateway-config", "none", "--", "npx"],
        ["--ready", "nobody"],
        ["--ready", "server-memory", "--prefix", "x"],
        ["--ready", "server-memory", "--", "npx"],
    ],
)
def test_what_does_not_go_together_is_refused(everkept: Run, target: Path, words: list[str]) -> None:
    outcome = everkept("gateway", "init", *words)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.strip()
    assert not target.parent.exists()


def test_what_is_wrong_is_called_by_its_option(everkept: Run, target: Path) -> None:
    assert "`--url` is" in everkept("gateway", "init", "--url", "ftp://127.0.0.1/mcp").err
    words = ["--url", "http://127.0.0.1:1/mcp", "--header", "X-Team=${A B}"]
    assert "`--header X-Team`" in everkept("gateway", "init", *words).err


def test_an_address_that_nobody_answers_leaves_nothing(everkept: Run, target: Path) -> None:
    outcome = everkept("gateway", "init", "--url", "http://127.0.0.1:1/mcp")
    assert (outcome.status, outcome.out) == (1, "")
    assert not target.parent.exists()


def test_a_server_over_http_is_asked_with_its_headers(
    everkept: Run, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    token = everkept("token", "--data-dir", str(other), "--json").json["token"]
    monkeypatch.setenv("OTHER_TOKEN", token)
    header = "Authorization=Bearer ${OTHER_TOKEN}"
    with http_server(other) as server:
        words = ["--url", server.url, "--header", header, "--prefix", "other__"]
        done = everkept("gateway", "init", *words)
        assert done.status == 0, done.err
        assert everkept("gateway", "check").status == 0
        assert everkept("other-store-memory", "Tea is at four.", "--scope", "user").status == 0
        found = everkept("other-recall-memories", "tea").out
    assert "Tea is at four." in found
    text = target.read_text(encoding="utf-8")
    assert json.loads(text)["upstream"]["headers"] == {"Authorization": "Bearer ${OTHER_TOKEN}"}
    assert token not in text
