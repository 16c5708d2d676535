import os
import sys
from pathlib import Path

import platformdirs
import pytest
from platformdirs.macos import MacOS

from everkept.errors import InvalidInput, Refused
from everkept.settings import explain_settings, find_config_paths, find_plugin_folder, read_settings
from everkept.settings.locations import find_own_path, get_default_data_dir, list_config_candidates


def write(path: Path, port: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nport: {port}\n---\n", encoding="utf-8")
    return path


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody whose home folder is empty."""
    names = ("HOME", "USERPROFILE", "LOCALAPPDATA")
    return {name: str(tmp_path) for name in names} | {"EVERKEPT_DATA_DIR": str(tmp_path / "data")}


def port(environment: dict[str, str], **flags: str) -> int:
    return read_settings(flags, environment).port


def test_our_place_is_the_platforms_config_folder() -> None:
    folder = platformdirs.user_config_path("everkept", appauthor=False)
    assert find_own_path(os.environ) == folder / "config.md"


def test_without_a_home_folder_there_is_no_file() -> None:
    assert find_config_paths({}, {}) == (None, None)


def test_our_file_goes_before_those_of_surrealdb_memory(home: dict[str, str]) -> None:
    assert port(home) == 8081
    usual = write(Path(home["HOME"], ".claude", "surrealdb-memory.local.md"), 1001)
    assert port(home) == 1001
    named = write(Path(home["HOME"], "elsewhere.md"), 1002)
    home["MEMORY_CONFIG_PATH"] = str(named)
    assert port(home) == 1002
    own = find_own_path(home)
    assert own is not None
    assert find_config_paths({}, home) == (named, own)
    write(own, 1003)
    assert port(home) == 1003
    assert find_config_paths({}, home) == (own, own)
    assert usual.exists()


def test_a_file_that_is_named_goes_before_all_others(home: dict[str, str]) -> None:
    own = find_own_path(home)
    assert own is not None
    write(own, 1003)
    home["EVERKEPT_CONFIG"] = str(write(Path(home["HOME"], "a.md"), 1004))
    assert port(home) == 1004
    assert port(home, config=str(write(Path(home["HOME"], "b.md"), 1005))) == 1005
    assert port(home, config="none") == 8081


@pytest.mark.parametrize("variable", ["EVERKEPT_CONFIG", "MEMORY_CONFIG_PATH"])
def test_a_file_that_is_named_must_be_there(home: dict[str, str], variable: str) -> None:
    home[variable] = str(Path(home["HOME"], "nowhere.md"))
    with pytest.raises(InvalidInput) as caught:
        read_settings({}, home)
    assert caught.value.facts["argument"] == variable
    assert "nowhere.md" in str(caught.value)


def test_the_usual_place_may_be_named_and_empty(home: dict[str, str]) -> None:
    home["MEMORY_CONFIG_PATH"] = str(Path(home["HOME"], ".claude", "surrealdb-memory.local.md"))
    assert port(home) == 8081


@pytest.mark.parametrize(
    ("named", "value"),
    [
        ("HOME", None),
        ("HOME", ""),
        ("HOME", "/elsewhere/"),
        ("HOME", "/with blanks/and ä"),
        ("XDG_DATA_HOME", ""),
        ("XDG_DATA_HOME", "/data"),
        ("XDG_DATA_HOME", "not/absolute"),
        ("ANDROID_DATA", "/data"),
    ],
)
def test_the_data_folder_is_the_one_of_platformdirs(
    monkeypatch: pytest.MonkeyPatch, named: str, value: str | None
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if value is None:
        monkeypatch.delenv(named)
    else:
        monkeypatch.setenv(named, value)
    expected = platformdirs.user_data_path("everkept", appauthor=False)
    assert get_default_data_dir(os.environ) == expected


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_the_usual_data_folder_is_known_without_asking(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setitem(sys.modules, "platformdirs", None)  # whoever imports it fails
    home = {"HOME": "/home/ada"}
    folder = {"linux": ".local/share", "darwin": "Library/Application Support"}[platform]
    assert get_default_data_dir(home) == Path("/home/ada", folder, "everkept")


def test_on_a_mac_the_usual_folder_is_that_of_platformdirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/Users/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "darwin")
    expected = MacOS("everkept", appauthor=False).user_data_path
    assert get_default_data_dir(os.environ) == expected


def test_the_working_folder_is_the_one_given_where_nobody_names_one(home: dict[str, str], tmp_path: Path) -> None:
    assert read_settings({}, home).path == Path.cwd()
    assert read_settings({}, home, folder=tmp_path).path == tmp_path
    named = home | {"CLAUDE_PROJECT_DIR": "/named"}
    assert read_settings({}, named, folder=tmp_path).path == Path("/named")
    assert read_settings({"path": "/flag"}, named, folder=tmp_path).path == Path("/flag")


def test_every_file_that_is_read_when_it_is_there_is_looked_for(home: dict[str, str]) -> None:
    named = write(Path(home["HOME"], "elsewhere.md"), 1001)
    home["MEMORY_CONFIG_PATH"] = str(named)
    own, usual = find_own_path(home), Path(home["HOME"], ".claude", "surrealdb-memory.local.md")
    assert own is not None
    assert list_config_candidates(home) == [own, own.with_name("tools.json"), usual, named]
    assert list_config_candidates({}) == []


@pytest.mark.parametrize("names", [("clog", "manifest"), ("manifest", "wal", "sstables"), ("CURRENT", "IDENTITY")])
def test_a_database_of_the_plugin_gets_no_file_of_ours(tmp_path: Path, names: tuple[str, ...]) -> None:
    folder = tmp_path / "data"
    for name in names:
        (folder / name).mkdir(parents=True)
    named = {"MEMORY_DB_PATH": str(folder)}
    settings = read_settings({}, named)
    assert settings.data_dir == tmp_path / "data.everkept"
    assert find_plugin_folder(settings) == folder
    shown = {item.name: item.value for item in explain_settings({}, named)}
    assert shown["data_dir"] == str(tmp_path / "data.everkept")
    with pytest.raises(Refused, match="everkept import surrealdb-memory"):
        read_settings({"data_dir": folder}, {})
    assert sorted(each.name for each in folder.iterdir()) == sorted(names)


def test_a_folder_that_has_files_of_ours_stays_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "clog").mkdir()
    (tmp_path / "user.db").touch()
    for settings in (read_settings({"data_dir": tmp_path}, {}), read_settings({}, {"MEMORY_DB_PATH": str(tmp_path)})):
        assert settings.data_dir == tmp_path


def test_the_usual_folder_of_the_plugin_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    settings = read_settings({"data_dir": tmp_path / "ours"}, {})
    assert find_plugin_folder(settings) is None
    folder = tmp_path / ".claude" / "surrealdb-memory" / "data"
    (folder / "clog").mkdir(parents=True)
    assert find_plugin_folder(settings) == folder
