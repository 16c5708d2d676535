import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from certificates import certificate
from everkept.core.peers import format_fingerprint
from everkept.peers.identity import read_fingerprint

Run = Callable[..., Any]

ADDRESS = "https://anna.example:8443"
PINNED = ("--fingerprint", "sha256:" + "ab" * 32)


def peers_in(tmp_path: Path) -> dict[str, Any]:
    return json.loads((tmp_path / "data" / "peers.json").read_text(encoding="utf-8"))["peers"]


def add(everkept: Run, name: str = "anna", *more: str, token: str = "evkp_secret\n") -> Any:
    arguments = more or PINNED
    return everkept("peer", "add", name, ADDRESS, "--token-file", "-", *arguments, stdin=token)


def test_a_peer_is_added_listed_and_removed(everkept: Run, tmp_path: Path) -> None:
    assert "No peers" in everkept("peer", "list").out
    assert add(everkept).status == 0
    assert peers_in(tmp_path)["anna"]["token"] == "evkp_secret"
    listed = everkept("peer", "list")
    assert ADDRESS in listed.out
    assert "evkp_secret" not in listed.out + everkept("peer", "list", "--json").out
    assert everkept("peer", "list", "--json").json["peers"][0]["name"] == "anna"
    assert everkept("peer", "remove", "anna").status == 0
    assert peers_in(tmp_path) == {}
    assert everkept("peer", "remove", "anna").status == 2


def test_a_token_comes_from_a_file_and_a_fingerprint_from_a_certificate(everkept: Run, tmp_path: Path) -> None:
    token, pem = tmp_path / "token", certificate(tmp_path)
    token.write_text("evkp_of_a_file\n", encoding="utf-8")
    done = everkept(
        *("peer", "add", "anna", ADDRESS, "--token-file", str(token)),
        *("--certificate", str(pem), "--time-limit", "2", "--json"),
    )
    assert done.json["fingerprint"] == format_fingerprint(read_fingerprint(pem))
    kept = peers_in(tmp_path)["anna"]
    assert (kept["token"], kept["time_limit"]) == ("evkp_of_a_file", 2.0)


@pytest.mark.parametrize(
    "arguments",
    [
        ("anna", "http://anna.example", "--token-file", "-", *PINNED),
        ("anna", "https://anna.example/mcp", "--token-file", "-", *PINNED),
        ("a b", ADDRESS, "--token-file", "-", *PINNED),
        ("anna", ADDRESS, "--token-file", "-"),
        ("anna", ADDRESS, "--token-file", "-", "--fingerprint", "sha256:00"),
        ("anna", ADDRESS, "--token-file", "-", *PINNED, "--certificate", "x.pem"),
        ("anna", ADDRESS, "--token-file", "-", "--certificate", "no/such.pem"),
        ("anna", ADDRESS, "--token-file", "no/such/file", *PINNED),
        ("anna", ADDRESS, "--token-file", "-", *PINNED, "--time-limit", "0"),
        ("anna", ADDRESS, *PINNED),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(everkept: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = everkept("peer", "add", *arguments, stdin="evkp_secret\n")
    assert done.status == 2
    assert done.err
    assert "evkp_secret" not in done.err
    assert not (tmp_path / "data" / "peers.json").exists()


def test_an_empty_token_and_a_name_that_is_taken_are_mistakes(everkept: Run, tmp_path: Path) -> None:
    assert add(everkept, token="\n").status == 2
    assert add(everkept).status == 0
    assert add(everkept, token="evkp_other\n").status == 2
    assert peers_in(tmp_path)["anna"]["token"] == "evkp_secret"


def test_where_only_reading_is_allowed_nobody_is_added(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERKEPT_READ_ONLY", "true")
    assert add(everkept).status == 2
    assert everkept("peer", "identity").status == 2
    assert not (tmp_path / "data").exists()
    assert everkept("peer", "list").status == 0


def test_a_list_that_cannot_be_read_is_told(everkept: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "peers.json").write_text("nonsense", encoding="utf-8")
    for command in (("list",), ("check",), ("remove", "anna")):
        done = everkept("peer", *command)
        assert done.status == 2
        assert "peers.json" in done.err


def test_checking_asks_those_who_are_known(everkept: Run) -> None:
    assert everkept("peer", "check").status == 0
    assert everkept("peer", "check", "anna").status == 2
    everkept(*("peer", "add", "gone", "https://127.0.0.1:1", "--token-file", "-", *PINNED), stdin="evkp_secret\n")
    done = everkept("peer", "check", "--json")
    assert done.status == 1
    assert done.json["peers"][0]["error"] == "peer_unreachable"
    shown = everkept("peer", "check", "gone").out
    assert shown.startswith("gone: cannot reach https://127.0.0.1:1")


def test_an_identity_is_made_once_and_says_how_to_serve_with_it(everkept: Run, tmp_path: Path) -> None:
    first = everkept("peer", "identity")
    assert first.out.startswith("sha256:")
    assert "--certificate-key" in first.err
    again = everkept("peer", "identity", "--json").json
    assert (again["fingerprint"], again["is_new"]) == (first.out.strip(), False)
    assert Path(again["certificate"]).parent == tmp_path / "data"
    assert read_fingerprint(Path(again["certificate"])) == first.out.strip().removeprefix("sha256:")


@pytest.mark.parametrize(
    ("token", "told"),
    [("evk_secret", "is the owner's"), ("evku_secret", "is a user's"), ("hunter2", "is not a token of Everkept")],
)
def test_only_a_peers_token_is_taken(everkept: Run, tmp_path: Path, token: str, told: str) -> None:
    done = add(everkept, token=token)
    assert done.status == 2
    assert told in done.err
    assert "everkept token --peer" in done.err
    assert token not in done.err
    assert not (tmp_path / "data" / "peers.json").exists()
