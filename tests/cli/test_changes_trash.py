"""Purge and audit of what is in the trash, in kept versions of files, and in the call log."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_folders import holders

Run = Callable[..., Any]

BODY = "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3c"
TOKEN = "gh" + "p_" + BODY


@pytest.fixture
def leaky(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A deleted project with a secret that was stored while masking was off."""
    everkept("create-project", "shop")
    monkeypatch.setenv("EVERKEPT_MASK_SECRETS", "no")
    everkept("create-entities", "name=CI", "entity_type=system", f"observations=uses {TOKEN} daily")
    monkeypatch.delenv("EVERKEPT_MASK_SECRETS")
    everkept("delete-project", "shop", "--yes")
    return everkept


def test_secrets_in_the_trash_are_found_and_masked_there(leaky: Run, tmp_path: Path) -> None:
    [finding] = leaky("audit", "secrets", "--json").json["findings"]
    assert finding["project"].startswith("shop (in the trash: ")
    assert leaky("audit", "secrets", "--project", "shop", "--json").json["findings"] == [finding]
    assert "1 record" in leaky("audit", "secrets", "--mask").out
    assert holders(tmp_path / "data", BODY) == []
    assert leaky("audit", "secrets").out == "No secrets found.\n"
    assert leaky("list-projects", "--json").json["projects"] == []
    leaky("undo")
    assert "[masked: github token]" in leaky("read-graph", "--project", "shop").out


@pytest.mark.parametrize("options", [(), ("--project", "shop")])
def test_a_purge_reaches_into_the_trash(leaky: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    refused = leaky("purge", "--containing", BODY, *options)
    assert refused.status == 2
    assert holders(tmp_path / "data", BODY) != []
    assert leaky("purge", "--containing", BODY, "--yes", "--json", *options).json["purged"]["records"] == 1
    assert holders(tmp_path / "data", BODY) == []
    assert leaky("restore-project", "shop").status == 0
    assert "CI" in leaky("read-graph", "--project", "shop").out


def test_a_deleted_project_keeps_what_was_deleted_in_it(leaky: Run, tmp_path: Path) -> None:
    assert leaky("purge", "--deleted", "--yes", "--json").json["purged"] is None
    assert holders(tmp_path / "data", BODY) != []


def test_secrets_in_kept_versions_of_any_bank_are_found_and_deleted(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "memory-bank").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        (tmp_path / name / "memory-bank" / "notes.md").write_text(f"uses {TOKEN}\n", encoding="utf-8")
        everkept("write-memory-bank-file", "notes.md", "clean")
    told = everkept("audit", "secrets", "--json").json
    assert told["file_versions"] == 2
    assert "2 kept versions of memory bank files with secrets found" in everkept("audit", "secrets").out
    assert everkept("audit", "secrets", "--mask", "--json").json["file_versions"] == 2
    assert everkept("audit", "secrets").out == "No secrets found.\n"


def test_the_call_log_is_covered(everkept: Run, tmp_path: Path) -> None:
    everkept("create-project", "quokka shop")
    everkept("read-graph")
    file = tmp_path / "data" / "calls" / "calls.jsonl"
    line = {"at": "2026-01-01T00:00:00.000Z", "tool": "read_graph", "project": f"key {TOKEN}", "client": "x", "ms": 1}
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")
    assert everkept("audit", "secrets", "--json").json["calls"] == 1
    assert everkept("audit", "secrets", "--mask", "--json").json["calls"] == 1
    assert BODY not in file.read_text(encoding="utf-8")
    assert "quokka" in file.read_text(encoding="utf-8")
    assert everkept("purge", "--containing", "quokka", "--yes", "--json").json["calls"] >= 1
    assert "quokka" not in file.read_text(encoding="utf-8")
    assert everkept("log", "--calls").status == 0


def test_a_purged_project_leaves_the_call_log_too(everkept: Run, tmp_path: Path) -> None:
    everkept("create-project", "quokka")
    everkept("read-graph")
    everkept("delete-project", "quokka", "--yes")
    everkept("purge", "project", "quokka", "--yes")
    assert "quokka" not in (tmp_path / "data" / "calls" / "calls.jsonl").read_text(encoding="utf-8")


def test_a_purged_project_leaves_no_choice_of_a_folder(everkept: Run, repository: Path, tmp_path: Path) -> None:
    everkept("create-project", "quokka")
    everkept("delete-project", "quokka", "--yes")
    assert holders(tmp_path / "data", "ended folder project") != []
    everkept("purge", "project", "quokka", "--yes")
    assert holders(tmp_path / "data", "ended folder project") == []


def test_a_project_whose_name_is_used_again_is_restored_under_another(everkept: Run) -> None:
    everkept("create-project", "shop")
    everkept("delete-project", "shop", "--yes")
    everkept("create-project", "shop")
    refused = everkept("restore-project", "shop")
    assert "Run `everkept restore-project` and pass another name as --new-name." in refused.err
    assert "old shop" in everkept("restore-project", "shop", "--new-name", "old shop").out


def find_project(everkept: Run) -> str:
    return everkept("where", "--json").json["project"]


@pytest.mark.parametrize("ending", [("delete-project", "web", "--yes"), ("archive-project", "web")])
@pytest.mark.parametrize("restoring", [("undo",), ("restore-project", "web")])
def test_a_restored_project_is_used_again_in_the_folder_that_chose_it(
    everkept: Run, repository: Path, ending: tuple[str, ...], restoring: tuple[str, ...]
) -> None:
    everkept("remember", "The sky is blue")
    everkept("create-project", "web")
    everkept("remember", "The grass is green")
    assert "its own project again" in everkept(*ending).out
    assert find_project(everkept) == "shop"
    assert "This folder now uses project web" in everkept(*restoring).out
    assert find_project(everkept) == "web"
    assert "grass" in everkept("list").out
    everkept("switch-project", "auto")
    assert find_project(everkept) == "shop"


def test_the_answer_of_a_deletion_names_commands(everkept: Run) -> None:
    everkept("create-project", "web")
    told = everkept("delete-project", "web", "--yes").out
    assert "run `everkept restore-project" in told
    assert "restore_project" not in told


def test_another_choice_is_kept_when_a_project_is_restored(everkept: Run, repository: Path) -> None:
    everkept("create-project", "web")
    everkept("delete-project", "web", "--yes")
    everkept("create-project", "api")
    everkept("restore-project", "web", "--json")
    assert find_project(everkept) == "api"


def test_undoing_a_creation_ends_the_choice_of_the_folder(everkept: Run, repository: Path) -> None:
    everkept("create-project", "web")
    undone = everkept("undo")
    assert ("its own project again" in undone.out, find_project(everkept)) == (True, "shop")
    assert "no longer exists" not in everkept("list").err


def test_another_project_of_the_name_does_not_take_the_folder(
    everkept: Run, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("create-project", "web")
    everkept("delete-project", "web", "--yes")
    other = tmp_path / "elsewhere"
    (other / ".git").mkdir(parents=True)
    monkeypatch.chdir(other)
    everkept("create-project", "web")
    everkept("archive-project", "web")
    everkept("restore-project", "web")
    monkeypatch.chdir(repository)
    assert find_project(everkept) == "shop"
