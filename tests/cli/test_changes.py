import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Account, Session
from everkept.settings import Settings

Run = Callable[..., Any]


@pytest.fixture
def shop(everkept: Run) -> Run:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Ada", "entity_type=person", "observations=xyzzy-secret")
    everkept("create-entities", "name=Bob", "entity_type=person")
    return everkept


def names(everkept: Run) -> list[str]:
    return [e["name"] for e in everkept("read-graph", "--json").json["entities"]]


def test_the_log_tells_what_changed_and_by_which_tool(shop: Run) -> None:
    shop("create-entities", "name=Eve", "entity_type=person", "--project", "other")
    changes = shop("log", "--json").json["changes"]
    assert [change["change"] for change in changes] == ["other:1", "other:p1", "shop:2", "shop:1", "shop:p1"]
    assert [change["tool"] for change in changes if ":p" in change["change"]] == ["create_project"] * 2
    assert {change["tool"] for change in changes if ":p" not in change["change"]} == {"create_entities"}
    assert "Bob" in changes[2]["summary"]
    assert [c["change"] for c in shop("log", "--limit", "1", "--json").json["changes"]] == ["other:1"]
    only = shop("log", "--project", "shop", "--json").json["changes"]
    assert {change["project"] for change in only} == {"shop"}
    assert "shop:2" in shop("log").out


@pytest.mark.parametrize("program", ["editor 1", ""])
def test_the_log_says_who_it_was_once_somebody_else_changed_something(shop: Run, tmp_path: Path, program: str) -> None:
    async def change() -> None:
        app = App(Settings(tmp_path / "data", embedding_model="none"))
        session = Session(client=program, account=Account("anna"))
        await app.call(session, "create_project", {"name": "hers"})
        tea = {"name": "Tea", "entity_type": "drink"}
        await app.call(session, "create_entities", {"entities": [tea]})
        await app.close()

    shop("token", "--user", "anna")
    assert "owner" not in shop("log").out
    asyncio.run(change())
    after = [line.strip() for line in shop("log").out.splitlines()]
    assert any(" by " in line for line in after)
    hers = [line for line in after if line.startswith("hers")]
    assert len(hers) == 2
    assert all("  anna  " in line for line in hers)
    assert "  owner  " in next(line for line in after if line.startswith("shop:2"))
    assert "owner" not in shop("log", "--project", "shop").out
    rows = shop("log", "--json").json["changes"]
    assert {(row["project"], row["account"]) for row in rows} == {("hers (anna)", "anna"), ("shop", None)}


def test_undo_takes_the_newest_change_back_and_then_the_one_before(shop: Run) -> None:
    assert "shop:2" in shop("undo").out
    assert names(shop) == ["Ada"]
    shop("undo")
    assert names(shop) == []
    outcome = shop("undo")
    assert outcome.status == 2
    assert "nothing to undo" in outcome.err


def test_an_undo_can_be_undone(shop: Run) -> None:
    shop("undo")
    newest = shop("log", "--json").json["changes"][0]
    assert newest["tool"] == "undo"
    assert shop("undo", newest["change"]).status == 0
    assert names(shop) == ["Ada", "Bob"]


def test_a_deleted_entity_comes_back_with_all_that_was_on_it(shop: Run) -> None:
    shop("create-relations", "from=Ada", "to=Bob", "relation_type=knows")
    shop("delete-entities", "Ada")
    shop("undo")
    graph = shop("read-graph", "--json").json
    assert [o["content"] for o in graph["entities"][0]["observations"]] == ["xyzzy-secret"]
    assert [r["relation_type"] for r in graph["relations"]] == ["knows"]


def test_undo_is_refused_when_the_thing_has_changed_since(shop: Run) -> None:
    shop("add-observations", "entity_name=Ada", "contents=later")
    outcome = shop("undo", "shop:1")
    assert outcome.status == 2
    assert "later observation" in outcome.err
    shop("delete-entities", "Bob")
    outcome = shop("undo", "2", "--project", "shop", "--json")
    assert outcome.status == 2
    assert outcome.json["changed_by"] == [4]
    assert names(shop) == ["Ada"]


def test_undoing_the_same_change_twice_is_refused(shop: Run) -> None:
    shop("undo", "shop:2")
    assert shop("undo", "shop:2").status == 2


@pytest.mark.parametrize("change", ["shop:99", "nowhere:1", "x", "shop:", "99", "shop:-1"])
def test_a_change_that_is_not_there_is_an_error(shop: Run, change: str) -> None:
    assert shop("undo", change).status == 2
    assert names(shop) == ["Ada", "Bob"]


def test_a_project_that_is_off_shows_no_change_and_takes_none_back(shop: Run) -> None:
    shop("create-entities", "name=Eve", "entity_type=person", "--project", "other")
    shop("off", "--project", "shop")
    changes = shop("log", "--json").json["changes"]
    assert {change["project"] for change in changes} == {"other"}
    for command in (("log", "--project", "shop"), ("undo", "--project", "shop"), ("undo", "shop:2")):
        refused = shop(*command, "--json")
        assert (refused.status, refused.json["error"]) == (2, "project_off")
        assert "Bob" not in refused.out + refused.err
    shop("on", "--project", "shop")
    assert names(shop) == ["Ada", "Bob"]


def test_a_plain_undo_where_the_project_is_off_is_refused(shop: Run) -> None:
    shop("off", "--project", "shop")
    assert shop("undo", "--json").json["error"] == "project_off"
    shop("on", "--project", "shop")
    assert names(shop) == ["Ada", "Bob"]


def test_things_of_a_project_that_is_off_can_be_purged(shop: Run, tmp_path: Any) -> None:
    shop("off", "--project", "shop")
    assert shop("purge", "Ada", "--project", "shop", "--yes").status == 0
    assert [p.name for p in (tmp_path / "data").rglob("*") if p.is_file() and _holds(p)] == []
    shop("on", "--project", "shop")
    assert names(shop) == ["Bob"]


def test_a_purge_asks_and_without_a_terminal_wants_a_yes(shop: Run) -> None:
    outcome = shop("purge", "Ada")
    assert outcome.status == 2
    assert "--yes" in outcome.err
    assert names(shop) == ["Ada", "Bob"]


def test_a_purged_entity_leaves_no_trace(shop: Run, tmp_path: Any) -> None:
    assert shop("purge", "ada", "--yes").status == 0
    assert names(shop) == ["Bob"]
    held = [p.name for p in (tmp_path / "data").rglob("*") if p.is_file() and _holds(p)]
    assert held == []


def test_all_that_was_deleted_or_that_holds_a_text_can_be_purged(shop: Run) -> None:
    shop("delete-entities", "Bob")
    assert shop("purge", "--deleted", "--yes", "--json").json["purged"]["records"] == 1
    assert shop("purge", "--containing", "XYZZY", "--yes", "--json").json["purged"]["records"] == 1
    assert "Nothing matches" in shop("purge", "--containing", "XYZZY", "--yes").out


@pytest.mark.parametrize("choice", [["--deleted"], ["--containing", "XYZZY-verb"]])
def test_a_purged_relation_leaves_no_trace(everkept: Run, tmp_path: Any, choice: Any) -> None:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Ada", "entity_type=person")
    relation = ("from=Ada", "to=Ada", "relation_type=xyzzy-verb")
    everkept("create-relations", *relation)
    everkept("delete-relations", *relation)
    purged = everkept("purge", *choice, "--yes", "--json").json["purged"]
    assert (purged["records"], purged["links"]) == (0, 1)
    assert [p.name for p in (tmp_path / "data").rglob("*") if p.is_file() and _holds(p)] == []
    assert names(everkept) == ["Ada"]


def test_a_name_of_several_entities_is_not_purged_by_guess(shop: Run) -> None:
    shop("create-entities", "name=Ada", "entity_type=ship")
    outcome = shop("purge", "Ada", "--yes", "--json")
    assert outcome.status == 2
    assert outcome.json["error"] == "ambiguous_name"
    assert shop("purge", "Ada (ship)", "--yes").status == 0
    assert names(shop) == ["Ada", "Bob"]


def test_a_purge_of_nothing_in_particular_is_refused(shop: Run) -> None:
    assert shop("purge", "--yes").status == 2
    assert shop("purge", "Nobody", "--yes").status == 2


def _holds(path: Any) -> bool:
    content = path.read_bytes().lower()
    return b"xyzzy" in content
