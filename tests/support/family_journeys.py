"""What an assistant does with each family of tools, one journey a family."""

import json
from typing import Any

from engine_journeys import Place, Talk, contents, wait_for_vectors
from server_processes import READY

ORDERS = "Purchases are kept in PostgreSQL"
TABS = "Prefers tabs over spaces"
NO_ID = "memory:01ARZ3NDEKTSV4RRFFQ69G5FAV"


def memories(talk: Talk) -> None:
    def store(content: str, scope: str, kind: str = "semantic", **more: Any) -> str:
        answer = talk("store_memory", content=content, type=kind, scope=scope, **more)
        return answer["memory_id"]

    def recall(query: str, **more: Any) -> list[dict[str, Any]]:
        answer = talk.settled("recall_memories", query=query, **more)
        return talk.keep("recall_memories", answer)["memories"]

    uses = {"name": "PostgreSQL", "type": "technology", "relationship": "uses"}
    orders = store(ORDERS, "project", tags=["db"], related_entities=[uses])
    assert store(ORDERS, "project") == orders
    tabs = store(TABS, "user", importance=0.9)
    failures = [store(f"The parser failed on line {n}", "session", "episodic") for n in range(3)]
    talk("update_memory", memory_id=orders, content=f"{ORDERS} 16", metadata={"by": "Ada"})
    tagged = talk("tag_memory", memory_id=orders, add=["storage"], remove=["db"])
    assert tagged["tags"] == ["storage"]
    talk("update_memory", memory_id=tabs, pinned=True)
    where = "Where are purchases kept? PostgreSQL"
    for strategy in ("keyword", "vector", "hybrid", "graph"):
        found = recall(where, strategy=strategy)
        assert found[0]["id"] == orders, strategy
    assert recall("which database has orders", strategy="vector")[0]["id"] == orders
    assert contents(recall("kept", tags=["storage"], scope="project")) == [f"{ORDERS} 16"]
    walked = talk("search_knowledge_graph", entity="postgresql")
    assert [memory["id"] for memory in walked["memories"]] == [orders]
    talk("promote_memory", memory_id=failures[0], target_scope="project")
    talk("reflect_and_consolidate", dry_run=True)
    talk("reflect_and_consolidate")
    context = talk("get_memory_context", task_description="repair the parser")
    assert TABS in context["context_block"]
    talk("forget_memory", memory_id=orders, reason="moved")
    assert talk("recall_memories", query="purchases", strategy="keyword")["memories"] == []
    assert recall("purchases", include_forgotten=True)[0]["id"] == orders
    assert talk.refused("forget_memory", memory_id=NO_ID) == "not_found"
    wait_for_vectors(talk.server)
    status = talk("get_memory_status")
    assert status["counts"]["forgotten"] == 1


def graph(talk: Talk) -> None:
    def related(source: str, kind: str, target: str) -> list[dict[str, str]]:
        return [{"from": source, "to": target, "relation_type": kind}]

    talk("create_project", name="atlas", description="Maps")
    router = {"name": "Router", "entity_type": "service", "observations": ["speaks gRPC"]}
    tiles = {"name": "Tiles", "entity_type": "database", "observations": ["PostGIS", "80 GB"]}
    talk("create_entities", entities=[router, tiles, {"name": "Cache", "entity_type": "service"}])
    again = router | {"observations": ["speaks gRPC", "runs on port 8443"]}
    [known] = talk("create_entities", entities=[again])["entities"]
    assert known["created"] is False
    facts = [{"entity_name": "Tiles", "contents": ["PostGIS", "is rebuilt at night"]}]
    assert talk("add_observations", observations=facts)["skipped"] == 1
    talk("create_relations", relations=related("Router", "reads", "Tiles"))
    talk("create_relations", relations=related("Router", "uses", "Cache"))
    nowhere = related("Router", "reads", "Nowhere")
    assert talk.refused("create_relations", relations=nowhere) == "not_found"
    for query in ("grpc", '"port 8443"', "post*", "tiles NOT grpc", "reads service"):
        talk("search_nodes", query=query)
    [opened] = talk("open_nodes", names=["router", "nothing"])["entities"]
    assert [each["content"] for each in opened["observations"]] == ["speaks gRPC", "runs on port 8443"]
    page = talk("read_graph", limit=2)
    talk("read_graph", limit=2, cursor=page["next_cursor"])
    gone = [{"entity_name": "Tiles", "observations": ["80 GB"]}]
    assert talk("delete_observations", deletions=gone)["deleted"] == 1
    assert talk("delete_relations", relations=related("Router", "uses", "Cache"))["deleted"] == 1
    assert talk("delete_entities", names=["Cache"])["deleted"] == 1
    assert len(talk("read_graph")["entities"]) == 2
    talk("archive_project", name="atlas")
    assert talk.refused("read_graph", project="atlas") == "project_archived"
    talk("list_projects", status="archived")
    talk("restore_project", name="atlas")
    assert len(talk("read_graph", project="atlas")["entities"]) == 2
    talk("create_project", name="brief")
    talk("create_entities", entities=[router])
    talk("delete_project", name="brief")
    assert talk.refused("read_graph", project="brief") == "not_found"
    talk("switch_project", name="shop")
    talk("get_current_project")
    talk("list_projects", status="all")


def bank(talk: Talk) -> None:
    folder = talk.place.work / "memory-bank"
    talk("initialize_memory_bank", path=str(talk.place.work))
    talk("track_progress", action="Feature", description="The cart ships", status="success")
    talk("update_active_context", tasks=["Ship the cart"], issues=["Slow login"])
    talk("update_tasks", add=["Write tests"])
    talk("add_session_note", note="Ask Bob", category="question")
    talk("log_decision", title="Use ferries", context="Islands", decision="Ferries at noon")
    digest = talk("get_context_digest")["digest"]
    assert digest["currentContext"]["tasks"] == ["Ship the cart", "Write tests"]
    assert "The cart ships" in (folder / "progress.md").read_text(encoding="utf-8")
    talk("write_memory_bank_file", filename="notes.md", content="# Notes\n\nThe pier is deep.\n")
    read = talk("read_memory_bank_file", filename="notes.md")
    refused = talk.refused("write_memory_bank_file", filename="notes.md", content="", ifMatchEtag=read["etag"] + "0")
    assert refused == "ETAG_MISMATCH"
    talk("graph_upsert_entity", name="Shop API", entityType="service", attrs={"port": 9443})
    talk("graph_upsert_entity", name="Pier", entityType="place")
    talk("graph_add_observation", entity="Shop API", text="Listens on 9443")
    talk("graph_link_entities", **{"from": "Shop API", "relationType": "serves", "to": "Pier"})
    assert talk("graph_search", query="9443")["entities"][0]["name"] == "Shop API"
    talk("graph_open_nodes", nodes=["Shop API"])
    [mirrored] = talk("search_nodes", query="9443")["entities"]
    assert mirrored["name"] == "Shop API"
    more = [{"entity_name": "Pier", "contents": ["has twelve berths"]}]
    talk("add_observations", observations=more)
    talk("graph_rebuild")
    assert "twelve berths" in (folder / "graph" / "graph.md").read_text(encoding="utf-8")
    talk("graph_delete_entity", entity="Pier")
    assert talk("search_nodes", query="berths")["entities"] == []
    sections = talk.settled("search_memory_bank", query="crossing by ship at midday")["sections"]
    talk.keep("sections", sorted(each["heading"] for each in sections))
    assert "Decision Log > Use ferries" in [each["heading"] for each in sections]
    found = talk.settled("recall_memories", query="ferries at noon", include_bank=True)["bank"]
    assert found[0]["file"] == "decision-log.md"
    talk("get_memory_bank_status")


def history(talk: Talk) -> None:
    if talk.place.engine == "embedded-memory":
        nothing = talk("recall_previous_discussions", query="rate limiting for logins")
        assert nothing["warnings"][0]["code"] == "no_history"
        return
    [first, *_] = talk.settled("recall_previous_discussions", query="rate limiting for logins")["results"]
    assert first["type"] == "decision"
    assert first["context"]["before"] == "Add rate limiting to the login endpoint"
    assert talk("read_conversation", id=first["id"])["total_turns"] == 4
    decided = talk.settled("recall_previous_discussions", query="rate limiting", type="decision")
    talk.keep("decisions", decided["results"])
    similar = talk.settled("find_similar_problems", problem_description="login without limits")
    assert first["id"] in [result.get("resolution", result)["id"] for result in similar["results"]]
    code = talk.settled("search_code_history", query="LIMIT attempts", language="python")
    assert "LIMIT = 5" in talk.keep("code", code["results"])[0]["content"]
    everything = talk.settled("unified_memory_search", query="token bucket attempts per minute")
    assert everything["results"][0]["type"] == "decision"


def resources(talk: Talk) -> None:
    listed = talk.server.ask(1, "resources/list")["result"]["resources"]
    talk.keep("resources", listed)
    status = json.loads(talk.read("memory://status"))["connection"]
    assert status["engine"] == talk.place.product
    assert status["mode"] == talk.place.mode
    assert talk.read("memory://session/summary")
    for uri in ("memory://project/knowledge-graph", "memory://user/preferences"):
        talk.keep(uri, talk.read(uri))
    for uri in ("memory://knowledge-graph", "memory://projects/atlas/knowledge-graph"):
        talk.keep(uri, json.loads(talk.read(uri)))
    talk.keep("progress", talk.read("memory-bank://progress.md"))


JOURNEYS = (memories, graph, bank, history, resources)


def follow_all(kept: Place) -> dict[str, list[Any]]:
    """Return what one server says on every journey, by the journey's name."""
    said: dict[str, list[Any]] = {}
    with kept.serving("--username", "Ada") as server:
        server.call("create_project", name="shop")
        for journey in JOURNEYS:
            talk = Talk(server, kept)
            journey(talk)
            said[journey.__name__] = talk.kept
        assert server.close_input() == 0
        assert server.finish() == READY
    return said
