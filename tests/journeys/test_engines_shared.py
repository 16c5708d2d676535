"""Commands beside servers, several servers at once, and restarts of all of them, on each engine."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine_journeys import (
    ENGINES,
    POSTGRES,
    REFERENCE,
    SERVERS,
    Place,
    beside,
    parameters,
    place,
    recalled,
    stored,
    wait_for_vectors,
)
from server_processes import StdioServer, wait_for_database
from surreal_server import CORES, PASSWORD, Server, fresh_namespace

LASTING = tuple(engine for engine in ENGINES if engine != "embedded-memory")
SHARED = (REFERENCE, *SERVERS)  # several processes at once
# Servers whose users differ are not neighbours: a command is told of one user.
ROUND = (POSTGRES, "embedded-file", "server-2", "server-3", REFERENCE)
CHOICES = ("EVERKEPT_ENGINE", "EVERKEPT_DEPLOYMENT_MODE")
TWO = ["Lunch is at noon", "Orders live in PostgreSQL"]
# Of one commit. What is asked for has their stems, and stands in none of them as it is.
PARTS = {"Router": "routes parcels", "Sorter": "sorted letters", "Cache": "caches stamps"}
STEMS = {"Router": "routing", "Sorter": "sorts", "Cache": "caching"}


# Both dialects and both ways to SurrealDB, and PostgreSQL; SQLite has the tests of each command.
@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("embedded-file", marks=pytest.mark.thorough),
        pytest.param("server-3", marks=pytest.mark.thorough),
        "postgres",
    ],
)
def test_commands_work_on_what_a_server_has_left(engine: str, tmp_path: Path) -> None:
    at = place(engine, tmp_path / "place")
    with at.serving() as server:
        orders = stored(server, TWO[1], tags=["db"])
        assert server.close_input() == 0
    at.told("remember", TWO[0], "--project", "shop")
    found = at.told("recall", "where are orders", "--project", "shop")["memories"]
    assert found[0]["id"] == orders
    connection = at.told("status")["connection"]
    assert (connection["engine"], connection["mode"]) == (at.product, at.mode)
    newest = at.told("log", "--project", "shop")["changes"][0]
    assert newest["summary"] == f'Added memory "{TWO[0]}"'
    assert at.told("undo", newest["change"])["undone"]["effect"] == f'Deleted memory "{TWO[0]}"'
    at.told("export", tmp_path / "exported")
    fresh = place(REFERENCE, tmp_path / "fresh")
    fresh.told("import", tmp_path / "exported")
    assert listed(fresh) == listed(at) == TWO[1:]
    assert at.told("doctor")["ok"]
    shown = at.run("config", "--json").stdout
    values = {each["setting"]: each["value"] for each in json.loads(shown)["settings"]}
    assert (values["engine"], values["deployment_mode"]) == (at.product, at.mode)
    assert PASSWORD not in shown


def listed(at: Place) -> list[str]:
    found = at.told("list", "--project", "shop")["memories"]
    return sorted(memory["content"] for memory in found)


@pytest.mark.thorough
def test_what_goes_round_all_engines_comes_back_as_it_was(tmp_path: Path) -> None:
    namespace = fresh_namespace()
    at = place(REFERENCE, tmp_path / "begun")
    with at.serving() as server:
        gone = stored(server, "The cart was slow")
        server.call("forget_memory", memory_id=gone)
        uses = {"name": "PostgreSQL", "type": "technology", "relationship": "uses"}
        stored(server, TWO[1], related_entities=[uses])
        stored(server, "Prefers tabs", "user")
        server.call("create_project", name="attic")
        server.call("create_entities", entities=parts())
        server.call("archive_project", name="attic")
        assert server.close_input() == 0
    checked: list[Any] = []
    for engine in ROUND:
        target = place(engine, tmp_path / f"to {engine}", namespace=namespace)
        checked.append(migrated(at, target))
        at = target
    for each in checked[1:]:
        assert each == checked[0]
    assert {store["store"] for store in checked[0]} == {"@user", "@history", "shop", "attic"}
    found = at.told("recall", "orders", "--project", "shop", "--strategy", "keyword")["memories"]
    assert [memory["content"] for memory in found] == TWO[1:]


def migrated(source: Place, target: Place) -> Any:
    """Counts and checksums of all stores, as the command tells them of both ends."""
    variables = {**source.variables, **target.variables}
    kept = {name: value for name, value in variables.items() if name not in CHOICES}
    both = Place(target.engine, target.folder, kept)
    return both.told("migrate", "--from", address(source), "--to", address(target))["stores"]


def address(at: Place) -> str:
    if at.engine in SERVERS:
        return at.variables["EVERKEPT_DATABASE_URL"]
    return f"{at.product}:{at.data}"


def test_a_folder_of_surrealdb_is_one_process_alone(tmp_path: Path) -> None:
    at = place("embedded-file", tmp_path / "place")
    with at.serving() as server:
        stored(server, TWO[0])
        for command in (["recall", "noon"], ["migrate", "--to", f"sqlite:{tmp_path / 'copy'}"]):
            ended = at.run(*command)
            assert (ended.returncode, ended.stdout) == (1, "")
            assert "in use by another process" in ended.stderr
            assert "local-server" in ended.stderr
        with at.serving() as second:
            question = {"name": "recall_memories", "arguments": {"query": "noon"}}
            result = second.ask(1, "tools/call", **question)["result"]
            assert result["isError"]
            assert "in use by another process" in result["content"][0]["text"]
        stored(server, TWO[1])
        assert server.close_input() == 0
    assert listed(at) == TWO


@pytest.mark.parametrize("engine", parameters(SHARED))
def test_servers_see_each_others_memories_at_once(engine: str, tmp_path: Path) -> None:
    at = place(engine, tmp_path / "place")
    other = at if engine == REFERENCE else beside(at, tmp_path / "elsewhere")
    with at.serving() as one, at.serving(session="2") as two, other.serving(session="3") as three:
        servers = [one, two, three]
        for number, server in enumerate(servers):
            stored(server, f"Thought {number} of many")
            texts = [f"Thought {each} of many" for each in range(number + 1)]
            for reader in servers:
                assert sorted(recalled(reader, "thought")) == texts
        one.call("create_entities", entities=parts())
        [found] = three.call("search_nodes", query="routing")["entities"]
        three.call("delete_entities", names=[found["id"]])
        assert two.call("search_nodes", query="routing")["entities"] == []
        two.call("create_project", name="new")
        known = three.call("list_projects")["projects"]
        assert {project["name"] for project in known} == {"shop", "new"}


@pytest.mark.parametrize("engine", parameters(LASTING))
def test_a_server_that_is_killed_and_started_again_knows_everything(engine: str, tmp_path: Path) -> None:
    at = place(engine, tmp_path / "place")
    facts = [f"Fact {number} about the harbour" for number in range(5)]
    with at.serving() as server:
        for fact in facts:
            stored(server, fact)
        server.call("create_entities", entities=parts())
        server.process.kill()
    with at.serving() as again:
        assert sorted(recalled(again, "harbour")) == facts
        assert found_parts(again) == list(PARTS)
        wait_for_vectors(again)
        assert again.close_input() == 0
    with at.serving() as last:
        assert sorted(recalled(last, "harbour")) == facts
        wait_for_vectors(last)
        meant = last.call("recall_memories", query="a port for ships", strategy="vector")
        assert len(meant["memories"]) == len(facts)


def parts() -> list[dict[str, Any]]:
    return [{"name": name, "entity_type": "part", "observations": [text]} for name, text in PARTS.items()]


def found_parts(server: StdioServer) -> Sequence[str]:
    """The names of those that are found by what is observed of them."""
    answers = [server.call("search_nodes", query=query) for query in STEMS.values()]
    return [entity["name"] for answer in answers for entity in answer["entities"]]


@contextmanager
def database(core: int, folder: Path) -> Generator[Server, None, None]:
    """A server of SurrealDB with its data on disk."""
    server = Server(core, folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.mark.parametrize("core", CORES)
def test_a_database_that_restarts_between_calls_is_found_again(core: int, tmp_path: Path) -> None:
    facts = [f"Fact {number} about the harbour" for number in range(3)]
    with database(core, tmp_path / "surreal") as surreal:
        at = place(f"server-{core}", tmp_path / "place", url=surreal.url)
        with at.serving() as server:
            stored(server, facts[0])
            server.call("create_entities", entities=parts())
            surreal.stop()
            surreal.start()
            assert recalled(server, "harbour") == facts[:1]
            assert found_parts(server) == list(PARTS)
            stored(server, facts[1])
            surreal.stop()
            kept_here = stored(server, facts[2])
            assert facts[2] in recalled(server, "harbour")
            assert server.call("recall_memories", query="harbour")["degraded"] is True
            surreal.start()
            wait_for_database(partial(server.call, "get_memory_status"))
            server.call("tag_memory", memory_id=kept_here, add=["late"])
            assert sorted(recalled(server, "harbour")) == facts
            assert server.close_input() == 0
        with beside(at, tmp_path / "elsewhere").serving() as other:
            answer = other.call("recall_memories", query="harbour", strategy="keyword")
            assert not answer.get("degraded")
            tags = {memory["content"]: memory["tags"] for memory in answer["memories"]}
            assert tags == {facts[0]: [], facts[1]: [], facts[2]: ["late"]}
            assert found_parts(other) == list(PARTS)
