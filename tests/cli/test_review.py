import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

RULE = "Never push to main without a review."
PREFERENCE = "I prefer short answers over long ones."


def write_talk(path: Path, folder: str, *texts: str) -> None:
    lines = [
        {
            "session": path.stem,
            "project": folder,
            "author": "user",
            "timestamp": f"2026-03-02T09:0{number}:00Z",
            "text": text,
        }
        for number, text in enumerate(texts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def talks(everkept: Run, home: Path, tmp_path: Path) -> Run:
    """Two conversations: one in this folder, one elsewhere."""
    (tmp_path / "shop" / ".git").mkdir()
    write_talk(tmp_path / "here.jsonl", str(tmp_path / "shop"), f"Look at the tests. {RULE}", PREFERENCE)
    write_talk(tmp_path / "there.jsonl", str(tmp_path / "other"), "We always deploy on Mondays.")
    for name in ("here", "there"):
        everkept("import", "history", "--source", "jsonl", str(tmp_path / f"{name}.jsonl"))
    return everkept


def texts(everkept: Run, *options: str) -> dict[str, str]:
    return {each["text"]: each["id"] for each in everkept("review", "--json", *options).json["items"]}


def contents(everkept: Run) -> set[str]:
    return {each["content"] for each in everkept("list", "--json").json["memories"]}


def test_candidates_of_this_folder_are_listed_with_their_source_and_not_stored(talks: Run) -> None:
    assert set(texts(talks)) == {RULE, PREFERENCE}
    assert set(texts(talks, "--all-projects")) == {RULE, PREFERENCE, "We always deploy on Mondays."}
    shown = talks("review").out
    assert "rule; conversation" in shown
    assert "--keep ID" in shown
    assert contents(talks) == set()


def test_a_candidate_is_kept_edited_or_dropped_once(talks: Run) -> None:
    found = texts(talks, "--all-projects")
    done = talks("review", "--keep", found[RULE], "--edit", found[PREFERENCE][:5], "Prefers short answers")
    assert done.status == 0, done.err
    assert "Kept" in done.out
    assert contents(talks) == {RULE, "Prefers short answers"}
    stored = {each["content"]: each for each in talks("list", "--json").json["memories"]}
    assert stored[RULE]["scope"] == "project"
    assert stored["Prefers short answers"]["scope"] == "user"
    assert talks("review", "--drop", found["We always deploy on Mondays."], "--all-projects").status == 0
    assert texts(talks, "--all-projects") == {}


def test_a_statement_that_is_said_again_does_not_come_back(talks: Run, tmp_path: Path) -> None:
    talks("review", "--drop", texts(talks)[RULE])
    write_talk(tmp_path / "again.jsonl", str(tmp_path / "shop"), "never push to main, without a review!")
    talks("import", "history", "--source", "jsonl", str(tmp_path / "again.jsonl"))
    assert set(texts(talks)) == {PREFERENCE}


def test_automatic_memories_are_reviewed_beside_them(talks: Run) -> None:
    for text in ("Command failed: make", "Command failed: tox"):
        talks("store-memory", text, "--source", json.dumps({"tool": "hook PostToolUse"}))
    found = texts(talks)
    assert set(found) == {RULE, PREFERENCE, "Command failed: make", "Command failed: tox"}
    talks("review", "--keep", found["Command failed: make"], "--drop", found["Command failed: tox"])
    assert set(texts(talks)) == {RULE, PREFERENCE}
    (kept,) = talks("list", "--json").json["memories"]
    assert (kept["content"], kept["pinned"]) == ("Command failed: make", True)


def test_a_person_is_asked_about_each_one(talks: Run) -> None:
    told = talks("review", stdin="k\nd\n", terminal=True)
    assert told.status == 0, told.err
    assert "1 of 2: keep, edit, drop, skip or quit" in told.err + told.out
    assert "Reviewed 2 items" in told.out
    assert len(contents(talks)) == 1
    assert "Nothing to review." in talks("review", terminal=True).out


def test_a_wrong_id_or_an_empty_text_changes_nothing(talks: Run) -> None:
    assert talks("review", "--keep", "zzzzzzzz").status == 2
    assert talks("review", "--edit", texts(talks)[RULE], " ").status == 2
    assert talks("review", "--keep", texts(talks)[RULE], "--drop", "zzzzzzzz").status == 2
    assert contents(talks) == set()
    assert set(texts(talks)) == {RULE, PREFERENCE}


def test_deleted_conversations_have_no_candidates(talks: Run, tmp_path: Path) -> None:
    talks("history", "forget", "--project", str(tmp_path / "shop"), "--yes")
    assert texts(talks) == {}
