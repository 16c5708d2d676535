from pathlib import Path

import pytest

from everkept.transcripts.source_programs import get_client_folders

HOME = Path("home", "ada")


def test_without_variables_everything_is_in_the_home_folder() -> None:
    folders = get_client_folders({}, HOME, "linux")
    assert folders.claude == HOME / ".claude"
    assert folders.codex == HOME / ".codex"
    assert folders.gemini == HOME / ".gemini"
    assert folders.cursor == HOME / ".cursor"


@pytest.mark.parametrize(
    ("platform", "folder"),
    [
        ("linux", HOME / ".config" / "Cursor" / "User"),
        ("darwin", HOME / "Library" / "Application Support" / "Cursor" / "User"),
        ("win32", HOME / "AppData" / "Roaming" / "Cursor" / "User"),
    ],
)
def test_the_editors_folder_is_the_platforms(platform: str, folder: Path) -> None:
    assert get_client_folders({}, HOME, platform).cursor_user == folder


def test_variables_of_the_programs_move_their_folders() -> None:
    environment = {"CLAUDE_CONFIG_DIR": "c", "CODEX_HOME": "x", "GEMINI_CLI_HOME": "g"}
    folders = get_client_folders(environment, HOME, "linux")
    assert (folders.claude, folders.codex) == (Path("c"), Path("x"))
    assert folders.gemini == Path("g", ".gemini")


@pytest.mark.parametrize(("variable", "platform"), [("APPDATA", "win32"), ("XDG_CONFIG_HOME", "linux")])
def test_variables_of_the_platform_move_the_editors_folder(variable: str, platform: str) -> None:
    folders = get_client_folders({variable: "elsewhere"}, HOME, platform)
    assert folders.cursor_user == Path("elsewhere", "Cursor", "User")


def test_a_variable_without_a_value_moves_nothing() -> None:
    assert get_client_folders({"CODEX_HOME": " "}, HOME, "linux").codex == HOME / ".codex"


def test_a_tilde_in_a_variable_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    home = str(Path.cwd())
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("USERPROFILE", home)
    assert get_client_folders({"CODEX_HOME": "~/x"}, HOME, "linux").codex == Path.cwd() / "x"
