"""The promises of the knowledge graph server in their published order. `docs/differences.md` has the differences."""

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.core.times import parse_time
from everkept.errors import EverkeptError, InvalidInput, NotFound
from everkept.settings import read_settings
from server_processes import HANG, INITIALIZE, command, environment, http_server

JSON = dict[str, Any]
PROJECT_TOOLS = (
    "list_projects create_project switch_project get_current_project archive_project delete_project restore_project"
)
GRAPH_TOOLS = (
    "create_entities add_observations create_relations search_nodes open_nodes read_graph delete_entities "
    "delete_observations delete_relations"
)
ADA = {"name": "Ada", "entity_type": "person", "observations": ["wrote the first program", "lives in London"]}
ENGINE = {"name": "Engine", "entity_type": "machine", "observations": ["computes tables"]}
DESIGNS = {"from": "Ada", "to": "Engine", "relation_type": "designs"}


class Client:
    """One session of one warm application."""

    def __init__(self, app: App, runner: "asyncio.Runner") -> None:
        self.app = app
        self.runner = runner
        self.session = Session(client="test")

    def __call__(self, tool: str, **arguments: Any) -> JSON:
        return self.runner.run(self.app.call(self.session, tool, arguments)).facts

    def names(self, query: str) -> list[str]:
        return [entity["name"] for entity in self("search_nodes", query=query)["entities"]]

    def graph(self) -> tuple[list[str], list[tuple[str, str, str]]]:
        found = self("read_graph")
        relations = [(each["from"], each["relation_type"], each["to"]) for each in found["relations"]]
        return sorted(entity["name"] for entity in found["entities"]), relations


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("graph")


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[Client]:
    settings = read_settings({"data_dir": folder, "toolsets": "graph", "embedding_model": "none"}, {})
    with asyncio.Runner() as runner:
        client = Client(App(settings), runner)
        yield client
        runner.run(client.app.close())


@pytest.fixture
def client(warm: Client) -> Client:
    """A new session without a project."""
    return Client(warm.app, warm.runner)


@pytest.fixture
def graph(client: Client, request: pytest.FixtureRequest) -> Client:
    """A session whose project is new."""
    client("create_project", name=request.node.name)
    return client


@pytest.fixture
def ada(graph: Client) -> Client:
    """A session whose project has two entities and a relation."""
    graph("create_entities", entities=[ADA, ENGINE])
    graph("create_relations", relations=[DESIGNS])
    return graph


def find_file(folder: Path, project: JSON) -> Path:
    return folder / "projects" / f"{project['id']}.db"


# The data model.


def test_each_project_has_its_own_graph(ada: Client) -> None:
    ada("create_project", name="an empty one")
    assert ada.graph() == ([], [])
    assert ada.names("program") == []


def test_each_project_is_a_file_named_by_its_uuid(client: Client, folder: Path) -> None:
    project = client("create_project", name="a file")
    assert UUID(project["id"]).version == 4
    assert find_file(folder, project).is_file()
    assert (folder / "_meta.db").is_file()


def test_the_file_has_entities_observations_and_relations_to_read_with_any_program(ada: Client, folder: Path) -> None:
    path = find_file(folder, ada("get_current_project"))
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        assert database.execute("SELECT name FROM entities ORDER BY name").fetchall() == [("Ada",), ("Engine",)]
        assert len(database.execute("SELECT content FROM observations WHERE deleted_at IS NULL").fetchall()) == 3
        assert database.execute("SELECT relation_type FROM relations").fetchall() == [("designs",)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        database.close()


def test_times_are_in_iso_8601(graph: Client) -> None:
    [entity] = graph("create_entities", entities=[ADA])["entities"]
    for time in (entity["created_at"], graph("get_current_project")["created_at"]):
        assert parse_time(time) > 0


# Tools for projects.


def test_the_sixteen_tools_have_the_published_names(warm: Client) -> None:
    assert {tool.name for tool in warm.app.tools} >= {*PROJECT_TOOLS.split(), *GRAPH_TOOLS.split()}


def test_list_projects_shows_active_projects_by_default(client: Client) -> None:
    client("create_project", name="listed")
    client("create_project", name="stored away")
    client("archive_project", name="stored away")
    listed = {
        status: {p["name"] for p in client("list_projects", status=status)["projects"]}
        for status in ("active", "archived", "all")
    }
    assert {p["name"] for p in client("list_projects")["projects"]} == listed["active"]
    assert ("listed" in listed["active"], "stored away" in listed["archived"]) == (True, True)
    assert listed["all"] == listed["active"] | listed["archived"]


def test_list_projects_refuses_another_status(client: Client) -> None:
    with pytest.raises(InvalidInput):
        client("list_projects", status="lost")


def test_create_project_returns_the_project_and_switches_to_it(client: Client) -> None:
    project = client("create_project", name="new", description="A description")
    assert project.keys() >= {"id", "name", "description", "status", "created_at", "updated_at"}
    assert (project["name"], project["description"], project["status"]) == ("new", "A description", "active")
    assert client("get_current_project")["id"] == project["id"]


def test_a_project_name_is_unique(client: Client) -> None:
    client("create_project", name="unique")
    with pytest.raises(EverkeptError, match="unique") as taken:
        client("create_project", name="unique")
    assert "switch_project" in str(taken.value.hint)


def test_switch_project_changes_the_project_of_this_session_only(client: Client, warm: Client) -> None:
    client("create_project", name="first")
    client("create_entities", entities=[ADA])
    other = Client(warm.app, warm.runner)
    other("switch_project", name="first")
    client("create_project", name="second")
    assert (client.graph()[0], other.graph()[0]) == ([], ["Ada"])


def test_switch_project_reports_a_project_that_does_not_exist(client: Client) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        client("switch_project", name="nowhere")


def test_switch_project_reports_an_archived_project(client: Client) -> None:
    client("create_project", name="put away")
    client("archive_project", name="put away")
    with pytest.raises(EverkeptError, match="archived") as error:
        client("switch_project", name="put away")
    assert "restore_project" in str(error.value.hint)


def test_get_current_project_says_that_none_is_active(client: Client) -> None:
    assert client("get_current_project").get("id") is None


def test_archive_project_moves_the_file_and_clears_the_session(client: Client, folder: Path) -> None:
    project = client("create_project", name="to archive")
    client("archive_project", name="to archive")
    assert not find_file(folder, project).exists()
    assert (folder / "archive" / f"{project['id']}.db").is_file()
    assert client("get_current_project").get("id") is None


def test_restore_project_brings_the_data_back(ada: Client, folder: Path) -> None:
    project = ada("get_current_project")
    ada("archive_project", name=project["name"])
    restored = ada("restore_project", name=project["name"])
    assert (restored["id"], restored["status"]) == (project["id"], "active")
    assert find_file(folder, project).is_file()
    ada("switch_project", name=project["name"])
    assert ada.graph() == (["Ada", "Engine"], [("Ada", "designs", "Engine")])


def test_create_project_with_the_name_of_an_archived_project_points_to_restore_project(client: Client) -> None:
    client("create_project", name="asleep")
    client("archive_project", name="asleep")
    with pytest.raises(EverkeptError) as taken:
        client("create_project", name="asleep")
    assert "restore_project" in str(taken.value.hint)


def test_delete_project_moves_the_project_to_the_trash_and_clears_the_session(client: Client, folder: Path) -> None:
    project = client("create_project", name="to delete")
    answer = client("delete_project", name="to delete")
    assert not (folder / "projects" / f"{project['id']}.db").exists()
    assert client("get_current_project").get("id") is None
    listed = client("list_projects", status="all")
    assert "to delete" not in {p["name"] for p in listed["projects"]}
    assert ("to delete", answer["until"]) in {(p["name"], p["until"]) for p in listed["trash"]}


def test_restore_project_brings_a_deleted_project_back_whole(client: Client, folder: Path) -> None:
    project = client("create_project", name="gone by mistake", description="All of it")
    client("create_entities", entities=[ADA])
    client("delete_project", name="gone by mistake")
    restored = client("restore_project", name="gone by mistake")
    assert (restored["id"], restored["description"]) == (project["id"], "All of it")
    client("switch_project", name="gone by mistake")
    assert client.graph() == (["Ada"], [])


def test_delete_project_moves_an_archived_project_to_the_trash_too(client: Client, folder: Path) -> None:
    client("create_project", name="old")
    client("archive_project", name="old")
    client("delete_project", name="old")
    assert "old" not in {p["name"] for p in client("list_projects", status="all")["projects"]}
    assert client("restore_project", name="old")["status"] == "active"


# Tools for the graph.


@pytest.mark.parametrize("tool", ["read_graph", "search_nodes", "create_entities"])
def test_without_an_active_project_a_tool_says_what_to_do(client: Client, tool: str) -> None:
    arguments = {"search_nodes": {"query": "x"}, "create_entities": {"entities": [ADA]}}.get(tool, {})
    with pytest.raises(EverkeptError, match=r"^No active project\. Use switch_project to select one\."):
        client(tool, **arguments)


def test_create_entities_returns_the_entities_with_their_ids(graph: Client) -> None:
    entities = graph("create_entities", entities=[ADA, {"name": "Tea", "entity_type": "drink"}])["entities"]
    assert [(each["name"], each["entity_type"]) for each in entities] == [("Ada", "person"), ("Tea", "drink")]
    assert all(UUID(each["id"]) for each in entities)
    assert len(entities[0]["observations"]) == 2


def test_add_observations_returns_the_new_observations(ada: Client) -> None:
    new = {"entity_name": "Ada", "contents": ["likes tea"]}
    [observation] = ada("add_observations", observations=[new])["observations"]
    assert observation["content"] == "likes tea"
    assert ada.names("tea") == ["Ada"]


def test_add_observations_to_an_unknown_entity_is_an_error_that_changes_nothing(ada: Client) -> None:
    both = [{"entity_name": "Ada", "contents": ["likes tea"]}, {"entity_name": "Nobody", "contents": ["x"]}]
    with pytest.raises(NotFound, match="Nobody"):
        ada("add_observations", observations=both)
    assert ada.names("tea") == []


def test_create_relations_are_directed(ada: Client) -> None:
    [relation] = ada("create_relations", relations=[DESIGNS | {"relation_type": "maintains"}])["relations"]
    assert (relation["from"], relation["relation_type"], relation["to"]) == ("Ada", "maintains", "Engine")
    assert ("Engine", "maintains", "Ada") not in ada.graph()[1]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("Ada", ["Ada"]),
        ("machine", ["Engine"]),
        ("program", ["Ada"]),
        ("program AND London", ["Ada"]),
        ("program AND tables", []),
        ("comp*", ["Engine"]),
        ("person NOT London", []),
        ("machine NOT London", ["Engine"]),
        ("C++ (x", []),
    ],
)
def test_search_nodes_finds_names_types_and_observations_with_operators(
    ada: Client, query: str, found: list[str]
) -> None:
    assert ada.names(query) == found


def test_search_nodes_with_or_finds_both(ada: Client) -> None:
    assert sorted(ada.names("program OR tables")) == ["Ada", "Engine"]


def test_a_found_entity_comes_once_with_all_observations_and_relations(ada: Client) -> None:
    [entity] = ada("search_nodes", query="Ada program London")["entities"]
    assert [each["content"] for each in entity["observations"]] == ADA["observations"]
    [relation] = entity["relations"]
    assert (relation["relation_type"], relation["to"]) == ("designs", "Engine")


def test_open_nodes_returns_exact_names_and_lists_the_others(ada: Client) -> None:
    found = ada("open_nodes", names=["Ada", "Adam"])
    assert [entity["name"] for entity in found["entities"]] == ["Ada"]
    assert found["not_found"] == ["Adam"]


def test_read_graph_returns_all_entities_and_relations(ada: Client) -> None:
    assert ada.graph() == (["Ada", "Engine"], [("Ada", "designs", "Engine")])


def test_delete_entities_also_deletes_their_observations_and_relations(ada: Client) -> None:
    assert ada("delete_entities", names=["Engine", "Nobody"])["deleted"] == 1
    assert ada.graph() == (["Ada"], [])
    assert ada.names("tables") == []


def test_a_deleted_entity_is_only_marked_as_deleted(ada: Client, folder: Path) -> None:
    ada("delete_entities", names=["Engine"])
    path = find_file(folder, ada("get_current_project"))
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        [(deleted_at,)] = database.execute("SELECT deleted_at FROM entities WHERE name = 'Engine'").fetchall()
        assert parse_time(deleted_at) > 0
    finally:
        database.close()


def test_delete_observations_matches_the_text_and_counts(ada: Client) -> None:
    deletions = [{"entity_name": "Ada", "observations": ["lives in London", "never said"]}]
    assert ada("delete_observations", deletions=deletions)["deleted"] == 1
    [entity] = ada("open_nodes", names=["Ada"])["entities"]
    assert [each["content"] for each in entity["observations"]] == ["wrote the first program"]


def test_delete_relations_counts_and_leaves_the_entities(ada: Client) -> None:
    assert ada("delete_relations", relations=[DESIGNS, DESIGNS | {"relation_type": "x"}])["deleted"] == 1
    assert ada.graph() == (["Ada", "Engine"], [])


# Transports.


def test_stdio_is_the_usual_transport(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}
    words = command("--transport", "stdio", "--data-dir", tmp_path)
    for given in (words, [word for word in words if word not in ("--transport", "stdio")]):
        done = subprocess.run(
            given, input=json.dumps(hello), capture_output=True, check=True, env=environment(), text=True, timeout=HANG
        )
        assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "everkept"


def test_http_serves_the_same_tools_on_the_port_of_the_command_line(tmp_path: Path) -> None:
    with http_server(tmp_path, "--no-token") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.url.endswith("/mcp")
