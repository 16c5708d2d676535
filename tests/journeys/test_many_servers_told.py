"""Who listens to one of several servers on one PostgreSQL is told what another has changed."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from machines import PROJECT, Machine, machines
from postgres_server import fresh_schema, shared
from server_processes import META, MODERN

GRAPH = f"memory://projects/{PROJECT}/knowledge-graph"


class Stream:
    """What a server tells on its own."""

    def __init__(self, response: HTTPResponse) -> None:
        self._response = response

    def next(self) -> Any:
        """The next message; the connection bounds the wait."""
        for line in self._response:
            if line.startswith(b"data: "):
                return json.loads(line.removeprefix(b"data: "))
        raise AssertionError("the stream ended")


@contextmanager
def listening(machine: Machine) -> Generator[Stream, None, None]:
    assert machine.server is not None
    method = "subscriptions/listen"
    params = {"_meta": META, "notifications": {"resourceSubscriptions": [GRAPH]}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    response, connection = machine.server.request(body, headers)
    try:
        stream = Stream(response)
        granted = stream.next()["params"]["notifications"]
        assert granted == {"resourceSubscriptions": [GRAPH]}
        yield stream
    finally:
        response.close()
        connection.close()


def test_a_change_by_one_server_is_told_to_who_listens_to_another(tmp_path: Path) -> None:
    with (
        machines(tmp_path, shared(), fresh_schema(), 2) as [one, other],
        listening(one) as here,
        listening(other) as there,
    ):
        for number, machine in enumerate((one, other)):
            entity = {"name": f"Crane {number}", "entity_type": "crane"}
            machine.call("create_entities", entities=[entity])
            for stream in (here, there):
                told = stream.next()
                assert told["method"] == "notifications/resources/updated"
                assert told["params"]["uri"] == GRAPH
        names = [entity["name"] for entity in one.call("read_graph")["entities"]]
        assert names == ["Crane 0", "Crane 1"]
