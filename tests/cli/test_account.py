from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_without_any_it_is_said_how_one_is_made(recollect: Run) -> None:
    assert "recollect token --user NAME" in recollect("account", "list").out
    assert recollect("account", "list", "--json").json == {"accounts": []}


def test_users_are_listed_with_what_they_see(recollect: Run) -> None:
    recollect("create-project", "shop")
    recollect("token", "--user", "anna")
    recollect("token", "--peer", "berlin")
    recollect("grant", "shop", "--user", "anna", "--access", "write")
    lines = recollect("account", "list").out.splitlines()
    assert lines[0].startswith("anna  user since ")
    assert lines[1] == "  write  shop"
    assert lines[2].startswith("berlin  another server since ")


def test_a_removed_user_is_gone_with_the_tokens(recollect: Run) -> None:
    recollect("token", "--user", "anna")
    kept = recollect("token", "--json").json["id"]
    refused = recollect("account", "remove", "anna")
    assert refused.status == 2
    assert "--yes" in refused.err
    assert recollect("account", "remove", "Anna", "--yes").out == "Removed anna.\n"
    assert [token["id"] for token in recollect("token", "list", "--json").json["tokens"]] == [kept]
    assert recollect("account", "list", "--json").json == {"accounts": []}
    again = recollect("account", "remove", "anna", "--yes")
    assert (again.status, "not found" in again.err) == (2, True)
