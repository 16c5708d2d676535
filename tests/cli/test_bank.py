"""Earlier versions of memory bank files, and undo and purge of them."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.hooks.session_start import is_used_bank

Run = Callable[..., Any]


@pytest.fixture
def shop(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A working folder with a bank, in which notes.md was written three times."""
    (tmp_path / "shop").mkdir()
    monkeypatch.chdir(tmp_path / "shop")
    everkept("initialize-memory-bank")
    for text in ("one", "two xyzzy-secret", "three"):
        everkept("write-memory-bank-file", "notes.md", text)
    return everkept


def read_notes() -> str:
    return Path("memory-bank/notes.md").read_text(encoding="utf-8")


def test_history_shows_versions_and_restore_brings_one_back(shop: Run, tmp_path: Path) -> None:
    versions = shop("bank", "history", "notes.md", "--json").json["versions"]
    assert [version["bytes"] for version in versions] == [len("two xyzzy-secret"), len("one")]
    assert versions[0]["id"] in shop("bank", "history", "notes.md").out
    assert "Restored notes.md" in shop("bank", "restore", "notes.md", versions[1]["id"][:8]).out
    assert read_notes() == "one"
    assert "No earlier version" in shop("bank", "history", "progress.md").out
    kept = tmp_path / "data" / "bank-versions"
    assert kept.is_dir()
    assert sys.platform == "win32" or (kept.stat().st_mode & 0o077) == 0
    assert not list(Path("memory-bank").glob("*versions*"))


def test_undo_reverses_the_newest_write_of_a_file_or_the_newest_change(shop: Run) -> None:
    shop("remember", "The sky is blue")
    assert "sky" in shop("undo").out
    assert "notes.md" in shop("undo").out
    assert read_notes() == "two xyzzy-secret"
    assert shop("undo", "--json").json["undone"]["files"] == ["notes.md"]
    assert read_notes() == "one"


def list_writes(shop: Run, *options: str) -> list[Any]:
    changes = shop("log", "--json", *options).json["changes"]
    return [each for each in changes if each["tool"] == "memory bank"]


def test_the_log_shows_writes_in_words_and_undoes_the_one_that_is_named(shop: Run) -> None:
    second, first = list_writes(shop)
    assert (first["summary"], second["undone"]) == ("Edited notes.md in bank shop", False)
    assert first["change"] in shop("log").out
    changed = shop("undo", first["change"])
    assert (changed.status, "notes.md changed after that write" in changed.err) == (2, True)
    assert "Restored notes.md in bank shop." in shop("undo", second["change"]).out
    assert read_notes() == "two xyzzy-secret"
    assert [(each["summary"].split()[0], each["undone"]) for each in list_writes(shop)] == [
        ("Restored", False),
        ("Edited", True),
        ("Edited", False),
    ]
    again = shop("undo", second["change"])
    assert (again.status, "already undone" in again.err) == (2, True)
    assert shop("undo", "shop:b0000000").status == 2


def test_the_log_of_a_project_has_only_writes_of_its_bank_and_none_while_it_is_off(shop: Run) -> None:
    Path(".git").mkdir()
    shop("remember", "The sky is blue")
    shop("remember", "The sky is blue", "--project", "web")
    assert len(list_writes(shop, "--project", "shop")) == 2
    assert list_writes(shop, "--project", "web") == []
    shop("off", "--project", "shop")
    assert list_writes(shop) == []


def test_purge_erases_versions_with_the_text(shop: Run) -> None:
    assert shop("purge", "--containing", "xyzzy-secret", "--yes", "--json").json["file_versions"] == 1
    assert [v["bytes"] for v in shop("bank", "history", "notes.md", "--json").json["versions"]] == [len("one")]
    assert read_notes() == "three"


def test_hooks_show_tasks_of_a_bank_after_it_was_used_or_trusted(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cloned" / "memory-bank").mkdir(parents=True)
    (tmp_path / "cloned" / "memory-bank" / "active-context.md").write_text("## Tasks\n- One\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "cloned")
    place, data = (tmp_path / "cloned" / "memory-bank").resolve(), tmp_path / "data"
    everkept("read-memory-bank-file", "active-context.md")
    assert not is_used_bank(place, Path.cwd(), data)
    assert str(place) in everkept("bank", "trust").out
    assert is_used_bank(place, Path.cwd(), data)
    assert everkept("bank", "trust", "--json").json == {"trusted": str(place)}


def test_a_bank_that_was_written_counts_as_used(shop: Run, tmp_path: Path) -> None:
    assert is_used_bank(Path("memory-bank").resolve(), Path.cwd(), tmp_path / "data")
