import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the config file of an empty home folder would be."""
    for name in ("HOME", "USERPROFILE", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in ("EVERKEPT_CONFIG", "MEMORY_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "everkept" / "config.md"


@pytest.fixture
def written(file: Path, everkept: Run) -> Path:
    return Path(everkept("config", "init", "--json").json["written"])


def write(file: Path, text: str) -> Path:
    file.write_text(f"---\n{text}\n---\n", encoding="utf-8")
    return file


def settings(everkept: Run, *arguments: str) -> dict[str, tuple[Any, str]]:
    rows = everkept("config", *arguments, "--json").json["settings"]
    return {row["setting"]: (row["value"], row["from"]) for row in rows}


def test_each_setting_is_shown_with_where_it_comes_from(written: Path, everkept: Run) -> None:
    write(written, "# a comment\nport: 9000")
    told = settings(everkept, "--project", "shop")
    assert told["port"] == (9000, f"config file {written} line 3")
    assert told["project"] == ("shop", "flag --project")
    assert told["data_dir"][1] == "environment EVERKEPT_DATA_DIR"
    assert told["mask_secrets"] == (True, "default")
    shown = everkept("config", "--project", "shop").out
    assert "9000" in shown
    assert "flag --project" in shown


def test_a_new_file_changes_nothing_and_belongs_to_its_owner(
    file: Path, everkept: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = settings(everkept)
    outcome = everkept("config", "init")
    path = everkept("config", "path").out.strip()
    assert outcome.status == 0
    assert path in outcome.out
    after = settings(everkept)
    assert after.pop("config") == (path, "default")
    before.pop("config")
    assert after == before
    if os.name == "posix":
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_every_line_of_a_new_file_can_be_switched_on(written: Path, everkept: Run) -> None:
    lines = written.read_text(encoding="utf-8").splitlines()
    entries = [line[2:] for line in lines if re.match(r"# [a-z_]+:( \S+)?$", line)]
    assert len(entries) > 10
    write(written, "\n".join(entries))
    assert everkept("config").status == 0
    assert settings(everkept)["prompt_token_budget"][1].startswith("config file")


def test_a_file_is_not_overwritten_unless_that_is_asked_for(written: Path, everkept: Run) -> None:
    write(written, "port: 9000")
    refused = everkept("config", "init")
    assert refused.status == 2
    assert str(written) in refused.err
    assert settings(everkept)["port"][0] == 9000
    assert everkept("config", "init", "--force").status == 0
    assert settings(everkept)["port"][0] == 8081
    assert [path.name for path in written.parent.iterdir()] == ["config.md"]


def test_init_tells_of_the_file_that_is_not_read_any_more(file: Path, everkept: Run, tmp_path: Path) -> None:
    older = tmp_path / ".claude" / "surrealdb-memory.local.md"
    older.parent.mkdir()
    write(older, "port: 9000")
    assert settings(everkept)["port"][0] == 9000
    assert str(older) in everkept("config", "init").err
    assert settings(everkept)["port"][0] == 8081


def test_the_path_is_told_before_there_is_a_file(file: Path, everkept: Run) -> None:
    told = everkept("config", "path", "--json").json
    assert told["exists"] is False
    assert Path(told["path"]).name == "config.md"
    everkept("config", "init")
    assert everkept("config", "path", "--json").json == told | {"exists": True}


def test_the_file_that_is_named_is_the_one_that_is_written(
    file: Path, everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = tmp_path / "deep" / "mine.md"
    monkeypatch.setenv("EVERKEPT_CONFIG", str(named))
    assert everkept("config").status == 2
    assert everkept("config", "path").out.strip() == str(named)
    assert everkept("config", "init", "--json").json == {"written": str(named)}
    assert settings(everkept)["config"] == (str(named), "environment EVERKEPT_CONFIG")


@pytest.mark.parametrize("command", [["config"], ["serve"], ["read-graph"], ["log"]])
def test_a_bad_value_ends_every_command_with_its_file_key_and_what_is_allowed(
    written: Path, everkept: Run, command: list[str]
) -> None:
    write(written, "log_level: loud")
    outcome = everkept(*command)
    assert outcome.status == 2
    for part in (str(written), "log_level", "line 2", "loud", "debug, info, warning, error"):
        assert part in outcome.err


def test_the_path_is_told_even_of_a_bad_file(written: Path, everkept: Run) -> None:
    write(written, "no colon")
    assert everkept("config").status == 2
    assert everkept("config", "path").out.strip() == str(written)


def test_passwords_are_not_shown_wherever_they_stand(written: Path, everkept: Run) -> None:
    remote = "\n# Remote mode settings\n```yaml\nremote_url: ws://u:hunter2@a\n```\n"
    write(written, "deployment_mode: embedded-file\nremote_pass: hunter2")
    with written.open("a", encoding="utf-8") as file:
        file.write(remote)
    assert settings(everkept)["remote_url"][0] == "ws://a"
    line = f"config file {written} line 3"
    assert settings(everkept)["database_password"] == ("***", line)
    for shown in (everkept("config"), everkept("config", "--json")):
        assert shown.status == 0
        assert "hunter2" not in shown.out + shown.err


def test_what_is_not_safe_is_said(written: Path, everkept: Run) -> None:
    write(written, "remote_url: ws://db.example\nremote_user: root\nremote_pass: hunter2")
    written.chmod(0o600)
    (wire,) = everkept("config", "--json").json["warnings"]
    assert "ws://db.example" in wire
    shown = everkept("config")
    assert f"everkept: {wire}" in shown.err
    assert "hunter2" not in shown.out + shown.err
    if os.name == "posix":
        written.chmod(0o644)
        assert f"chmod 600 {written}" in everkept("config").err


def test_the_engine_is_chosen_by_options_of_every_command(file: Path, everkept: Run) -> None:
    told = settings(everkept, "--engine", "surreal")
    assert told["engine"] == ("surreal", "flag --engine")
    told = settings(everkept, "--database-url", "ws://localhost")
    assert told["database_url"] == ("ws://localhost", "flag --database-url")
    assert told["deployment_mode"] == ("local-server", "follows from --database-url")
    for command in (["config"], ["list"], ["read-graph"], ["hook"], ["migrate"], ["gateway", "call"]):
        help_ = everkept(*command, "--help").out
        assert all(f" {flag} " in help_ for flag in ("--engine", "--database-url"))
        assert "--database-password" not in help_
        assert " --database-user " in help_


def test_an_engine_that_does_not_go_with_the_address_is_told(file: Path, everkept: Run) -> None:
    outcome = everkept("list", "--engine", "sqlite", "--database-url", "ws://localhost")
    assert outcome.status != 0
    assert "`--engine` is 'sqlite'; `--database-url` asks for a server" in outcome.err
    outcome = everkept("list", "--database-url", "localhost")
    assert outcome.status == 2
    assert "ws://127.0.0.1:8000" in outcome.err
    assert everkept("list", "--database-password", "hunter2").status == 2
