"""Servers and their database are killed while many clients store: what was acknowledged stays."""

import json
from collections import Counter
from pathlib import Path

import pytest

from machines import Load, contents, database, log_numbers, machines
from postgres_server import fresh_schema

# Many processes on a busy machine: only a hang takes longer.
pytestmark = pytest.mark.timeout(300)

CLIENTS, SERVERS = 32, 3


def test_what_was_acknowledged_is_there_once_whoever_was_killed(tmp_path: Path) -> None:
    schema = fresh_schema()
    with database() as postgres, machines(tmp_path, postgres, schema, SERVERS) as servers:
        first, second, third = servers
        load = Load(servers)
        with load.of(CLIENTS):
            load.wait_for(CLIENTS)
            first.kill()
            load.wait_for(CLIENTS)
            with load.held():
                first.start()
            load.wait_for(CLIENTS)
            postgres.end("kill")
            load.wait_for(CLIENTS)
            second.kill()  # with what it has kept on its machine
            load.wait_for(CLIENTS // 2)
            postgres.start()
            first.wait_for_database()
            third.wait_for_database()
            with load.held():
                second.start()
            second.wait_for_database()
            load.wait_for(CLIENTS)
        for server in servers:
            server.wait_for_database()
            assert "Traceback" not in server.stop()
            waiting = server.run("journal", "--json")
            assert json.loads(waiting.stdout) == {"writes": []}, waiting.stderr
        found = Counter(contents(postgres, schema))
        assert set(load.acknowledged) <= found.keys()
        assert set(found.values()) == {1}
        numbers = log_numbers(postgres, schema)
        assert numbers == list(range(1, len(found) + 1))
