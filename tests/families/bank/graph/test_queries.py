from itertools import pairwise
from typing import Any

import pytest

from bank_graph import Graphing
from everkept.core.records import RecordFilter
from everkept.errors import AmbiguousName, NotFound
from everkept.families.bank.graph import queries
from everkept.graph.entities import ENTITY
from records import batch, entity, link, memory


async def chain(graph: Graphing, *names: str) -> None:
    """Entities, each of which leads to the next."""
    for name in names:
        await graph.entity(name)
    for source, target in pairwise(names):
        await graph.link(source, "leads to", target)


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [item["text"] for item in found]


async def test_entities_are_ordered_by_how_literally_they_have_the_query(graph: Graphing) -> None:
    await graph.entity("Reporting", "job", owner="the api team")
    await graph.entity("Rapid", "service")
    await graph.entity("The API", "service")
    await graph.entity("Billing", "api")
    await graph.entity("API gateway", "service")
    await graph.entity("api", "service")
    await graph.entity("Unrelated", "service")
    # 100, then by name a prefix of 80 and a type of 0.8 * 100, then 60, 40 and 0.6 * 60.
    assert await graph.names("Api") == ["api", "API gateway", "Billing", "The API", "Rapid", "Reporting"]
    assert await graph.names("api", limit=2) == ["api", "API gateway"]


async def test_words_that_stand_apart_find_what_has_all_of_them(graph: Graphing) -> None:
    await graph.entity("Orders replica of Frankfurt", "database")
    await graph.entity("Orders", "database")
    await graph.observe("Orders", "Frankfurt copies them")
    await graph.observe("Orders", "Were late in May")
    await graph.entity("Mail", "queue")
    await graph.observe("Mail", "Frankfurt is slow")
    found = await graph.search("orders of frankfurt")
    assert [e["name"] for e in found["entities"]] == ["Orders replica of Frankfurt", "Orders"]
    assert texts(found["observations"]) == ["Frankfurt copies them"]


async def test_one_of_the_words_is_not_enough_where_something_has_all(graph: Graphing) -> None:
    await graph.entity("Orders replica of Frankfurt", "database")
    await graph.entity("Mail", "queue")
    await graph.observe("Mail", "Frankfurt is slow")
    found = await graph.search("frankfurt orders")
    assert [e["name"] for e in found["entities"]] == ["Orders replica of Frankfurt"]
    assert found["observations"] == []
    assert texts((await graph.search("frankfurt quickly"))["observations"]) == ["Frankfurt is slow"]


async def test_a_query_spread_over_an_entity_and_its_observation_finds_both(graph: Graphing) -> None:
    await graph.entity("Shop API", "service")
    await graph.entity("Port of Hamburg", "place")
    await graph.observe("Shop API", "Runs on port 8443")
    await graph.observe("Shop API", "Written in Go")
    found = await graph.search("shop port")
    assert [e["name"] for e in found["entities"]] == ["Shop API"]
    assert texts(found["entities"][0]["observations"]) == ["Runs on port 8443"]
    assert texts(found["observations"]) == ["Runs on port 8443"]


async def test_what_only_an_observation_says_lists_the_observation_alone(graph: Graphing) -> None:
    shop = await graph.entity("Shop API", "service")
    await graph.observe("Shop API", "Runs on port 8443", timestamp="2026-03-02T13:00:00Z")
    found = await graph.search("port 8443")
    observation = found["observations"][0]["id"]
    assert found == {
        "query": "port 8443",
        "entities": [],
        "observations": [
            {
                "id": observation,
                "text": "Runs on port 8443",
                "entityId": shop,
                "entityName": "Shop API",
                "timestamp": "2026-03-02T13:00:00.000Z",
            }
        ],
        "relations": [],
    }
    await graph("delete_observation", observationId=observation)
    assert (await graph.search("port 8443"))["observations"] == []


async def test_observations_with_the_very_text_come_first(graph: Graphing) -> None:
    await graph.entity("Shop", "service")
    for text in ("Exports reports", "A port is open", "Port", "Port 80 is closed", "Ports vary"):
        await graph.observe("Shop", text)
    assert texts((await graph.search("port"))["observations"]) == [
        "Port",
        "Ports vary",
        "Port 80 is closed",
        "A port is open",
        "Exports reports",
    ]
    assert len((await graph.search("port", limit=2))["observations"]) == 2


async def test_an_entity_shows_what_was_matched_else_its_five_newest(graph: Graphing) -> None:
    await graph.entity("Shop", "service")
    for day in (3, 1, 7, 5, 2, 6, 4):
        await graph.observe("Shop", f"Day {day}", timestamp=f"2026-03-0{day}")
    await graph.observe("Shop", "The shop opened", timestamp="2025-01-01")
    by_name = (await graph.search("sho"))["entities"][0]
    assert texts(by_name["observations"]) == ["The shop opened"]
    by_type = (await graph.search("service"))["entities"][0]
    assert texts(by_type["observations"]) == ["Day 7", "Day 6", "Day 5", "Day 4", "Day 3"]


@pytest.mark.parametrize("query", ["*", "", "  "])
async def test_a_star_or_nothing_lists_everything_up_to_the_limit(graph: Graphing, query: str) -> None:
    await chain(graph, "a", "b", "c")
    await graph.observe("a", "first")
    await graph.observe("b", "second")
    found = await graph.search(query, limit=2)
    assert found["query"] == query
    assert [e["name"] for e in found["entities"]] == ["c", "b"]
    assert texts(found["observations"]) == ["second", "first"]
    assert found["relations"] == [{"from": "b", "to": "c", "relationType": "leads to"}]


@pytest.mark.parametrize("query", ['"', "a AND", "(", "%", "[x", "NOT", "ent_", "\\", "a*b"])
async def test_no_query_is_an_error(graph: Graphing, query: str) -> None:
    await graph.entity("thing", "kind")
    assert (await graph.search(query))["query"] == query


async def test_a_found_entity_brings_its_neighbourhood_on_request(graph: Graphing) -> None:
    await chain(graph, "one", "two", "three", "four")
    assert await graph.names("one") == ["one"]
    near = await graph.search("one", includeNeighborhood=True)
    assert [e["name"] for e in near["entities"]] == ["one", "two"]
    assert near["relations"] == [{"from": "one", "to": "two", "relationType": "leads to"}]
    assert await graph.names("one", includeNeighborhood=True, neighborhoodDepth=2) == ["one", "two", "three"]


async def test_opened_nodes_come_with_what_lies_one_or_two_hops_away(graph: Graphing) -> None:
    await chain(graph, "one", "two", "three", "four", "one")
    await graph.observe("four", "Is last")
    near = await graph("open_nodes", nodes=["one"])
    assert {e["name"] for e in near["entities"]} == {"one", "two", "four"}
    assert near["entities"][0]["name"] == "one"
    assert texts(near["observations"]) == ["Is last"]
    assert len(near["relations"]) == 2
    far = await graph("open_nodes", nodes=["one"], depth=2)
    assert {e["name"] for e in far["entities"]} == {"one", "two", "three", "four"}
    assert len(far["relations"]) == 4


async def test_an_entity_related_to_itself_is_opened_once(graph: Graphing) -> None:
    await chain(graph, "one", "one")
    opened = await graph("open_nodes", nodes=["one", "ONE", "one (thing)"], depth=2)
    assert len(opened["entities"]) == 1
    assert len(opened["relations"]) == 1


async def test_known_nodes_are_opened_and_the_others_are_listed(graph: Graphing) -> None:
    await graph.entity("known")
    opened = await graph("open_nodes", nodes=["first", "known", "ent_AAAAAAAAAAAA", "second"])
    assert [entity["name"] for entity in opened["entities"]] == ["known"]
    assert opened["notFound"] == ["first", "ent_AAAAAAAAAAAA", "second"]
    with pytest.raises(NotFound) as caught:
        await graph("open_nodes", nodes=["first", "ent_AAAAAAAAAAAA", "second"])
    assert caught.value.message == ("Some entities not found: first, ent_AAAAAAAAAAAA, second.")


async def test_more_neighbours_than_fit_are_left_out_with_a_warning(
    graph: Graphing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_NODES", 3)
    for name in ("one", "two", "three", "four"):
        await graph.entity(name)
        await graph.link("one", "knows", name)
    opened = await graph("open_nodes", nodes=["one"])
    assert [e["name"] for e in opened["entities"]] == ["one", "two", "three"]
    assert opened["warnings"][0]["code"] == "too_many_entities"
    assert "1 connected" in opened["warnings"][0]["message"]


async def test_links_of_other_families_are_no_relations(graph: Graphing) -> None:
    await graph.entity("Shop", "service")
    store = await graph.store()
    (shop,) = await store.scan(RecordFilter(kinds=(ENTITY,)))
    await store.commit(batch(memory("thought"), link("thought", "about", shop.id)))
    opened = await graph("open_nodes", nodes=["Shop"], depth=2)
    assert [e["name"] for e in opened["entities"]] == ["Shop"]
    assert opened["relations"] == []
    assert (await graph.search("thought"))["observations"] == []


async def test_spellings_that_only_an_exact_dialect_tells_apart_are_listed_with_ids_of_their_own(
    graph: Graphing,
) -> None:
    store = await graph.store()
    ids = [f"0000000{n}-0000-0000-0000-000000000000" for n in range(2)]
    spelled = [("Shop", ids[0]), ("shop", ids[1])]
    await store.commit(batch(*(entity(name, id=own, name_key="shop", variant=f"={name}") for name, own in spelled)))
    public = (await graph.search("shop"))["entities"][0]["id"]
    for name in ("SHOP", public):
        assert len((await graph("open_nodes", nodes=[name]))["entities"]) == 2
        with pytest.raises(AmbiguousName) as caught:
            await graph("delete_entity", entity=name)
        assert {c["id"] for c in caught.value.facts["candidates"]} == set(ids)
    opened = await graph("open_nodes", nodes=[ids[1]])
    assert [e["name"] for e in opened["entities"]] == ["shop"]
