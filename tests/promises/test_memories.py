"""The promises of the memory plugin in their published order. `docs/differences.md` has the differences."""

import asyncio
import json
import re
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.errors import EverkeptError
from everkept.settings import Settings, read_settings
from server_processes import INITIALIZE, StdioServer, stdio_server

A = TypeVar("A")

SESSION = "the-session"
ULID = re.compile(r"memory:[0-9A-HJKMNP-TV-Z]{26}")
SERVICE = {"name": "AuthService", "type": "component", "relationship": "describes"}
VALIDATOR = {"name": "TokenValidator", "type": "library", "relationship": "depends_on"}
MANY_LOOKS = 600  # at a tenth of a second each: only a hang takes as long


class Client:
    """Calls tools of the server in the active project."""

    def __init__(self, server: StdioServer) -> None:
        self.server = server

    def __call__(self, tool: str, **arguments: Any) -> Any:
        answer = self.server.ask(1, "tools/call", name=tool, arguments=arguments)
        assert not answer["result"].get("isError"), answer
        return answer["result"]["structuredContent"]

    def open_project(self, name: str) -> None:
        self("create_project", name=name)
        self("switch_project", name=name)

    def store(self, content: str, scope: str = "project", **more: Any) -> str:
        """Store a memory and return its id."""
        arguments = {"content": content, "type": "semantic", "scope": scope} | more
        return self("store_memory", **arguments)["memory_id"]

    def recall(self, query: str, **more: Any) -> list[dict[str, Any]]:
        return self("recall_memories", **({"query": query, "strategy": "keyword"} | more))["memories"]

    def texts(self, query: str, **more: Any) -> list[str]:
        return [memory["content"] for memory in self.recall(query, **more)]

    def by_meaning(self, query: str) -> list[str]:
        """Return the nearest memories once all are embedded."""
        for _ in range(MANY_LOOKS):
            answer = self("recall_memories", query=query, strategy="vector")
            if not self("get_memory_status")["storage"]["embeddings"]["pending"] and "warnings" not in answer:
                break
        return self.texts(query, strategy="vector")

    def walk(self, entity: str | None = None, **more: Any) -> dict[str, Any]:
        return self("search_knowledge_graph", **({"entity": entity} if entity else {}), **more)

    def read(self, uri: str) -> str:
        answer = self.server.ask(2, "resources/read", uri=uri)
        return answer["result"]["contents"][0]["text"]

    def get_error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        answer = self.server.ask(3, "tools/call", name=tool, arguments=arguments)
        assert answer["result"]["isError"], answer
        return answer["result"]["structuredContent"]


@contextmanager
def serve(data: Path, *options: object, **variables: str) -> Generator[StdioServer]:
    with stdio_server(data, *options, **({"MEMORY_SESSION_ID": SESSION} | variables)) as server:
        server.ask(0, "initialize", **INITIALIZE)
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServer]:
    with serve(tmp_path_factory.mktemp("data"), "--project", "shop") as server:
        yield server


@pytest.fixture
def client(server: StdioServer, request: pytest.FixtureRequest) -> Client:
    client = Client(server)
    client.open_project(request.node.name[5:65])
    return client


@contextmanager
def opened_app(settings: Settings) -> Generator[Any]:
    """Give a function that runs calls of an application in this process, which ends as a server does."""
    runner, app = asyncio.Runner(), App(settings)

    def run(call: Coroutine[Any, Any, A]) -> A:
        return runner.run(call)

    def answer(tool: str, **given: Any) -> Any:
        return run(app.call(Session("test"), tool, given)).facts

    try:
        yield answer
    finally:
        runner.run(app.end_sessions())
        runner.run(app.close())
        runner.close()


# Core tools: store_memory


def test_a_memory_is_stored_with_its_classification_and_answered_with_its_id(client: Client) -> None:
    answer = client("store_memory", content="Orders are in PostgreSQL", type="semantic", scope="project")
    assert ULID.fullmatch(answer["memory_id"])
    assert (answer["scope"], answer["type"], answer["graph_edges_created"]) == ("project", "semantic", 0)


def test_an_embedding_is_generated_without_being_asked_for_and_the_call_does_not_wait(client: Client) -> None:
    answer = client("store_memory", content="Purchases are kept in PostgreSQL", type="semantic", scope="project")
    assert (answer["embedding_generated"], answer["embedding"]) == (True, "pending")
    client.store("Lunch is at noon")
    assert client.by_meaning("which database has the orders?")[0] == "Purchases are kept in PostgreSQL"


def test_importance_tags_and_source_have_defaults(client: Client) -> None:
    client.store("A plain thought")
    (memory,) = client.recall("thought")
    assert (memory["importance"], memory["tags"], memory["source"]) == (0.5, [], {})


def test_importance_tags_and_source_are_kept(client: Client) -> None:
    source = {"tool": "editor", "file": "src/login.py", "conversation_turn": 12}
    client.store("A rich thought", importance=0.8, tags=["a", "b"], source=source)
    (memory,) = client.recall("thought")
    assert (memory["importance"], memory["tags"], memory["source"]) == (0.8, ["a", "b"], source)


def test_related_entities_become_nodes_and_edges_of_the_graph(client: Client) -> None:
    entities = [SERVICE, VALIDATOR]
    answer = client(
        "store_memory", content="It checks tokens", type="semantic", scope="project", related_entities=entities
    )
    assert answer["graph_edges_created"] == 2
    assert {entity["name"] for entity in client.walk()["entities"]} == {"AuthService", "TokenValidator"}


def test_a_memory_can_be_stored_for_an_earlier_session(client: Client) -> None:
    client.store("From before", "session", session_id="earlier")
    assert client.texts("before") == []
    assert client.texts("before", session_id="earlier") == ["From before"]


def test_only_the_content_is_required(client: Client) -> None:
    answer = client("store_memory", content="Just this")
    assert (answer["type"], answer["scope"]) == ("semantic", "project")


# Core tools: recall_memories


def test_recall_answers_a_question_with_ranked_memories(client: Client) -> None:
    client.store("The user prefers TypeScript", tags=["languages"], source={"conversation_turn": 12})
    client.store("Lunch is at noon")
    answer = client("recall_memories", query="TypeScript or JavaScript?")
    first = answer["memories"][0]
    assert first["content"] == "The user prefers TypeScript"
    assert {"id", "type", "scope", "importance", "relevance_score", "tags", "created_at", "access_count", "source"} <= {
        *first
    }
    assert 0 < first["relevance_score"] <= 1
    assert answer["strategy_used"] == "hybrid"
    assert answer["query_time_ms"] >= 0


def test_recall_filters_by_scope_one_or_several(client: Client) -> None:
    for scope in ("session", "project", "user"):
        client.store(f"Giraffe of the {scope}", scope)
    assert client.texts("giraffe", scope="user") == ["Giraffe of the user"]
    assert len(client.texts("giraffe", scope=["session", "project"])) == 2
    assert len(client.texts("giraffe")) == 3


def test_recall_filters_by_type_one_or_several(client: Client) -> None:
    for kind in ("episodic", "semantic", "procedural"):
        client.store(f"Zebra, {kind}", type=kind)
    assert client.texts("zebra", type="procedural") == ["Zebra, procedural"]
    assert len(client.texts("zebra", type=["episodic", "semantic"])) == 2


def test_strategy_vector_finds_by_meaning(client: Client) -> None:
    client.store("Purchases are kept in PostgreSQL")
    assert client.by_meaning("which database has the orders?") == ["Purchases are kept in PostgreSQL"]


def test_strategy_keyword_finds_by_words_and_their_stems(client: Client) -> None:
    client.store("Migrations run before deployment")
    answer = client("recall_memories", query="deployments", strategy="keyword")
    assert (len(answer["memories"]), answer["strategy_used"]) == (1, "keyword")
    assert client.texts("database", strategy="keyword") == []


def test_strategy_hybrid_merges_both(client: Client) -> None:
    client.store("Purchases are kept in PostgreSQL")
    client.store("The orders of lunch are due at noon")
    client.by_meaning("anything")
    assert len(client.texts("which database has the orders?", strategy="hybrid", scope="project")) == 2


def test_strategy_graph_finds_memories_around_a_named_entity(client: Client) -> None:
    client.store("It checks every request", related_entities=[SERVICE])
    client.store("Nothing about it")
    answer = client("recall_memories", query="what do we know of AuthService?", strategy="graph")
    assert [memory["content"] for memory in answer["memories"]] == ["It checks every request"]
    assert answer["strategy_used"] == "graph"


def test_recall_returns_ten_memories_unless_asked_for_up_to_fifty(client: Client) -> None:
    for number in range(12):
        client.store(f"Otter {number}")
    answer = client("recall_memories", query="otter", strategy="keyword")
    assert (len(answer["memories"]), answer["total_matched"]) == (10, 12)
    assert "total_is_lower_bound" not in answer
    assert len(client.recall("otter", limit=50)) == 12
    assert client.get_error("recall_memories", query="otter", limit=51)["argument"] == "limit"


@pytest.mark.thorough
def test_the_total_is_true_or_called_a_lower_bound(client: Client) -> None:
    for number in range(120):
        client.store(f"Badger {number}")
    answer = client("recall_memories", query="badger", strategy="keyword")
    assert (answer["total_matched"], answer["total_is_lower_bound"]) == (100, True)


def test_recall_has_a_floor_for_importance(client: Client) -> None:
    client.store("Small heron", importance=0.2)
    client.store("Great heron", importance=0.9)
    assert client.texts("heron", min_importance=0.5) == ["Great heron"]


def test_recall_filters_to_any_of_the_tags(client: Client) -> None:
    for tag in ("red", "green", "blue"):
        client.store(f"A {tag} lizard", tags=[tag])
    assert set(client.texts("lizard", tags=["red", "blue"])) == {"A red lizard", "A blue lizard"}


def test_recall_filters_by_time(client: Client) -> None:
    client.store("A stork")
    assert client.texts("stork", time_range={"before": "2020-01-01T00:00:00Z"}) == []
    assert client.texts("stork", time_range={"after": "2020-01-01T00:00:00Z"}) == ["A stork"]


def test_the_score_mixes_relevance_importance_and_recency(client: Client) -> None:
    client.store("The ibis is white", importance=0.1)
    client.store("The ibis is sacred", importance=0.9)
    first, second = client.recall("ibis", explain=True)
    assert (first["content"], second["content"]) == ("The ibis is sacred", "The ibis is white")
    assert first["why"]["importance"] > 0 > second["why"]["importance"]
    assert min(first["why"]["recency"], second["why"]["recency"]) > 0
    assert first["relevance_score"] == pytest.approx(sum(first["why"].values()), abs=0.001)


def test_each_recall_is_counted_on_the_memory(client: Client) -> None:
    client.store("A counted crane")
    assert [client.recall("crane")[0]["access_count"] for _ in range(3)] == [0, 1, 2]


# Core tools: search_knowledge_graph


def test_the_graph_shows_an_entity_with_its_relationships_and_memories(client: Client) -> None:
    memory_id = client.store("It checks tokens", related_entities=[SERVICE, VALIDATOR])
    walked = client.walk("AuthService")
    entity = walked["entities"][0]
    assert (entity["name"], entity["type"], entity["memory_count"]) == ("AuthService", "component", 1)
    edge = {"type": "depends_on", "target": "TokenValidator", "direction": "outgoing", "memory_id": memory_id}
    assert entity["relationships"] == [edge]
    assert [memory["id"] for memory in walked["memories"]] == [memory_id]
    assert walked["graph_stats"] == {"entities_traversed": 2, "relationships_found": 1, "depth_reached": 1}


def test_without_an_entity_the_graph_gives_an_overview(client: Client) -> None:
    client.store("It checks tokens", related_entities=[SERVICE, VALIDATOR])
    assert len(client.walk()["entities"]) == 2


def test_the_relationship_of_a_memory_to_an_entity_can_be_read_again(client: Client) -> None:
    client.store("It checks tokens", related_entities=[SERVICE, VALIDATOR])
    assert client.walk("AuthService")["memories"][0]["related_entities"] == [SERVICE, VALIDATOR]
    assert client.recall("tokens", explain=True)[0]["related_entities"] == [SERVICE, VALIDATOR]


def test_the_graph_is_filtered_by_relationship_type(client: Client) -> None:
    client.store("It checks tokens", related_entities=[SERVICE, VALIDATOR])
    walked = client.walk("AuthService", relationship_type="depends_on")
    assert [entity["name"] for entity in walked["entities"]] == ["AuthService", "TokenValidator"]
    assert client.texts("tokens", relationship_type="depends_on") == ["It checks tokens"]
    nothing = client.walk("AuthService", relationship_type="paints")
    assert (nothing["entities"], nothing["memories"]) == ([], [])


def test_the_graph_is_walked_in_one_direction_or_both(client: Client) -> None:
    relate(client, ("A", "B"), ("C", "A"))
    met = {way: names(client.walk("A", direction=way)) for way in ("outgoing", "incoming", "both")}
    assert met == {"outgoing": {"A", "B"}, "incoming": {"A", "C"}, "both": {"A", "B", "C"}}


def test_the_graph_is_walked_up_to_three_hops(client: Client) -> None:
    relate(client, ("A", "B"), ("B", "C"), ("C", "D"))
    assert [len(names(client.walk("A", depth=depth))) for depth in (1, 2, 3)] == [2, 3, 4]
    assert client.get_error("search_knowledge_graph", entity="A", depth=4)["argument"] == "depth"


def test_memories_can_be_left_out_of_the_graph_and_entities_limited(client: Client) -> None:
    client.store("It checks tokens", related_entities=[SERVICE, VALIDATOR])
    assert client.walk("AuthService", include_memories=False)["memories"] == []
    assert len(client.walk("AuthService", limit=1)["entities"]) == 1


def test_an_entity_has_the_same_memories_from_wherever_it_is_reached(client: Client) -> None:
    relate(client, ("Kiosk", "Till"))
    till = {"name": "Till", "type": "service", "relationship": "describes"}
    for scope in ("session", "project", "user"):
        client.store(f"The till of the {scope}", scope, related_entities=[till])
    for start in ("Kiosk", "Till"):
        walked = client.walk(start)
        assert {entity["name"]: entity["memory_count"] for entity in walked["entities"]} == {"Kiosk": 0, "Till": 3}
        assert len(walked["memories"]) == 3


# Core tools: forget_memory and update_memory


def test_a_forgotten_memory_is_hidden_and_can_still_be_recalled_on_request(client: Client) -> None:
    memory_id = client.store("An outdated pelican")
    answer = client("forget_memory", memory_id=memory_id, reason="moved to a new framework")
    assert answer == {"memory_id": memory_id, "status": "forgotten", "reason": "moved to a new framework"}
    assert client.texts("pelican") == []
    (memory,) = client.recall("pelican", include_forgotten=True)
    assert (memory["forgotten"], memory["forgotten_reason"]) == (True, "moved to a new framework")


def test_the_edges_of_a_forgotten_memory_stay_and_are_stale(client: Client) -> None:
    client("forget_memory", memory_id=client.store("It checks tokens", related_entities=[SERVICE]))
    assert client.walk("AuthService")["memories"] == []
    (memory,) = client.walk("AuthService", include_forgotten=True)["memories"]
    assert memory["related_entities"] == [{**SERVICE, "stale": True}]


def test_an_update_changes_content_and_metadata_and_raises_the_version(client: Client) -> None:
    memory_id = client.store("The port is 8080")
    answer = client("update_memory", memory_id=memory_id, content="The port is 8443", importance=0.9)
    assert answer["updated_fields"] == ["content", "importance"]
    assert (answer["re_embedded"], answer["version"]) == (True, 2)
    client("update_memory", memory_id=memory_id, metadata={"by": "Ada"})
    again = client("update_memory", memory_id=memory_id, metadata={"on": "Monday"})
    assert (again["re_embedded"], again["version"]) == (False, 4)
    (memory,) = client.recall("port")
    assert (memory["content"], memory["metadata"]) == ("The port is 8443", {"by": "Ada", "on": "Monday"})


def test_an_update_adds_and_removes_tags_and_entities(client: Client) -> None:
    memory_id = client.store("It checks tokens", tags=["a", "b"], related_entities=[SERVICE])
    change = {"add": [VALIDATOR], "remove": ["AuthService"]}
    client("update_memory", memory_id=memory_id, tags={"add": ["c"], "remove": ["a"]}, related_entities=change)
    (memory,) = client.recall("tokens", explain=True)
    assert (memory["tags"], memory["related_entities"]) == (["b", "c"], [VALIDATOR])


def test_earlier_versions_stay_in_the_history(client: Client) -> None:
    memory_id = client.store("The harbor is closed")
    stored_at = datetime.now(UTC).isoformat()
    client("update_memory", memory_id=memory_id, content="The harbor is open")
    assert client.texts("harbor") == ["The harbor is open"]
    assert client.texts("harbor", as_of=stored_at) == ["The harbor is closed"]


# Core tools: reflect_and_consolidate


def store_events(client: Client, session: str) -> list[str]:
    texts = (
        "The login page failed with a timeout after the deployment",
        "The login page failed again with the same timeout",
        "The login timeout came from the session cache of the login page",
    )
    return [client.store(text, "session", type="episodic", session_id=session) for text in texts]


def test_reflection_makes_one_fact_of_related_events_and_marks_them(client: Client) -> None:
    sources = store_events(client, "reflected")
    answer = client("reflect_and_consolidate", session_id="reflected", strategy="summarize")
    (made,) = answer["consolidated_memories"]
    assert (made["type"], set(made["derived_from"])) == ("semantic", set(sources))
    assert answer["session_stats"]["memories_analyzed"] == 3
    events = client.recall("login timeout", type="episodic", session_id="reflected")
    assert [memory["consolidated"] for memory in events] == [True] * 3


def test_a_dry_run_of_reflection_writes_nothing(client: Client) -> None:
    store_events(client, "tried")
    answer = client("reflect_and_consolidate", session_id="tried", dry_run=True)
    assert len(answer["consolidated_memories"]) == 1
    assert client.texts("login", type="semantic", session_id="tried") == []


def test_reflection_detects_patterns_across_sessions(client: Client) -> None:
    for number in range(4):
        text = f"The user asked how errors of the payment gateway are handled, round {number}"
        client.store(text, type="episodic", session_id=f"pattern {number}")
    answer = client("reflect_and_consolidate", session_id="pattern 3", strategy="extract_patterns")
    (pattern,) = answer["patterns_detected"]
    assert pattern["frequency"] >= 3
    assert pattern["suggested_scope"] in ("project", "user")
    assert answer["session_stats"]["patterns_found"] == 1


def test_reflection_on_an_unknown_session_says_so(client: Client) -> None:
    answer = client("reflect_and_consolidate", session_id="nobody was here")
    assert answer["session_stats"]["memories_analyzed"] == 0
    assert answer["warnings"]


# Administrative tools


def test_the_status_shows_the_connection_counts_storage_and_session(client: Client) -> None:
    client.store("Anything at all", related_entities=[SERVICE])
    status = client("get_memory_status")
    assert status["connection"]["status"] == "connected"
    assert {"mode", "path", "uptime_seconds", "version"} <= status["connection"].keys()
    assert {"total", "by_scope", "by_type", "forgotten", "entities", "relationships"} == status["counts"].keys()
    assert status["counts"]["by_scope"]["project"] == 1
    assert status["storage"]["database_size_bytes"] > 0
    assert (status["storage"]["embedding_model"], status["storage"]["embedding_dimensions"]) == (
        "everkept-minilm-1",
        384,
    )
    assert status["current_session"]["session_id"] == SESSION


def test_what_a_session_stored_stays_stored_after_a_promotion_or_a_forgetting(client: Client) -> None:
    ids = [client.store(f"Counted finch {number}", "project", session_id="counted") for number in range(3)]
    client("promote_memory", memory_id=ids[0], target_scope="user")
    client("forget_memory", memory_id=ids[1])
    session = client("get_memory_status", session_id="counted")["current_session"]
    assert (session["memories_this_session"], session["promoted"], session["forgotten"]) == (3, 1, 1)


def test_the_context_is_one_block_with_four_sections(client: Client) -> None:
    client.store("Prefers small commits in the lagoon", "user", importance=0.9)
    client.store("The lagoon service uses gRPC")
    client.store("We looked at the lagoon", "session", type="episodic")
    client.store("Start the lagoon with make", type="procedural")
    answer = client("get_memory_context", task_description="work on the lagoon")
    block = answer["context_block"]
    titles = ["## Memory Context", "### User Preferences", "### Project Knowledge", "### Recent Session"]
    places = [block.index(title) for title in [*titles, "### Relevant Procedures"]]
    assert places == sorted(places)
    assert answer["memories_used"] >= 4
    assert answer["tokens_used"] <= 2_000
    only = client("get_memory_context", task_description="work on the lagoon", sections=["relevant_procedures"])
    assert "Project Knowledge" not in only["context_block"]


def test_the_context_keeps_to_its_budget_and_says_what_was_cut(client: Client) -> None:
    for number in range(20):
        client.store(f"Dune rule {number} " + "is long " * 20, importance=0.9)
    answer = client("get_memory_context", task_description="dune rules", max_tokens=300)
    assert (answer["tokens_used"] <= 300, answer["truncated"]) == (True, True)
    assert client.get_error("get_memory_context", max_tokens=99)["argument"] == "max_tokens"


def test_memories_of_the_files_in_context_come_first(client: Client) -> None:
    client.store("The cove form is important", importance=1)
    client.store("Tokens expire after an hour", importance=0.1, source={"file": "src/cove.py"})
    files = ["/home/ada/shop/src/cove.py"]
    answer = client(
        "get_memory_context", task_description="cove form", files_in_context=files, sections=["project_context"]
    )
    lines = [line for line in answer["context_block"].splitlines() if line.startswith("- ")]
    assert lines[0].startswith("- Tokens expire")
    assert client.texts("what about src/cove.py?")[0] == "Tokens expire after an hour"


def test_the_memories_of_a_context_count_as_recalled(client: Client) -> None:
    client.store("A surfaced walrus")
    client("get_memory_context", task_description="walrus")
    assert client.recall("walrus")[0]["access_count"] == 1


def test_a_promotion_moves_a_memory_to_a_wider_scope_and_detaches_it_from_its_session(client: Client) -> None:
    memory_id = client.store("Errors are wrapped by the puffin", "session")
    answer = client("promote_memory", memory_id=memory_id, target_scope="project", reason="reusable")
    told = {"memory_id": memory_id, "previous_scope": "session", "new_scope": "project", "reason": "reusable"}
    assert answer == told
    (memory,) = client.recall("puffin", session_id="another")
    assert (memory["scope"], memory.get("session_id")) == ("project", None)


def test_a_promotion_to_the_user_reaches_other_projects(client: Client) -> None:
    memory_id = client.store("Likes the kingfisher")
    client("promote_memory", memory_id=memory_id, target_scope="user")
    client.open_project("one that has no kingfisher")
    assert client.recall("kingfisher")[0]["id"] == memory_id


def test_a_promotion_must_widen_the_scope(client: Client) -> None:
    memory_id = client.store("Already of the project")
    error = client.get_error("promote_memory", memory_id=memory_id, target_scope="project")
    assert (error["error"], error["argument"]) == ("invalid_input", "target_scope")


def test_tags_are_added_and_removed(client: Client) -> None:
    memory_id = client.store("A tagged toucan", tags=["a", "b"])
    assert client("tag_memory", memory_id=memory_id, add=["c"], remove=["a"])["tags"] == ["b", "c"]


# Resources


def test_the_four_resources_are_listed_with_their_types_and_can_be_subscribed(server: StdioServer) -> None:
    listed = {item["uri"]: item["mimeType"] for item in server.ask(4, "resources/list")["result"]["resources"]}
    assert {uri: listed.get(uri) for uri in RESOURCES} == RESOURCES
    assert server.ask(8, "initialize", **INITIALIZE)["result"]["capabilities"]["resources"]["subscribe"] is True
    assert "result" in server.ask(5, "resources/subscribe", uri="memory://status")
    assert "result" in server.ask(6, "resources/unsubscribe", uri="memory://status")


RESOURCES = {
    "memory://status": "application/json",
    "memory://session/summary": "text/markdown",
    "memory://project/knowledge-graph": "text/markdown",
    "memory://user/preferences": "text/markdown",
}


def test_the_status_resource_has_the_data_of_the_tool(client: Client) -> None:
    status = json.loads(client.read("memory://status"))
    assert status.keys() == client("get_memory_status").keys()


def test_the_session_summary_shows_what_was_stored_recalled_and_about_what(client: Client) -> None:
    text = client.read("memory://session/summary")
    for title in ("Session:", "Memories stored:", "Memories recalled:", "Memories consolidated:", "Key topics:"):
        assert f"**{title}**" in text


def test_the_graph_resource_shows_entities_relationship_types_and_density(client: Client) -> None:
    text = client.read("memory://project/knowledge-graph")
    for title in ("Entities:", "Relationships:", "Density:"):
        assert f"**{title}**" in text


def test_the_preferences_resource_shows_memories_of_the_user(client: Client) -> None:
    client.store("Prefers the nightingale", "user", importance=1)
    assert "Prefers the nightingale" in client.read("memory://user/preferences")


# Tool schemas


def test_the_ten_tools_are_registered_under_their_names(server: StdioServer) -> None:
    listed = {tool["name"]: tool for tool in server.ask(7, "tools/list")["result"]["tools"]}
    assert listed.keys() >= {
        *("store_memory", "recall_memories", "search_knowledge_graph", "forget_memory", "update_memory"),
        *("reflect_and_consolidate", "get_memory_status", "get_memory_context", "promote_memory", "tag_memory"),
    }
    assert listed["store_memory"]["inputSchema"]["required"] == ["content"]
    # Rare arguments are accepted and not listed, because the list costs every conversation context.
    assert "source" not in listed["store_memory"]["inputSchema"]["properties"]


@pytest.mark.parametrize(
    ("tool", "arguments", "wrong"),
    [
        ("store_memory", {"content": "x", "type": "musical"}, "type"),
        ("store_memory", {"content": "x", "scope": "galaxy"}, "scope"),
        ("store_memory", {"content": "x", "importance": 1.5}, "importance"),
        ("store_memory", {"content": "x", "source": {"colour": "red"}}, "source.colour"),
        ("recall_memories", {"query": "x", "scope": "galaxy"}, "scope"),
        ("promote_memory", {"memory_id": "x", "target_scope": "session"}, "target_scope"),
    ],
)
def test_input_is_checked_against_the_schema(client: Client, tool: str, arguments: dict[str, Any], wrong: str) -> None:
    error = client.get_error(tool, **arguments)
    assert (error["error"], error["argument"]) == ("invalid_input", wrong)


# Embeddings


def test_embeddings_are_computed_here_with_the_model_that_the_package_carries() -> None:
    from everkept.embedders import onnx

    folder = Path(onnx.__file__).parent / "model"
    assert any(path.suffix == ".onnx" for path in folder.iterdir())


def test_without_a_model_memories_are_found_by_their_words_and_a_warning_says_so(tmp_path: Path) -> None:
    with opened_app(read_settings({"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}, {})) as call:
        answer = call("store_memory", content="A plain plover")
        assert (answer["embedding_generated"], answer["searchable_by"]) == (False, "keyword_only")
        assert answer["warnings"][0]["code"] == "embedding_failed"
        assert call("recall_memories", query="plover")["memories"][0]["content"] == "A plain plover"
        warned = call("recall_memories", query="plover", strategy="vector")
        assert warned["warnings"][0]["code"] == "partial_results"


# Connection


def test_a_session_is_resumed_by_its_id_and_summarized_at_shutdown(tmp_path: Path) -> None:
    given = {"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}
    settings = read_settings(given, {"MEMORY_SESSION_ID": "resumed"})
    with opened_app(settings) as call:
        call("store_memory", content="The osprey landed", scope="session")
        began = call("get_memory_status")["current_session"]["started_at"]
    with opened_app(settings) as call:
        assert call("recall_memories", query="osprey")["memories"][0]["content"] == "The osprey landed"
        session = call("get_memory_status")["current_session"]
        assert (session["started_at"], session["memories_this_session"]) == (began, 1)
        assert session["summary"].startswith("1 memory (1 semantic).")


@pytest.mark.parametrize("mode", ["embedded-memory", "embedded-file"])
def test_an_embedded_mode_needs_no_server(tmp_path: Path, mode: str) -> None:
    variables = {"MEMORY_DEPLOYMENT_MODE": mode, "MEMORY_DB_PATH": str(tmp_path / "data")}
    with opened_app(read_settings({"project": "shop", "embedding_model": "none"}, variables)) as call:
        call("store_memory", content="A plain plover")
        assert call("get_memory_status")["connection"]["mode"] == mode
    assert (tmp_path / "data").exists() == (mode == "embedded-file")


@pytest.mark.thorough
def test_while_a_server_is_unreachable_writes_wait_on_disk_and_reads_say_degraded(tmp_path: Path) -> None:
    variables = {"MEMORY_DEPLOYMENT_MODE": "remote", "MEMORY_REMOTE_URL": "ws://127.0.0.1:1"}
    given = {"data_dir": tmp_path, "project": "shop", "embedding_model": "none"}
    for number in (1, 2):  # the second process still has what the first one took
        with opened_app(read_settings(given, variables)) as call:
            assert call("store_memory", content=f"Waiting wren {number}")["degraded"] is True
            found = call("recall_memories", query="wren")
            assert (len(found["memories"]), found["degraded"]) == (number, True)
            assert call("get_memory_status")["connection"]["status"] in ("reconnecting", "degraded")


# Errors


def test_every_error_has_the_same_envelope(client: Client) -> None:
    error = client.get_error("forget_memory", memory_id="memory:none")
    assert {"error", "message", "degraded", "retry_possible"} <= error.keys()
    assert (error["error"], error["degraded"], error["retry_possible"]) == ("not_found", False, False)


def test_a_success_with_a_limitation_has_warnings_with_codes(client: Client) -> None:
    (warning,) = client.walk("Nobody")["warnings"]
    assert (warning["code"], bool(warning["message"])) == ("entity_not_found", True)


# Configuration

PLUGIN_FILE = """---
deployment_mode: embedded-file
db_path: {folder}
namespace: memory
database: default
embedding_model: all-MiniLM-L6-v2
embedding_dimensions: 384
max_memories_per_session: 7
consolidation_on_shutdown: false
log_level: warn
---

# SurrealDB Memory Configuration

## Remote Mode Settings (only used when deployment_mode is "remote")

```yaml
remote_url: ws://localhost:8000
remote_user: root
remote_pass: root
```
"""


def test_the_config_file_of_the_plugin_is_understood(tmp_path: Path) -> None:
    file = tmp_path / "surrealdb-memory.local.md"
    file.write_text(PLUGIN_FILE.format(folder=tmp_path / "data"), encoding="utf-8")
    settings = read_settings({}, {"MEMORY_CONFIG_PATH": str(file)})
    assert (settings.deployment_mode, settings.data_dir) == ("embedded-file", tmp_path / "data")
    assert (settings.max_memories_per_session, settings.consolidation_on_shutdown) == (7, False)
    assert settings.log_level == "warning"
    assert settings.embedding_model == "everkept-minilm-1"  # in place of the model that the file names
    remote = read_settings({}, {"MEMORY_CONFIG_PATH": str(file), "MEMORY_DEPLOYMENT_MODE": "remote"})
    assert (remote.database_url, remote.database_user) == ("ws://localhost:8000", "root")


def test_the_variables_of_the_plugin_override_its_file(tmp_path: Path) -> None:
    file = tmp_path / "surrealdb-memory.local.md"
    file.write_text(PLUGIN_FILE.format(folder=tmp_path / "data"), encoding="utf-8")
    variables = {
        "MEMORY_CONFIG_PATH": str(file),
        "MEMORY_LOG_LEVEL": "debug",
        "MEMORY_DEPLOYMENT_MODE": "embedded-file",
        "MEMORY_DB_PATH": str(tmp_path / "other"),
        "MEMORY_SESSION_ID": "resumed",
    }
    settings = read_settings({}, variables)
    assert (settings.log_level, settings.data_dir) == ("debug", tmp_path / "other")
    assert settings.session_id == "resumed"


def test_remote_mode_without_an_address_names_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EverkeptError) as refused:
        read_settings({"data_dir": tmp_path}, {"MEMORY_DEPLOYMENT_MODE": "remote"})
    told = json.dumps(refused.value.to_envelope() if hasattr(refused.value, "to_envelope") else str(refused.value))
    assert "remote_url" in told
    assert "MEMORY_REMOTE_URL" in told


# Security


def test_secrets_are_masked_before_they_are_stored(client: Client) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLA"
    answer = client("store_memory", content=f"The key of the magpie is {key}")
    assert answer["warnings"]
    (text,) = client.texts("magpie")
    assert key not in text


def test_queries_and_names_with_syntax_in_them_are_only_text(client: Client) -> None:
    name = "x'; DROP TABLE memory; --"
    entity = {"name": name, "type": "concept", "relationship": "describes"}
    client.store("A careful condor", related_entities=[entity])
    for query in (name, '"condor', "condor AND (", "*"):
        client.recall(query)
    assert client.walk(name)["entities"][0]["name"] == name
    assert client.texts("condor") == ["A careful condor"]


# Schema


def test_the_same_text_in_the_same_scope_is_stored_once(client: Client) -> None:
    first = client.store("A single swan", tags=["a"])
    again = client("store_memory", content="A single swan", tags=["b"])
    assert (again["memory_id"], again["existing"], again["updated"]) == (first, True, ["tags"])
    assert client.recall("swan")[0]["tags"] == ["a", "b"]


def test_entities_are_unique_by_name_and_type(client: Client) -> None:
    for number in range(2):
        client.store(f"Thought {number}", related_entities=[SERVICE, {**SERVICE, "type": "team"}])
    found = [(entity["name"], entity["type"]) for entity in client.walk("AuthService")["entities"]]
    assert sorted(found) == [("AuthService", "component"), ("AuthService", "team")]


def test_a_related_entity_may_be_a_plain_name(client: Client) -> None:
    client.store("It checks tokens", related_entities=[SERVICE])
    client.store("It is slow", related_entities=["AuthService"])
    assert [entity["memory_count"] for entity in client.walk("AuthService")["entities"]] == [2]


# Answers to the open questions


def test_projects_are_separate_and_the_user_is_shared(client: Client) -> None:
    client.store("A local lark")
    client.store("A shared shrike", "user")
    client.open_project("one that has no lark")
    assert client.texts("lark shrike") == ["A shared shrike"]


def test_two_windows_of_a_project_share_its_memories_and_keep_their_sessions_apart(client: Client) -> None:
    client.store("Of the project, a petrel")
    client.store("Of one window, a petrel", "session", session_id="one")
    assert client.texts("petrel", session_id="two") == ["Of the project, a petrel"]
    assert len(client.texts("petrel", session_id="one")) == 2


def relate(client: Client, *edges: tuple[str, str]) -> None:
    wanted = dict.fromkeys(name for edge in edges for name in edge)
    client("create_entities", entities=[{"name": name, "entityType": "service"} for name in wanted])
    relations = [{"from": source, "to": target, "relationType": "uses"} for source, target in edges]
    client("create_relations", relations=relations)


def names(walked: dict[str, Any]) -> set[str]:
    return {entity["name"] for entity in walked["entities"]}
