"""What calls of the graph's tools cost: questions, rows and ways to another thread."""

from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.settings import read_settings
from sqlite_watch import Watch, watched
from tool_calls import Client

NAMES = [f"Thing {number}" for number in range(30)]
ENTITIES = [
    {"name": name, "entityType": "thing", "observations": [f"{name} is red", f"{name} is round"]} for name in NAMES
]
RELATIONS = [{"from": one, "to": other, "relationType": "knows"} for one, other in pairwise(NAMES)]


@pytest.fixture(params=["everkept", "server-memory"])
def dialect(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watched() as watch:
        yield watch


@pytest.fixture
async def client(dialect: str, tmp_path: Path, watch: Watch) -> AsyncIterator[Client]:
    """A client over stdio that has stored a graph, and read something of it."""
    settings = {"data_dir": tmp_path, "project": "one", "dialect": dialect, "toolsets": "graph"}
    app = App(read_settings(settings, {}))
    client = Client(app)
    await client("create_entities", entities=ENTITIES)
    await client("create_relations", relations=RELATIONS)
    await client("search_nodes", query="red")
    await store(client, "the first one begins the log of the last commit")
    watch.begin()
    yield client
    await app.close()


async def store(client: Client, name: str) -> None:
    new = {"name": name, "entityType": "thing", "observations": [f"{name} is new"]}
    await client("create_entities", entities=[new])


async def test_to_open_an_entity_takes_four_questions_of_its_own_rows(client: Client, watch: Watch) -> None:
    opened = await client("open_nodes", names=["Thing 7"])
    assert len(opened["entities"]) == 1
    assert len(watch.questions) == 4  # who is meant; the entity, its observations, its relations
    assert watch.rows == 1 + 1 + 2 + 2
    assert watch.elsewhere == []


async def test_a_search_takes_no_way_to_another_thread(client: Client, watch: Watch) -> None:
    for query, found in (("Thing 7", 1), ("round", 20)):
        watch.begin()
        answer = await client("search_nodes", query=query)
        assert len(answer["entities"]) >= found
        assert len(watch.questions) <= 5
        assert watch.elsewhere == []


async def test_a_store_takes_no_way_to_another_thread(client: Client, watch: Watch) -> None:
    await store(client, "new")
    assert "COMMIT" in [each.sql for each in watch.statements]
    assert watch.elsewhere == []
    assert [each.sql for each in watch.statements].count("BEGIN IMMEDIATE") == 1


async def test_over_http_a_store_is_made_in_its_own_thread(tmp_path: Path, watch: Watch) -> None:
    app = App(read_settings({"data_dir": tmp_path, "project": "one", "transport": "http"}, {}))
    client = Client(app)
    for name in ("one", "two", "three"):
        await store(client, name)
    watch.begin()
    await store(client, "four")
    assert "COMMIT" in watch.elsewhere
    await app.close()


@pytest.mark.parametrize("limit", [10, 100])
async def test_a_page_takes_three_questions_of_its_own_rows(
    client: Client, watch: Watch, dialect: str, limit: int
) -> None:
    is_paged = dialect == "everkept"
    page = await client("read_graph", **({"limit": limit} if is_paged else {}))
    assert len(page["entities"]) == min(limit, len(NAMES) + 1) if is_paged else len(NAMES) + 1
    assert len(watch.questions) == 3
    observations = sum(len(entity["observations"]) for entity in page["entities"])
    one_more = int(is_paged and limit < len(NAMES))  # tells that there are more
    assert watch.rows == len(page["entities"]) + one_more + observations + len(page["relations"])
