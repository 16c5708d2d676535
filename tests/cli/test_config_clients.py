import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import CLIENTS
from everkept.clients.hook_entries import HOOK_FORMATS
from server_processes import HANG

Run = Callable[..., Any]

PROGRAM = [sys.executable, "-E", "-P", "-m", "everkept"]


@pytest.fixture
def setup(everkept: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `everkept setup` as somebody who keeps the data where the platform has it."""
    monkeypatch.delenv("EVERKEPT_DATA_DIR")
    return lambda *arguments, **more: everkept("setup", *arguments, **more)


def state(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def servers(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))["mcpServers"]


def test_a_client_on_the_path_is_installed(
    everkept: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "new"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert everkept("setup", "claude-code", "--yes").status == 2
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / ("claude.exe" if sys.platform == "win32" else "claude")
    program.touch(mode=0o755)
    installed = {row["client"]: row["installed"] for row in everkept("setup", "--json").json["clients"]}
    assert installed["claude-code"] is True
    assert installed["codex"] is False
    assert everkept("setup", "claude-code", "--yes").status == 0
    assert "everkept" in servers(tmp_path / "new" / ".claude.json")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_is_set_up_once_and_taken_back(setup: Run, home: Path, client: str) -> None:
    before = state(home)
    first = setup(client, "--yes")
    assert first.status == 0
    changed = state(home)
    assert changed != before
    assert "everkept" in first.out
    assert "--undo" in first.out
    again = setup(client, "--yes")
    assert (again.status, state(home)) == (0, changed)
    assert "Nothing to change" in again.out
    (row,) = [each for each in setup("--json").json["clients"] if each["client"] == client]
    assert row["set_up"]
    path = ["--path", "${workspaceFolder}"] if client == "cursor" else []
    assert row["found"][0]["command"] == [*PROGRAM, "serve", "--project", "auto", *path]
    assert setup(client, "--undo", "--yes").status == 0
    (row,) = [each for each in setup("--json").json["clients"] if each["client"] == client]
    assert not row["set_up"]
    assert "Everkept is not in it" in setup(client, "--undo", "--yes").out


def test_claude_code_gets_the_server_and_the_hooks(setup: Run, home: Path) -> None:
    outcome = setup("claude-code", "--yes", "--json")
    files = [home / ".claude.json", home / ".claude" / "settings.json"]
    assert [each["file"] for each in outcome.json["changed"]] == [str(file) for file in files]
    assert servers(files[0])["everkept"]["type"] == "stdio"
    hooks = json.loads(files[1].read_text(encoding="utf-8"))["hooks"]
    assert list(hooks) == list(HOOK_FORMATS["claude-code"].events)
    for event, (group,) in hooks.items():
        assert group["hooks"][0]["command"].endswith(f"-m everkept hook {event}")


@pytest.mark.parametrize("path", ["", ":", "code"])
def test_nothing_that_is_written_runs_code_of_the_working_folder(
    setup: Run, home: Path, tmp_path: Path, path: str
) -> None:
    setup("claude-code", "--yes", "--data-dir", str(tmp_path / "data"))
    server = servers(home / ".claude.json")["everkept"]
    hooks = json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))["hooks"]
    hook = hooks["SessionStart"][0]["hooks"][0]["command"]
    hostile = tmp_path / "hostile"
    (hostile / "code").mkdir(parents=True)
    for name in ("sitecustomize", "usercustomize", "everkept", "runpy", "json"):
        for folder in (hostile, hostile / "code"):
            (folder / f"{name}.py").write_text("open('was here', 'w').close()\n", encoding="utf-8")
    for command in ([server["command"], *server["args"]], shlex.split(hook)):
        variables = os.environ | {"PYTHONPATH": path, "PYTHONSTARTUP": "json.py"}
        subprocess.run(
            command, input=b"", env=variables, cwd=hostile, check=True, stdout=subprocess.DEVNULL, timeout=HANG
        )
    assert not (hostile / "was here").exists()


def test_codex_gets_its_hooks_and_its_user_is_told_to_trust_them(setup: Run, home: Path) -> None:
    said = setup("codex", "--yes").out
    assert "Run `/hooks` in Codex" in said
    hooks = json.loads((home / ".codex" / "hooks.json").read_text(encoding="utf-8"))["hooks"]
    assert hooks["SessionEnd"][0]["hooks"][0]["command"].endswith("-m everkept hook SessionEnd --client codex")
    for options in (("--undo",), ("--no-hooks",)):
        assert "Run `/hooks`" not in setup("codex", "--yes", *options).out


def test_copilot_and_vs_code_share_their_hooks(setup: Run, home: Path) -> None:
    setup("vscode", "--yes")
    file = home / ".copilot" / "hooks" / "everkept.json"
    before = file.read_bytes()
    assert [Path(each["file"]).name for each in setup("copilot", "--yes", "--json").json["changed"]] == [
        "mcp-config.json"
    ]
    assert file.read_bytes() == before
    entry = servers(home / ".copilot" / "mcp-config.json")["everkept"]
    assert (entry["type"], entry["tools"]) == ("local", ["*"])


def test_the_hooks_can_be_left_out(setup: Run, home: Path) -> None:
    setup("claude-code", "--yes", "--no-hooks")
    assert list(state(home)) == [".claude.json"]


def test_options_are_passed_on_to_server_and_hooks(setup: Run, home: Path, tmp_path: Path) -> None:
    options = ["--toolsets", "memories,bank", "--read-only", "--project", "shop"]
    setup("claude-code", "--yes", "--data-dir", str(tmp_path / "my data"), *options)
    arguments = servers(home / ".claude.json")["everkept"]["args"]
    assert arguments[4:] == [
        *("serve", "--project", "shop", "--data-dir", str(tmp_path / "my data")),
        *("--toolsets", "memories,bank", "--read-only"),
    ]
    hooks = json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))["hooks"]
    command = hooks["SessionEnd"][0]["hooks"][0]["command"]
    assert "--project shop --data-dir" in command
    assert "--toolsets" not in command


def test_data_that_a_variable_names_is_named_to_the_client(
    setup: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(tmp_path / "data"))
    setup("cursor", "--yes")
    arguments = servers(home / ".cursor" / "mcp.json")["everkept"]["args"]
    assert arguments[-2:] == ["--data-dir", str(tmp_path / "data")]


@pytest.mark.parametrize(
    ("options", "path"), [((), ["--path", "${workspaceFolder}"]), (("--project", "shop"), [])], ids=["auto", "named"]
)
def test_a_client_that_starts_servers_elsewhere_names_the_open_folder(
    setup: Run, home: Path, options: tuple[str, ...], path: list[str]
) -> None:
    setup("cursor", "--yes", *options)
    arguments = servers(home / ".cursor" / "mcp.json")["everkept"]["args"]
    assert arguments[arguments.index("--project") + 2 :] == path
    setup("claude-code", "--yes")
    assert "--path" not in servers(home / ".claude.json")["everkept"]["args"]


def test_a_launcher_is_what_the_client_starts(setup: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_LAUNCHER", "/checkout/run")
    setup("cursor", "--yes")
    assert servers(home / ".cursor" / "mcp.json")["everkept"]["command"] == "/checkout/run"
    monkeypatch.setenv("EVERKEPT_LAUNCHER", "/moved/run")
    setup("cursor", "--yes")
    assert servers(home / ".cursor" / "mcp.json")["everkept"]["command"] == "/moved/run"


def test_hooks_of_a_checkout_that_moved_are_replaced_and_those_of_others_left(
    setup: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / ".claude" / "settings.json"
    theirs = {"hooks": [{"type": "command", "command": "/theirs/run hook SessionStart"}]}
    file.write_text(json.dumps({"hooks": {"SessionStart": [theirs]}}), encoding="utf-8")
    before = file.read_bytes()
    for launcher in ("/checkout/run", "/moved/run"):
        monkeypatch.setenv("EVERKEPT_LAUNCHER", launcher)
        assert setup("claude-code", "--yes").status == 0
    hooks = json.loads(file.read_text(encoding="utf-8"))["hooks"]["SessionStart"]
    assert [each["hooks"][0]["command"] for each in hooks] == [
        "/theirs/run hook SessionStart",
        "/moved/run hook SessionStart",
    ]
    monkeypatch.setenv("EVERKEPT_LAUNCHER", "")
    setup("claude-code", "--yes", "--undo")
    assert file.read_bytes() == before


def test_an_option_that_is_wrong_changes_nothing(setup: Run, home: Path) -> None:
    outcome = setup("cursor", "--yes", "--toolsets", "everything")
    assert (outcome.status, state(home)) == (2, {})
    assert "everything" in outcome.err
    unknown = setup("emacs", "--yes")
    assert (unknown.status, state(home)) == (2, {})
    assert "windsurf" in unknown.err


def test_a_person_is_shown_the_change_and_asked(setup: Run, home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.write_text('{\n  "mcpServers": {}\n}\n', encoding="utf-8")
    declined = setup("cursor", stdin="n\n", terminal=True)
    assert declined.status == 0
    assert '+    "everkept": {' in declined.out
    assert servers(file) == {}
    accepted = setup("cursor", stdin="y\n", terminal=True)
    assert accepted.status == 0
    assert "everkept" in servers(file)
    (copy,) = [path for path in file.parent.iterdir() if "backup" in path.name]
    assert str(copy) in accepted.out


def test_where_nobody_can_be_asked_it_must_be_said(setup: Run, home: Path) -> None:
    outcome = setup("cursor")
    assert (outcome.status, state(home)) == (2, {})
    assert "--yes" in outcome.err
    as_json = setup("cursor", "--json")
    assert (as_json.status, as_json.json["error"]) == (2, "refused")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_to_paste_is_printed_and_nothing_changed(setup: Run, home: Path, client: str) -> None:
    before = state(home)
    outcome = setup(client, "--print")
    assert outcome.status == 0
    assert "everkept" in outcome.out
    printed = setup(client, "--print", "--json").json["files"]
    assert all(each["file"] in outcome.out and each["content"] in outcome.out for each in printed)
    assert state(home) == before
    for each in printed:
        Path(each["file"]).parent.mkdir(parents=True, exist_ok=True)
        Path(each["file"]).write_text(each["content"], encoding="utf-8")
    assert "Nothing to change" in setup(client, "--yes").out


def test_a_client_that_is_not_here_needs_force(setup: Run, home: Path) -> None:
    (home / ".cursor").rmdir()
    outcome = setup("cursor", "--yes")
    assert (outcome.status, state(home)) == (2, {})
    assert "--force" in outcome.err
    assert setup("cursor", "--yes", "--force").status == 0
    assert "everkept" in servers(home / ".cursor" / "mcp.json")


def test_the_plugin_makes_it_needless(setup: Run, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.write_text('{"enabledPlugins": {"everkept@everkept": true}}', encoding="utf-8")
    before = state(home)
    outcome = setup("claude-code", "--yes")
    assert (outcome.status, state(home)) == (0, before)
    assert "everkept@everkept" in outcome.out
    assert setup("claude-code", "--yes", "--json").json["plugin"] == "everkept@everkept"
    assert setup("claude-code", "--yes", "--force").status == 0
    assert state(home) != before
    assert setup("claude-code", "--yes", "--undo").status == 0
    assert settings.read_bytes() == before[".claude/settings.json"]


def test_a_project_has_a_file_of_its_own(setup: Run, home: Path, tmp_path: Path) -> None:
    outcome = setup("claude-code", "--scope", "project", "--yes")
    shop = tmp_path / "shop"
    assert sorted(state(shop)) == [".claude/settings.json", ".mcp.json"]
    assert [Path(name).name for name in state(home)] == ["setup-projects.json"]  # of the data folder
    assert "--scope project --undo" in outcome.out
    undone = setup("claude-code", "--scope", "project", "--undo", "--yes")
    assert state(shop) == {}
    assert f"Removed {shop / '.mcp.json'}" in undone.out
    before = state(home)
    refused = setup("windsurf", "--scope", "project", "--yes")
    assert (refused.status, state(home)) == (2, before)


def test_no_copy_of_a_projects_file_lies_in_the_project(everkept: Run, home: Path, tmp_path: Path) -> None:
    file, before = tmp_path / "shop" / ".mcp.json", b'{"mcpServers": {\n}}'
    file.write_bytes(before)
    outcome = everkept("setup", "claude-code", "--scope", "project", "--yes", "--no-hooks")
    assert sorted(state(tmp_path / "shop")) == [".mcp.json"]
    (copy,) = (tmp_path / "data" / "setup-backups").rglob("*backup*")
    assert f"copy of the old file: {copy}" in outcome.out
    assert copy.read_bytes() == before
    everkept("setup", "claude-code", "--scope", "project", "--undo", "--yes")
    assert state(tmp_path / "shop") == {".mcp.json": before}


def test_a_broken_file_is_told_and_left(setup: Run, home: Path) -> None:
    settings = home / ".claude" / "settings.json"
    settings.write_text('{"hooks": ', encoding="utf-8")
    before = state(home)
    outcome = setup("claude-code", "--yes", "--json")
    assert (outcome.status, state(home)) == (2, before)
    assert outcome.json["error"] == "refused"
    assert "line 1" in outcome.err
    assert "cannot be read" in setup().out


def test_the_list_says_which_are_here_and_which_are_set_up(setup: Run, home: Path) -> None:
    (home / ".gemini").rmdir()
    setup("codex", "--yes")
    setup("claude-code", "--yes")
    rows = {line.split()[0]: line for line in setup().out.splitlines() if line.strip()}
    assert "yes, with hooks" in rows["claude-code"]
    assert rows["codex"].split()[1:5] == ["yes", "yes,", "with", "hooks"]
    assert rows["cursor"].split()[1:3] == ["yes", "no"]
    assert rows["gemini"].split()[1:3] == ["no", "no"]


def test_a_program_that_is_gone_is_seen_in_the_list(setup: Run, home: Path, tmp_path: Path) -> None:
    gone = str(tmp_path / "everkept")
    entry = {"mcpServers": {"everkept": {"command": gone, "args": ["serve"]}}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps(entry), encoding="utf-8")
    assert "its program is missing" in setup().out


def test_a_folder_whose_name_is_no_text_is_told(setup: Run, home: Path) -> None:
    outcome = setup("cursor", "--yes", "--data-dir", "/tmp/caf\udce9")
    assert (outcome.status, state(home)) == (2, {})
    assert "not valid text" in outcome.err


def test_the_engine_of_this_command_is_the_engine_of_the_client(setup: Run, home: Path) -> None:
    engine = ["--engine", "surreal", "--database-url", "ws://db.example", "--database-user", "me"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERKEPT_DATABASE_PASSWORD", "hunter2")
        patch.setenv("EVERKEPT_NAMESPACE", "other")
        outcome = setup("claude-code", "--yes", *engine)
    assert outcome.status == 0
    server = servers(home / ".claude.json")["everkept"]
    assert [*server["args"]][-len(engine) :] == engine
    hooks = json.loads((home / ".claude" / "settings.json").read_text(encoding="utf-8"))["hooks"]
    assert " ".join(engine) in hooks["SessionEnd"][0]["hooks"][0]["command"]
    assert "EVERKEPT_DATABASE_PASSWORD, EVERKEPT_NAMESPACE" in outcome.err
    written = b"".join(state(home).values()).decode("utf-8")
    assert "hunter2" not in written + outcome.out + outcome.err


def test_nothing_is_said_of_variables_that_a_client_sees(setup: Run, home: Path) -> None:
    assert setup("claude-code", "--yes").err == ""
