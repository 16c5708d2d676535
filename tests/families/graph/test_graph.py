import json
from typing import Any

import pytest

from tool_calls import Client

TOKEN = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3cD6"
OTHER_TOKEN = TOKEN[:4] + TOKEN[:3:-1]
HOUSE, MASKED_HOUSE = f"House {TOKEN}", "House [masked: github token]"


def new(name: str, entity_type: str = "thing", *observations: str) -> dict[str, Any]:
    return {"name": name, "entity_type": entity_type, "observations": list(observations)}


def relation(source: str, verb: str, target: str) -> dict[str, str]:
    return {"from": source, "to": target, "relation_type": verb}


async def everything(client: Client) -> str:
    return json.dumps(await client("read_graph"))


async def test_secrets_in_names_and_types_are_masked_and_the_answer_says_so(graph: Client) -> None:
    made = await graph("create_entities", entities=[new(HOUSE, "kept by password=hunter2")])
    (entity,) = made["entities"]
    assert (entity["name"], entity["entity_type"]) == (MASKED_HOUSE, "kept by password=[masked: password]")
    (warning,) = made["warnings"]
    assert warning["code"] == "secret_masked"
    assert "github token, password" in warning["message"]
    again = await graph("create_entities", entities=[new(HOUSE, "kept by password=hunter2")])
    assert [e["created"] for e in again["entities"]] == [False]


async def test_a_secret_in_the_verb_of_a_relation_is_masked_and_the_answer_says_so(graph: Client) -> None:
    await graph("create_entities", entities=[new("a"), new("b")])
    asked = relation("a", f"opens with {TOKEN}", "b")
    made = await graph("create_relations", relations=[asked])
    assert [r["relation_type"] for r in made["relations"]] == ["opens with [masked: github token]"]
    assert [w["code"] for w in made["warnings"]] == ["secret_masked"]
    assert (await graph("create_relations", relations=[asked]))["existed"] == 1
    plain = await graph("create_relations", relations=[relation("a", "knows", "b")])
    assert set(plain) == {"relations", "existed"}


async def test_a_masked_entity_is_found_by_the_name_that_was_given(graph: Client) -> None:
    await graph("create_entities", entities=[new(HOUSE), new("b")])
    for name in (HOUSE, MASKED_HOUSE, f"{HOUSE} (thing)"):
        opened = await graph("open_nodes", names=[name])
        assert [e["name"] for e in opened["entities"]] == [MASKED_HOUSE]
    added = {"entity_name": HOUSE, "contents": [f"has {TOKEN}"]}
    assert (await graph("add_observations", observations=[added]))["observations"]
    made = await graph("create_relations", relations=[relation(HOUSE, "near", "b")])
    assert [r["from"] for r in made["relations"]] == [MASKED_HOUSE]
    deletion = {"entity_name": HOUSE, "observations": [f"has {TOKEN}"]}
    assert (await graph("delete_observations", deletions=[deletion]))["deleted"] == 1
    assert (await graph("delete_entities", names=[HOUSE]))["deleted"] == 1
    assert TOKEN not in await everything(graph)


async def test_a_relation_is_deleted_by_the_names_and_the_verb_that_were_given(graph: Client) -> None:
    await graph("create_entities", entities=[new(HOUSE), new("b")])
    asked = relation(HOUSE, f"opens with {TOKEN}", "b")
    await graph("create_relations", relations=[asked])
    assert (await graph("delete_relations", relations=[asked]))["deleted"] == 1


@pytest.fixture
async def filled(server_memory: Client) -> Client:
    """The other dialect with an entity and a relation that hold secrets wherever they can."""
    entity = {"name": HOUSE, "entityType": f"{TOKEN} shed", "observations": [f"has {TOKEN}"]}
    await server_memory("create_entities", entities=[entity])
    await server_memory("create_relations", relations=[end_to_end()])
    return server_memory


def end_to_end() -> dict[str, str]:
    return {"from": HOUSE, "to": f"Door {TOKEN}", "relationType": f"opens with {TOKEN}"}


async def test_the_other_dialect_stores_no_secret_and_logs_each_masking(
    filled: Client, caplog: pytest.LogCaptureFixture
) -> None:
    mask = "[masked: github token]"
    assert await filled("read_graph") == {
        "entities": [{"name": MASKED_HOUSE, "entityType": f"{mask} shed", "observations": [f"has {mask}"]}],
        "relations": [{"from": MASKED_HOUSE, "to": f"Door {mask}", "relationType": f"opens with {mask}"}],
    }
    assert sum("github token" in record.message for record in caplog.get_records("setup")) == 2


async def test_the_other_dialect_finds_what_is_masked_by_what_was_given(filled: Client) -> None:
    entity = {"name": HOUSE, "entityType": "thing", "observations": []}
    assert await filled("create_entities", entities=[entity]) == {"entities": []}
    assert await filled("create_relations", relations=[end_to_end()]) == {"relations": []}
    opened = await filled("open_nodes", names=[HOUSE])
    assert [e["name"] for e in opened["entities"]] == [MASKED_HOUSE]
    added = {"entityName": HOUSE, "contents": ["a door"]}
    results = (await filled("add_observations", observations=[added]))["results"]
    assert results == [{"entityName": MASKED_HOUSE, "addedObservations": ["a door"]}]
    await filled("delete_relations", relations=[end_to_end()])
    assert (await filled("read_graph"))["relations"] == []
    await filled("delete_entities", entityNames=[HOUSE])
    assert (await filled("read_graph"))["entities"] == []


async def test_ends_that_differ_in_their_secrets_alone_are_one_entity(server_memory: Client) -> None:
    ends = [f"Key {TOKEN}", f"Key {OTHER_TOKEN}"]
    made = await server_memory(
        "create_relations", relations=[{"from": end, "to": "Door", "relationType": "opens"} for end in ends]
    )
    key = "Key [masked: github token]"
    assert made["relations"] == [{"from": key, "to": "Door", "relationType": "opens"}]
