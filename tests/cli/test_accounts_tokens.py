from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_tokens_are_listed_with_whose_they_are(everkept: Run) -> None:
    made = [
        everkept("token", *whose, "--label", "laptop", "--json").json
        for whose in ((), ("--user", "Anna"), ("--peer", "berlin"))
    ]
    assert [(m.get("user"), m.get("peer")) for m in made] == [(None, None), ("anna", None), (None, "berlin")]
    listed = everkept("token", "list", "--json").json["tokens"]
    by_id = {token["id"]: token for token in listed}
    assert [by_id[m["id"]] for m in made] == [{key: value for key, value in m.items() if key != "token"} for m in made]
    text = everkept("token", "list").out
    assert {line.split("  ", 2)[2] for line in text.splitlines()} == {
        "(owner)        laptop",
        "anna           laptop",
        "berlin (peer)  laptop",
    }
    assert all(m["token"] not in text for m in made)


def test_a_revoked_token_is_listed_no_longer(everkept: Run) -> None:
    made = everkept("token", "--user", "anna", "--json").json
    assert everkept("token", "revoke", made["id"]).status == 0
    assert everkept("token", "list", "--json").json == {"tokens": []}
    assert everkept("token", "revoke", made["id"]).status == 2


def test_a_token_is_a_users_or_a_peers_and_names_are_checked(everkept: Run) -> None:
    for arguments in (
        ("--user", "a", "--peer", "b"),
        ("--user", "a b"),
        ("--user", "Owner"),
        ("--peer", "owner"),
        ("--peer", ""),
        ("--user", ""),
        ("--user", "", "list"),
        ("--user", "a", "list"),
    ):
        outcome = everkept("token", *arguments)
        assert (outcome.status, outcome.out) == (2, "")
    assert everkept("token", "list", "--json").json == {"tokens": []}


def test_whose_a_new_token_is_is_said(everkept: Run) -> None:
    assert "for anna " in everkept("token", "--user", "anna").err
    assert "for the owner" in everkept("token").err
