import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from conversations import Written, assistant, tell, user
from everkept.accounts.access_log import BEGUN_OUTCOME, LISTENING_OUTCOME, MAX_IDS, AccessLog, LoggedCall, find_calls
from everkept.app.app import App
from everkept.core.commits import note_touched
from everkept.core.sessions import Account, Session, act_as, format_private_name
from everkept.errors import Conflict
from everkept.settings import Settings
from everkept.transports.access_audit import audit
from everkept.transports.connection import JSON, ClientConnection
from everkept.transports.dispatch import Dispatcher, ProtocolError, Request
from records import DAY_ONE, MILLISECOND
from server_processes import META

ANNA = Account("anna")
CLIENT = {"io.modelcontextprotocol/clientInfo": {"name": "editor", "version": "2"}}
TEA = {"name": "Tea", "entity_type": "drink", "observations": ["a private text"]}


class Place:
    """An application whose log can be looked at, and broken."""

    def __init__(self, app: App, folder: Path) -> None:
        self.dispatcher = Dispatcher(app)
        self._folder = folder
        self.log = AccessLog(folder)
        audit(self.dispatcher, self.log)

    async def __call__(self, account: Account | None, method: str, **params: Any) -> JSON:
        connection = ClientConnection(Session(account=account))
        return await self.on(connection, method, _meta=META | CLIENT, **params)

    async def on(self, connection: ClientConnection, method: str, **params: Any) -> JSON:
        async def unheard(_method: str, _params: JSON) -> None: ...

        answer = await self.dispatcher.handle(
            connection, 1, method, params, notify=unheard, announce=unheard, address="192.0.2.7"
        )
        return answer.as_json()

    async def tool(self, account: Account | None, name: str, /, **arguments: Any) -> JSON:
        return await self(account, "tools/call", name=name, arguments=arguments)

    @property
    def noted(self) -> list[LoggedCall]:
        return find_calls(self.log, most=1000).calls

    @property
    def raw(self) -> str:
        return "".join(path.read_text(encoding="utf-8") for path in self._folder.rglob("*.jsonl"))

    def spoil(self) -> None:
        """From now on nothing can be written."""
        if self._folder.exists():
            shutil.rmtree(self._folder)
        self._folder.write_text("in the way", encoding="utf-8")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    app = App(Settings(tmp_path / "data", embedding_model="none"))
    yield Place(app, tmp_path / "access")
    await app.close()


async def test_a_change_is_noted_with_who_what_where_and_which_ids(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    made = await place.tool(ANNA, "create_entities", entities=[TEA], project="kitchen")
    project, change = place.noted
    assert (project.what, project.project, project.outcome) == ("create_project", "kitchen", "ok")
    assert (change.user, change.client, change.address) == ("anna", "editor 2", "192.0.2.7")
    assert (change.what, change.project, change.outcome) == ("create_entities", "kitchen", "ok")
    [kitchen] = await place.dispatcher.app.library.list_projects("active")
    assert project.project_id == change.project_id == kitchen.id
    [entity] = made["structuredContent"]["entities"]
    assert change.ids == (entity["id"], entity["observations"][0]["id"])
    assert change.count == 2
    assert place.raw.count(BEGUN_OUTCOME) == 2


async def test_no_text_and_no_question_is_in_the_log(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    await place.tool(ANNA, "create_entities", entities=[TEA], project="kitchen")
    found = await place.tool(ANNA, "search_nodes", query="private text", project="kitchen")
    assert found["structuredContent"]["entities"]
    read = place.noted[-1]
    assert read.length == len("private text") + len("kitchen")
    assert read.count == 2
    assert "private" not in place.raw
    assert "Tea" not in place.raw


async def test_a_call_that_fails_is_noted_with_its_code(place: Place) -> None:
    answer = await place.tool(ANNA, "switch_project", name="nowhere")
    assert answer["isError"]
    with pytest.raises(ProtocolError):
        await place.tool(ANNA, "no_such_tool")
    first, second = place.noted
    assert (first.outcome, first.project, first.ids) == ("not_found", "nowhere", ())
    assert (second.what, second.outcome) == ("no_such_tool", "invalid_request")


async def test_resources_are_noted_with_the_ids_that_came_out(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    await place.tool(ANNA, "create_entities", entities=[TEA], project="kitchen")
    uri = "memory://projects/kitchen/knowledge-graph"
    [content] = (await place(ANNA, "resources/read", uri=uri))["contents"]
    [entity] = json.loads(content["text"])["entities"]
    read = place.noted[-1]
    assert (read.what, read.outcome) == (uri, "ok")
    assert entity["id"] in read.ids
    assert read.project == "kitchen"
    assert read.project_id == place.noted[0].project_id is not None
    with pytest.raises(ProtocolError):
        await place(ANNA, "resources/read", uri="memory://nothing")
    assert (place.noted[-1].what, place.noted[-1].outcome) == ("memory://nothing", "not_found")


async def test_many_ids_are_counted_and_some_are_named(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    entities = [{"name": f"Cup {n}", "entity_type": "thing"} for n in range(MAX_IDS + 10)]
    await place.tool(ANNA, "create_entities", entities=entities, project="kitchen")
    change = place.noted[-1]
    assert (change.count, len(change.ids)) == (MAX_IDS + 10, MAX_IDS)


async def test_what_the_owner_does_is_not_noted(place: Place) -> None:
    await place.tool(None, "create_project", name="kitchen")
    await place(None, "resources/read", uri="memory://projects/kitchen/knowledge-graph")
    assert place.noted == []
    place.spoil()
    assert not (await place.tool(None, "list_projects"))["isError"]


@pytest.mark.parametrize("account", [ANNA, Account("office", is_peer=True)])
async def test_what_cannot_be_noted_is_not_done_and_not_told(place: Place, account: Account) -> None:
    place.spoil()
    answer = await place.tool(account, "list_projects")
    assert answer["isError"]
    assert answer["structuredContent"]["error"] == "unavailable"
    assert "projects" not in answer["structuredContent"]
    answer = await place.tool(account, "create_project", name="kitchen")
    assert answer["isError"]
    assert await place.dispatcher.app.library.list_projects() == []
    with pytest.raises(ProtocolError) as caught:
        await place(account, "resources/read", uri="memory://status")
    assert caught.value.code == -32603


async def test_a_change_that_is_done_is_answered_although_its_end_is_not_noted(place: Place) -> None:
    async def change(request: Request) -> JSON:
        place.spoil()
        return {"structuredContent": {"id": "x"}, "isError": False}

    place.dispatcher.methods["tools/call"] = change
    audit(place.dispatcher, place.log)
    answer = await place.tool(ANNA, "create_project", name="kitchen")
    assert answer["structuredContent"] == {"id": "x"}


async def test_a_project_that_is_deleted_is_noted_with_the_id_it_had(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    made = place.noted[-1].project_id
    gone = await place.tool(ANNA, "delete_project", name="kitchen")
    assert not gone["isError"], gone
    assert place.noted[-1].project_id == made is not None


async def test_lists_and_subscriptions_are_noted_too(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    uri = "memory://projects/kitchen/knowledge-graph"
    await place(ANNA, "resources/list")
    assert (place.noted[-1].what, place.noted[-1].outcome) == ("resources/list", "ok")
    place.dispatcher.close()  # so that the stream ends at once
    wanted = {"resourceSubscriptions": [uri]}
    await place(ANNA, "subscriptions/listen", notifications=wanted)
    listened = place.noted[-1]
    assert (listened.what, listened.outcome) == (f"subscriptions/listen {uri}", "ok")
    assert listened.count == 1
    assert place.raw.count(LISTENING_OUTCOME) == 1
    await place(None, "resources/list")
    assert len(place.noted) == 3


async def test_a_subscription_that_cannot_be_noted_does_not_begin(place: Place) -> None:
    await place.tool(ANNA, "create_project", name="kitchen")
    uri = "memory://projects/kitchen/knowledge-graph"
    connection = ClientConnection(Session(account=ANNA))
    await place.on(connection, "resources/subscribe", uri=uri)
    assert place.noted[-1].what == f"resources/subscribe {uri}"
    assert place.noted[-1].project == "kitchen"
    await place.on(connection, "resources/unsubscribe", uri=uri)
    place.spoil()
    with pytest.raises(ProtocolError):
        await place.on(connection, "resources/subscribe", uri=uri)
    assert not connection.subscriptions
    connection.close()


class Guest:
    """Anna, whose every call must be found in the log by what it gave out or changed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._connection = ClientConnection(Session(account=ANNA))
        self.called: set[str] = set()

    async def tool(self, name: str, touches: str | None = None, /, **arguments: Any) -> JSON:
        """Notes at least `touches`; None: its answer says what."""
        params = {"name": name, "arguments": arguments}
        answer = await self._place.on(self._connection, "tools/call", **params)
        assert not answer["isError"], answer
        self.called.add(name)
        self._check(name, touches)
        return answer["structuredContent"]

    async def read(self, uri: str, touches: str) -> None:
        await self._place.on(self._connection, "resources/read", uri=uri)
        self.called.add(uri)
        self._check(uri, touches)

    def _check(self, what: str, touches: str | None) -> None:
        noted = self._place.noted[-1]
        assert (noted.what, noted.outcome) == (what, "ok")
        assert touches in noted.ids if touches else noted.ids, noted
        assert noted.count >= len(noted.ids)


async def _offered(app: App) -> set[str]:
    with act_as(ANNA):
        listed = await app.resources.list_resources(Session(account=ANNA))
        return {tool.name for tool in app.tools} | {info.uri for info in listed}


async def test_whatever_gives_out_or_changes_a_record_is_found_by_its_id(place: Place) -> None:
    app = place.dispatcher.app
    past = format_private_name("history", "anna")
    await app.library.create(past, "")
    await tell(
        (await app.library.open(past))[1],
        "s1",
        user("The kettle raises a KeyError", facets={"problem": True}),
        assistant("Fixed it by boiling.", code=(Written("def boil(): ...", "python", "a.py"),)),
    )
    anna = Guest(place)
    kitchen = (await anna.tool("create_project", name="kitchen"))["id"]
    for name in ("list_projects", "get_current_project"):
        await anna.tool(name, kitchen)
    await anna.tool("switch_project", kitchen, name="kitchen")

    cup = {"name": "Cup", "entity_type": "thing"}
    made = await anna.tool("create_entities", entities=[TEA, cup])
    tea = made["entities"][0]["id"]
    added = {"entity_name": "Tea", "contents": ["hot"]}
    await anna.tool("add_observations", observations=[added])
    drunk = {"from": "Tea", "to": "Cup", "relation_type": "is_in"}
    await anna.tool("create_relations", relations=[drunk])
    await anna.tool("search_nodes", tea, query="tea")
    await anna.tool("open_nodes", tea, names=["Tea"])
    await anna.tool("read_graph", tea)

    told = {"type": "semantic", "related_entities": [{"name": "Tea", "type": "drink", "relationship": "about"}]}
    liked = await anna.tool("store_memory", content="Anna likes tea.", scope="user", **told)
    memories = [
        await anna.tool("store_memory", content=f"Tea number {n} is hot", scope="session", **told) for n in range(4)
    ]
    first = memories[0]["memory_id"]
    await anna.tool("recall_memories", first, query="tea number 0")
    await anna.tool("get_memory_context", first, task_description="tea number 0")
    await anna.tool("search_knowledge_graph", first, entity="Tea")
    await anna.tool("search_knowledge_graph", tea, entity="Tea", include_memories=False)
    await anna.tool("search_knowledge_graph", tea)
    status = await anna.tool("get_memory_status")
    await anna.tool("update_memory", first, memory_id=first, importance=0.9)
    await anna.tool("tag_memory", first, memory_id=first, add=["hot"])
    await anna.tool("reflect_and_consolidate", first)
    await anna.tool("promote_memory", first, memory_id=first, target_scope="project")

    await anna.tool("recall_previous_discussions", query="kettle")
    await anna.tool("recall_previous_discussions", query="kettle", format="json")
    await anna.tool("find_similar_problems", problem_description="KeyError of a kettle")
    await anna.tool("search_code_history", query="boil")
    await anna.tool("unified_memory_search", query="tea number 0")
    await anna.tool("read_conversation", id="s1")

    await anna.read("memory://status", status["current_session"]["session_id"])
    await anna.read("memory://session/summary", memories[1]["memory_id"])
    await anna.read("memory://project/knowledge-graph", tea)
    await anna.read("memory://user/preferences", liked["memory_id"])
    await anna.read("memory://knowledge-graph", tea)
    await anna.read("memory://projects/kitchen/knowledge-graph", tea)
    offered = await _offered(app)

    last = memories[-1]["memory_id"]
    await anna.tool("forget_memory", last, memory_id=last)
    gone = [{"entity_name": "Tea", "observations": ["hot"]}]
    await anna.tool("delete_observations", deletions=gone)
    await anna.tool("delete_relations", relations=[drunk])
    await anna.tool("delete_entities", tea, names=["Tea"])
    for name in ("archive_project", "restore_project"):
        await anna.tool(name, kitchen, name="kitchen")
    await place.tool(ANNA, "delete_project", name="kitchen")
    assert place.noted[-1].project_id == kitchen
    assert anna.called | {"delete_project"} == offered


async def test_answers_that_name_no_ids_are_found_by_them_too(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "data", dialect="server-memory", embedding_model="none")
    app = App(settings)
    try:
        place = Place(app, tmp_path / "access")
        anna = Guest(place)
        entity = {"name": "Tea", "entityType": "drink", "observations": ["hot"]}
        relation = {"from": "Tea", "to": "Cup", "relationType": "is_in"}
        await anna.tool("create_entities", entities=[entity])
        tea = place.noted[-1].ids[0]
        await anna.tool("create_relations", relations=[relation])
        more = [{"entityName": "Tea", "contents": ["sweet"]}]
        await anna.tool("add_observations", observations=more)
        for name, arguments in (
            ("read_graph", {}),
            ("search_nodes", {"query": "hot"}),
            ("open_nodes", {"names": ["Tea"]}),
        ):
            await anna.tool(name, tea, **arguments)
        offered = await _offered(app)
        for uri in (uri for uri in offered if uri.startswith("memory:")):
            await anna.read(uri, tea)
        gone = [{"entityName": "Tea", "observations": ["sweet"]}]
        await anna.tool("delete_observations", deletions=gone)
        await anna.tool("delete_relations", relations=[relation])
        await anna.tool("delete_entities", tea, entityNames=["Tea"])
        assert anna.called == offered
    finally:
        await app.close()


async def test_a_change_that_failed_half_way_is_found_by_what_it_changed(place: Place) -> None:
    async def change(request: Request) -> JSON:
        note_touched(["half"])
        raise Conflict("Others keep changing it.")

    place.dispatcher.methods["tools/call"] = change
    audit(place.dispatcher, place.log)
    assert (await place.tool(ANNA, "create_project", name="kitchen"))["isError"]
    assert (place.noted[-1].outcome, place.noted[-1].ids) == ("conflict", ("half",))


async def test_where_not_all_is_named_what_was_changed_is(place: Place) -> None:
    async def change(request: Request) -> JSON:
        note_touched(["changed"])
        told = [{"id": str(number)} for number in range(MAX_IDS)]
        return {"structuredContent": {"shown": told}, "isError": False}

    place.dispatcher.methods["tools/call"] = change
    audit(place.dispatcher, place.log)
    await place.tool(ANNA, "create_project", name="kitchen")
    noted = place.noted[-1]
    assert (noted.count, noted.ids[:2]) == (MAX_IDS + 1, ("changed", "0"))
    found = find_calls(place.log, record=str(MAX_IDS - 1), most=10)
    assert (found.calls, found.unsure) == ([], 1)


async def test_the_end_of_a_call_has_a_moment_of_its_own(tmp_path: Path) -> None:
    moments = itertools.count(DAY_ONE, MILLISECOND)
    settings = Settings(tmp_path / "data", embedding_model="none")
    app = App(settings, clock=lambda: next(moments))
    place = Place(app, tmp_path / "access")
    await place.tool(ANNA, "create_project", name="kitchen")
    await app.close()
    begun, ended = (access for access in place.log.read() if access is not None)
    assert (begun.call, begun.outcome, ended.outcome) == (ended.call, BEGUN_OUTCOME, "ok")
    assert begun.at < ended.at
