"""Servers of two machines on one PostgreSQL that goes away: both work on, and nothing is lost."""

import asyncio
import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from database_places import postgres_url
from engine_journeys import Place, beside, place, recalled, stored
from everkept.app.engines import find_standby
from everkept.core.records import RecordFilter
from everkept.engines.sqlite.library import SqliteLibrary
from everkept.errors import NotFound
from everkept.settings import read_settings
from hook_processes import Hooks
from postgres_server import Server
from server_processes import HANG, HttpServer, StdioServer, http_server, wait_for_database

FACTS = [f"Fact {number} about the harbour" for number in range(6)]


@contextmanager
def database() -> Generator[Server, None, None]:
    server = Server()
    server.start()
    try:
        yield server
    finally:
        server.end()


def connection(server: StdioServer) -> dict[str, Any]:
    return server.call("get_memory_status")["connection"]


def context(at: Place) -> str:
    """What a hook gives to an assistant that begins to work."""
    hooks = Hooks(at.data, at.work)
    return hooks.call("SessionStart", None, "--project", "shop", **at.variables).context


def test_two_machines_work_on_while_their_database_is_away(tmp_path: Path) -> None:
    with database() as postgres:
        here = place("postgres", tmp_path / "here", url=postgres_url(postgres.port))
        there = beside(here, tmp_path / "there")
        with here.serving() as one, there.serving() as other:
            stored(one, FACTS[0])
            assert recalled(other, "harbour") == FACTS[:1]
            told = connection(one)
            assert (told["engine"], told["mode"]) == ("postgres", "local-server")
            assert told["version"].startswith("18.")
            for at in (here, there):
                asyncio.run(copied(at, FACTS[0]))
            postgres.end("kill")
            stored(one, FACTS[1])
            stored(other, FACTS[2])
            assert one.call("recall_memories", query="harbour")["degraded"] is True
            assert sorted(recalled(one, "harbour")) == FACTS[:2]
            assert sorted(recalled(other, "harbour")) == [FACTS[0], FACTS[2]]
            assert FACTS[0] in context(here)
            assert one.close_input() == 0
            check_commands(here)
            with here.serving() as again:
                stored(again, FACTS[3])
                assert sorted(recalled(again, "harbour")) == [FACTS[0], FACTS[1], FACTS[3]]
                postgres.start()
                for server in (again, other):
                    wait_for_database(partial(server.call, "get_memory_status"))
                stored(again, FACTS[4])
                stored(other, FACTS[5])
                for server in (again, other):
                    assert sorted(recalled(server, "harbour")) == FACTS
        assert here.told("journal") == {"writes": []}
        with beside(here, tmp_path / "elsewhere").serving() as third:
            answer = third.call("recall_memories", query="harbour", strategy="keyword", limit=50)
            assert not answer.get("degraded")
            assert sorted(each["content"] for each in answer["memories"]) == FACTS


def asked(server: HttpServer, token: str, tool: str, **arguments: Any) -> Any:
    """The structured answer of a tool to whoever has the token."""
    given = {"name": tool, "arguments": arguments}
    status, message = server.ask("tools/call", given, Authorization=f"Bearer {token}")
    assert status == 200, message
    return message["result"]["structuredContent"]


def stored_by(server: HttpServer, token: str, content: str, scope: str = "project") -> Any:
    given = {"content": content, "type": "semantic", "scope": scope}
    answer = asked(server, token, "store_memory", **given)
    assert "error" not in answer, answer
    return answer


def test_what_an_account_wrote_is_not_brought_over_once_it_is_removed(tmp_path: Path) -> None:
    with database() as postgres:
        here = place("postgres", tmp_path / "here", url=postgres_url(postgres.port))
        there = beside(here, tmp_path / "there")
        there.told("create-project", "shop")
        owner = there.told("token")["token"]
        anna, ben = (there.told("token", "--user", name)["token"] for name in ("anna", "ben"))
        for name in ("anna", "ben"):
            there.told("grant", "shop", "--user", name, "--access", "write")
        options = ("--toolsets", "all", "--project", "shop", "--path", here.work)
        with http_server(here.data, *options, **here.environment()) as server:
            stored_by(server, owner, FACTS[5])
            asyncio.run(copied(here, FACTS[5]))
            postgres.end("kill")
            for token, fact in ((owner, FACTS[0]), (anna, FACTS[1]), (ben, FACTS[2])):
                assert stored_by(server, token, fact)["degraded"] is True
            assert stored_by(server, anna, FACTS[3], "user")["degraded"] is True
            made = asked(server, anna, "create_project", name="website")
            assert (made["error"], made["retry_possible"]) == ("refused", True)
            assert "Cannot create a project while the database is unreachable." in made["message"]
            assert str(postgres.port) not in str(made)
        waiting = here.told("journal")["writes"]
        assert [each.get("account") for each in waiting if "memory" in each["what"]] == [None, "anna", "ben", "anna"]
        refused = here.run("grant", "shop", "--user", "anna")
        assert refused.returncode == 1
        assert re.search("while the database is (away|unreachable)", refused.stderr)
        postgres.start()
        there.told("account", "remove", "anna", "--yes")
        with here.serving() as again:
            wait_for_database(partial(again.call, "get_memory_status"))
            assert sorted(recalled(again, "harbour")) == [FACTS[0], FACTS[2], FACTS[5]]
        left = here.told("journal")["writes"]
        assert {each["account"] for each in left} == {"anna"}
        assert all("anna was removed" in each["reason"] for each in left)
        assert not [fact for fact in FACTS if fact in str(left)]
        with there.serving() as third:
            assert sorted(recalled(third, "harbour")) == [FACTS[0], FACTS[2], FACTS[5]]
        numbers = [each["number"] for each in left]
        assert here.told("journal", "--retry", "all")["writes"]
        with here.serving() as again:
            wait_for_database(partial(again.call, "get_memory_status"))
        assert len(here.told("journal")["writes"]) == len(numbers)


async def copied(at: Place, content: str) -> None:
    """Waits until the copy on a machine has what would be missed there."""
    standby = find_standby(read_settings({"data_dir": at.data, "config": "none"}, at.variables))
    assert standby is not None
    replica = SqliteLibrary(standby.replica)
    try:
        async with asyncio.timeout(HANG):
            while content not in await contents(replica):  # noqa: ASYNC110 (a process would tell)
                await asyncio.sleep(0.05)
    finally:
        await replica.close()


async def contents(library: SqliteLibrary) -> list[str]:
    try:
        _, store = await library.open("shop")
    except NotFound:
        return []
    return [record.text for record in await store.scan(RecordFilter())]


def check_commands(at: Place) -> None:
    """What is told where the database is away and a write waits for it."""
    shown = at.run("status", "--project", "shop")
    assert shown.returncode == 0
    assert "PostgreSQL (local-server)" in " ".join(shown.stdout.split())
    doctor = at.run("doctor", "--json")
    assert doctor.returncode == 1
    assert "everkept journal" in doctor.stdout
    waiting = at.told("journal")["writes"]
    assert FACTS[1] in [each["content"] for each in waiting]
    refused = at.run("migrate", "--to", f"sqlite:{at.folder / 'copy'}")
    assert refused.returncode != 0
    assert "pending on this machine" in refused.stderr
