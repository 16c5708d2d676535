"""A newer program comes to servers that share one PostgreSQL: the older ones are told so."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from machines import PATIENCE, Machine, Refusal, contents, database, machines, together
from postgres_server import fresh_schema, shared
from team_actors import NEWER

# Many processes on a busy machine: only a hang takes longer.
pytestmark = pytest.mark.timeout(300)

CLIENTS = 8
SENTENCE = "were written by a newer version (schema 2; this version supports 1). Nothing was stored."
HINT = "Update Everkept on this machine, then restart your assistants."


def refused(machine: Machine, tool: str, **arguments: Any) -> Any:
    with pytest.raises(Refusal) as raised:
        machine.call(tool, **arguments)
    [error] = raised.value.args
    return error


def check_told(error: Any) -> None:
    assert (error["error"], error["retry_possible"]) == ("store_too_new", False)
    assert error["message"].endswith(SENTENCE)
    assert error["hint"] == HINT
    assert error["degraded"] is False


def check_refused(machine: Machine) -> None:
    """Whatever is asked: neither is it answered from a copy nor does a write wait."""
    memory = {"content": "too late", "type": "semantic", "scope": "project"}
    check_told(refused(machine, "store_memory", **memory))
    check_told(refused(machine, "create_entities", entities=[{"name": "Late", "entity_type": "x"}]))
    check_told(refused(machine, "create_project", name="late"))
    check_told(refused(machine, "recall_memories", query="parcel"))
    check_told(refused(machine, "read_graph"))


def waiting_on(machine: Machine) -> list[str]:
    """The contents of what is kept on a machine, whose server does not run."""
    told = machine.run("journal", "--json")
    assert told.returncode == 0, told.stderr
    return [each["content"] for each in json.loads(told.stdout)["writes"]]


def test_older_servers_are_refused_from_the_moment_that_a_newer_one_has_come(tmp_path: Path) -> None:
    schema, acknowledged = fresh_schema(), list[str]()
    newer = Machine(tmp_path / "newer", shared().port, schema)

    def store_until_refused(older: Machine, client: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            content = f"Parcel {client}-{len(acknowledged)}"
            try:
                older.store(content)
            except Refusal as refusal:
                check_told(refusal.args[0])
                return
            acknowledged.append(content)
        raise AssertionError("it was never refused")

    def upgrade() -> None:
        newer.start(newer=True)
        newer.store("Parcel of tomorrow")

    with machines(tmp_path, shared(), schema, 2) as older:
        try:
            together(lambda each: store_until_refused(older[each % 2], each) if each else upgrade(), CLIENTS)
            for machine in older:
                check_refused(machine)
                assert ready(machine) == 503
            assert ready(newer) == 200
            newer.store("Parcel of the day after")
            found = newer.recalled('"parcel of"')
            assert sorted(found) == ["Parcel of the day after", "Parcel of tomorrow"]
        finally:
            newer.stop()
        for machine in older:
            check_said(machine.stop())
            assert waiting_on(machine) == []
        check_start(older[0])
    stored = Counter(contents(shared(), schema, NEWER))
    assert stored == Counter([*acknowledged, *found])


def check_said(text: str) -> None:
    assert "Traceback" not in text


def check_start(machine: Machine) -> None:
    """An older program that is started only now."""
    serving = machine.run("serve", "--transport", "http", "--port", 0)
    assert serving.returncode == 1
    assert SENTENCE in " ".join(serving.stderr.split())
    machine.start()
    check_refused(machine)
    check_said(machine.stop())
    asked = machine.run("recall", "parcel")
    assert (asked.returncode, asked.stdout) == (1, "")
    assert SENTENCE in " ".join(asked.stderr.split())
    assert waiting_on(machine) == []


def ready(machine: Machine) -> int:
    """What whoever watches over servers is told."""
    assert machine.server is not None
    url = machine.server.url
    machine.server.url = url.removesuffix("/mcp") + "/ready"
    try:
        return machine.server.exchange(method="GET")[0]
    finally:
        machine.server.url = url


def test_what_was_kept_while_the_database_was_away_waits_for_a_newer_program(tmp_path: Path) -> None:
    schema = fresh_schema()
    with database() as postgres, machines(tmp_path, postgres, schema, 1) as [older]:
        older.store("Stored before")
        postgres.end("kill")
        older.store("Kept meanwhile")
        assert older.server is not None
        process = psutil.Process(older.server.process.pid)
        process.suspend()
        postgres.start()
        newer = Machine(tmp_path / "newer", postgres.port, schema)
        try:
            newer.start(newer=True)
            newer.store("Stored by the newer one")
            process.resume()
            wait_until_refused(older)
            check_refused(older)
            postgres.end("kill")  # that it is too old for it is known, also while it is away
            check_refused(older)
            check_said(older.stop())
            assert waiting_on(older) == ["Kept meanwhile"]
        finally:
            newer.stop()
        postgres.start()
        older.start(newer=True)  # as it is after an upgrade
        older.wait_for_database()
        assert older.recalled("kept") == ["Kept meanwhile"]
        older.stop()
        assert sorted(contents(postgres, schema, NEWER)) == [
            "Kept meanwhile",
            "Stored before",
            "Stored by the newer one",
        ]


def wait_until_refused(machine: Machine) -> None:
    """Until it has found out; what it is asked before is answered from its copy."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            machine.call("get_memory_status")
        except Refusal as refusal:
            check_told(refusal.args[0])
            return
    raise AssertionError("it was never refused")
