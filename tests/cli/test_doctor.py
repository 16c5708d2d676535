from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from processes import said_by

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(home_without_clients: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without clients."""
    monkeypatch.chdir(home_without_clients)
    return home_without_clients


@pytest.fixture
def stored(recollect: Run) -> Run:
    assert recollect("remember", "Logins are limited", "--project", "shop").status == 0
    return recollect


def of(answer: Any, check: str) -> list[tuple[str, str]]:
    return [(f["severity"], f["what"]) for f in answer["findings"] if f["check"] == check]


def test_a_sound_installation_has_no_problem_and_is_left_as_it_is(
    stored: Run, tmp_path: Path
) -> None:
    before = said_by("digests", tmp_path / "data")
    looked = stored("doctor")
    assert looked.status == 0
    assert "No problem." in looked.out
    assert stored("doctor", "--full").status == 0
    assert said_by("digests", tmp_path / "data") == before


def test_nothing_stored_yet_is_no_problem_and_makes_no_folder(
    recollect: Run, tmp_path: Path
) -> None:
    assert recollect("doctor", "--json").json["ok"] is True
    assert not (tmp_path / "data").exists()


def test_what_can_be_mended_is_mended_when_asked(stored: Run, tmp_path: Path) -> None:
    [project] = (tmp_path / "data" / "projects").glob("*.db")
    project.chmod(0o644)
    looked = stored("doctor", "--json")
    assert looked.status == 1
    [wrong] = [f for f in looked.json["findings"] if f["severity"] == "problem"]
    assert wrong["fixable"] is True
    assert wrong["command"] == "recollect doctor --fix"
    mended = stored("doctor", "--fix")
    assert mended.status == 0
    assert "mended" in mended.out
    assert stored("doctor", "--json").json["ok"] is True


def test_a_damaged_database_is_never_touched(stored: Run, tmp_path: Path) -> None:
    path = tmp_path / "data" / "user.db"
    path.write_bytes(b"scribbled over")
    looked = stored("doctor", "--fix", "--json")
    assert looked.status == 1
    assert any("user.db" in what for _, what in of(looked.json, "databases"))
    assert path.read_bytes() == b"scribbled over"
    shown = stored("doctor").out
    assert "recollect restore FILE --replace" in shown


def test_settings_that_cannot_be_read_are_a_finding_and_the_rest_is_looked_at(
    stored: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config.md"
    config.write_text("---\ncolour: red\n---\n", encoding="utf-8")
    looked = stored("doctor", "--json", "--config", str(config))
    assert looked.status == 1
    [(severity, what)] = of(looked.json, "settings")
    assert severity == "problem"
    assert "colour" in what
    assert of(looked.json, "projects")
    monkeypatch.setenv("RECOLLECT_SYNCHRONOUS", "perhaps")
    monkeypatch.setenv("RECOLLECT_CONFIG", str(tmp_path / "missing.md"))
    assert stored("doctor", "--json", "--data-dir", str(tmp_path / "data")).status == 1


def test_where_only_reading_is_allowed_nothing_is_mended(
    stored: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_READ_ONLY", "true")
    assert stored("doctor").status == 0
    assert stored("doctor", "--fix").status == 2


def test_one_project_alone_is_not_looked_at(stored: Run) -> None:
    refused = stored("doctor", "--project", "shop", "--json")
    assert (refused.status, refused.json["error"]) == (2, "invalid_input")
