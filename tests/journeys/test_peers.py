"""Asking real servers of others: one right, one that hangs, one with another certificate."""

import asyncio
import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from assistant import codes
from everkept.core.peers import format_fingerprint
from peer_servers import PLAIN, Household, household
from server_processes import HttpServer, http_server, run, stdio_server

FOREIGN = "0" * 64
RECALL, UNIFIED = "recall_previous_discussions", "unified_memory_search"
MORE_THAN_ALLOWED = 100  # questions, in less than a minute


@dataclass
class Neighbour:
    """A server in a process of its own."""

    home: Household
    server: HttpServer

    @property
    def address(self) -> str:
        place = urlsplit(self.server.url)
        return f"https://{place.hostname}:{place.port}"


@dataclass
class Asking:
    """Who asks others, and knows them by what commands have said."""

    data: Path

    def know(self, name: str, other: Neighbour, *more: str, fingerprint: str = "") -> None:
        token = self.data.parent / f"{name}.token"
        token.write_text(other.home.token, encoding="utf-8")
        pinned = format_fingerprint(fingerprint or other.home.identity.fingerprint)
        done = run(
            *("peer", "add", name, other.address, "--token-file", token, "--fingerprint", pinned),
            *(*more, "--data-dir", self.data),
        )
        assert done.returncode == 0, done.stderr

    def check(self, *names: str) -> tuple[int, list[dict[str, Any]]]:
        done = run("peer", "check", *names, "--json", "--data-dir", self.data)
        return done.returncode, json.loads(done.stdout)["peers"]


@contextmanager
def neighbour(folder: Path) -> Generator[Neighbour, None, None]:
    folder.mkdir()
    home = asyncio.run(household(folder))
    with http_server(home.data, *home.options, **PLAIN) as server:
        yield Neighbour(home, server)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Neighbour]]:
    folder = tmp_path_factory.mktemp("neighbours")
    with ExitStack() as stack:
        yield [stack.enter_context(neighbour(folder / name)) for name in ("a", "b", "c")]


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return Asking(tmp_path / "mine")


def test_what_others_have_is_found_and_who_fails_is_named(three: list[Neighbour], asking: Asking) -> None:
    right, slow, stranger = three
    asking.know("anna", right)
    asking.know("bert", slow, "--time-limit", "1")
    asking.know("cleo", stranger, fingerprint=FOREIGN)
    hanging = psutil.Process(slow.server.process.pid)
    hanging.suspend()
    try:
        with stdio_server(asking.data, "--toolsets", "all", **PLAIN) as mine:
            said = mine.call(RECALL, query="slow checkout", include_peers=True)
            every = mine.call(UNIFIED, query="slow checkout", options={"include_peers": True})
            alone = mine.call(RECALL, query="slow checkout")
    finally:
        hanging.resume()
    assert {each["source"] for each in said["results"]} == {"peer:anna"}
    assert {each["context"]["project_path"] for each in said["results"]} == {"shop"}
    assert {each["type"] for each in every["results"]} >= {"conversation", "memory", "entity"}
    assert alone["results"] == []
    for told in (said, every):
        warnings = {each["code"]: each["message"] for each in told["warnings"]}
        assert "bert" in warnings["peer_timed_out"]
        assert "cleo" in warnings["peer_wrong_certificate"]
        assert stranger.home.identity.fingerprint in warnings["peer_wrong_certificate"]
    assert not (stranger.home.data / "access").exists()  # not a question came as far as that
    for hidden in ("diary", "by the user", "in a session", str(right.home.data.parent)):
        assert hidden not in json.dumps([said, every["results"]])


def test_what_a_server_told_is_in_its_access_log_and_nowhere_else(three: list[Neighbour], asking: Asking) -> None:
    right = three[0]
    asking.know("anna", right)
    with stdio_server(asking.data, **PLAIN) as mine:
        mine.call(UNIFIED, query="checkout of Redis", options={"include_peers": True})
    line = _access_log(right.home)[-1]
    assert (line["user"], line["peer"], line["what"]) == ("me", True, "/peers/search")
    assert (line["project"], line["length"]) == ("shop", len("checkout of Redis"))
    assert line["count"] == len(line["ids"]) > 0
    searches = run("history", "searches", "--data-dir", right.home.data, "--json")
    assert searches.returncode == 0, searches.stderr
    assert "checkout" not in searches.stdout


def test_what_is_taken_back_counts_at_once(tmp_path: Path, asking: Asking) -> None:
    with neighbour(tmp_path / "a") as anna, stdio_server(asking.data, **PLAIN) as mine:
        data = ("--data-dir", anna.home.data)
        asking.know("anna", anna)
        wanted = {"query": "slow checkout", "include_peers": True}
        assert asking.check()[0] == 0
        assert mine.call(RECALL, **wanted)["results"]
        assert run("revoke", "shop", "--user", "me", *data).returncode == 0
        assert mine.call(RECALL, **wanted)["results"] == []
        listed = json.loads(run("token", "list", "--json", *data).stdout)["tokens"]
        [token] = [each["id"] for each in listed if "peer" in each]
        assert run("token", "revoke", token, *data).returncode == 0
        assert "peer_refused" in codes(mine.call(RECALL, **wanted))
        anna.server.stop()
        assert "peer_unreachable" in codes(mine.call(RECALL, **wanted))
        status, [gone] = asking.check("anna")
        assert (status, gone["error"]) == (1, "peer_unreachable")


def test_a_server_that_is_asked_too_often_says_when_to_come_back(tmp_path: Path, asking: Asking) -> None:
    with neighbour(tmp_path / "a") as anna, stdio_server(asking.data, **PLAIN) as mine:
        asking.know("anna", anna)
        told: dict[str, Any] = {}
        for _ in range(MORE_THAN_ALLOWED):
            told = mine.call(RECALL, query="checkout", include_peers=True)
            if "peer_rate_limited" in codes(told):
                break
    [message] = [w["message"] for w in told["warnings"] if w["code"] == "peer_rate_limited"]
    assert "anna" in message
    assert "try again in " in message


def test_the_token_of_a_person_or_the_owner_is_no_peers(three: list[Neighbour], asking: Asking) -> None:
    right = three[0]
    asking.know("anna", right)
    known = asking.data / "peers.json"  # no command would have taken it
    written = known.read_text(encoding="utf-8")
    known.write_text(written.replace(right.home.token, right.home.owners_token), encoding="utf-8")
    status, [told] = asking.check()
    assert (status, told["error"]) == (1, "peer_refused")


def _access_log(home: Household) -> list[dict[str, Any]]:
    texts = [path.read_text(encoding="utf-8") for path in (home.data / "access").rglob("*.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines()]
