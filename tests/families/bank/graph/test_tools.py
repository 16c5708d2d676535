from typing import Any

import pytest

from bank_graph import Graphing
from everkept.errors import AmbiguousName, BankNotFound, InvalidInput, NotFound
from everkept.tools.tool import ToolWarning

SHOP = "ent_dCaO4uichTpa"
ORDERS = "ent_C38QptuQfgbA"


def relation(source: str, verb: str, target: str, **more: Any) -> dict[str, Any]:
    return {"from": source, "relationType": verb, "to": target, **more}


async def shop(graph: Graphing) -> None:
    """Two entities, an observation and a relation."""
    await graph.entity("Shop API", "service")
    await graph.entity("Orders DB", "database")
    await graph.observe("shop api", "Runs on port 8443", timestamp="2026-03-02T13:00:00Z")
    await graph.link("Shop API", "reads_from", "Orders DB")


async def test_an_entity_is_made_with_its_computed_id(graph: Graphing) -> None:
    made = await graph("upsert_entity", name="Shop API", entityType="service", attrs={"port": 8443})
    at = made["entity"]["createdAt"]
    assert made == {
        "success": True,
        "entity": {
            "id": SHOP,
            "name": "Shop API",
            "entityType": "service",
            "attrs": {"port": 8443},
            "createdAt": at,
            "updatedAt": at,
        },
    }


async def test_an_upsert_replaces_the_attributes_only_if_it_has_some(graph: Graphing) -> None:
    await graph.entity("Shop API", "service", port=8443, tier="gold")
    again = await graph("upsert_entity", name="shop api", entityType="Service", attrs={"a": [1]})
    assert again["entity"]["attrs"] == {"a": [1]}
    assert again["entity"]["name"] == "Shop API"
    assert again["entity"]["updatedAt"] > again["entity"]["createdAt"]
    without = await graph("upsert_entity", name="Shop API", entityType="service")
    assert without["entity"]["attrs"] == {"a": [1]}
    cleared = await graph("upsert_entity", name="Shop API", entityType="service", attrs={})
    assert "attrs" not in cleared["entity"]
    assert len(await graph.names("*")) == 1


async def test_an_upsert_that_changes_nothing_leaves_no_change(graph: Graphing) -> None:
    await graph.entity("Shop API", "service", port=8443)
    store = await graph.store()
    before = await store.get_revision()
    await graph.entity("Shop API", "service", port=8443)
    assert await store.get_revision() == before


async def test_one_name_with_another_type_is_another_entity(graph: Graphing) -> None:
    first = await graph.entity("Mercury", "planet")
    second = await graph.entity("Mercury", "element")
    assert first != second
    with pytest.raises(AmbiguousName) as caught:
        await graph.observe("mercury", "Is hot")
    assert {c["id"] for c in caught.value.facts["candidates"]} == {first, second}
    await graph.observe("Mercury (planet)", "Is hot")
    await graph.observe(second, "Is liquid")
    opened = await graph("open_nodes", nodes=[first, second])
    assert {(o["entityId"], o["text"]) for o in opened["observations"]} == {(first, "Is hot"), (second, "Is liquid")}


async def test_an_observation_has_its_computed_id_source_and_time(graph: Graphing) -> None:
    await graph.entity("Shop API", "service")
    added = await graph("add_observation", entity=SHOP, text="Runs on port 8443", timestamp="2026-03-02T14:00:00+01:00")
    assert added == {
        "success": True,
        "observation": {
            "id": "obs_5dNQbd6hsN2S",
            "entityId": SHOP,
            "text": "Runs on port 8443",
            "source": {"kind": "manual"},
            "timestamp": "2026-03-02T13:00:00.000Z",
        },
    }


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("Agent", {"kind": "agent"}),
        ("import", {"kind": "import"}),
        ("", {"kind": "manual"}),
        ("code review", {"kind": "manual", "ref": "code review"}),
    ],
)
async def test_any_word_is_a_source(graph: Graphing, word: str, source: dict[str, str]) -> None:
    await graph.entity("Shop API", "service")
    added = await graph("add_observation", entity="Shop API", text="x", source=word)
    assert added["observation"]["source"] == source
    opened = await graph("open_nodes", nodes=["Shop API"])
    assert opened["observations"] == [added["observation"]]


async def test_a_text_is_observed_once_and_another_time_for_it_is_a_warning(graph: Graphing) -> None:
    await graph.entity("Shop API", "service")
    first = await graph("add_observation", entity="Shop API", text="Is up", timestamp="2026-01-01")
    for more in ({}, {"timestamp": "2026-01-01T00:00:00Z", "source": "agent"}):
        assert await graph("add_observation", entity="Shop API", text="Is up", **more) == first
    later = await graph("add_observation", entity="Shop API", text="Is up", timestamp="2026-02-01")
    assert later["observation"] == first["observation"]
    assert [warned["code"] for warned in later["warnings"]] == ["observation_exists"]
    assert (await graph("open_nodes", nodes=["Shop API"]))["observations"] == [first["observation"]]


async def test_a_relation_is_made_once_whatever_the_case_of_its_type(graph: Graphing) -> None:
    await shop(graph)
    again = await graph("link_entities", **relation(SHOP, "Reads_From", "orders db (Database)"))
    assert again["relation"] == {
        "id": "rel_jgTDOK1PPmiB",
        "fromId": SHOP,
        "toId": ORDERS,
        "relationType": "reads_from",
        "createdAt": again["relation"]["createdAt"],
    }
    assert len((await graph("open_nodes", nodes=[SHOP]))["relations"]) == 1


async def test_unlinking_is_the_other_action_and_a_tool_of_its_own(graph: Graphing) -> None:
    await shop(graph)
    asked = relation("Shop API", "READS_FROM", "Orders DB")
    assert await graph("link_entities", **asked, action="unlink") == {"success": True, "action": "unlink", **asked}
    assert (await graph("open_nodes", nodes=[SHOP]))["relations"] == []
    await graph.link("Shop API", "reads_from", "Orders DB")
    assert await graph("unlink_entities", **asked) == {"success": True}
    assert await graph("unlink_entities", **asked) == {"success": True}
    assert (await graph("open_nodes", nodes=[SHOP]))["relations"] == []


async def test_both_ends_of_a_relation_must_be_there(graph: Graphing) -> None:
    await graph.entity("Shop API", "service")
    for tool in ("link_entities", "unlink_entities"):
        with pytest.raises(NotFound, match='Source entity not found: "nobody"'):
            await graph(tool, **relation("nobody", "uses", "Shop API"))
        with pytest.raises(NotFound, match='Target entity not found: "nobody"'):
            await graph(tool, **relation("Shop API", "uses", "nobody"))


async def test_an_observation_of_nobody_says_how_to_make_somebody(graph: Graphing) -> None:
    with pytest.raises(NotFound) as caught:
        await graph.observe("nobody", "Is there")
    assert str(caught.value) == ('Entity not found: "nobody". Create it first with graph_upsert_entity.')


@pytest.mark.parametrize("name", ["api", "Shop", "ent_AAAAAAAAAAAA", "Shop API (database)"])
async def test_nothing_is_deleted_by_a_part_of_its_name(graph: Graphing, name: str) -> None:
    await shop(graph)
    with pytest.raises(NotFound):
        await graph("delete_entity", entity=name)
    assert len(await graph.names("*")) == 2


@pytest.mark.parametrize("name", ["shop  api", SHOP, "Shop API (service)"])
async def test_an_entity_goes_with_its_observations_and_relations(graph: Graphing, name: str) -> None:
    await shop(graph)
    deleted = await graph("delete_entity", entity=name)
    assert deleted == {"success": True, "message": f'Entity "{name}" deleted.'}
    found = await graph.search("*")
    assert [e["name"] for e in found["entities"]] == ["Orders DB"]
    assert found["observations"] == []
    assert found["relations"] == []


async def test_an_observation_is_deleted_by_its_id_in_both_tools(graph: Graphing) -> None:
    await graph.entity("Shop API", "service")
    first, second, third = [await graph.observe(SHOP, text) for text in ("one", "two", "three")]
    deleted = await graph("delete_observation", observationId=first)
    assert deleted == {"success": True, "message": f'Observation "{first}" deleted.'}
    await graph("delete_entity", observationId=second)
    await graph("delete_entity", entity="Shop API", observationId=third)
    opened = await graph("open_nodes", nodes=[SHOP])
    assert opened["observations"] == []
    assert [e["id"] for e in opened["entities"]] == [SHOP]
    with pytest.raises(NotFound):
        await graph("delete_observation", observationId=first)


async def test_an_observation_of_another_entity_is_not_deleted(graph: Graphing) -> None:
    await shop(graph)
    with pytest.raises(NotFound, match='at entity "Orders DB"'):
        await graph("delete_entity", entity="Orders DB", observationId="obs_5dNQbd6hsN2S")
    assert len((await graph("open_nodes", nodes=[SHOP]))["observations"]) == 1


async def test_deleting_needs_to_know_what(graph: Graphing) -> None:
    with pytest.raises(InvalidInput, match="Specify `entity` or `observationId`"):
        await graph("delete_entity")


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("upsert_entity", {"name": " ", "entityType": "x"}),
        ("upsert_entity", {"name": "a\nb", "entityType": "x"}),
        ("upsert_entity", {"name": "a", "entityType": ""}),
        ("upsert_entity", {"name": "a", "entityType": "b", "attrs": [1]}),
        ("upsert_entity", {"name": "a" * 501, "entityType": "b"}),
        ("add_observation", {"entity": "Shop API", "text": "\n"}),
        ("add_observation", {"entity": "Shop API", "text": "x", "timestamp": "soon"}),
        ("link_entities", relation("Shop API", "", "Shop API")),
        ("link_entities", relation("Shop API", "a\tb", "Shop API")),
        ("link_entities", relation("Shop API", "x", "Shop API", action="tie")),
        ("search", {}),
        ("search", {"query": "x", "limit": 0}),
        ("search", {"query": "x", "limit": 101}),
        ("search", {"query": "x", "limit": 1.5}),
        ("search", {"query": "x", "neighborhoodDepth": 3}),
        ("open_nodes", {"nodes": []}),
        ("open_nodes", {"nodes": ["Shop API"], "depth": 0}),
        ("delete_observation", {}),
    ],
)
async def test_wrong_arguments_are_refused_and_change_nothing(
    graph: Graphing, tool: str, arguments: dict[str, Any]
) -> None:
    await graph.entity("Shop API", "service")
    store = await graph.store()
    before = await store.get_revision()
    with pytest.raises(InvalidInput):
        await graph(tool, **arguments)
    assert await store.get_revision() == before


ANY_CALL: dict[str, dict[str, Any]] = {
    "search": {"query": "*"},
    "upsert_entity": {"name": "a", "entityType": "b"},
    "add_observation": {"entity": "a", "text": "x"},
    "link_entities": relation("a", "is", "a"),
    "unlink_entities": relation("a", "is", "a"),
    "open_nodes": {"nodes": ["a"]},
    "delete_observation": {"observationId": "obs_x"},
    "delete_entity": {"entity": "a"},
}


@pytest.mark.parametrize("tool", ANY_CALL)
async def test_an_unknown_store_is_an_error_and_never_the_active_one(graph: Graphing, tool: str) -> None:
    await graph.entity("a", "b")
    with pytest.raises(NotFound) as caught:
        await graph(tool, **ANY_CALL[tool], storeId="elsewhere")
    assert caught.value.facts["kind"] == "store"
    assert await graph.names("*") == ["a"]


@pytest.mark.parametrize("tool", ANY_CALL)
async def test_without_a_bank_there_is_no_graph(graph: Graphing, tool: str) -> None:
    graph.banking.folder.rename(graph.banking.folder.with_name("moved"))
    with pytest.raises(BankNotFound):
        await graph(tool, **ANY_CALL[tool])


async def test_the_mirror_is_met_by_every_call_and_follows_every_write(graph: Graphing) -> None:
    await graph.entity("a", "b")
    observed = await graph.observe("a", "x")
    calls = ANY_CALL | {"delete_observation": {"observationId": observed}}
    graph.mirror.met = graph.mirror.times_followed = 0
    for tool, arguments in calls.items():
        await graph(tool, **arguments)
    assert graph.mirror.met == len(calls)
    assert graph.mirror.times_followed == len(calls) - 2  # the reading ones


async def test_what_the_mirror_warns_of_is_in_every_answer(graph: Graphing) -> None:
    graph.mirror.says = [ToolWarning("bad_line", "Line 3 was skipped.")]
    for tool in ("upsert_entity", "search", "open_nodes"):
        answer = await graph(tool, **ANY_CALL[tool])
        assert answer["warnings"] == [{"code": "bad_line", "message": "Line 3 was skipped."}]


async def test_the_tools_come_in_a_fixed_order_and_say_what_they_do(graph: Graphing) -> None:
    tools = [tool for tool in graph.banking.tools if tool.name != "graph_add_doc_pointer"]
    assert {tool.name.removeprefix("graph_"): tool.effect.name for tool in tools} == {
        "search": "READS",
        "upsert_entity": "REPEATABLE",
        "add_observation": "REPEATABLE",
        "link_entities": "REPEATABLE",
        "unlink_entities": "DESTROYS",
        "open_nodes": "READS",
        "delete_entity": "DESTROYS",
        "delete_observation": "DESTROYS",
    }
