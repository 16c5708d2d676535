import json
import sys
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import CLIENTS, ClientEnvironment
from everkept.clients.hook_entries import HOOK_FORMATS, HooksConfigPart
from everkept.clients.survey import ClientInstallation, survey_clients
from everkept.values import replace


@pytest.fixture
def places(tmp_path: Path) -> ClientEnvironment:
    project = tmp_path / "shop"
    project.mkdir()
    return ClientEnvironment({}, tmp_path / "home", "linux", project)


def write(file: Path, content: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    file.write_text(text, encoding="utf-8")


def of(places: ClientEnvironment, client: str) -> list[ClientInstallation]:
    return [each for each in survey_clients(places) if each.client == client]


def test_every_client_is_there_also_where_nothing_is(places: ClientEnvironment) -> None:
    found = survey_clients(places)
    assert tuple(each.client for each in found) == CLIENTS
    assert not any(each.is_set_up or each.is_installed or each.problem for each in found)
    assert all(each.is_program_available for each in found)


def test_an_entry_tells_its_program_its_data_and_its_project(places: ClientEnvironment) -> None:
    entry = {"command": sys.executable, "args": ["-m", "everkept", "serve", "--project", "auto"]}
    file = places.home / ".cursor" / "mcp.json"
    write(file, {"mcpServers": {"memory": entry, "other": {"command": "x"}}})
    (found,) = of(places, "cursor")
    assert (found.file, found.name, found.scope, found.kind) == (file, "memory", "user", "server")
    assert found.is_installed
    assert found.program == sys.executable
    assert found.is_program_available
    assert (found.data_dir, found.project) == (None, "auto")


def test_what_others_start_is_not_ours_whatever_it_is_called(places: ClientEnvironment) -> None:
    others = {
        "everkept": {"command": "npx", "args": ["everkept-js"]},
        "build": {"command": "npm", "args": ["run", "serve"]},
        "site": {"command": "/opt/site/run", "args": ["serve"]},
    }
    write(places.home / ".cursor" / "mcp.json", {"mcpServers": others})
    hook = {"type": "command", "command": "/opt/site/run hook SessionStart"}
    hooks = {"SessionStart": [{"hooks": [hook]}]}
    write(places.home / ".claude" / "settings.json", {"hooks": hooks})
    assert not any(each.is_set_up for each in survey_clients(places))
    knowing = replace(places, launchers=["/opt/site/run"])
    assert [each.kind for each in survey_clients(knowing) if each.is_set_up] == ["hooks", "server"]


def test_a_program_that_is_gone_and_another_data_folder_are_seen(places: ClientEnvironment) -> None:
    gone = str(places.home / "old" / "everkept")
    text = (
        f"[mcp_servers.everkept]\ncommand = {json.dumps(gone)}\nargs = ['serve']\n"
        "[mcp_servers.everkept.env]\nEVERKEPT_DATA_DIR = '/data'\n"
    )
    write(places.home / ".codex" / "config.toml", text)
    (found,) = of(places, "codex")
    assert (found.program, found.is_program_available) == (gone, False)
    assert found.data_dir == "/data"


def test_what_is_told_in_several_places_is_found_in_each(places: ClientEnvironment) -> None:
    entry = {"command": "everkept", "args": ["serve", "--data-dir=/d"]}
    kept = {"projects": {str(places.project): {"mcpServers": {"everkept": entry}}}}
    write(places.home / ".claude.json", {**kept, "mcpServers": {"everkept": entry}})
    write(places.project / ".mcp.json", {"mcpServers": {"everkept": entry}})
    found = of(places, "claude-code")
    assert [each.scope for each in found] == ["user", "local", "project"]
    assert {each.data_dir for each in found} == {"/d"}


def test_hooks_are_found_with_their_events(places: ClientEnvironment) -> None:
    file = places.home / ".claude" / "settings.json"
    part = HooksConfigPart(file, lambda event: f"/opt/everkept hook {event} --data-dir /d")
    values = json.loads(part.content)
    del values["hooks"]["SessionEnd"]
    write(file, values)
    (found,) = of(places, "claude-code")
    assert (found.kind, found.file, found.data_dir) == ("hooks", file, "/d")
    assert found.program == "/opt/everkept"
    assert found.missing_events == ("SessionEnd",)
    assert found.is_set_up


def test_hooks_of_another_client_are_found_too(places: ClientEnvironment) -> None:
    file = places.home / ".cursor" / "hooks.json"
    form = HOOK_FORMATS["cursor"]
    part = HooksConfigPart(file, lambda event: f"/opt/everkept hook {event} --client cursor", (), form)
    values = json.loads(part.content)
    del values["hooks"]["sessionEnd"]
    write(file, values)
    (found,) = of(places, "cursor")
    assert (found.kind, found.file, found.missing_events) == ("hooks", file, ("sessionEnd",))


def test_shared_hooks_count_only_for_clients_that_are_here(places: ClientEnvironment) -> None:
    file = places.home / ".copilot" / "hooks" / "everkept.json"
    part = HooksConfigPart(file, lambda event: f"/opt/everkept hook {event}", (), HOOK_FORMATS["copilot"])
    write(file, json.loads(part.content))
    write(places.home / ".copilot" / "config.json", {})
    assert [found.is_set_up for found in of(places, "copilot") + of(places, "vscode")] == [True, False]


def test_the_plugin_is_found(places: ClientEnvironment) -> None:
    write(places.home / ".claude" / "settings.json", {"enabledPlugins": {"everkept@x": True}})
    (found,) = of(places, "claude-code")
    assert (found.kind, found.name, found.is_set_up) == ("plugin", "everkept@x", True)
    assert found.missing_events == ()


@pytest.mark.parametrize("content", ["{", '{"mcpServers": []}', "[]"])
def test_a_file_that_cannot_be_read_is_told(places: ClientEnvironment, content: str) -> None:
    write(places.home / ".cursor" / "mcp.json", content)
    (found,) = of(places, "cursor")
    assert found.problem
    assert not found.is_set_up


def test_broken_hooks_are_told_beside_what_works(places: ClientEnvironment) -> None:
    entry = {"command": "everkept", "args": ["serve"]}
    write(places.home / ".claude.json", {"mcpServers": {"everkept": entry}, "projects": []})
    write(places.home / ".claude" / "settings.json", {"hooks": []})
    server, hooks = of(places, "claude-code")
    assert server.is_set_up
    assert (hooks.kind, bool(hooks.problem)) == ("hooks", True)
