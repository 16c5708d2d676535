from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

pytestmark = pytest.mark.usefixtures("working_folder")


@pytest.fixture
def bank(everkept: Run, working_folder: Path) -> Path:
    assert everkept("initialize-memory-bank", ".").status == 0
    return working_folder / "memory-bank"


def test_a_file_is_printed_as_it_is(everkept: Run, bank: Path) -> None:
    (bank / "notes.md").write_text("# Notes\n\n[bold]not markup[/bold]\n", encoding="utf-8")
    assert everkept("read-memory-bank-file", "notes.md").out == ("# Notes\n\n[bold]not markup[/bold]\n")


def test_an_answer_that_is_a_sentence_is_printed_as_one(everkept: Run, bank: Path) -> None:
    said = everkept("track-progress", "Fixed login", "It was the token").out
    assert said.startswith("Progress tracked successfully.")
    assert "It was the token" in (bank / "progress.md").read_text(encoding="utf-8")


def test_matches_are_printed_with_file_and_line(everkept: Run, bank: Path) -> None:
    (bank / "notes.md").write_text("# Notes\n\nThe cart is [red]slow[/red].\n", encoding="utf-8")
    out = everkept("search-memory-bank", "cart is").out
    assert "notes.md:3: The cart is [red]slow[/red]." in out
    assert everkept("search-memory-bank", "nowhere to be found", "--files", "notes.md").out


def test_what_was_just_tracked_is_found_in_other_words(everkept: Run, bank: Path) -> None:
    everkept("track-progress", "Fixed login", "The token was compared too early")
    found = everkept("search-memory-bank", "sign-in problem", "--json").json
    assert found["results"] == []
    assert {section["file"] for section in found["sections"]} == {"active-context.md", "progress.md"}
    assert "warnings" not in found["metadata"]
    recalled = everkept("recall-memories", "sign-in problem", "--include-bank", "--json").json
    assert len(recalled["bank"]) == 2
    assert everkept("search-memory-bank", "xyzzyplugh").out == "Nothing found.\n"


def test_of_a_section_the_words_that_fit_are_printed(everkept: Run, bank: Path) -> None:
    filler = "Nothing of the kind stands in this line here.\n" * 8
    text = f"# Notes\n\n{filler}The cart is slow on Mondays.\n{filler}"
    (bank / "notes.md").write_text(text, encoding="utf-8")
    out = everkept("search-memory-bank", "Mondays slow carts").out
    assert "notes.md:11: Notes" in out
    assert "  … The cart is slow on Mondays." in out


def test_the_digest_is_an_outline(everkept: Run, bank: Path) -> None:
    everkept("update-tasks", "--add", "Ship the cart", "--add", "Measure")
    everkept("log-decision", "Use PostgreSQL", "Orders grow", "PostgreSQL it is")
    out = everkept("get-context-digest").out
    assert "Tasks\n  Ship the cart\n  Measure\n" in out
    assert "Use PostgreSQL: PostgreSQL it is" in out


def test_several_files_are_printed_one_after_the_other(everkept: Run, bank: Path) -> None:
    out = everkept("get-context-bundle").out
    assert out.index("==> active-context.md <==") < out.index("## Ongoing Tasks")


def test_what_a_command_chose_counts_for_the_next_one_in_the_same_folder(
    everkept: Run, bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    everkept("register-store", "other", str(other))
    everkept("select-store", "--store-id", "other")
    everkept("switch-mode", "--mode", "ask")
    status = everkept("get-memory-bank-status", "--json").json
    assert status["path"] == str(other / "memory-bank")
    assert "Current mode: ask" in everkept("get-current-mode").out
    monkeypatch.chdir(tmp_path)
    assert everkept("get-memory-bank-status").status == 2


def test_the_command_says_that_a_choice_lasts_and_the_status_which_bank_is_meant(
    everkept: Run, bank: Path, working_folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    everkept("register-store", "other", str(other))
    chosen = everkept("select-store", "other")
    assert f"Commands in {working_folder} now use this bank." in chosen.out
    status = everkept("get-memory-bank-status").out
    assert str(other / "memory-bank") in status
    assert f"It is selected for commands in {working_folder}" in status
    named = everkept("get-memory-bank-status", "--store-id", "other").out
    assert "It was chosen" not in named
    everkept("set-memory-bank-path")
    assert "It was chosen" not in everkept("get-memory-bank-status").out
    assert "from now on" not in everkept("select-store", "other", "--json").out


def test_the_status_is_told_with_its_lists_and_without_python(everkept: Run, bank: Path) -> None:
    everkept("graph-upsert-entity", "Shop", "service")
    (bank / "progress.md").unlink()
    out = everkept("get-memory-bank-status").out
    for line in (str(bank), "is complete   no", "last updated  20", "project id"):
        assert line in out
    assert "missing core files: progress.md\n" in out
    assert "False" not in out


def test_nodes_are_shown_with_names_and_ids(everkept: Run, bank: Path) -> None:
    everkept("graph-upsert-entity", "Shop", "service", "--attrs", '{"tags": ["a"], "on": false}')
    everkept("graph-upsert-entity", "DB", "database")
    everkept("graph-link-entities", "Shop", "uses", "DB")
    everkept("graph-add-observation", "Shop", "is [red]slow[/red]")
    opened = everkept("graph-open-nodes", "Shop", "--json").json
    shop = next(entity["id"] for entity in opened["entities"] if entity["name"] == "Shop")
    out = everkept("graph-open-nodes", "Shop").out
    short = shop[: len("ent_") + 8]
    assert f"Shop (service)  {short}\n" in out
    seen = opened["observations"][0]["id"][: len("obs_") + 8]
    assert f"  · is [red]slow[/red]  {seen}\n" in out
    assert everkept("graph-open-nodes", short).out == out
    assert everkept("graph-delete-observation", seen[:-1], "--json").status == 0
    assert "slow" not in everkept("graph-open-nodes", short[:9]).out
    everkept("graph-add-observation", short, "is [red]slow[/red]")
    assert "  uses → DB\n" in out
    assert "tags: a" in out
    assert "on: no" in out
    found = everkept("graph-search", "slow").out
    assert "Shop" in found
    assert "is [red]slow[/red]" in found
    assert everkept("graph-search", "nothingatall").out == "Nothing found.\n"


def test_ids_of_backups_are_never_cut(everkept: Run, bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = everkept("create-backup", "--json").json["id"]
    monkeypatch.setenv("COLUMNS", "30")
    assert made in everkept("list-backups").out
    monkeypatch.setenv("COLUMNS", "80")
    assert everkept("list-backups", "--verify").out == f"{made}  5 files  whole\n"


def test_a_missing_bank_is_an_error_with_the_way_out(everkept: Run, working_folder: Path) -> None:
    outcome = everkept("track-progress", "a", "b")
    assert outcome.status == 2
    assert "`everkept initialize-memory-bank`" in outcome.err
    assert everkept("track-progress", "a", "b", "--json").json["expectedPath"] == str(working_folder / "memory-bank")


def test_a_folder_inside_a_repository_means_the_bank_at_its_root(
    everkept: Run, bank: Path, working_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (working_folder / ".git").mkdir()
    (working_folder / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(working_folder / "src" / "deep")
    assert everkept("get-memory-bank-status", "--json").json["path"] == str(bank)


def test_a_command_reaches_every_folder_though_assistants_are_served_over_http(
    everkept: Run, bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_TRANSPORT", "http")
    assert everkept("register-store", "shop", str(bank.parent)).status == 0
    assert everkept("get-memory-bank-status", "--json").json["path"] == str(bank)


def test_files_that_nobody_searched_yet_are_indexed_with_all_else(everkept: Run, bank: Path) -> None:
    everkept("index")
    (bank / "notes.md").write_text("# Notes\n\nThe cart is slow.\n", encoding="utf-8")
    assert everkept("index", "--json").json == {"embedded": 1}
    assert everkept("index", "--json").json == {"embedded": 0}


def test_without_a_bank_there_are_only_memories_to_index(everkept: Run) -> None:
    assert everkept("index").out == "All texts already have embeddings.\n"
