"""Several people at one server over HTTPS, with the official SDK's client."""

import asyncio
import json
import os
import shutil
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from server_processes import HANG, META
from team_server import OWNER, Team, call, team

MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
ADA, BEN = {"name": "Ada", "entity_type": "person"}, {"name": "Ben", "entity_type": "person"}
USERS = ("anna", "ben", "carla")
ACCEPT = {"Accept": "application/json, text/event-stream"}
BANK = {"get_context_digest", "track_progress", "initialize_memory_bank"}  # some of its tools


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    """Three users, each with a token; what a test stores it names after itself."""
    with team(tmp_path_factory.mktemp("team"), "--metrics") as found:
        for user in USERS:
            found.join(user, "--user", user)
        yield found


async def _works(client: Client, user: str, project: str) -> Any:
    """Stores under names that the others use at the same moment, and looks for everything."""
    await call(client, "create_project", name=project)
    for number in range(5):
        entity = {"name": f"Thing {number}", "entity_type": "x", "observations": [f"of {user}"]}
        await call(client, "create_entities", entities=[entity], project=project)
        fact = f"{project}: fact {number} of {user}"
        await call(client, "store_memory", content=fact, type="semantic", scope="user")
    return (
        await call(client, "search_nodes", query="of", project=project, limit=50),
        await call(client, "recall_memories", query="fact of", limit=50),
        await call(client, "list_projects"),
    )


@MODES
async def test_three_people_at_once_see_only_what_is_theirs(people: Team, mode: str) -> None:
    async def work(user: str) -> str:
        async with people.connect(user, mode) as client:
            return json.dumps(await _works(client, user, f"work {mode}"))

    seen = dict(zip(USERS, await asyncio.gather(*map(work, USERS)), strict=True))
    for user, text in seen.items():
        assert text.count(f"of {user}") >= 10
        assert all(f"of {other}" not in text for other in USERS if other != user)
        assert f'"work {mode}"' in text


@MODES
async def test_a_project_is_seen_from_the_moment_of_its_grant_to_its_end(people: Team, mode: str) -> None:
    name = f"shared {mode}"
    async with people.connect(OWNER, mode) as owner, people.connect("ben", mode) as ben:
        await call(owner, "create_project", name=name)
        await call(owner, "create_entities", entities=[ADA], project=name)
        hidden = await call(ben, "read_graph", project=name)
        assert hidden["error"] == "not_found"
        people.done("grant", name, "--user", "ben")
        graph = await call(ben, "read_graph", project=name)
        assert "error" not in graph
        refused = await call(ben, "create_entities", entities=[BEN], project=name)
        assert refused["error"] == "read_only"
        people.done("revoke", name, "--user", "ben")
        assert (await call(ben, "read_graph", project=name))["error"] == "not_found"


@MODES
async def test_a_subscription_is_told_of_what_its_user_may_see(people: Team, mode: str) -> None:
    project = f"followed {mode}"
    async with people.connect("anna", mode) as anna:
        await call(anna, "create_project", name=project)
        async with _following(people, "anna", project, mode) as news:
            await call(anna, "create_entities", entities=[ADA], project=project)
            assert await anext(news) == _uri(project)
    with pytest.raises(AssertionError, match="not subscribed"):
        async with _following(people, "ben", project, mode):
            pass


@MODES
async def test_a_revoked_token_is_told_nothing_more_by_its_open_stream(people: Team, mode: str) -> None:
    project, name = f"left {mode}", f"anna leaving {mode}"
    people.join(name, "--user", "anna")
    async with people.connect("anna", mode) as anna:
        await call(anna, "create_project", name=project)
        async with _following(people, name, project, mode) as news:
            people.done("token", "revoke", people.ids[name])
            await call(anna, "create_entities", entities=[ADA], project=project)
            assert [uri async for uri in news] == []  # it ends


def _uri(project: str) -> str:
    return f"memory://projects/{project.replace(' ', '%20')}/knowledge-graph"


@asynccontextmanager
async def _following(people: Team, user: str, project: str, mode: str) -> AsyncGenerator[AsyncIterator[str], None]:
    """The addresses that an open stream names as changed."""
    async with asyncio.timeout(HANG), people.http(user) as http:
        if mode == "legacy":
            _, headers = await _opened(people, http)
            body = {"jsonrpc": "2.0", "id": 2, "method": "resources/subscribe"}
            body |= {"params": {"uri": _uri(project)}}
            answer = await http.post(people.server.url, json=body, headers=headers)
            assert "error" not in answer.text, "not subscribed"
            asking = http.stream("GET", people.server.url, headers=headers)
        else:
            method = "subscriptions/listen"
            wanted = {"resourceSubscriptions": [_uri(project)]}
            params = {"_meta": META, "notifications": wanted}
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            headers = ACCEPT | {"MCP-Protocol-Version": mode, "Mcp-Method": method}
            asking = http.stream("POST", people.server.url, json=body, headers=headers)
        async with asking as response:
            told = _told(response)
            if mode != "legacy":
                granted = (await anext(told))["notifications"]
                assert granted == {"resourceSubscriptions": [_uri(project)]}, "not subscribed"
            yield (params["uri"] async for params in told)


async def _told(response: httpx2.Response) -> AsyncIterator[Any]:
    """What each notice of a stream says."""
    async for line in response.aiter_lines():
        text = line.removeprefix("data:").strip()
        if line.startswith("data:") and text:
            yield json.loads(text)["params"]


async def test_a_revoked_token_and_a_removed_user_are_refused_in_open_sessions(people: Team) -> None:
    people.join("dora", "--user", "dora")
    people.join("dora at home", "--user", "dora")
    async with people.http("dora") as http, people.http("dora at home") as home:
        sessions = [await _opened(people, http), await _opened(people, home)]
        people.done("token", "revoke", people.ids["dora"])
        assert [await _pinged(people, *each) for each in sessions] == [401, 200]
        people.done("account", "remove", "dora", "--yes")
        assert [await _pinged(people, *each) for each in sessions] == [401, 401]


async def test_a_session_is_of_no_use_with_the_token_of_another(people: Team) -> None:
    async with people.http("anna") as anna, people.http("ben") as ben:
        _, session = await _opened(people, anna)
        assert await _pinged(people, anna, session) == 200
        assert await _pinged(people, ben, session) == 404


async def _opened(people: Team, http: httpx2.AsyncClient) -> tuple[httpx2.AsyncClient, Any]:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    answer = await http.post(people.server.url, json=body, headers=ACCEPT)
    assert answer.status_code == 200, answer.text
    return http, ACCEPT | {"Mcp-Session-Id": answer.headers["mcp-session-id"]}


async def _pinged(people: Team, http: httpx2.AsyncClient, session: Any) -> int:
    body = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return (await http.post(people.server.url, json=body, headers=session)).status_code


async def test_an_account_is_offered_nothing_of_the_owners_bank(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with team(tmp_path, "--toolsets", "all", "--path", tmp_path / "here") as banked:
        banked.join("anna", "--user", "anna")
        async with banked.connect("anna") as anna, banked.connect(OWNER) as owner:
            hers = {tool.name for tool in (await anna.list_tools()).tools}
            ours = {tool.name for tool in (await owner.list_tools()).tools}
            assert ours >= BANK
            assert hers < ours
            assert not hers & BANK
            assert {"recall_memories", "search_nodes"} <= hers
            assert "error" not in await call(owner, "initialize_memory_bank", path=str(tmp_path / "here"))
            for tool in sorted(BANK):
                with pytest.raises(MCPError, match="Unknown tool"):
                    await call(anna, tool)
            documents = [str(each.uri) for each in (await anna.list_resources()).resources]
            assert not [uri for uri in documents if "bank" in uri]


async def test_another_server_has_no_use_of_the_protocol(people: Team) -> None:
    people.join("office", "--peer", "office")
    assert (await people.get("/mcp", "office")).status_code == 403
    assert (await people.get("/metrics", "office")).status_code == 403
    assert (await people.get("/peers/info", "office")).status_code == 200


async def test_nobody_can_say_to_come_from_another_machine(people: Team) -> None:
    async with people.http("carla") as http:
        http.headers["X-Forwarded-For"] = "203.0.113.9"
        _, session = await _opened(people, http)
        body = {"jsonrpc": "2.0", "id": 2, "method": "resources/list"}
        assert (await http.post(people.server.url, json=body, headers=session)).is_success
    noted = people.done("access-log", "--user", "carla", "--limit", 1)["accesses"]
    assert [(each["what"], each["address"]) for each in noted] == [("resources/list", "127.0.0.1")]


async def test_the_log_says_who_did_what_and_not_what_it_was_about(people: Team) -> None:
    async with people.connect("carla") as carla:
        await call(carla, "create_project", name="diary")
        entity = {"name": "Secretive", "entity_type": "x"}
        made = await call(carla, "create_entities", entities=[entity], project="diary")
        await call(carla, "search_nodes", query="Secretive", project="diary")
    noted = people.done("access-log", "--user", "carla", "--project", "diary")["accesses"]
    assert [each["what"] for each in noted] == ["create_project", "create_entities", "search_nodes"]
    [entity_id] = noted[1]["ids"]
    assert entity_id == made["entities"][0]["id"]
    assert {each["address"] for each in noted} == {"127.0.0.1"}
    assert {each["outcome"] for each in noted} == {"ok"}
    assert all(each["client"] for each in noted)
    path = people.data_dir / "access" / "accounts" / "user-carla" / "access.jsonl"
    assert "Secretive" not in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 or os.name != "posix"


async def test_anybody_may_ask_whether_the_server_lives_and_nobody_learns_more(people: Team) -> None:
    for path, word in (("/health", "ok"), ("/ready", "ready")):
        answer = await people.get(path)
        assert (answer.status_code, answer.json()) == (200, {"status": word})
        head = await people.get(path, method="HEAD")
        assert (head.status_code, head.content) == (200, b"")
    async with people.http() as http:
        evil = await http.get(people.root + "/health", headers={"Host": "evil.example"})
    assert evil.status_code == 421


async def test_metrics_are_for_the_owner_and_name_nobody(people: Team) -> None:
    assert (await people.get("/metrics")).status_code == 401
    assert (await people.get("/metrics", "anna")).status_code == 403
    async with people.connect("anna") as anna:
        await call(anna, "create_project", name="nameless")
        text = (await people.get("/metrics", OWNER)).text
    assert 'everkept_calls_total{tool="create_project",outcome="ok"}' in text
    assert 'everkept_refused_total{status="401"}' in text
    assert "everkept_degraded 0" in text
    sessions = next(line for line in text.splitlines() if line.startswith("everkept_open_sess"))
    assert int(sessions.split()[1]) >= 1
    assert not any(name in text for name in (*USERS, "nameless"))


async def test_the_address_is_told_with_https_and_without_a_warning(people: Team) -> None:
    assert people.server.said[0].startswith("everkept: ready, serving https://127.0.0.1:")
    assert not any("not encrypted" in line for line in people.server.said)
    async with httpx2.AsyncClient(timeout=HANG) as stranger:
        with pytest.raises(httpx2.ConnectError):  # who does not trust the certificate
            await stranger.get(people.root + "/health")


async def test_who_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    with team(tmp_path, "--rate-limit", 3) as few:
        few.join("anna", "--user", "anna")
        answers = [await few.get("/nothing", "anna") for _ in range(4)]
        assert [answer.status_code for answer in answers] == [404, 404, 404, 429]
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 20
        error = answers[-1].json()["error"]
        assert error["data"]["error"] == "rate_limited"
        assert (await few.get("/nothing", OWNER)).status_code == 404
        assert (await few.get("/metrics", OWNER)).status_code == 404  # nobody asked for them


async def test_a_log_that_cannot_be_written_stops_accounts_and_not_the_owner(tmp_path: Path) -> None:
    with team(tmp_path) as unnoted:
        unnoted.join("anna", "--user", "anna")
        shutil.rmtree(unnoted.data_dir / "access")
        (unnoted.data_dir / "access").write_text("in the way", encoding="utf-8")
        async with unnoted.connect("anna") as anna, unnoted.connect(OWNER) as owner:
            refused = await call(anna, "create_project", name="hers")
            assert refused["error"] == "unavailable"
            assert str(tmp_path) not in json.dumps(refused)
            assert "error" not in await call(owner, "create_project", name="ours")
        names = [each["name"] for each in unnoted.done("list-projects")["projects"]]
        assert names == ["ours"]
        assert (await unnoted.get("/ready")).status_code == 200
    assert any("access log" in line for line in unnoted.server.said)
