"""Thirty-two writers on three servers of three machines, which share one PostgreSQL."""

from pathlib import Path

import pytest

from machines import Machine, contents, graph, log_numbers, machines, together
from postgres_server import fresh_schema, shared

# Many processes on a busy machine: only a hang takes longer.
pytestmark = pytest.mark.timeout(300)

WRITERS, SERVERS, TURNS, DOCKS = 32, 3, 2, 4


class Clerk:
    """Stores by one server, and looks by another for what was stored just now."""

    def __init__(self, number: int, servers: list[Machine]) -> None:
        self.here = servers[number % SERVERS]
        self.there = servers[(number + 1) % SERVERS]
        self._words = words_of(number)
        self._crane = f"Crane {number}"
        self._dock = f"Dock {number % DOCKS}"  # which is others' too

    def work(self) -> None:
        for word in self._words:
            self._remember(word)
        self._draw()

    def _remember(self, word: str) -> None:
        memory = self.here.store(said(word))
        assert self.there.recalled(word) == [said(word)]
        tagged = self.there.call("tag_memory", memory_id=memory, add=["seen"])
        assert tagged["tags"] == ["seen"]

    def _draw(self) -> None:
        crane = {"name": self._crane, "entity_type": "crane", "observations": ["painted"]}
        dock = {"name": self._dock, "entity_type": "dock", "observations": [f"has {self._crane}"]}
        made = self.here.call("create_entities", entities=[crane, dock])["entities"]
        [found] = self.there.call("open_nodes", names=[made[0]["id"]])["entities"]
        assert found["name"] == self._crane
        stands = {"from": self._crane, "to": self._dock, "relation_type": "stands_at"}
        self.there.call("create_relations", relations=[stands])
        [found] = self.here.call("open_nodes", names=[self._crane])["entities"]
        assert [each["to"] for each in found["relations"]] == [self._dock]
        names = [entity["name"] for entity in graph(self.there)[0]]
        assert names.count(self._crane) == names.count(self._dock) == 1


def words_of(number: int) -> list[str]:
    return [f"crane{number}x{turn}" for turn in range(TURNS)]


def said(word: str) -> str:
    return f"The {word} lifts boxes"


def test_many_writers_on_three_servers_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    schema = fresh_schema()
    with machines(tmp_path, shared(), schema, SERVERS) as servers:
        together(lambda number: Clerk(number, servers).work(), WRITERS)
        seen = [graph(server) for server in servers]
    words = [word for number in range(WRITERS) for word in words_of(number)]
    assert sorted(contents(shared(), schema)) == sorted(map(said, words))
    # Of each memory that it came and was tagged, and of each crane that it came and has a place.
    numbers = log_numbers(shared(), schema)
    assert numbers == list(range(1, 2 * (len(words) + WRITERS) + 1))
    assert seen[0] == seen[1] == seen[2]
    entities, relations = seen[0]
    cranes, docks = {f"Crane {n}" for n in range(WRITERS)}, {f"Dock {n}" for n in range(DOCKS)}
    assert sorted(each["name"] for each in entities) == sorted(cranes | docks)
    placed = [(each["from"], each["to"]) for each in relations]
    assert sorted(placed) == sorted((f"Crane {n}", f"Dock {n % DOCKS}") for n in range(WRITERS))
    noted = [o["content"] for e in entities if e["name"] in docks for o in e["observations"]]
    assert sorted(noted) == sorted(f"has {crane}" for crane in cranes)
