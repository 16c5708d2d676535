from typing import Any

import pytest

from assistant import Assistant, CountedChoice
from everkept.core.records import Batch, Insert, RecordLink, Ref
from everkept.core.sessions import ToolCall
from everkept.errors import InvalidInput
from everkept.families.memories.graph_walk import MAX_MEMORIES, MAX_SHARING_MEMORIES
from everkept.graph.entities import ENTITY
from records import DAY_ONE, batch, entity, link, memory


async def relate(assistant: Assistant, *edges: tuple[str, str, str], store: Any = None) -> None:
    """Entities of type `thing`, joined as the graph's tools would join them."""
    store = store or await assistant.choice.open_to_write(ToolCall(assistant.session, "test"), None)
    names = dict.fromkeys(name for source, _, target in edges for name in (source, target))
    known = {record.id for record in await store.get(list(names))}
    steps = [Insert(entity(name, variant="thing")) for name in names if name not in known]
    steps += [Insert(RecordLink(f"{s} {verb} {t}", s, verb, t, DAY_ONE)) for s, verb, t in edges]
    await store.commit(Batch(tuple(steps), DAY_ONE, "test"))


def names(answer: dict[str, Any]) -> list[str]:
    return [found["name"] for found in answer["entities"]]


def about(name: str, verb: str = "about") -> list[dict[str, str]]:
    return [{"name": name, "type": "thing", "relationship": verb}]


async def chain(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"), ("b", "uses", "c"), ("c", "uses", "d"), ("d", "uses", "e"))


@pytest.mark.parametrize(("depth", "met"), [(1, ["a", "b"]), (2, ["a", "b", "c"]), (3, ["a", "b", "c", "d"])])
async def test_each_hop_goes_one_entity_further(assistant: Assistant, depth: int, met: list[str]) -> None:
    await chain(assistant)
    walked = await assistant("search_knowledge_graph", entity="A", depth=depth)
    assert names(walked) == met
    assert walked["graph_stats"] == {
        "entities_traversed": depth + 1,
        "relationships_found": depth,
        "depth_reached": depth,
    }


async def test_relationships_are_seen_from_each_end(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"), ("c", "owns", "a"))
    walked = await assistant("search_knowledge_graph", entity="a")
    by_name = {found["name"]: found for found in walked["entities"]}
    assert by_name["a"] == {
        "name": "a",
        "type": "thing",
        "relationships": [
            {"type": "uses", "target": "b", "direction": "outgoing"},
            {"type": "owns", "target": "c", "direction": "incoming"},
        ],
        "memory_count": 0,
    }
    assert by_name["b"]["relationships"] == [{"type": "uses", "target": "a", "direction": "incoming"}]


@pytest.mark.parametrize(
    ("direction", "met"), [("outgoing", {"a", "b"}), ("incoming", {"a", "c"}), ("both", {"a", "b", "c"})]
)
async def test_the_direction_says_which_way_to_go(assistant: Assistant, direction: str, met: set[str]) -> None:
    await relate(assistant, ("a", "uses", "b"), ("c", "owns", "a"))
    walked = await assistant("search_knowledge_graph", entity="a", direction=direction)
    assert set(names(walked)) == met


async def test_a_relationship_type_filters_every_hop(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"), ("b", "owns", "c"), ("b", "Uses", "d"))
    walked = await assistant("search_knowledge_graph", entity="a", relationship_type="uses", depth=3)
    assert names(walked) == ["a", "b", "d"]


async def test_circles_end(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"), ("b", "uses", "a"), ("a", "uses", "a"))
    walked = await assistant("search_knowledge_graph", entity="a", depth=3)
    assert names(walked) == ["a", "b"]
    assert walked["graph_stats"]["relationships_found"] == 3


async def test_memories_about_the_entities_come_along(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"))
    near = await assistant.stored("Of a", related_entities=about("a"))
    far = await assistant.stored("Of b", importance=0.9, related_entities=about("b"))
    walked = await assistant("search_knowledge_graph", entity="a")
    assert [(m["id"], m["relevance_score"]) for m in walked["memories"]] == [(near, 1.0), (far, 0.5)]
    assert {found["name"]: found["memory_count"] for found in walked["entities"]} == {"a": 1, "b": 1}
    assert walked["graph_stats"]["relationships_found"] == 1
    assert all(len(found["relationships"]) == 1 for found in walked["entities"])
    bare = await assistant("search_knowledge_graph", entity="a", include_memories=False)
    assert bare["memories"] == []
    assert bare["entities"][0]["memory_count"] == 1
    assert (await assistant.recall("of a"))[0]["access_count"] == 1


async def test_another_sessions_memories_are_neither_shown_nor_counted(assistant: Assistant) -> None:
    await assistant.store("Mine", "session", related_entities=about("a"))
    other = await assistant.beside("two")("search_knowledge_graph", entity="a")
    assert (other["memories"], other["entities"][0]["memory_count"]) == ([], 0)
    mine = await assistant("search_knowledge_graph", entity="a")
    assert (len(mine["memories"]), mine["entities"][0]["memory_count"]) == (1, 1)


async def test_forgotten_memories_are_not_counted(assistant: Assistant) -> None:
    memory = await assistant.stored("Gone soon", related_entities=about("a"))
    await assistant("forget_memory", memory_id=memory)
    walked = await assistant("search_knowledge_graph", entity="a")
    assert (walked["memories"], walked["entities"][0]["memory_count"]) == ([], 0)


async def store_decision(assistant: Assistant, **more: Any) -> str:
    entities = [*about("Shop API", "decides"), *about("PostgreSQL", "uses")]
    return await assistant.stored("The Shop API uses PostgreSQL", related_entities=entities, **more)


async def test_a_memory_comes_with_its_links_to_entities(assistant: Assistant) -> None:
    await store_decision(assistant)
    walked = await assistant("search_knowledge_graph", entity="shop api")
    assert walked["memories"][0]["related_entities"] == [
        {"name": "Shop API", "type": "thing", "relationship": "decides"},
        {"name": "PostgreSQL", "type": "thing", "relationship": "uses"},
    ]


async def test_entities_that_share_a_memory_are_neighbors(assistant: Assistant) -> None:
    memory_id = await store_decision(assistant)
    for start, verb, other in (("Shop API", "uses", "PostgreSQL"), ("PostgreSQL", "decides", "Shop API")):
        walked = await assistant("search_knowledge_graph", entity=start)
        assert names(walked) == [start, other]
        assert walked["entities"][0]["relationships"] == [
            {"type": verb, "target": other, "direction": "outgoing", "memory_id": memory_id}
        ]
        assert walked["graph_stats"]["relationships_found"] == 1
    walked = await assistant("search_knowledge_graph", entity="PostgreSQL", direction="incoming")
    assert walked["entities"][0]["relationships"] == [
        {"type": "uses", "target": "Shop API", "direction": "incoming", "memory_id": memory_id}
    ]


async def test_a_shared_memory_of_another_session_makes_no_neighbors(assistant: Assistant) -> None:
    await assistant.store("Mine", "session", related_entities=[*about("a"), *about("b")])
    assert names(await assistant("search_knowledge_graph", entity="a")) == ["a", "b"]
    assert names(await assistant.beside("two")("search_knowledge_graph", entity="a")) == ["a"]
    typed = {"entity": "a", "relationship_type": "about"}
    assert names(await assistant.beside("two")("search_knowledge_graph", **typed)) == []


async def test_entities_with_a_relation_come_before_those_that_share_a_memory(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "z"))
    await assistant.stored("Of a, b and c", related_entities=[*about("a"), *about("b"), *about("c")])
    assert names(await assistant("search_knowledge_graph", entity="a")) == ["a", "z", "b", "c"]


@pytest.mark.parametrize(("verb", "met"), [("Uses", ["Shop API", "PostgreSQL"]), ("decides", ["Shop API"])])
async def test_a_relationship_type_selects_links_of_memories(assistant: Assistant, verb: str, met: list[str]) -> None:
    memory_id = await store_decision(assistant)
    await assistant.stored("The Shop API is old", related_entities=about("Shop API", "describes"))
    walked = await assistant("search_knowledge_graph", entity="Shop API", relationship_type=verb)
    assert names(walked) == met
    assert [m["id"] for m in walked["memories"]] == [memory_id]
    assert [each["memory_count"] for each in walked["entities"]] == [2, 1][: len(met)]


async def test_a_relationship_type_that_nothing_has_returns_nothing(assistant: Assistant) -> None:
    await store_decision(assistant)
    await relate(assistant, ("a", "uses", "b"))
    for start in ("Shop API", "a", None):
        walked = await assistant("search_knowledge_graph", entity=start, relationship_type="paints")
        assert (walked["entities"], walked["memories"]) == ([], [])
        assert walked["warnings"][0]["code"] == "no_such_relationship"


async def test_an_overview_keeps_only_entities_of_the_wanted_type(assistant: Assistant) -> None:
    await store_decision(assistant)
    await relate(assistant, ("a", "uses", "b"), ("c", "owns", "d"))
    walked = await assistant("search_knowledge_graph", relationship_type="uses")
    assert set(names(walked)) == {"Shop API", "PostgreSQL", "a", "b"}


async def test_memories_of_all_scopes_count_from_wherever_an_entity_is_reached(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"))
    await assistant.stored("The user on b", "user", related_entities=about("b"))
    await assistant.stored("The session on b", "session", related_entities=about("b"))
    await assistant.stored("The project on b", related_entities=about("b"))
    for start in ("a", "b"):
        walked = await assistant("search_knowledge_graph", entity=start)
        counts = {found["name"]: found["memory_count"] for found in walked["entities"]}
        assert counts == {"a": 0, "b": 3}
        assert len(walked["memories"]) == 3


async def test_a_forgotten_memory_keeps_its_links_until_it_is_purged(assistant: Assistant) -> None:
    memory_id = await store_decision(assistant)
    await assistant("update_memory", memory_id=memory_id, related_entities={"remove": ["PostgreSQL"]})
    await assistant("forget_memory", memory_id=memory_id, reason="wrong")
    wanted = {"entity": "Shop API", "include_forgotten": True}
    assert (await assistant("search_knowledge_graph", entity="Shop API"))["memories"] == []
    (found,) = (await assistant("search_knowledge_graph", **wanted))["memories"]
    stale = [{"name": "Shop API", "type": "thing", "relationship": "decides", "stale": True}]
    assert (found["id"], found["forgotten"], found["related_entities"]) == (memory_id, True, stale)
    recalled = await assistant.recall("shop", include_forgotten=True, explain=True)
    assert [memory["related_entities"] for memory in recalled] == [stale]
    store = await assistant.project_store()
    await store.purge([Ref("record", memory_id)])
    assert (await assistant("search_knowledge_graph", **wanted))["memories"] == []
    assert await store.scan_links(deleted=True) == []


async def test_a_promoted_memory_is_not_shown_as_forgotten(assistant: Assistant) -> None:
    memory_id = await store_decision(assistant)
    await assistant("promote_memory", memory_id=memory_id, target_scope="user")
    walked = await assistant("search_knowledge_graph", entity="Shop API", include_forgotten=True)
    assert [(m["id"], m.get("forgotten")) for m in walked["memories"]] == [(memory_id, None)]
    assert [each["memory_count"] for each in walked["entities"]] == [1, 1]


async def test_the_project_and_the_user_are_one_graph(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"))
    await relate(assistant, ("a", "likes", "z"), store=await assistant.library.open_user_store())
    await assistant.stored("The user on a", "user", related_entities=about("A"))
    walked = await assistant("search_knowledge_graph", entity="a")
    assert set(names(walked)) == {"a", "b", "z"}
    first = walked["entities"][0]
    assert [edge["type"] for edge in first["relationships"]] == ["uses", "likes"]
    assert first["memory_count"] == 1


async def test_without_an_entity_the_best_connected_come_first(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "hub"), ("b", "uses", "hub"), ("c", "uses", "hub"))
    await assistant.stored("Of b", related_entities=about("b"))
    overview = await assistant("search_knowledge_graph", limit=2)
    assert names(overview) == ["hub", "b"]
    assert overview["graph_stats"]["entities_traversed"] == 4
    assert [m["content"] for m in overview["memories"]] == ["Of b"]


async def test_a_part_of_a_name_finds_what_no_name_does(assistant: Assistant) -> None:
    await relate(assistant, ("AuthService", "uses", "TokenValidator"))
    walked = await assistant("search_knowledge_graph", query="authserv")
    assert names(walked) == ["AuthService", "TokenValidator"]


async def test_an_unknown_entity_is_said_to_be_unknown(assistant: Assistant) -> None:
    walked = await assistant("search_knowledge_graph", entity="nobody")
    assert walked["entities"] == []
    assert walked["warnings"][0]["code"] == "entity_not_found"


async def test_an_empty_graph_is_no_error(assistant: Assistant) -> None:
    walked = await assistant("search_knowledge_graph")
    assert walked == {
        "entities": [],
        "memories": [],
        "graph_stats": {"entities_traversed": 0, "relationships_found": 0, "depth_reached": 0},
    }


async def test_more_than_three_hops_are_refused(assistant: Assistant) -> None:
    for depth in (0, 4):
        with pytest.raises(InvalidInput):
            await assistant("search_knowledge_graph", entity="a", depth=depth)


async def test_summaries_and_their_sources_are_no_entities(assistant: Assistant) -> None:
    old = await assistant.stored("Port 8080 is used", related_entities=about("a"))
    await assistant.stored("Port 9090 is used", supersedes=old, related_entities=about("a"))
    walked = await assistant("search_knowledge_graph", entity="a", depth=3)
    assert names(walked) == ["a"]
    assert len(walked["memories"]) == 2
    store = await assistant.project_store()
    assert (await store.count_live())[ENTITY] == 1


async def test_of_many_memories_those_that_others_keep_to_themselves_are_not_counted(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"))
    store = await assistant.project_store()
    notes = [
        memory(f"{session} {number}", scope="session", session=f"session:{session}")
        for session in ("one", "two")
        for number in range(MAX_MEMORIES + 50)
    ]
    await store.commit(batch(*notes, *(link(note.id, "about", "a") for note in notes)))
    walked = await assistant("search_knowledge_graph", entity="a")
    counts = {found["name"]: found["memory_count"] for found in walked["entities"]}
    assert counts == {"a": MAX_MEMORIES + 50, "b": 0}


async def test_a_walk_reads_what_it_shows_however_much_there_is(assistant: Assistant) -> None:
    await relate(assistant, ("a", "uses", "b"))
    store = await assistant.project_store()
    texts = [f"m{number}" for number in range(3 * MAX_MEMORIES)]
    links = [link(text, "about", "a") for text in texts]
    await store.commit(batch(*map(memory, texts), *links))
    choice = CountedChoice(assistant.library)
    counted = Assistant(assistant.library, clock=assistant.clock, choice=choice)
    walked = await counted("search_knowledge_graph", entity="a", depth=3)
    assert [each["memory_count"] for each in walked["entities"]] == [len(texts), 0]
    # Asked for the first hop and for the answer, but read once.
    assert choice.given["count_sources"] == MAX_SHARING_MEMORIES + MAX_MEMORIES
    assert choice.given["scan"] == 1 + MAX_MEMORIES
    assert sum(choice.asked.values()) == 11
    choice.begin()
    await counted("search_knowledge_graph", entity="b", depth=1)
    assert choice.given["count_sources"] == MAX_MEMORIES
