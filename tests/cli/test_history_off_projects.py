import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

TELLING = (
    "list",
    "recall zebra",
    "context",
    "log",
    "status",
    "history list",
    "read-graph",
    "search-nodes zebra",
    "recall-memories zebra",
    "get-memory-context",
    "recall-previous-discussions zebra",
    "unified-memory-search zebra",
)
COUNTING = ("index", "audit", "doctor", "history searches", "list-projects", "get-memory-status")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands are called in."""
    home, folder = tmp_path / "home", tmp_path / "shop"
    for place in (home, folder):
        (place / ".git").mkdir(parents=True)
    for variable in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.chdir(folder)
    return folder


def talks(folder: Path, said: str, at: str) -> Path:
    path = folder.parent / "home" / "talks.jsonl"
    line = {"session": "one", "author": "Ada", "timestamp": at, "text": said}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "project": str(folder)}) + "\n")
    return path


def imported(everkept: Run, path: Path) -> Any:
    return everkept("import", "history", "--source", "jsonl", str(path), "--json")


def test_a_project_is_made_to_be_off(everkept: Run, shop: Path) -> None:
    outcome = everkept("off")
    assert outcome.status == 0
    assert outcome.out.startswith('Project "shop" is off since ')
    assert "`everkept on`" in outcome.out
    [project] = everkept("list-projects", "--json").json["projects"]
    assert (project["name"], project["off"]) == ("shop", True)


def test_off_twice_changes_nothing_and_says_so(everkept: Run, shop: Path) -> None:
    first = everkept("off", "--json").json
    second = everkept("off", "--json").json
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["since"] == second["since"]
    assert "already off" in everkept("off").out


def test_on_where_it_is_on_changes_nothing(everkept: Run, shop: Path) -> None:
    everkept("remember", "Tests run with tox.")
    told = everkept("on", "--json").json
    assert told == {"project": "shop", "off": False, "changed": False, "since": None}
    assert "Nothing changed" in everkept("on").out


def test_on_makes_no_project(everkept: Run, shop: Path) -> None:
    assert everkept("on", "--json").json["changed"] is False
    assert "Nothing changed" in everkept("on").out
    assert everkept("list-projects", "--json").json["projects"] == []


def test_memories_are_refused_while_it_is_off_and_there_again_after(everkept: Run, shop: Path) -> None:
    assert everkept("remember", "Tests run with tox.").status == 0
    everkept("off")
    for command in (["remember", "More."], ["recall", "tox"], ["list"], ["context"]):
        refused = everkept(*command, "--json")
        assert refused.status == 2
        assert refused.json["error"] == "project_off"
        assert refused.json["project"] == "shop"
    assert everkept("on").out == 'Project "shop" is on again.\n'
    [memory] = everkept("list", "--json").json["memories"]
    assert memory["content"] == "Tests run with tox."


def test_the_graph_is_refused_too(everkept: Run, shop: Path) -> None:
    everkept("create-project", "shop")
    everkept("off", "--project", "shop")
    refused = everkept("search-nodes", "Ada", "--project", "shop", "--json")
    assert (refused.status, refused.json["error"]) == (2, "project_off")
    assert everkept("on", "--project", "shop").status == 0
    assert everkept("search-nodes", "Ada", "--project", "shop").status == 0


def test_another_project_goes_on(everkept: Run, shop: Path, monkeypatch: Any) -> None:
    everkept("off")
    other = shop.parent / "other"
    (other / ".git").mkdir(parents=True)
    monkeypatch.chdir(other)
    assert everkept("remember", "Ships on Fridays.").status == 0


def test_a_named_project_must_be_there(everkept: Run, shop: Path) -> None:
    refused = everkept("off", "--project", "shpo", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    assert everkept("list-projects", "--json").json["projects"] == []


def test_a_named_project_without_a_folder_says_what_that_means(everkept: Run, shop: Path) -> None:
    everkept("create-project", "ideas")
    everkept("switch-project", "auto")
    assert "no folder" in everkept("off", "--project", "ideas").out
    assert "no folder" not in everkept("off").out


def test_conversations_are_neither_found_nor_listed_while_it_is_off(everkept: Run, shop: Path) -> None:
    path = talks(shop, "We limit logins with a token bucket.", "2026-03-02T09:00:00Z")
    assert imported(everkept, path).status == 0
    asked = ["recall-previous-discussions", "limit logins", "--json"]
    everything = ["unified-memory-search", "limit logins", "--json"]
    assert len(everkept(*asked).json["results"]) == 1
    everkept("off")
    assert everkept(*asked).json["results"] == []
    found = everkept(*everything).json
    assert "bucket" not in json.dumps(found)
    assert everkept("history", "list", "--json").json["conversations"] == []
    everkept("on")
    assert len(everkept(*asked).json["results"]) == 1
    assert "bucket" in json.dumps(everkept(*everything).json)


def test_what_is_said_while_it_is_off_never_comes_in(everkept: Run, shop: Path) -> None:
    path = talks(shop, "Said before.", "2026-03-02T09:00:00Z")
    everkept("off")
    talks(shop, "Said meanwhile.", datetime.now(UTC).isoformat())
    left = imported(everkept, path).json
    assert left["total"]["turns"] == 0
    everkept("on")
    taken = imported(everkept, path).json
    assert (taken["total"]["turns"], taken["total"]["turns_left_out"]) == (1, 1)
    found = everkept("recall-previous-discussions", "said", "--json").out
    assert "before" in found
    assert "meanwhile" not in found


def test_no_command_shows_what_a_project_holds_that_is_off(
    everkept: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everkept("remember", "The zebra has stripes, and its password=hunter2-stripes.")
    zebra = {"name": "zebra", "entityType": "animal", "observations": ["It has stripes"]}
    everkept("create-entities", json.dumps(zebra), "--project", "shop")
    imported(everkept, talks(shop, "The zebra has stripes.", "2026-03-02T09:00:00Z"))
    everkept("recall", "zebra")
    named = ["--project", "shop"]
    assert [c for c in TELLING if "stripes" not in everkept(*c.split(), *named).out] == []
    everkept("off")
    other = shop.parent / "other"
    (other / ".git").mkdir(parents=True)
    for folder, more in ((shop, []), (other, named)):
        monkeypatch.chdir(folder)
        for command in (*TELLING, *COUNTING):
            told = everkept(*command.split(), *more)
            assert "stripes" not in told.out + told.err, command


def test_before_a_conversation_is_forgotten_its_title_is_not_told_while_it_is_off(everkept: Run, shop: Path) -> None:
    imported(everkept, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = everkept("history", "list", "--json").json["conversations"]
    forget = ["history", "forget", "--conversation", kept["id"]]
    asked = everkept(*forget, stdin="n\n", terminal=True)
    assert "We limit logins." in asked.out + asked.err
    everkept("off")
    asked = everkept(*forget, stdin="n\n", terminal=True)
    assert "We limit logins." not in asked.out + asked.err
    assert kept["id"] in asked.out + asked.err
    assert everkept(*forget, "--yes").out.startswith("Permanently deleted 1 conversation ")


def test_what_sessions_of_it_have_searched_for_is_not_shown(
    everkept: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(everkept, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    for session, query in (("one", "limit logins"), ("two", "ship on Fridays")):
        monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session)
        everkept("recall-previous-discussions", query)
    shown = ["history", "searches", "--limit", "1", "--json"]
    queries = [each["query"] for each in everkept("history", "searches", "--json").json["searches"]]
    assert sorted(queries) == ["limit logins", "ship on Fridays"]
    everkept("off")
    assert [each["query"] for each in everkept(*shown).json["searches"]] == ["ship on Fridays"]
    everkept("on")
    assert len(everkept("history", "searches", "--json").json["searches"]) == 2


def test_a_project_that_was_only_made_to_be_off_is_gone_when_it_is_on(everkept: Run, shop: Path) -> None:
    everkept("off")
    told = everkept("on")
    assert told.out.startswith('Project "shop" is on again.\n')
    assert "removed" in told.out
    assert everkept("list-projects", "--json").json["projects"] == []
    everkept("off")
    assert everkept("on", "--json").json == {
        "project": "shop",
        "off": False,
        "changed": True,
        "since": None,
        "removed": True,
    }
    assert everkept("remember", "Tests run with tox.").status == 0


def test_what_was_said_meanwhile_stays_out_although_the_project_is_gone(everkept: Run, shop: Path) -> None:
    everkept("off")
    path = talks(shop, "Said meanwhile.", datetime.now(UTC).isoformat())
    everkept("on")
    assert imported(everkept, path).json["total"]["turns"] == 0


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (["remember", "Tests run with tox."], None),
        (["create-project", "shop"], None),
        (None, ["switch-project", "shop"]),
    ],
)
def test_a_project_that_somebody_uses_stays(
    everkept: Run, shop: Path, monkeypatch: pytest.MonkeyPatch, before: list[str] | None, meanwhile: list[str] | None
) -> None:
    if before:
        assert everkept(*before).status == 0
    everkept("off")
    if meanwhile:
        other = shop.parent / "other"
        (other / ".git").mkdir(parents=True)
        monkeypatch.chdir(other)
        assert everkept(*meanwhile).status == 0
    everkept("on", "--project", "shop")
    names = [each["name"] for each in everkept("list-projects", "--json").json["projects"]]
    assert "shop" in names


def test_a_search_of_the_past_says_that_it_is_off(everkept: Run, shop: Path) -> None:
    imported(everkept, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = everkept("history", "list", "--json").json["conversations"]
    everkept("off")
    for tool in ("recall-previous-discussions", "find-similar-problems", "search-code-history"):
        told = everkept(tool, "limit logins", "--json").json
        assert [warning["code"] for warning in told["warnings"]] == ["project_off"]
        assert "new topic" not in told["summary"]
        shown = everkept(tool, "limit logins").out
        assert 'Memory is off for project "shop".' in shown
    assert 'Memory is off for project "shop".' in everkept("unified-memory-search", "logins").out
    read = everkept("read-conversation", kept["id"], "--json")
    assert (read.status, read.json["error"]) == (2, "project_off")
    assert "limit" not in read.out + read.err
    unknown = everkept("read-conversation", "conv_nonsense", "--json")
    assert (unknown.status, unknown.json["error"]) == (2, "not_found")


def test_another_folder_is_told_of_it_only_where_it_names_one_of_its_conversations(
    everkept: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(everkept, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = everkept("history", "list", "--json").json["conversations"]
    everkept("off")
    other = shop.parent / "other"
    (other / ".git").mkdir(parents=True)
    monkeypatch.chdir(other)
    told = everkept("recall-previous-discussions", "limit logins", "--json").json
    assert "warnings" not in told
    assert "new topic" in told["summary"]
    assert everkept("read-conversation", kept["id"], "--json").json["error"] == "project_off"


def test_a_hint_names_commands_and_not_tools(everkept: Run, shop: Path) -> None:
    for command in (["off", "--project", "nope"], ["undo", "nonsense:1"]):
        told = everkept(*command).err
        assert "`everkept list-projects`" in told
        assert "list_projects" not in told
    assert "list_projects" in everkept("off", "--project", "nope", "--json").json["hint"]
