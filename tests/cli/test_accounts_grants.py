import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def anna(everkept: Run) -> str:
    everkept("create-project", "shop")
    return str(everkept("token", "--user", "anna", "--json").json["token"])


def seen(everkept: Run) -> list[tuple[str, str]]:
    [account] = everkept("account", "list", "--json").json["accounts"]
    return [(project["name"], project["access"]) for project in account["projects"]]


def test_a_project_is_granted_to_be_read_unless_it_is_said_otherwise(everkept: Run, anna: str) -> None:
    outcome = everkept("grant", "shop", "--user", "Anna")
    assert (outcome.status, outcome.out) == (0, 'anna can now only read "shop".\n')
    assert seen(everkept) == [("shop", "read")]
    outcome = everkept("grant", "shop", "--user", "anna", "--access", "write", "--json")
    assert outcome.json == {"user": "anna", "project": "shop", "access": "write", "shown_as": "shop"}
    assert seen(everkept) == [("shop", "write")]


def test_what_is_revoked_is_seen_no_longer(everkept: Run, anna: str) -> None:
    everkept("grant", "shop", "--user", "anna")
    assert everkept("revoke", "shop", "--user", "anna").out == 'anna can no longer access "shop".\n'
    assert seen(everkept) == []
    outcome = everkept("revoke", "shop", "--user", "anna")
    assert outcome.status == 2
    assert '"anna" has no access' in outcome.err


def test_who_was_let_see_what_is_in_the_access_log(everkept: Run, anna: str) -> None:
    everkept("grant", "shop", "--user", "Anna", "--access", "write")
    everkept("revoke", "shop", "--user", "anna")
    calls = everkept("access-log", "--user", "owner", "--json").json["accesses"]
    noted = [(each["what"], each["about"], each["project"]) for each in calls]
    assert ("grant write", "anna", "shop") in noted
    assert ("revoke", "anna", "shop") in noted


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("grant", "blog", "--user", "anna"), '"blog" not found'),
        (("grant", "shop", "--user", "bob"), 'User "bob" not found'),
        (("grant", "shop", "--user", "b/b"), "is not a valid user name"),
        (("grant", "shop"), "--user"),
        (("revoke", "blog", "--user", "anna"), '"blog" not found'),
        (("grant", "shop", "--user", "anna", "--access", "own"), "own"),
    ],
)
def test_a_mistake_is_told_and_grants_nothing(everkept: Run, anna: str, arguments: tuple[str, ...], told: str) -> None:
    outcome = everkept(*arguments)
    assert outcome.status == 2
    assert told in outcome.err
    assert seen(everkept) == []


def test_a_mistake_is_json_where_that_is_asked_for(everkept: Run, anna: str) -> None:
    outcome = everkept("grant", "blog", "--user", "anna", "--json")
    assert json.loads(outcome.out)["error"] == "not_found"


def test_it_is_said_where_the_user_knows_it_by_another_name(everkept: Run, anna: str) -> None:
    everkept("grant", "shop", "--user", "anna")
    everkept("delete-project", "shop", "--yes")
    everkept("create-project", "shop")
    outcome = everkept("grant", "shop", "--user", "anna")
    assert outcome.out == 'anna can now only read "shop", as "shop (2)".\n'


@pytest.mark.parametrize("command", ["grant", "revoke"])
def test_while_the_database_is_away_nothing_is_said_to_be_missing(
    everkept: Run, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EVERKEPT_DATABASE_URL", "ws://127.0.0.1:1")  # where nothing listens
    outcome = everkept(command, "shop", "--user", "anna")
    assert outcome.status == 1
    assert "cannot change while the database is unreachable. Nothing was changed." in outcome.err
    assert "127.0.0.1:1" in outcome.err
