import json

import pytest

from everkept.errors import NotFound
from tool_calls import Client

ADA = {"name": "Ada", "entityType": "person", "observations": ["likes maths"]}
KNOWS = {"from": "Ada", "to": "Bob", "relationType": "knows"}


async def test_the_nine_tools_of_that_server_are_offered(server_memory: Client) -> None:
    assert {tool.name for tool in server_memory.app.tools} == {
        "create_entities",
        "create_relations",
        "add_observations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "read_graph",
        "search_nodes",
        "open_nodes",
    }


async def test_a_first_write_needs_no_project(server_memory: Client) -> None:
    assert await server_memory("read_graph") == {"entities": [], "relations": []}
    assert await server_memory("create_entities", entities=[ADA]) == {"entities": [ADA]}
    assert await server_memory("read_graph") == {"entities": [ADA], "relations": []}
    assert [p.name for p in await server_memory.app.library.list_projects()] == ["default"]


async def test_the_text_is_the_bare_list_where_that_server_gives_one(server_memory: Client) -> None:
    assert json.loads(await server_memory.text("create_entities", entities=[ADA])) == [ADA]
    added = await server_memory.text(
        "add_observations", observations=[{"entityName": "Ada", "contents": ["likes maths", "x"]}]
    )
    assert json.loads(added) == [{"entityName": "Ada", "addedObservations": ["x"]}]


async def test_names_that_exist_are_left_as_they_are(server_memory: Client) -> None:
    await server_memory("create_entities", entities=[ADA])
    again = ADA | {"entityType": "robot", "observations": ["new"]}
    assert await server_memory("create_entities", entities=[again]) == {"entities": []}
    assert (await server_memory("read_graph"))["entities"] == [ADA]


async def test_a_name_is_exactly_what_is_written(server_memory: Client) -> None:
    small = ADA | {"name": "ada"}
    assert await server_memory("create_entities", entities=[ADA, small]) == {"entities": [ADA, small]}
    opened = await server_memory("open_nodes", names=["ada"])
    assert [entity["name"] for entity in opened["entities"]] == ["ada"]


async def test_blanks_around_a_name_belong_to_it(server_memory: Client) -> None:
    padded = ADA | {"name": " Ada "}
    assert await server_memory("create_entities", entities=[ADA, padded]) == {"entities": [ADA, padded]}
    opened = await server_memory("open_nodes", names=[" Ada "])
    assert opened["entities"] == [padded]


async def test_a_relation_may_come_before_its_ends(server_memory: Client) -> None:
    await server_memory("create_entities", entities=[ADA])
    assert await server_memory("create_relations", relations=[KNOWS, KNOWS]) == {"relations": [KNOWS]}
    assert await server_memory("read_graph") == {"entities": [ADA], "relations": [KNOWS]}
    with pytest.raises(NotFound) as caught:
        await server_memory("add_observations", observations=[{"entityName": "Bob", "contents": ["x"]}])
    assert str(caught.value) == "Entity with name Bob not found"
    bob = {"name": "Bob", "entityType": "person", "observations": ["x"]}
    assert await server_memory("create_entities", entities=[bob]) == {"entities": [bob]}
    assert await server_memory("read_graph") == {"entities": [ADA, bob], "relations": [KNOWS]}


async def test_a_search_finds_text_anywhere_and_the_relations_at_it(server_memory: Client) -> None:
    bob = {"name": "Bob", "entityType": "person", "observations": []}
    await server_memory("create_entities", entities=[ADA, bob])
    await server_memory("create_relations", relations=[KNOWS])
    for query in ("ATHS", "ikes ma", "Ada"):
        assert await server_memory("search_nodes", query=query) == {"entities": [ADA], "relations": [KNOWS]}
    found = await server_memory("search_nodes", query="maths that she likes")
    assert [entity["name"] for entity in found["entities"]] == ["Ada"]


async def test_deleting_answers_with_that_servers_sentences(server_memory: Client) -> None:
    await server_memory("create_entities", entities=[ADA])
    await server_memory("create_relations", relations=[KNOWS])
    gone = {"entityName": "Nobody", "observations": ["x"]}
    done = await server_memory("delete_observations", deletions=[gone])
    assert done == {"success": True, "message": "Observations deleted successfully"}
    text = await server_memory.text("delete_relations", relations=[KNOWS])
    assert text == "Relations deleted successfully"
    text = await server_memory.text("delete_entities", entityNames=["Ada", "Nobody"])
    assert text == "Entities deleted successfully"
    assert await server_memory("read_graph") == {"entities": [], "relations": []}


async def test_a_secret_is_masked_with_a_line_in_the_log_and_the_same_shape(
    server_memory: Client, caplog: pytest.LogCaptureFixture
) -> None:
    token = "gh" + "p_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3cD6"
    given = ADA | {"observations": [f"uses {token}"]}
    stored = ADA | {"observations": ["uses [masked: github token]"]}
    assert await server_memory("create_entities", entities=[given]) == {"entities": [stored]}
    addition = {"entityName": "Ada", "contents": [f"and {token}"]}
    added = await server_memory("add_observations", observations=[addition])
    assert added["results"][0]["addedObservations"] == ["and [masked: github token]"]
    assert sum("github token" in message for message in caplog.messages) == 2
    deletion = {"entityName": "Ada", "observations": [f"uses {token}", f"and {token}"]}
    await server_memory("delete_observations", deletions=[deletion])
    assert (await server_memory("read_graph"))["entities"] == [ADA | {"observations": []}]
