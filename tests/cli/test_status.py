import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.cli.status import counted, size

Run = Callable[..., Any]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of a command that is called in a folder named shop."""
    home, folder = tmp_path / "home", tmp_path / "shop"
    for place in (home, folder):
        place.mkdir()
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.chdir(folder)
    return tmp_path / "data"


def test_an_empty_memory_has_a_status(recollect: Run, data: Path) -> None:
    outcome = recollect("status")
    assert outcome.status == 0
    assert outcome.out.startswith("0 memories, 0 entities, 0 conversations in 0 projects")
    assert str(data) in "".join(outcome.out.split("\n"))
    assert recollect("status", "--json").json["totals"]["size_bytes"] == 0
    assert not data.exists()


def test_the_status_tells_how_much_is_remembered_and_where(recollect: Run, data: Path) -> None:
    recollect("remember", "Tests run with [bold]tox[/bold]")
    recollect("remember", "Prefers tea", "--scope", "user", "--type", "episodic")
    recollect("recall", "tests")
    out = recollect("status").out
    assert "2 memories" in out
    assert "semantic 1" in out
    assert "episodic 1" in out
    assert "here" in next(line for line in out.splitlines() if line.strip().startswith("shop"))
    assert "this week" in out
    assert "██" in out
    assert "Tests run with [bold]tox[/bold]" in out


def test_json_has_the_same_facts(recollect: Run, data: Path) -> None:
    recollect("remember", "Tests run with tox")
    recollect("recall", "tests")
    told = recollect("status", "--json").json
    assert told["totals"]["memories"] == told["counts"]["total"] == 1
    assert [(each["name"], each["memories"]) for each in told["projects"]] == [("shop", 1)]
    assert len(told["weeks"]) == 12
    assert told["weeks"][-1]["memories"] == 1
    assert [(each["times"], each["content"]) for each in told["recalled"]] == [
        (1, "Tests run with tox")
    ]
    assert told["data_dir"] == str(data)
    assert told["hooks"] == {"enabled": True, "waiting": 0, "failed": 0}
    assert {"connection", "storage", "history", "files"} <= told.keys()


def test_a_project_that_is_off_is_said_to_be_so(recollect: Run, data: Path) -> None:
    recollect("remember", "Tests run with tox")
    recollect("recall", "tests")
    recollect("off")
    outcome = recollect("status")
    assert outcome.status == 0
    assert "recollect on" in outcome.out
    assert "here, off" in outcome.out
    assert "tox" not in outcome.out
    told = recollect("status", "--json").json
    assert told["off_since"] == recollect("off", "--json").json["since"]
    assert told["projects"][0]["off"] is True
    assert told["totals"]["memories"] == 1


def test_an_archived_project_has_a_status_too(recollect: Run, data: Path) -> None:
    recollect("remember", "Tests run with tox")
    recollect("archive-project", "shop")
    outcome = recollect("status", "--project", "shop")
    assert outcome.status == 0
    assert "is archived" in outcome.out
    told = recollect("status", "--project", "shop", "--json").json
    assert told["projects"][0]["status"] == "archived"
    assert told["projects"][0]["size_bytes"] > 0


def test_waiting_jobs_and_the_last_fault_of_hooks_are_told(recollect: Run, data: Path) -> None:
    hooks = data / "hooks"
    (hooks / "jobs").mkdir(parents=True)
    (hooks / "failed").mkdir()
    (hooks / "jobs" / "1.json").write_text("{}", "utf-8")
    (hooks / "failed" / "2.json").write_text(json.dumps({"reason": "x"}), "utf-8")
    lines = "2026-03-01T10:00:00.000Z SessionEnd old\n2026-03-02T10:00:00.000Z Stop store_busy: x\n"
    (hooks / "faults.log").write_text(lines, "utf-8")
    told = recollect("status", "--json").json["hooks"]
    assert (told["waiting"], told["failed"]) == (1, 1)
    assert told["last_fault"]["event"] == "Stop"
    out = " ".join(recollect("status").out.split())
    assert "1 session to be taken in" in out
    assert "store_busy: x" in out


def test_many_projects_are_summed_up_and_this_one_is_among_them(recollect: Run, data: Path) -> None:
    for number in range(17):
        recollect("create-project", f"p{number:02}")
        recollect("remember", "x", "--project", f"p{number:02}")
    out = recollect("status").out
    assert "and 2 more projects" in out
    here = next(line for line in out.splitlines() if line.rstrip().endswith("here"))
    assert here.strip().startswith("p16")  # the last that was chosen
    assert len(recollect("status", "--json").json["projects"]) == 17


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 KB"),
        (152_345, "152 KB"),
        (5_500_000, "5.5 MB"),
        (10**15, "1,000 TB"),
    ],
)
def test_sizes_are_told_as_people_say_them(count: int, shown: str) -> None:
    assert size(count) == shown


def test_one_of_a_thing_is_told_as_one() -> None:
    assert counted(1, "memories") == "1 memory"
    assert counted(1, "projects") == "1 project"
    assert counted(1_200, "texts") == "1,200 texts"


def test_a_project_that_is_not_there_is_refused(recollect: Run, data: Path) -> None:
    assert recollect("status", "--project", "nope").status == 2
    assert not data.exists()
    recollect("remember", "x")
    refused = recollect("status", "--project", "nope", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    assert recollect("status", "--project", "shop").status == 0


def test_conversations_in_folders_without_a_project_have_a_row(recollect: Run, data: Path) -> None:
    folder = data.parent / "shop"
    path = folder.parent / "home" / "talks.jsonl"
    line = {"author": "Ada", "timestamp": "2026-03-02T09:00:00Z", "text": "Hello there."}
    talks = [{"session": name, "project": str(folder), **line} for name in ("one", "two")]
    path.write_text("".join(json.dumps(talk) + "\n" for talk in talks), "utf-8")
    recollect("import", "history", "--source", "jsonl", str(path))
    out = recollect("status").out
    assert "2 conversations in 0 projects and elsewhere" in out
    row = next(line for line in out.splitlines() if line.strip().startswith("(elsewhere)"))
    assert row.split()[1] == "2"
    recollect("remember", "Now it has a project")
    assert "elsewhere" not in recollect("status").out
    assert recollect("status", "--json").json["elsewhere"] == 0
