import json
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from data_folders import filled
from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.care.installation_checks import check_clients, check_folders, check_settings, check_versions, is_within
from everkept.clients.own_command import remember_launcher
from everkept.errors import InvalidInput
from everkept.exchange.plugin_database import note_import
from everkept.settings import read_settings
from everkept.values import replace

US = (sys.executable, "-m", "everkept", "serve")


def claude_code(home: Path, command: str, *arguments: str) -> None:
    """Tells Claude Code of a server."""
    entry = {"command": command, "args": arguments}
    servers = {"mcpServers": {"everkept": entry}}
    (home / ".claude.json").write_text(json.dumps(servers), encoding="utf-8")


def worst(found: object) -> list[DoctorFinding]:
    assert hasattr(found, "__iter__")
    return [finding for finding in found if finding.severity != "ok"]


def test_the_versions_here_are_fit(context: CheckContext) -> None:
    [finding] = check_versions(context)
    assert finding.severity == "ok"
    assert "SQLite" in finding.what


def test_a_package_that_is_missing_or_unfit_is_named(context: CheckContext, monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["click<1", "no-such-package>=2", 'asyncssh>=99; extra == "ssh"', "rich>=13.9"]
    required.append('surrealdb>=99; sys_platform == "none"')
    monkeypatch.setattr(metadata, "requires", lambda _name: required)
    found = worst(check_versions(context))
    assert [finding.severity for finding in found] == ["problem", "problem"]
    assert "click" in found[0].what
    assert "no-such-package" in found[1].what


@pytest.mark.parametrize(
    ("version", "limits", "expected"),
    [
        ("1.28.3", ">=1.20,<1.29", True),
        ("1.29", ">=1.20,<1.29", False),
        ("2.3.0rc1", ">=2.3,<2.4", True),
        ("2.0", ">=2", True),
        ("2", "==2.0", True),
        ("1.9", ">=1.10", False),
        ("3.54.1.0", ">=3.46", True),
        ("1.0", "", True),
    ],
)
def test_a_version_is_compared_number_by_number(version: str, limits: str, expected: bool) -> None:
    assert is_within(version, SpecifierSet(limits)) is expected


def test_settings_that_cannot_be_used_are_a_problem(context: CheckContext) -> None:
    assert worst(check_settings(context)) == []
    wrong = InvalidInput("Unknown setting `colour`.", hint="`everkept config` shows them.")
    [finding] = check_settings(replace(context, fault=wrong))
    assert finding.severity == "problem"
    assert finding.what == "Unknown setting `colour`."


def test_memories_of_the_plugin_are_advice_until_they_are_imported(context: CheckContext, tmp_path: Path) -> None:
    folder = tmp_path / "plugin"
    (folder / "clog").mkdir(parents=True)
    settings = read_settings({"config": "none"}, {"MEMORY_DB_PATH": str(folder)})
    [finding] = worst(check_settings(replace(context, settings=settings)))
    assert finding.severity == "advice"
    assert finding.command == f"everkept import surrealdb-memory {folder}"
    note_import(settings, str(folder))
    assert worst(check_settings(replace(context, settings=settings))) == []


def test_no_client_is_advice(context: CheckContext) -> None:
    [finding] = check_clients(context)
    assert finding.severity == "advice"
    assert finding.command == "everkept setup CLIENT"


def test_a_client_that_starts_us_is_well(context: CheckContext, home: Path) -> None:
    claude_code(home, *US)
    [finding] = check_clients(context)
    assert finding.severity == "ok"
    assert "Claude Code" in finding.what


def test_a_program_that_is_not_there_is_a_problem(context: CheckContext, home: Path) -> None:
    claude_code(home, str(home / "gone" / "everkept"), "serve")
    [finding] = worst(check_clients(context))
    assert finding.severity == "problem"
    assert finding.command == "everkept setup claude-code"


def test_a_launcher_that_was_moved_away_is_known_still(context: CheckContext, home: Path, data: Path) -> None:
    launcher = str(home / "gone" / "run")
    claude_code(home, launcher, "serve")
    [finding] = worst(check_clients(context))
    assert finding.severity == "advice"
    remember_launcher(data, launcher)
    [finding] = worst(check_clients(context))
    assert finding.severity == "problem"
    assert launcher in finding.what


def test_a_client_with_another_data_folder_gets_advice(context: CheckContext, home: Path, data: Path) -> None:
    claude_code(home, *US, "--data-dir", str(home / "elsewhere"))
    [finding] = worst(check_clients(context))
    assert finding.severity == "advice"
    assert str(home / "elsewhere") in finding.what
    claude_code(home, *US, "--data-dir", str(data))
    assert worst(check_clients(context)) == []


def test_a_configuration_that_cannot_be_read_is_told(context: CheckContext, home: Path) -> None:
    (home / ".claude.json").write_text("{ broken", encoding="utf-8")
    found = worst(check_clients(context))
    assert any("Claude Code" in finding.what for finding in found)


def test_data_in_the_usual_folder_beside_the_one_in_use_is_told(
    context: CheckContext, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert [*check_folders(context)] == []
    monkeypatch.setattr("everkept.settings.get_default_data_dir", lambda _: home / "usual")
    filled(home / "usual", "other")
    [finding] = check_folders(context)
    assert finding.severity == "advice"
    assert str(home / "usual") in finding.what
