"""Servers of two machines on one PostgreSQL that goes away: both work on, and nothing is lost."""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calling_hooks import Hooks
from engine_journeys import Place, beside, place, recalled, stored
from placing import postgres_url
from postgresing import Server
from recollect.app.engines import standby_of
from recollect.core.records import Where
from recollect.engines.sqlite.library import SqliteLibrary
from recollect.errors import NotFound
from recollect.settings import load
from serving import HANG, StdioServer

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


def wait_until_written(server: StdioServer) -> None:
    """Until the database is reached again; each look is a call, which takes its time."""
    told: dict[str, Any] = {}
    deadline = time.monotonic() + HANG
    while time.monotonic() < deadline:
        told = connection(server)
        if told["status"] == "connected":
            return
    raise AssertionError(told)


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
                    wait_until_written(server)
                stored(again, FACTS[4])
                stored(other, FACTS[5])
                for server in (again, other):
                    assert sorted(recalled(server, "harbour")) == FACTS
        assert here.told("journal") == {"writes": []}
        with beside(here, tmp_path / "elsewhere").serving() as third:
            answer = third.call("recall_memories", query="harbour", strategy="keyword", limit=50)
            assert not answer.get("degraded")
            assert sorted(each["content"] for each in answer["memories"]) == FACTS


async def copied(at: Place, content: str) -> None:
    """Waits until the copy on a machine has what would be missed there."""
    standby = standby_of(load({"data_dir": at.data, "config": "none"}, at.variables))
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
    return [record.text for record in await store.scan(Where())]


def check_commands(at: Place) -> None:
    """What is told where the database is away and a write waits for it."""
    shown = at.run("status", "--project", "shop")
    assert shown.returncode == 0
    assert "PostgreSQL (local-server)" in " ".join(shown.stdout.split())
    doctor = at.run("doctor", "--json")
    assert doctor.returncode == 1
    assert "recollect journal" in doctor.stdout
    waiting = at.told("journal")["writes"]
    assert FACTS[1] in [each["content"] for each in waiting]
    refused = at.run("migrate", "--to", f"sqlite:{at.folder / 'copy'}")
    assert refused.returncode != 0
    assert "still wait on this machine" in refused.stderr
