from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from account_homes import kept_at_home
from processes import said_by
from surreal_server import PASSWORD, USER, fresh_namespace, shared

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(home_without_clients: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without clients."""
    monkeypatch.chdir(home_without_clients)
    return home_without_clients


@pytest.fixture
def stored(everkept: Run) -> Run:
    assert everkept("remember", "Logins are limited", "--project", "shop").status == 0
    return everkept


def of(answer: Any, check: str) -> list[tuple[str, str]]:
    return [(f["severity"], f["what"]) for f in answer["findings"] if f["check"] == check]


def test_a_sound_installation_has_no_problem_and_is_left_as_it_is(stored: Run, tmp_path: Path) -> None:
    before = said_by("digests", tmp_path / "data")
    looked = stored("doctor")
    assert looked.status == 0
    assert "No problems." in looked.out
    assert stored("doctor", "--full").status == 0
    assert said_by("digests", tmp_path / "data") == before


def test_nothing_stored_yet_is_no_problem_and_makes_no_folder(everkept: Run, tmp_path: Path) -> None:
    assert everkept("doctor", "--json").json["ok"] is True
    assert not (tmp_path / "data").exists()


def test_what_can_be_mended_is_mended_when_asked(stored: Run, tmp_path: Path) -> None:
    [project] = (tmp_path / "data" / "projects").glob("*.db")
    project.chmod(0o644)
    looked = stored("doctor", "--json")
    assert looked.status == 1
    [wrong] = [f for f in looked.json["findings"] if f["severity"] == "problem"]
    assert wrong["fixable"] is True
    assert wrong["command"] == "everkept doctor --fix"
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
    assert "everkept restore FILE --replace" in shown


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
    monkeypatch.setenv("EVERKEPT_SYNCHRONOUS", "perhaps")
    monkeypatch.setenv("EVERKEPT_CONFIG", str(tmp_path / "missing.md"))
    assert stored("doctor", "--json", "--data-dir", str(tmp_path / "data")).status == 1


def test_where_only_reading_is_allowed_nothing_is_mended(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    assert stored("doctor").status == 0
    assert stored("doctor", "--fix").status == 2


def test_one_project_alone_is_not_looked_at(stored: Run) -> None:
    refused = stored("doctor", "--project", "shop", "--json")
    assert (refused.status, refused.json["error"]) == (2, "invalid_input")


def test_a_server_that_is_away_is_a_problem_and_what_is_not_safe_is_told(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_text("", encoding="utf-8")
    monkeypatch.setenv("EVERKEPT_DATABASE_CA", str(ca))
    looked = everkept("doctor", "--database-url", "ws://127.0.0.1:1", "--json")
    assert looked.status == 1
    [(severity, what)] = of(looked.json, "database")
    assert severity == "problem"
    assert "ws://127.0.0.1:1" in what
    assert [s for s, what in of(looked.json, "settings") if "database_ca" in what] == ["advice"]
    assert of(looked.json, "databases") == []
    assert not (tmp_path / "data").exists()


def test_a_server_that_answers_is_no_problem(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_DATABASE_URL", shared(3).url)
    monkeypatch.setenv("EVERKEPT_NAMESPACE", fresh_namespace())
    monkeypatch.setenv("EVERKEPT_DATABASE_USER", USER)
    monkeypatch.setenv("EVERKEPT_DATABASE_PASSWORD", "hunter2")
    refused = everkept("doctor")
    assert refused.status == 1
    assert "hunter2" not in refused.out + refused.err
    monkeypatch.setenv("EVERKEPT_DATABASE_PASSWORD", PASSWORD)
    looked = everkept("doctor", "--json")
    assert (looked.status, looked.json["ok"]) == (0, True)
    (severity, what), *checks = of(looked.json, "database")
    assert (severity, "answers" in what) == ("ok", True)
    assert [severity for severity, _ in checks] == ["ok"]


def test_an_engine_inside_the_program_is_looked_at_too(everkept: Run, tmp_path: Path) -> None:
    places = ("--engine", "surreal")
    looked = everkept("doctor", *places, "--json")
    assert (looked.status, of(looked.json, "database")) == (0, [("ok", "Nothing is stored yet.")])
    assert not (tmp_path / "data").exists()
    assert everkept("remember", "Prefers tea", "--project", "shop", *places).status == 0
    (severity, what), *checks = of(everkept("doctor", *places, "--json").json, "database")
    assert (severity, "1 project." in what) == ("ok", True)
    assert [severity for severity, _ in checks] == ["ok"]


def test_no_account_is_named(everkept: Run, tmp_path: Path) -> None:
    kept_at_home(tmp_path / "data")
    [own] = (tmp_path / "data" / "projects").glob("*.db")
    told = everkept("doctor", "--json", "--full")
    assert "0 projects and 1 private store of accounts" in told.out
    assert "anna" not in told.out
    own.write_bytes(b"nothing" * 1_000)
    told = everkept("doctor", "--json")
    assert "the private data of an account" in told.out
    assert "anna" not in told.out
