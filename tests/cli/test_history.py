import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from account_homes import ANNA, called
from server_processes import command, environment, run

Run = Callable[..., Any]


@pytest.fixture
def home(home_without_clients: Path) -> Path:
    """A home folder in which nobody has talked yet."""
    return home_without_clients


def line(session: str, text: str, project: str, number: int, author: str = "Ada") -> str:
    return json.dumps(
        {
            "session": session,
            "author": author,
            "timestamp": f"2026-03-02T09:{number:02}:00Z",
            "text": text,
            "project": project,
        }
    )


@pytest.fixture
def talks(home: Path) -> Path:
    path = home / "talks.jsonl"
    lines = [
        line("one", "How do we limit logins?", "/work/shop", 0),
        line("one", "We decided on a token bucket.", "/work/shop", 1, "Bela"),
        line("two", "The invoices are printed twice.", "/work/billing", 2),
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def taken_in(everkept: Run, talks: Path) -> Run:
    assert everkept("import", "history", "--source", "jsonl", str(talks)).status == 0
    return everkept


def titles(everkept: Run, *flags: str) -> list[str]:
    return [row["title"] for row in everkept("history", "list", *flags, "--json").json["conversations"]]


def test_conversations_are_listed_the_newest_first(taken_in: Run) -> None:
    assert titles(taken_in) == ["The invoices are printed twice.", "How do we limit logins?"]
    shown = taken_in("history", "list").out
    assert re.search(r"^ {6}2026-03-02 09:02 · jsonl · /work/billing · 1 turn · conv_[0-9a-f]{8}$", shown, re.MULTILINE)
    assert titles(taken_in, "--project", "shop") == ["How do we limit logins?"]
    assert taken_in("history", "list", "--project", "shoop").status == 2


def test_an_empty_history_says_how_to_fill_it(everkept: Run, home: Path) -> None:
    assert "everkept import history" in everkept("history", "list").out
    assert "everkept import history" in everkept("recall-previous-discussions", "logins").out


def test_a_tool_prints_markdown_and_json_for_programs(taken_in: Run) -> None:
    shown = taken_in("recall-previous-discussions", "limit logins", "--format", "markdown").out
    assert "### Previous Discussions" in shown
    assert "**Sources" in shown or "*Sources" in shown
    found = taken_in("recall-previous-discussions", "limit logins", "--json").json
    assert found["results"][0]["content"] == "How do we limit logins?"
    whole = taken_in("read-conversation", found["results"][0]["id"]).out
    assert whole.index("limit logins") < whole.index("token bucket")


def test_a_forgotten_project_is_gone_and_stays_so(taken_in: Run, talks: Path, tmp_path: Path) -> None:
    gone = taken_in("history", "forget", "--project", "shop", "--yes")
    assert "Permanently deleted 1 conversation with 2 turns." in gone.out
    assert "/work/shop is now excluded" in gone.out
    taken_in("import", "history", "--source", "jsonl", str(talks))
    assert titles(taken_in) == ["The invoices are printed twice."]
    data = b"".join(path.read_bytes() for path in (tmp_path / "data").glob("history.db*"))
    assert b"token bucket" not in data
    assert b"printed twice" in data


def test_a_single_conversation_is_forgotten_by_its_id(taken_in: Run, talks: Path) -> None:
    first = taken_in("history", "list", "--json").json["conversations"][0]["id"]
    assert taken_in("history", "forget", "--conversation", first, "--yes", "--json").json["turns"] == 1
    taken_in("import", "history", "--source", "jsonl", str(talks))
    assert titles(taken_in) == ["How do we limit logins?"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("forget",),
        ("forget", "--project", "nowhere", "--yes"),
        ("forget", "--project", "work", "--yes"),
        ("forget", "--conversation", "conv_none", "--yes"),
        ("forget", "--project", "shop", "--conversation", "conv_none", "--yes"),
        ("exclude", " "),
        ("exclude", "../nowhere/at/all"),
        ("include", "shop"),
    ],
)
def test_what_makes_no_sense_changes_nothing(taken_in: Run, arguments: tuple[str, ...]) -> None:
    outcome = taken_in("history", *arguments)
    assert outcome.status == 2
    assert outcome.err.startswith("everkept: ")
    assert len(titles(taken_in)) == 2


def test_forgetting_asks_first(taken_in: Run) -> None:
    assert taken_in("history", "forget", "--project", "shop").status == 2
    said = taken_in("history", "forget", "--project", "shop", stdin="n\n", terminal=True)
    assert said.status == 0
    assert "1 conversation of /work/shop" in said.err
    assert len(titles(taken_in)) == 2


def test_what_is_excluded_is_not_taken_in_until_it_is_included(everkept: Run, talks: Path) -> None:
    assert everkept("history", "exclude", "/work/sh*").status == 0
    assert "already" in everkept("history", "exclude", "/work/sh*").out
    outcome = everkept("import", "history", "--source", "jsonl", str(talks))
    assert "skipped 1 conversation" in outcome.err
    assert titles(everkept) == ["The invoices are printed twice."]
    assert everkept("history", "excluded", "--json").json["excluded"] == [{"folder": "/work/sh*", "by": "command"}]
    everkept("history", "include", "/work/sh*")
    assert everkept("history", "include", "/work/sh*").status == 2
    everkept("import", "history", "--source", "jsonl", str(talks))
    assert len(titles(everkept)) == 2


def test_settings_exclude_too(everkept: Run, talks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_HISTORY_EXCLUDE", "/work/billing, /somewhere/else")
    everkept("import", "history", "--source", "jsonl", str(talks))
    assert titles(everkept) == ["How do we limit logins?"]
    assert "history_exclude" in everkept("history", "excluded").out


def test_searches_are_kept_and_forgotten(taken_in: Run) -> None:
    taken_in("recall-previous-discussions", "limit logins", "--type", "decision")
    [search] = taken_in("history", "searches", "--json").json["searches"]
    assert search["query"] == "limit logins"
    assert search["filters"]["type"] == "decision"
    assert search["results"] == 1
    assert "limit logins" in taken_in("history", "searches").out
    assert "Permanently deleted 1 search." in taken_in("history", "forget", "--searches", "--yes").out
    assert "No searches yet" in taken_in("history", "searches").out


def test_a_folder_is_excluded_by_every_name_that_transcripts_may_give_it(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real, target_is_directory=True)
    monkeypatch.chdir(real)
    everkept("history", "exclude", "../link/")
    excluded = everkept("history", "excluded", "--json").json["excluded"]
    assert [row["folder"] for row in excluded] == [str(link), str(real)]
    assert everkept("history", "include", "link").status == 0
    assert everkept("history", "include", str(real)).status == 0
    assert everkept("history", "excluded", "--json").json["excluded"] == []


def test_exclusions_of_many_processes_at_once_are_all_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = [f"/work/{number}" for number in range(6)]
    running = [
        subprocess.Popen(
            command("history", "exclude", name, "--data-dir", data), env=environment(), stdout=subprocess.DEVNULL
        )
        for name in names
    ]
    assert [process.wait(60) for process in running] == [0] * len(names)
    shown = run("history", "excluded", "--json", "--data-dir", data).stdout
    assert sorted(row["folder"] for row in json.loads(shown)["excluded"]) == names


def test_words_need_no_quotes_and_a_project_no_other_option(taken_in: Run) -> None:
    found = taken_in("recall-previous-discussions", "how", "do", "we", "limit", "logins", "--json").json
    assert found["results"][0]["content"] == "How do we limit logins?"
    elsewhere = taken_in("recall-previous-discussions", "logins", "--project", "billing", "--json")
    assert all(result["context"]["project_path"] == "/work/billing" for result in elsewhere.json["results"])


def test_the_folder_of_the_command_is_a_project(taken_in: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = taken_in("recall-previous-discussions", "logins", "--project-filter", ".", "--json")
    assert str(tmp_path) in outcome.json["warnings"][0]["message"]


def test_conversations_count_among_what_is_stored_and_what_waits(taken_in: Run) -> None:
    told = taken_in("status", "--json").json["history"]
    assert (told["conversations"], told["turns"], told["without_vectors"]) == (2, 3, 3)
    taken_in("history", "forget", "--project", "billing", "--yes")
    told = taken_in("status", "--json").json["history"]
    assert (told["conversations"], told["turns"]) == (1, 2)
    assert "Embedded 2 texts." in taken_in("index").out
    assert taken_in("status", "--json").json["history"]["without_vectors"] == 0


def test_what_accounts_have_asked_is_not_shown_to_the_owner(everkept: Run, home: Path, tmp_path: Path) -> None:
    everkept("recall-previous-discussions", "invoices")
    asked = ("unified_memory_search", {"query": "my illness"})
    called(tmp_path / "data", ANNA, *[asked] * 3)
    rows = everkept("history", "searches", "--limit", "2", "--json").json["searches"]
    assert [row["query"] for row in rows] == ["invoices"]
    assert "illness" not in everkept("history", "searches").out
