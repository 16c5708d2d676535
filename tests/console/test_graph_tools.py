from typing import Any

import pytest

from console_calls import ConsoleClient


@pytest.fixture
async def graph(client: ConsoleClient) -> ConsoleClient:
    """API between Web and DB, with Ada who knows none of them."""
    rows = [("API", "service"), ("Web", "service"), ("DB", "database"), ("Ada", "person")]
    entities = [{"name": name, "entityType": kind, "observations": [f"about {name}"]} for name, kind in rows]
    await client.call("create_entities", entities=entities, project="shop")
    relations = [("Web", "calls", "API"), ("API", "reads", "DB")]
    await client.call(
        "create_relations",
        relations=[{"from": one, "relationType": verb, "to": other} for one, verb, other in relations],
        project="shop",
    )
    return client


async def find(graph: ConsoleClient, name: str) -> str:
    return (await graph.call("find_entity", project="shop", name=name))["entity"]["id"]


def read_links(outline: dict[str, Any]) -> set[tuple[str, str, str]]:
    names, verbs, flat = outline["names"], outline["verbs"], outline["links"]
    return {(names[flat[at]], verbs[flat[at + 2]], names[flat[at + 1]]) for at in range(0, len(flat), 3)}


async def test_an_outline_has_names_and_links_but_no_texts(graph: ConsoleClient) -> None:
    outline = await graph.call("outline_graph", project="shop")
    assert outline["names"][0] == "API"  # the one with the most links
    assert sorted(outline["names"]) == ["API", "Ada", "DB", "Web"]
    assert read_links(outline) == {("Web", "calls", "API"), ("API", "reads", "DB")}
    kinds = {name: outline["types"][at] for name, at in zip(outline["names"], outline["type_of"], strict=True)}
    assert kinds == {"API": "service", "Web": "service", "DB": "database", "Ada": "person"}
    assert (outline["total"], outline["total_links"]) == (4, 2)
    assert "about" not in str(outline)


async def test_every_outline_counts_the_same_links(graph: ConsoleClient) -> None:
    await graph.remember("The API is slow on Mondays.", related_entities=[{"name": "API"}])
    near = await graph.call("outline_graph", project="shop", around=await find(graph, "API"))
    whole = await graph.call("outline_graph", project="shop")
    degrees = [dict(zip(each["names"], each["degrees"], strict=True)) for each in (near, whole)]
    assert degrees[0] == {name: count for name, count in degrees[1].items() if name in degrees[0]}


async def test_a_part_of_a_graph_says_how_large_the_whole_is(graph: ConsoleClient) -> None:
    outline = await graph.call("outline_graph", project="shop", limit=1)
    assert (outline["names"], outline["links"], outline["degrees"]) == (["API"], [], [2])
    assert (outline["total"], outline["total_links"]) == (4, 2)


async def test_surroundings_end_after_so_many_steps(graph: ConsoleClient) -> None:
    web = await find(graph, "Web")
    near = await graph.call("outline_graph", project="shop", around=web, hops=1)
    assert sorted(near["names"]) == ["API", "Web"]
    far = await graph.call("outline_graph", project="shop", around=web, hops=2)
    assert sorted(far["names"]) == ["API", "DB", "Web"]
    assert far["total"] == 4
    assert await graph.refused("outline_graph", project="shop", around="nothing") == "not_found"


async def test_an_entity_is_read_with_everything_about_it(graph: ConsoleClient) -> None:
    await graph.remember("The API is slow on Mondays.", related_entities=[{"name": "API"}])
    found = await graph.call("read_graph_entity", project="shop", entity_id=await find(graph, "api"))
    assert found["entity"]["name"] == "API"
    assert [each["text"] for each in found["observations"]] == ["about API"]
    relations = {(each["outgoing"], each["verb"], each["entity"]["name"]) for each in found["relations"]}
    assert relations == {(True, "reads", "DB"), (False, "calls", "Web")}
    assert [each["text"] for each in found["memories"]] == ["The API is slow on Mondays."]


async def test_entities_are_found_by_a_part_of_their_name(graph: ConsoleClient) -> None:
    found = await graph.call("find_entities", project="shop", text="ap")
    assert [each["name"] for each in found["entities"]] == ["API"]
    assert await graph.refused("find_entity", project="shop", name="AP") == "not_found"


async def test_an_account_sees_no_graph_of_others(graph: ConsoleClient) -> None:
    token = await graph.create_account("mira")
    api = await find(graph, "API")
    assert await graph.refused("outline_graph", token=token, project="shop") == "not_found"
    assert await graph.refused("read_graph_entity", token=token, project="shop", entity_id=api) == "not_found"
