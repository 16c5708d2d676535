import asyncio
import json
from pathlib import Path

import pytest

from everkept.app.app import App
from everkept.app.resources import CURRENT_GRAPH, build_project_uri
from everkept.core.sessions import Account, Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import NoActiveProject, NotFound, ProjectOff
from everkept.families.memories.memory_documents import PREFERENCES_URI, STATUS_URI
from everkept.settings import read_settings
from standby import standing_by
from tool_calls import Client

PATIENCE = 60  # seconds; only a hang takes as long


def entity(name: str) -> dict[str, object]:
    return {"name": name, "entity_type": "thing"}


async def test_each_active_project_is_a_resource(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path, "toolsets": "graph"}, {}), library=MemoryLibrary())
    client = Client(app)
    await client("create_project", name="a b/ü".replace("/", "-"))
    await client("create_project", name="old")
    await client("archive_project", name="old")
    uris = [info.uri for info in await app.resources.list_resources(client.session)]
    assert uris == [CURRENT_GRAPH, "memory://projects/a%20b-%C3%BC/knowledge-graph"]
    assert await app.resources.read(client.session, uris[1])


async def test_the_graph_is_read_whole_and_belongs_to_the_session(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}), library=MemoryLibrary())
    client = Client(app)
    await client("create_project", name="one")
    for i in range(250):
        await client("create_entities", entities=[entity(f"n{i}")])
    document = json.loads((await app.resources.read(client.session, CURRENT_GRAPH)).text)
    assert len(document["entities"]) == 250
    assert "next_cursor" not in document
    with pytest.raises(NoActiveProject):
        await app.resources.read(Session(), CURRENT_GRAPH)


@pytest.mark.parametrize(
    "uri",
    [
        "memory://",
        "memory://projects//knowledge-graph",
        "memory://projects/none/knowledge-graph",
        "memory://projects/a/b/knowledge-graph",
        "http://example.org",
    ],
)
async def test_an_unknown_resource_is_not_found(tmp_path: Path, uri: str) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}), library=MemoryLibrary())
    with pytest.raises(NotFound):
        await app.resources.read(Session(), uri)
    with pytest.raises(NotFound):
        await app.watcher.subscribe(Session(), uri, lambda _: asyncio.sleep(0))
    await app.close()


async def test_subscribers_hear_of_changes_made_by_others(tmp_path: Path) -> None:
    settings = read_settings({"data_dir": tmp_path}, {})
    ours, theirs = App(settings), App(settings)  # as two processes do: nothing shared but files
    client, other = Client(ours), Client(theirs)
    await client("create_project", name="one")
    await client("create_project", name="two")
    heard: asyncio.Queue[str] = asyncio.Queue()
    uri = build_project_uri("one")
    end = await ours.watcher.subscribe(client.session, uri, heard.put)
    await other("create_entities", entities=[entity("a")], project="two")
    await other("create_entities", entities=[entity("a")], project="one")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == uri
    await other("archive_project", name="one")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == uri
    assert heard.empty()
    end()
    await ours.close()
    await theirs.close()


async def test_the_active_graph_changes_when_the_session_switches(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}))
    client = Client(app)
    await client("create_project", name="one")
    await client("create_project", name="two")
    heard: asyncio.Queue[str] = asyncio.Queue()
    await app.watcher.subscribe(client.session, CURRENT_GRAPH, heard.put)
    await client("switch_project", name="one")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == CURRENT_GRAPH
    await app.close()


async def test_a_project_that_is_off_shows_no_graph(tmp_path: Path) -> None:
    library = MemoryLibrary()
    app = App(read_settings({"data_dir": tmp_path}, {}), library=library)
    client = Client(app)
    await client("create_project", name="one")
    await library.set_off("one", off=True)
    for uri in (CURRENT_GRAPH, build_project_uri("one")):
        with pytest.raises(ProjectOff):
            await app.resources.read(client.session, uri)


async def test_a_document_of_what_was_last_seen_says_so(tmp_path: Path) -> None:
    async with standing_by(tmp_path / "standby") as standing:
        app = App(read_settings({"data_dir": tmp_path}, {}), library=standing.library)
        session = Session()
        await standing.library.open_user_store()
        [before] = [await app.resources.read(session, PREFERENCES_URI)]
        assert not before.is_degraded
        await standing.goes()
        document = await app.resources.read(session, PREFERENCES_URI)
        assert document.is_degraded
        assert document.text.startswith("> The database is unreachable.")
        status = await app.resources.read(session, STATUS_URI)
        assert status.is_degraded
        assert json.loads(status.text)
        await app.close()


async def test_a_subscriber_hears_only_of_what_the_account_may_see(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path}, {}), library=MemoryLibrary())
    owner = Client(app)
    for name in ("one", "two"):
        await owner("create_project", name=name)
    await app.accounts.create_token("anna", "")
    one = await app.library.get_project("one")
    await app.accounts.grant("anna", one, "read")
    anna = Session(account=Account("anna"))
    heard: asyncio.Queue[str] = asyncio.Queue()
    # The owner's own watch begins first: whose it is must not decide what anna's sees.
    await app.watcher.subscribe(owner.session, build_project_uri("two"), lambda _: asyncio.sleep(0))
    with pytest.raises(NotFound):
        await app.watcher.subscribe(anna, build_project_uri("two"), heard.put)
    uri = build_project_uri("one")
    await app.watcher.subscribe(anna, uri, heard.put)
    await owner("create_entities", entities=[entity("a")], project="one")
    assert await asyncio.wait_for(heard.get(), PATIENCE) == uri
    await app.accounts.revoke("anna", one)
    assert await asyncio.wait_for(heard.get(), PATIENCE) == uri
    assert await app.resources.read_state(anna, uri) == NotFound.code
    await app.close()
