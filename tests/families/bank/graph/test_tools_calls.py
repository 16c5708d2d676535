import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from bank_graph import CountingRecords, Graphing, graph_in, offer
from everkept.core.ports import Library, RecordStore
from everkept.core.records import Batch, Insert, RecordFilter
from everkept.families.bank.banks import Bank
from everkept.families.bank.graph.graph_events import OwnChange
from everkept.families.bank.graph.mirror import GraphMirror
from everkept.graph.entities import ENTITY, build_entity
from everkept.tools.tool import ToolWarning
from everkept.values import replace

LOG = "graph/graph.jsonl"
SHOP, ORDERS = "ent_dCaO4uichTpa", "ent_C38QptuQfgbA"
AT = "2026-03-02T13:00:00.000Z"
# As another program leaves it.
EVENTS: list[dict[str, Any]] = [
    {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"},
    *(
        {
            "type": "entity_upsert",
            "entity": {"id": entity, "name": name, "entityType": kind, "createdAt": AT, "updatedAt": AT},
            "ts": AT,
        }
        for entity, name, kind in ((SHOP, "Shop API", "service"), (ORDERS, "Orders DB", "database"))
    ),
    {
        "type": "observation_add",
        "observation": {
            "id": "obs_5dNQbd6hsN2S",
            "entityId": SHOP,
            "text": "Runs on port 8443",
            "source": {"kind": "manual"},
            "timestamp": AT,
        },
        "ts": AT,
    },
    {
        "type": "relation_add",
        "relation": {
            "id": "rel_jgTDOK1PPmiB",
            "fromId": SHOP,
            "toId": ORDERS,
            "relationType": "reads_from",
            "createdAt": AT,
        },
        "ts": AT,
    },
]


@pytest.fixture
async def graph(library: Library, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    """A graph with its mirror."""
    async with graph_in(tmp_path, library=library) as made:
        bank = made.banking
        mirror = GraphMirror(bank.records, bank.library, bank.clock, mask=True, read_only=False)
        offer(bank, bank.records, mirror)
        yield made


def events(graph: Graphing) -> list[dict[str, Any]]:
    return [json.loads(line) for line in graph.banking.get(LOG).splitlines()]


def lines(*items: dict[str, Any]) -> str:
    return "".join(json.dumps(item) + "\n" for item in items)


async def test_the_file_says_with_the_same_ids_what_was_written(graph: Graphing) -> None:
    await graph.entity("Shop API", "service", port=8443)
    await graph.entity("Orders DB", "database")
    observation = await graph.observe(SHOP, "Runs on port 8443", timestamp=AT)
    await graph.link(SHOP, "reads_from", ORDERS)
    await graph("delete_observation", observationId=observation)
    await graph("delete_entity", entity=ORDERS)
    said = events(graph)
    assert said[0] == EVENTS[0]
    made = [event["entity"] for event in said if event["type"] == "entity_upsert"]
    assert {entity["id"] for entity in made} == {SHOP, ORDERS}
    assert made[0]["attrs"] == {"port": 8443}
    added = next(event for event in said if event["type"] == "observation_add")
    assert added["observation"]["id"] == observation == "obs_5dNQbd6hsN2S"
    assert any(event.get("observationId") == observation for event in said)
    assert any(event.get("relation", {}).get("id") == "rel_jgTDOK1PPmiB" for event in said)
    assert any((e["type"], e.get("entityId")) == ("entity_delete", ORDERS) for e in said)


async def test_what_another_program_wrote_is_there_for_the_next_call(graph: Graphing) -> None:
    graph.banking.put(LOG, lines(*EVENTS))
    opened = await graph("open_nodes", nodes=[SHOP])
    assert [(e["id"], e["createdAt"]) for e in opened["entities"]] == [(SHOP, AT), (ORDERS, AT)]
    assert opened["observations"] == [EVENTS[3]["observation"]]
    assert opened["relations"] == [EVENTS[4]["relation"]]
    assert "warnings" not in opened


async def test_a_write_builds_upon_what_the_file_brings(graph: Graphing) -> None:
    graph.banking.put(LOG, lines(*EVENTS[:3]))
    await graph.observe(ORDERS, "Is large")
    with (graph.banking.folder / LOG).open("a", encoding="utf-8", newline="") as log:
        log.write(lines(*EVENTS[3:]))
    await graph("delete_observation", observationId="obs_5dNQbd6hsN2S")
    opened = await graph("open_nodes", nodes=["Shop API"])
    assert [o["text"] for o in opened["observations"]] == ["Is large"]
    assert len(opened["relations"]) == 1


async def test_what_is_wrong_with_the_file_is_said_once(graph: Graphing) -> None:
    graph.banking.put(LOG, "nothing of ours\n")
    made = await graph("upsert_entity", name="Ada", entityType="person")
    assert [warning["code"] for warning in made["warnings"]] == ["MARKER_MISMATCH"]
    (graph.banking.folder / LOG).unlink()
    (graph.banking.folder / "graph").rmdir()
    graph.banking.put("graph", "in the way")
    made = await graph("upsert_entity", name="Bob", entityType="person")
    assert [warning["code"] for warning in made["warnings"]] == ["graph_file_behind"]


async def test_new_things_are_told_without_reading_them_again(graph: Graphing) -> None:
    records = CountingRecords(graph.banking.records)
    bank = graph.banking
    offer(bank, records, GraphMirror(records, bank.library, bank.clock, mask=True, read_only=False))
    await graph.entity("Shop API", "service")
    records.begin()
    await graph.entity("Orders DB", "database")
    assert records.calls == {"scan": 1, "commit": 1}
    records.begin()
    await graph.entity("Orders DB", "database", size=3)
    assert records.calls == {"scan": 1, "commit": 1}
    assert [(event["entity"]["name"], event["entity"].get("attrs")) for event in events(graph)[1:]] == [
        ("Shop API", None),
        ("Orders DB", None),
        ("Orders DB", {"size": 3}),
    ]


class Reading(GraphMirror):
    """Takes nobody's word for what changed."""

    async def append_changes(
        self, bank: Bank, store: RecordStore | None = None, own: OwnChange | None = None
    ) -> list[ToolWarning]:
        return await super().append_changes(bank, store)


async def _tell(graph: Graphing, kind: type[GraphMirror]) -> str:
    bank = graph.banking
    mirror = kind(bank.records, bank.library, bank.clock, mask=True, read_only=False)
    offer(bank, bank.records, mirror)
    await graph.entity("Ada", "person")
    await graph.entity("Ada", "person", role="cook")
    await graph.entity("Bob", "person", role="chef")
    [bob] = [r for r in await (await graph.store()).scan(RecordFilter(kinds=(ENTITY,))) if r.name == "Bob"]
    # As another family may have it: one more of the same name and type.
    twin = replace(bob, id="twin", name="BOB", variant="=BOB", created_at=bank.clock())
    await (await graph.store()).commit(Batch((Insert(twin),), bank.clock(), "test"))
    await graph.entity("Bob", "person", role="owner")
    await graph.entity("Bob", "person", role="cook")
    await graph.observe("Ada", "likes tea", source="agent")
    await graph.observe("Ada", "likes milk", timestamp=AT)
    await graph.link("Ada", "knows", "Ada")
    await graph("delete_entity", entity="Ada")
    await graph.entity("Ada", "person")
    return bank.get(LOG)


async def test_what_a_call_did_is_told_in_the_words_that_reading_it_would_give(tmp_path: Path) -> None:
    told: list[str] = []
    for kind in (GraphMirror, Reading):
        async with graph_in(tmp_path / kind.__name__) as graph:
            told.append(await _tell(graph, kind))
    assert told[0] == told[1]
    assert told[0].count("entity_upsert") == 6


async def test_what_others_committed_before_a_call_is_told_with_it(graph: Graphing) -> None:
    await graph.entity("Ada", "person")
    at = graph.banking.clock()
    bob = build_entity("Bob", "person", "person", at)
    await (await graph.store()).commit(Batch((Insert(bob),), at, "test"))
    await graph.entity("Cleo", "person")
    assert [event["entity"]["name"] for event in events(graph)[1:]] == ["Ada", "Bob", "Cleo"]
