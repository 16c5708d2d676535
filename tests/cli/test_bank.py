from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are called in."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def bank(recollect: Run, home: Path) -> Path:
    assert recollect("initialize-memory-bank", ".").status == 0
    return home / "memory-bank"


def test_a_file_is_printed_as_it_is(recollect: Run, bank: Path) -> None:
    (bank / "notes.md").write_text("# Notes\n\n[bold]not markup[/bold]\n", encoding="utf-8")
    assert recollect("read-memory-bank-file", "notes.md").out == (
        "# Notes\n\n[bold]not markup[/bold]\n"
    )


def test_an_answer_that_is_a_sentence_is_printed_as_one(recollect: Run, bank: Path) -> None:
    said = recollect("track-progress", "Fixed login", "It was the token").out
    assert said.startswith("Progress tracked successfully.")
    assert "It was the token" in (bank / "progress.md").read_text(encoding="utf-8")


def test_matches_are_printed_with_file_and_line(recollect: Run, bank: Path) -> None:
    (bank / "notes.md").write_text("# Notes\n\nThe cart is [red]slow[/red].\n", encoding="utf-8")
    out = recollect("search-memory-bank", "cart is").out
    assert "notes.md:3: The cart is [red]slow[/red]." in out
    assert recollect("search-memory-bank", "nowhere to be found", "--files", "notes.md").out


def test_the_digest_is_an_outline(recollect: Run, bank: Path) -> None:
    recollect("update-tasks", "--add", "Ship the cart", "--add", "Measure")
    recollect("log-decision", "Use PostgreSQL", "Orders grow", "PostgreSQL it is")
    out = recollect("get-context-digest").out
    assert "Tasks\n  Ship the cart\n  Measure\n" in out
    assert "Use PostgreSQL: PostgreSQL it is" in out


def test_several_files_are_printed_one_after_the_other(recollect: Run, bank: Path) -> None:
    out = recollect("get-context-bundle").out
    assert out.index("==> active-context.md <==") < out.index("## Ongoing Tasks")


def test_what_a_command_chose_counts_for_the_next_one_in_the_same_folder(
    recollect: Run, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    recollect("register-store", "other", str(other))
    recollect("select-store", "--store-id", "other")
    recollect("switch-mode", "--mode", "ask")
    status = recollect("get-memory-bank-status", "--json").json
    assert status["path"] == str(other / "memory-bank")
    assert "Current mode: ask" in recollect("get-current-mode").out
    monkeypatch.chdir(tmp_path)
    assert recollect("get-memory-bank-status").status == 2


def test_a_missing_bank_is_an_error_with_the_way_out(recollect: Run, home: Path) -> None:
    outcome = recollect("track-progress", "a", "b")
    assert outcome.status == 2
    assert "initialize_memory_bank" in outcome.err
    assert recollect("track-progress", "a", "b", "--json").json["expectedPath"] == str(
        home / "memory-bank"
    )


def test_a_folder_inside_a_repository_means_the_bank_at_its_root(
    recollect: Run, bank: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / ".git").mkdir()
    (home / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(home / "src" / "deep")
    assert recollect("get-memory-bank-status", "--json").json["path"] == str(bank)
