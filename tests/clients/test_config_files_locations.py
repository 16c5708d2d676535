from pathlib import Path

import pytest

from everkept.clients.config_files import CLIENTS, ClientEnvironment, ClientProgram, get_client, list_clients
from everkept.errors import InvalidInput

HOME = Path("/home/ada").absolute()
PROJECT = Path("/work/shop").absolute()


def files(platform: str, **environment: str) -> dict[str, Path]:
    places = ClientEnvironment(environment, HOME, platform, PROJECT)
    return {client.name: client.user_file for client in list_clients(places)}


def named(name: str, home: Path = HOME, **environment: str) -> ClientProgram:
    return get_client(name, ClientEnvironment(environment, home, "linux", PROJECT))


def test_every_client_is_known_by_its_name() -> None:
    assert tuple(files("linux")) == CLIENTS
    with pytest.raises(InvalidInput) as raised:
        named("emacs")
    assert raised.value.facts["allowed"] == list(CLIENTS)


def test_most_clients_have_a_folder_in_the_home_folder() -> None:
    assert files("linux") == {
        "claude-code": HOME / ".claude.json",
        "claude-desktop": HOME / ".config" / "Claude" / "claude_desktop_config.json",
        "codex": HOME / ".codex" / "config.toml",
        "copilot": HOME / ".copilot" / "mcp-config.json",
        "cursor": HOME / ".cursor" / "mcp.json",
        "gemini": HOME / ".gemini" / "settings.json",
        "opencode": HOME / ".config" / "opencode" / "opencode.json",
        "vscode": HOME / ".config" / "Code" / "User" / "mcp.json",
        "windsurf": HOME / ".codeium" / "windsurf" / "mcp_config.json",
    }


@pytest.mark.parametrize(
    ("platform", "folder"),
    [("darwin", HOME / "Library" / "Application Support"), ("win32", HOME / "AppData" / "Roaming")],
)
def test_programs_with_windows_use_the_platforms_folder(platform: str, folder: Path) -> None:
    found = files(platform)
    assert found["claude-desktop"] == folder / "Claude" / "claude_desktop_config.json"
    assert found["vscode"] == folder / "Code" / "User" / "mcp.json"


def test_opencode_has_one_folder_on_all_systems_and_a_file_with_comments_if_there_is_one(tmp_path: Path) -> None:
    assert files("darwin")["opencode"] == files("win32")["opencode"] == files("linux")["opencode"]
    commented = tmp_path / ".config" / "opencode" / "opencode.jsonc"
    commented.parent.mkdir(parents=True)
    commented.write_text("{}", encoding="utf-8")
    assert named("opencode", tmp_path).user_file == commented


def test_variables_move_the_folders() -> None:
    moved = {name: str(HOME / name) for name in ("CODEX_HOME", "COPILOT_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")}
    found = files("linux", **moved)
    assert found["codex"] == HOME / "CODEX_HOME" / "config.toml"
    assert found["copilot"] == HOME / "COPILOT_HOME" / "mcp-config.json"
    assert found["gemini"] == HOME / "GEMINI_CLI_HOME" / ".gemini" / "settings.json"
    assert found["vscode"] == HOME / "XDG_CONFIG_HOME" / "Code" / "User" / "mcp.json"
    roaming = files("win32", APPDATA=str(HOME / "Roaming"))
    assert roaming["vscode"] == HOME / "Roaming" / "Code" / "User" / "mcp.json"


def test_claude_code_has_its_file_beside_its_folder_unless_a_variable_names_that() -> None:
    usual, moved = named("claude-code"), named("claude-code", CLAUDE_CONFIG_DIR=str(HOME / "c"))
    assert (usual.user_file, usual.user_hooks_file) == (HOME / ".claude.json", HOME / ".claude" / "settings.json")
    assert (moved.user_file, moved.user_hooks_file) == (HOME / "c" / ".claude.json", HOME / "c" / "settings.json")


def test_hooks_have_a_file_of_their_own_or_share_one(tmp_path: Path) -> None:
    found = {name: file for name in CLIENTS if (file := named(name).user_hooks_file)}
    assert found == {
        "claude-code": HOME / ".claude" / "settings.json",
        "codex": HOME / ".codex" / "hooks.json",
        "copilot": HOME / ".copilot" / "hooks" / "everkept.json",
        "cursor": HOME / ".cursor" / "hooks.json",
        "gemini": HOME / ".gemini" / "settings.json",
        "vscode": HOME / ".copilot" / "hooks" / "everkept.json",
    }
    (tmp_path / ".copilot" / "hooks").mkdir(parents=True)
    assert not named("copilot", tmp_path).is_installed


def test_a_project_has_files_of_its_own_where_the_client_reads_them() -> None:
    found = {name: named(name).project_file for name in CLIENTS}
    assert found == {
        "claude-code": PROJECT / ".mcp.json",
        "claude-desktop": None,
        "codex": PROJECT / ".codex" / "config.toml",
        "copilot": None,
        "cursor": PROJECT / ".cursor" / "mcp.json",
        "gemini": PROJECT / ".gemini" / "settings.json",
        "opencode": PROJECT / "opencode.json",
        "vscode": PROJECT / ".vscode" / "mcp.json",
        "windsurf": None,
    }
    with pytest.raises(InvalidInput) as raised:
        named("windsurf").get_file("project")
    assert raised.value.facts["argument"] == "scope"


def test_a_client_is_installed_where_its_folder_is(tmp_path: Path) -> None:
    assert not named("cursor", tmp_path).is_installed
    (tmp_path / ".cursor").mkdir()
    assert named("cursor", tmp_path).is_installed
    assert not named("claude-code", tmp_path).is_installed
    (tmp_path / ".claude.json").write_text("{}", encoding="utf-8")
    assert named("claude-code", tmp_path).is_installed
