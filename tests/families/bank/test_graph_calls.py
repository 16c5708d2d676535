import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from graphing import Graphing, graph_in, offer
from recollect.families.bank.mirror import Mirror

LOG = "graph/graph.jsonl"
SHOP, ORDERS = "ent_dCaO4uichTpa", "ent_C38QptuQfgbA"
AT = "2026-03-02T13:00:00.000Z"
# As another program leaves it.
EVENTS: list[dict[str, Any]] = [
    {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"},
    *(
        {
            "type": "entity_upsert",
            "entity": {
                "id": entity,
                "name": name,
                "entityType": kind,
                "createdAt": AT,
                "updatedAt": AT,
            },
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


@pytest.fixture(params=["memory", "sqlite"])
async def graph(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Graphing, None]:
    """A graph with its mirror."""
    async with graph_in(tmp_path, request.param) as made:
        bank = made.banking
        mirror = Mirror(bank.records, bank.library, bank.clock, mask=True, read_only=False)
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
