import json
import os
from pathlib import Path
from typing import Any

import pytest

from everkept.care.check_context import CheckContext, DoctorFinding
from everkept.care.doctor import diagnose
from everkept.care.installation_checks import check_gateway
from everkept.values import replace

SERVER: dict[str, Any] = {"command": "server-that-is-not-there", "passThrough": True}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Of a gateway, as `gateway init` leaves it: nobody else may look into it."""
    folder = tmp_path / "config"
    folder.mkdir(mode=0o700)
    return written(folder / "tools.json", upstream=SERVER)


@pytest.fixture
def gated(context: CheckContext, file: Path) -> CheckContext:
    chosen = replace(context.settings, gateway_config=file, toolsets="memories,gateway")
    return replace(context, settings=chosen)


def written(path: Path, **content: Any) -> Path:
    path.write_text(json.dumps(content, indent=2), "utf-8")
    path.chmod(0o600)
    return path


def found(context: CheckContext) -> list[DoctorFinding]:
    return [finding for finding in check_gateway(context) if finding.severity != "ok"]


def test_without_a_file_there_is_nothing_to_look_at(context: CheckContext) -> None:
    assert [*check_gateway(context)] == []


def test_a_file_that_can_be_used_is_well(gated: CheckContext, file: Path) -> None:
    [finding] = check_gateway(gated)
    assert finding.severity == "ok"
    assert str(file) in finding.what
    assert finding in diagnose(gated).findings


@pytest.mark.parametrize("content", ['{\n\n  "upstream": {}\n}', "", "\n{"])
def test_a_file_that_cannot_be_used_is_a_problem_with_its_line(gated: CheckContext, file: Path, content: str) -> None:
    file.write_text(content, "utf-8")
    [finding] = check_gateway(gated)
    assert finding.severity == "problem"
    assert f"{file}, line " in finding.what
    assert finding.command is not None
    assert "everkept gateway check" in finding.command
    assert not diagnose(gated).is_healthy


def test_a_tool_with_the_name_of_one_of_ours_is_a_problem(gated: CheckContext, file: Path) -> None:
    tool = {
        "name": "store_memory",
        "description": "Stores.",
        "inputSchema": {"type": "object"},
        "upstream": {"tool": "store", "paramMapping": {}},
    }
    written(file, upstream={"command": "server"}, tools=[tool])
    [finding] = check_gateway(gated)
    assert finding.severity == "problem"
    assert "store_memory" in finding.what
    alone = replace(gated, settings=replace(gated.settings, toolsets="gateway"))
    assert found(alone) == []


def test_a_file_that_was_named_and_is_not_there_is_a_problem(gated: CheckContext, file: Path) -> None:
    file.unlink()
    [finding] = check_gateway(gated)
    assert finding.severity == "problem"
    assert str(file) in finding.what


def test_a_file_whose_toolset_is_not_offered_is_told(gated: CheckContext) -> None:
    [finding] = check_gateway(replace(gated, settings=replace(gated.settings, toolsets="graph")))
    assert finding.severity == "advice"
    assert "gateway" in str(finding.command)


def test_what_may_not_be_meant_is_told_with_its_line(gated: CheckContext, file: Path) -> None:
    written(file, upstream={**SERVER, "env": {"API_KEY": "hunter2hunter2"}})
    [finding] = check_gateway(gated)
    assert finding.severity == "advice"
    assert f"{file}, line 6" in finding.what
    assert "hunter2" not in finding.what
    assert finding.command == "everkept gateway check"


@pytest.mark.parametrize(("mode", "severity"), [(0o602, "problem"), (0o620, "advice")])
def test_a_file_that_others_can_change_is_told_and_mended(
    gated: CheckContext, file: Path, mode: int, severity: str
) -> None:
    file.chmod(mode)
    [finding] = found(gated)
    assert finding.severity == severity
    assert finding.command == "everkept doctor --fix"
    assert finding.mend is not None
    assert str(file) in finding.mend()
    assert file.stat().st_mode & 0o777 == 0o600
    assert found(gated) == []


def test_a_broken_file_that_others_can_change_is_told_too(gated: CheckContext, file: Path) -> None:
    file.write_text("{", "utf-8")
    file.chmod(0o666)
    assert [finding.severity for finding in found(gated)] == ["problem", "problem"]


def test_a_folder_in_which_others_can_replace_the_file_is_told(gated: CheckContext, file: Path) -> None:
    file.parent.chmod(0o777)
    [finding] = found(gated)
    assert finding.severity == "problem"
    assert finding.command == f"chmod go-w {file.parent}"
    assert finding.mend is None
    file.parent.chmod(0o1777)
    assert found(gated) == []


def test_the_folder_of_a_linked_file_is_the_one_that_it_lies_in(
    gated: CheckContext, file: Path, tmp_path: Path
) -> None:
    link = tmp_path / "linked.json"
    link.symlink_to(file)
    file.parent.chmod(0o777)
    [finding] = found(replace(gated, settings=replace(gated.settings, gateway_config=link)))
    assert finding.command == f"chmod go-w {file.parent}"


def test_a_file_of_another_user_is_told(gated: CheckContext, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        os.chown(file, 4321, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    [finding] = found(gated)
    assert finding.severity == "problem"
    assert "another user" in finding.what


@pytest.mark.parametrize(
    "server",
    [
        {"command": "server", "env": {"API_KEY": "hunter2hunter2"}},
        {"url": "https://example.com/mcp", "headers": {"X-Api-Key": "hunter2hunter2"}},
    ],
)
def test_a_file_with_a_secret_that_others_can_read_is_told_and_mended(
    gated: CheckContext, file: Path, server: dict[str, Any]
) -> None:
    written(file, upstream={**server, "passThrough": True})
    file.chmod(0o644)
    [finding] = [finding for finding in found(gated) if finding.severity == "problem"]
    assert "hunter2" not in finding.what
    assert "key" in finding.what.lower()
    assert finding.mend is not None
    finding.mend()
    assert file.stat().st_mode & 0o777 == 0o600
    assert [f for f in found(gated) if f.severity == "problem"] == []


def test_a_file_without_a_secret_may_be_read(gated: CheckContext, file: Path) -> None:
    written(file, upstream={**SERVER, "env": {"API_KEY": "${MY_KEY}"}})
    file.chmod(0o644)
    assert found(gated) == []
