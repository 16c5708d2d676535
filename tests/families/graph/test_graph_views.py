from everkept.engines.memory.store import MemoryStore
from everkept.families.graph.graph import read_entity_views, read_graph_page
from everkept.families.graph.server_memory import read_whole_graph
from records import batch, entity, link, memory


async def shared_store() -> MemoryStore:
    """Two entities with a relation, and a memory that is about both."""
    store = MemoryStore()
    await store.commit(
        batch(
            entity("API"),
            entity("Billing"),
            memory("The API calls billing"),
            memory("It did so before"),
            link("API", "calls", "Billing"),
            link("The API calls billing", "about", "API"),
            link("The API calls billing", "about", "Billing"),
            link("The API calls billing", "derived_from", "It did so before"),
        )
    )
    return store


async def test_a_link_from_a_memory_is_no_relation_of_an_entity() -> None:
    store = await shared_store()
    for view in await read_entity_views(store, ["API", "Billing"]):
        assert [(r["from"], r["relation_type"], r["to"]) for r in view["relations"]] == [("API", "calls", "Billing")]


async def test_pages_hold_entities_and_their_relations_alone() -> None:
    store = await shared_store()
    page = await read_graph_page(store, limit=None, cursor=None)
    assert [view["name"] for view in page["entities"]] == ["API", "Billing"]
    assert [relation["relation_type"] for relation in page["relations"]] == ["calls"]
    assert "next_cursor" not in page
    first = await read_graph_page(store, limit=1, cursor=None)
    assert (len(first["entities"]), len(first["relations"])) == (1, 1)
    assert first["next_cursor"]


async def test_the_other_dialect_shows_no_memories_either() -> None:
    graph = await read_whole_graph(await shared_store())
    assert graph["relations"] == [{"from": "API", "to": "Billing", "relationType": "calls"}]


async def test_the_relations_of_nothing_are_none() -> None:
    assert await read_entity_views(MemoryStore(), []) == []
