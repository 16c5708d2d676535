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
        place.mkdir()
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


def imported(recollect: Run, path: Path) -> Any:
    return recollect("import", "history", "--source", "jsonl", str(path), "--json")


def test_a_project_is_made_to_be_off(recollect: Run, shop: Path) -> None:
    outcome = recollect("off")
    assert outcome.status == 0
    assert outcome.out.startswith('Project "shop" is off since ')
    assert "`recollect on`" in outcome.out
    [project] = recollect("list-projects", "--json").json["projects"]
    assert (project["name"], project["off"]) == ("shop", True)


def test_off_twice_changes_nothing_and_says_so(recollect: Run, shop: Path) -> None:
    first = recollect("off", "--json").json
    second = recollect("off", "--json").json
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["since"] == second["since"]
    assert "already off" in recollect("off").out


def test_on_where_it_is_on_changes_nothing(recollect: Run, shop: Path) -> None:
    recollect("remember", "Tests run with tox.")
    told = recollect("on", "--json").json
    assert told == {"project": "shop", "off": False, "changed": False, "since": None}
    assert "nothing was changed" in recollect("on").out


def test_on_makes_no_project(recollect: Run, shop: Path) -> None:
    assert recollect("on", "--json").json["changed"] is False
    assert "nothing was changed" in recollect("on").out
    assert recollect("list-projects", "--json").json["projects"] == []


def test_memories_are_refused_while_it_is_off_and_there_again_after(
    recollect: Run, shop: Path
) -> None:
    assert recollect("remember", "Tests run with tox.").status == 0
    recollect("off")
    for command in (["remember", "More."], ["recall", "tox"], ["list"], ["context"]):
        refused = recollect(*command, "--json")
        assert refused.status == 2
        assert refused.json["error"] == "project_off"
        assert refused.json["project"] == "shop"
    assert recollect("on").out == 'Project "shop" is on again.\n'
    [memory] = recollect("list", "--json").json["memories"]
    assert memory["content"] == "Tests run with tox."


def test_the_graph_is_refused_too(recollect: Run, shop: Path) -> None:
    recollect("create-project", "shop")
    recollect("off", "--project", "shop")
    refused = recollect("search-nodes", "Ada", "--project", "shop", "--json")
    assert (refused.status, refused.json["error"]) == (2, "project_off")
    assert recollect("on", "--project", "shop").status == 0
    assert recollect("search-nodes", "Ada", "--project", "shop").status == 0


def test_another_project_goes_on(recollect: Run, shop: Path, monkeypatch: Any) -> None:
    recollect("off")
    other = shop.parent / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert recollect("remember", "Ships on Fridays.").status == 0


def test_a_named_project_must_be_there(recollect: Run, shop: Path) -> None:
    refused = recollect("off", "--project", "shpo", "--json")
    assert (refused.status, refused.json["error"]) == (2, "not_found")
    assert recollect("list-projects", "--json").json["projects"] == []


def test_a_named_project_without_a_folder_says_what_that_means(recollect: Run, shop: Path) -> None:
    recollect("create-project", "ideas")
    assert "no folder" in recollect("off", "--project", "ideas").out
    assert "no folder" not in recollect("off").out


def test_conversations_are_neither_found_nor_listed_while_it_is_off(
    recollect: Run, shop: Path
) -> None:
    path = talks(shop, "We limit logins with a token bucket.", "2026-03-02T09:00:00Z")
    assert imported(recollect, path).status == 0
    asked = ["recall-previous-discussions", "limit logins", "--json"]
    everything = ["unified-memory-search", "limit logins", "--json"]
    assert len(recollect(*asked).json["results"]) == 1
    recollect("off")
    assert recollect(*asked).json["results"] == []
    found = recollect(*everything).json
    assert "bucket" not in json.dumps(found)
    assert recollect("history", "list", "--json").json["conversations"] == []
    recollect("on")
    assert len(recollect(*asked).json["results"]) == 1
    assert "bucket" in json.dumps(recollect(*everything).json)


def test_what_is_said_while_it_is_off_never_comes_in(recollect: Run, shop: Path) -> None:
    path = talks(shop, "Said before.", "2026-03-02T09:00:00Z")
    recollect("off")
    talks(shop, "Said meanwhile.", datetime.now(UTC).isoformat())
    left = imported(recollect, path).json
    assert left["total"]["turns"] == 0
    recollect("on")
    taken = imported(recollect, path).json
    assert (taken["total"]["turns"], taken["total"]["turns_left_out"]) == (1, 1)
    found = recollect("recall-previous-discussions", "said", "--json").out
    assert "before" in found
    assert "meanwhile" not in found


def test_no_command_shows_what_a_project_holds_that_is_off(
    recollect: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recollect("remember", "The zebra has stripes, and its password=hunter2-stripes.")
    zebra = {"name": "zebra", "entityType": "animal", "observations": ["It has stripes"]}
    recollect("create-entities", json.dumps(zebra), "--project", "shop")
    imported(recollect, talks(shop, "The zebra has stripes.", "2026-03-02T09:00:00Z"))
    recollect("recall", "zebra")
    named = ["--project", "shop"]
    assert [c for c in TELLING if "stripes" not in recollect(*c.split(), *named).out] == []
    recollect("off")
    other = shop.parent / "other"
    other.mkdir()
    for folder, more in ((shop, []), (other, named)):
        monkeypatch.chdir(folder)
        for command in (*TELLING, *COUNTING):
            told = recollect(*command.split(), *more)
            assert "stripes" not in told.out + told.err, command


def test_before_a_conversation_is_forgotten_its_title_is_not_told_while_it_is_off(
    recollect: Run, shop: Path
) -> None:
    imported(recollect, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = recollect("history", "list", "--json").json["conversations"]
    forget = ["history", "forget", "--conversation", kept["id"]]
    asked = recollect(*forget, stdin="n\n", terminal=True)
    assert "We limit logins." in asked.out + asked.err
    recollect("off")
    asked = recollect(*forget, stdin="n\n", terminal=True)
    assert "We limit logins." not in asked.out + asked.err
    assert kept["id"] in asked.out + asked.err
    assert recollect(*forget, "--yes").out.startswith("Removed 1 conversation ")


def test_what_sessions_of_it_have_searched_for_is_not_shown(
    recollect: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(recollect, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    for session, query in (("one", "limit logins"), ("two", "ship on Fridays")):
        monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", session)
        recollect("recall-previous-discussions", query)
    shown = ["history", "searches", "--limit", "1", "--json"]
    queries = [
        each["query"] for each in recollect("history", "searches", "--json").json["searches"]
    ]
    assert sorted(queries) == ["limit logins", "ship on Fridays"]
    recollect("off")
    assert [each["query"] for each in recollect(*shown).json["searches"]] == ["ship on Fridays"]
    recollect("on")
    assert len(recollect("history", "searches", "--json").json["searches"]) == 2


def test_a_project_that_was_only_made_to_be_off_is_gone_when_it_is_on(
    recollect: Run, shop: Path
) -> None:
    recollect("off")
    told = recollect("on")
    assert told.out.startswith('Project "shop" is on again.\n')
    assert "gone" in told.out
    assert recollect("list-projects", "--json").json["projects"] == []
    recollect("off")
    assert recollect("on", "--json").json == {
        "project": "shop",
        "off": False,
        "changed": True,
        "since": None,
        "removed": True,
    }
    assert recollect("remember", "Tests run with tox.").status == 0


def test_what_was_said_meanwhile_stays_out_although_the_project_is_gone(
    recollect: Run, shop: Path
) -> None:
    recollect("off")
    path = talks(shop, "Said meanwhile.", datetime.now(UTC).isoformat())
    recollect("on")
    assert imported(recollect, path).json["total"]["turns"] == 0


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        (["remember", "Tests run with tox."], None),
        (["create-project", "shop"], None),
        (None, ["switch-project", "shop"]),
    ],
)
def test_a_project_that_somebody_uses_stays(
    recollect: Run,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    before: list[str] | None,
    meanwhile: list[str] | None,
) -> None:
    if before:
        assert recollect(*before).status == 0
    recollect("off")
    if meanwhile:
        other = shop.parent / "other"
        other.mkdir()
        monkeypatch.chdir(other)
        assert recollect(*meanwhile).status == 0
    recollect("on", "--project", "shop")
    names = [each["name"] for each in recollect("list-projects", "--json").json["projects"]]
    assert "shop" in names


def test_a_search_of_the_past_says_that_it_is_off(recollect: Run, shop: Path) -> None:
    imported(recollect, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = recollect("history", "list", "--json").json["conversations"]
    recollect("off")
    for tool in ("recall-previous-discussions", "find-similar-problems", "search-code-history"):
        told = recollect(tool, "limit logins", "--json").json
        assert [warning["code"] for warning in told["warnings"]] == ["project_off"]
        assert "new topic" not in told["summary"]
        shown = recollect(tool, "limit logins").out
        assert 'Project "shop" is switched off.' in shown
    assert 'Project "shop" is switched off.' in recollect("unified-memory-search", "logins").out
    read = recollect("read-conversation", kept["id"], "--json")
    assert (read.status, read.json["error"]) == (2, "project_off")
    assert "limit" not in read.out + read.err
    unknown = recollect("read-conversation", "conv_nonsense", "--json")
    assert (unknown.status, unknown.json["error"]) == (2, "not_found")


def test_another_folder_is_told_of_it_only_where_it_names_one_of_its_conversations(
    recollect: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(recollect, talks(shop, "We limit logins.", "2026-03-02T09:00:00Z"))
    [kept] = recollect("history", "list", "--json").json["conversations"]
    recollect("off")
    other = shop.parent / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    told = recollect("recall-previous-discussions", "limit logins", "--json").json
    assert "warnings" not in told
    assert "new topic" in told["summary"]
    assert recollect("read-conversation", kept["id"], "--json").json["error"] == "project_off"


def test_a_hint_names_commands_and_not_tools(recollect: Run, shop: Path) -> None:
    for command in (["off", "--project", "nope"], ["undo", "nonsense:1"]):
        told = recollect(*command).err
        assert "`recollect list-projects`" in told
        assert "list_projects" not in told
    assert "list_projects" in recollect("off", "--project", "nope", "--json").json["hint"]
