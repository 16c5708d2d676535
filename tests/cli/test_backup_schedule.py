from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def stored(everkept: Run) -> Run:
    assert everkept("remember", "Logins are limited").status == 0
    return everkept


def test_a_schedule_writes_its_first_backup_and_status_shows_it(stored: Run, tmp_path: Path) -> None:
    assert "backup --schedule daily" in stored("status").out
    told = stored("backup", "--schedule", "daily")
    assert told.status == 0
    [file] = (tmp_path / "data-backups").iterdir()
    assert str(file) in told.out
    assert "backs up daily and keeps 7 backups" in told.out
    shown = stored("status", "--json").json["backups"]
    assert shown["last"]["file"] == str(file)
    assert shown["schedule"]["every"] == "daily"
    assert "daily, the last 7 are kept" in " ".join(stored("status").out.split())


def test_a_schedule_changes_and_ends(stored: Run, tmp_path: Path) -> None:
    stored("backup", "--schedule", "daily", "--keep", "3", str(tmp_path / "copies"))
    told = stored("backup", "--schedule", "weekly", "--json").json["schedule"]
    assert (told["every"], told["keep"], told["folder"], told["files"]) == ("weekly", 3, str(tmp_path / "copies"), 2)
    assert "No backups are scheduled" in stored("backup", "--schedule", "off").out
    assert "schedule" not in stored("status", "--json").json["backups"]
    assert len([*(tmp_path / "copies").iterdir()]) == 2


def test_a_schedule_that_cannot_write_is_not_kept(stored: Run, tmp_path: Path) -> None:
    inside = stored("backup", "--schedule", "daily", str(tmp_path / "data" / "copies"))
    assert inside.status == 2
    assert "inside the data folder" in inside.err
    assert not (tmp_path / "data" / "copies").exists()
    (tmp_path / "file").touch()
    assert stored("backup", "--schedule", "daily", str(tmp_path / "file")).status == 2
    assert stored("backup", "--schedule", "daily", "--force").status == 2
    assert stored("backup", "--schedule", "yearly").status == 2
    assert "schedule" not in stored("status", "--json").json["backups"]


def test_a_backup_needs_a_file_or_a_schedule(stored: Run, tmp_path: Path) -> None:
    assert "--schedule daily" in stored("backup").err
    assert stored("backup", str(tmp_path / "copy.zip"), "--keep", "3").status == 2


def test_a_schedule_is_refused_if_nothing_may_be_written(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    refused = stored("backup", "--schedule", "daily")
    assert refused.status != 0
    assert "read_only" in refused.err
