import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def anna(recollect: Run) -> str:
    recollect("create-project", "shop")
    return str(recollect("token", "--user", "anna", "--json").json["token"])


def seen(recollect: Run) -> list[tuple[str, str]]:
    [account] = recollect("account", "list", "--json").json["accounts"]
    return [(project["name"], project["access"]) for project in account["projects"]]


def test_a_project_is_granted_to_be_read_unless_it_is_said_otherwise(
    recollect: Run, anna: str
) -> None:
    outcome = recollect("grant", "shop", "--user", "Anna")
    assert (outcome.status, outcome.out) == (0, 'anna may only read "shop" from now on.\n')
    assert seen(recollect) == [("shop", "read")]
    outcome = recollect("grant", "shop", "--user", "anna", "--access", "write", "--json")
    assert outcome.json == {
        "user": "anna",
        "project": "shop",
        "access": "write",
        "shown_as": "shop",
    }
    assert seen(recollect) == [("shop", "write")]


def test_what_is_revoked_is_seen_no_longer(recollect: Run, anna: str) -> None:
    recollect("grant", "shop", "--user", "anna")
    assert recollect("revoke", "shop", "--user", "anna").out == 'anna no longer sees "shop".\n'
    assert seen(recollect) == []
    outcome = recollect("revoke", "shop", "--user", "anna")
    assert outcome.status == 2
    assert "is not granted to anna" in outcome.err


def test_who_was_let_see_what_is_in_the_access_log(recollect: Run, anna: str) -> None:
    recollect("grant", "shop", "--user", "Anna", "--access", "write")
    recollect("revoke", "shop", "--user", "anna")
    calls = recollect("access-log", "--user", "owner", "--json").json["accesses"]
    noted = [(each["what"], each["about"], each["project"]) for each in calls]
    assert ("grant write", "anna", "shop") in noted
    assert ("revoke", "anna", "shop") in noted


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("grant", "blog", "--user", "anna"), '"blog" not found'),
        (("grant", "shop", "--user", "bob"), 'User "bob" not found'),
        (("grant", "shop", "--user", "b/b"), "is no name of a user"),
        (("grant", "shop"), "--user"),
        (("revoke", "blog", "--user", "anna"), '"blog" not found'),
        (("grant", "shop", "--user", "anna", "--access", "own"), "own"),
    ],
)
def test_a_mistake_is_told_and_grants_nothing(
    recollect: Run, anna: str, arguments: tuple[str, ...], told: str
) -> None:
    outcome = recollect(*arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert seen(recollect) == []


def test_a_mistake_is_json_where_that_is_asked_for(recollect: Run, anna: str) -> None:
    outcome = recollect("grant", "blog", "--user", "anna", "--json")
    assert json.loads(outcome.out)["error"] == "not_found"


def test_it_is_said_where_the_user_knows_it_by_another_name(recollect: Run, anna: str) -> None:
    recollect("grant", "shop", "--user", "anna")
    recollect("delete-project", "shop", "--yes")
    recollect("create-project", "shop")
    outcome = recollect("grant", "shop", "--user", "anna")
    assert outcome.out == 'anna may only read "shop", as "shop (2)" from now on.\n'


@pytest.mark.parametrize("command", ["grant", "revoke"])
def test_while_the_database_is_away_nothing_is_said_to_be_missing(
    recollect: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("RECOLLECT_DATABASE_URL", "ws://127.0.0.1:1")  # where nothing listens
    outcome = recollect(command, "shop", "--user", "anna")
    assert outcome.status == 1
    assert "cannot be changed while the database is away. Nothing was done." in outcome.err
    assert "127.0.0.1:1" in outcome.err
