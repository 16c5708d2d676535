import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.clients.config_files import CLIENTS
from everkept.core.locks import FileLock
from everkept.hooks.session_end import get_lock_path
from everkept.settings import read_settings

Run = Callable[..., Any]


@pytest.fixture
def uninstall(everkept: Run, home: Path) -> Run:
    """Runs `everkept uninstall` as somebody with every client."""
    return lambda *arguments, **more: everkept("uninstall", *arguments, **more)


def configured(folder: Path) -> dict[str, bytes]:
    """The files of the clients, without the copies of earlier ones."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".everkept-backup-" not in path.name]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write(file: Path, values: object) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(values, indent=2), encoding="utf-8")
    return file.read_text(encoding="utf-8")


def test_every_client_is_disconnected_and_keeps_what_is_its_own(everkept: Run, uninstall: Run, home: Path) -> None:
    own = home / ".cursor" / "mcp.json"
    before = write(own, {"mcpServers": {"other": {"command": "other"}}})
    for client in CLIENTS:
        assert everkept("setup", client, "--yes").status == 0
    assert "everkept" in own.read_text(encoding="utf-8")
    outcome = uninstall("--yes")
    assert outcome.status == 0
    assert own.read_text(encoding="utf-8") == before
    assert b"everkept" not in b"".join(configured(home).values())
    assert not any(row["set_up"] for row in everkept("setup", "--json").json["clients"])
    assert "To remove the program" in outcome.out
    again = uninstall("--yes")
    assert (again.status, "No client has an entry" in again.out) == (0, True)


def test_the_data_stays_and_its_place_is_named(everkept: Run, uninstall: Run, tmp_path: Path) -> None:
    assert "Nothing is stored" in uninstall("--yes").out
    everkept("remember", "The port is 8443")
    outcome = uninstall("--yes")
    assert str(tmp_path / "data") in outcome.out
    assert "everkept backup" in outcome.out
    kept = tmp_path / "data-before-restore-20260101T000000Z.zip"
    kept.write_bytes(b"PK")
    assert f"A backup of it stays in {kept}." in uninstall("--yes").out
    assert "8443" in everkept("recall", "port").out
    assert uninstall("--yes", "--json").json["data_dir"] == str(tmp_path / "data")


def test_nothing_changes_before_a_yes(everkept: Run, uninstall: Run, home: Path) -> None:
    everkept("setup", "codex", "--yes")
    before = configured(home)
    refused = uninstall()
    assert (refused.status, configured(home)) == (2, before)
    assert "--yes" in refused.err
    declined = uninstall(stdin="n\n", terminal=True)
    assert (declined.status, configured(home)) == (0, before)
    assert uninstall(stdin="y\n", terminal=True).status == 0
    assert configured(home) != before


def test_this_project_is_disconnected_but_not_from_the_server_of_its_team(
    everkept: Run, uninstall: Run, home: Path
) -> None:
    everkept("setup", "cursor", "--scope", "project", "--yes")
    url = "http://127.0.0.1:9/mcp"
    everkept("setup", "vscode", "--scope", "project", "--url", url, "--force", "--yes")
    everkept("setup", "codex", "--url", url, "--force", "--yes")
    shared = Path(".vscode", "mcp.json").read_bytes()
    outcome = uninstall("--yes")
    assert not Path(".cursor", "mcp.json").exists()
    assert Path(".vscode", "mcp.json").read_bytes() == shared
    assert f"still connects its project to {url}" in outcome.out
    assert b"everkept" not in b"".join(configured(home).values())


def test_every_project_that_setup_connected_is_disconnected(
    everkept: Run, uninstall: Run, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("shop", "blog", "gone")]
    for folder in folders:
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        assert everkept("setup", "claude-code", "--scope", "project", "--yes").status == 0
        assert b"everkept" in b"".join(configured(folder).values())
    monkeypatch.chdir(home)
    shutil.rmtree(folders[-1])
    outcome = uninstall("--yes")
    assert outcome.status == 0
    assert b"everkept" not in b"".join(content for folder in folders[:2] for content in configured(folder).values())
    assert not (tmp_path / "data" / "setup-projects.json").exists()


def test_a_file_that_cannot_be_read_does_not_stop_the_others(everkept: Run, uninstall: Run, home: Path) -> None:
    everkept("setup", "gemini", "--yes")
    broken = home / ".cursor" / "mcp.json"
    broken.write_text("{ not json", encoding="utf-8")
    outcome = uninstall("--yes")
    assert outcome.status == 1
    assert str(broken) in outcome.err
    assert broken.read_text(encoding="utf-8") == "{ not json"
    assert not (home / ".gemini" / "settings.json").exists()


def test_what_setup_did_not_write_is_named(uninstall: Run, home: Path) -> None:
    write(home / ".claude" / "settings.json", {"enabledPlugins": {"everkept@market": True}})
    write(home / ".cursor" / "mcp.json", {"mcpServers": {"mine": {"command": "everkept", "args": ["serve"]}}})
    entry = {"everkept": {"command": "everkept", "args": ["serve"]}}
    write(home / ".claude.json", {"projects": {str(Path.cwd()): {"mcpServers": entry}}})
    before = configured(home)
    outcome = uninstall("--yes")
    assert configured(home) == before
    assert "claude plugin uninstall everkept@market" in outcome.out
    assert "claude mcp remove everkept" in outcome.out
    assert "Everkept as mine" in outcome.out


def test_a_worker_that_does_not_end_is_named(uninstall: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("everkept.hooks.worker.WORKER_STOP_SECONDS", 0.01)
    settings = read_settings({"data_dir": tmp_path / "data"}, {})
    get_lock_path(settings).parent.mkdir(parents=True)
    lock = FileLock(get_lock_path(settings))
    assert lock.take()
    outcome = uninstall("--yes")
    lock.release()
    assert (outcome.status, "still running" in outcome.out) == (1, True)
    assert uninstall("--yes").status == 0
