import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.records import RecordFilter
from everkept.core.sessions import Account, Session, act_as
from everkept.errors import EverkeptError, NotFound, ReadOnly
from everkept.settings import read_settings
from everkept.tools.tool import Effect
from hash_embedder import HashingEmbedder
from tool_calls import Client

GATEWAY: dict[str, Any] = {
    "upstream": {"command": "nowhere"},
    "tools": [
        {
            "name": "elsewhere",
            "description": "Asks another server.",
            "inputSchema": {"type": "object", "properties": {}},
            "upstream": {"tool": "any", "paramMapping": {}},
        }
    ],
}


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    folder = tmp_path / "work"
    (folder / "memory-bank").mkdir(parents=True)
    settings = read_settings(
        {"data_dir": tmp_path / "data", "transport": "http", "path": folder, "project": "team"}, {}
    )
    app = App(settings, embedder=HashingEmbedder())
    for name in ("anna", "bob"):
        await app.accounts.create_token(name, "")
    await app.accounts.create_token("berlin", "", peer=True)
    yield app
    await app.close()


def client(app: App, name: str = "", *, peer: bool = False) -> Client:
    account = Account(name, peer) if name else None
    return Client(app, Session(client="editor 1", account=account))


async def remember(who: Client, content: str, scope: str = "project", **more: Any) -> Any:
    return await who("store_memory", content=content, type="semantic", scope=scope, **more)


async def recalled(who: Client, query: str) -> list[str]:
    found = await who("recall_memories", query=query)
    return [memory["content"] for memory in found["memories"]]


async def test_a_shared_project_is_one_and_what_is_the_users_is_each_ones_own(app: App) -> None:
    owner, anna, bob = client(app), client(app, "anna"), client(app, "bob")
    await remember(owner, "The deploy needs the staging key")
    await remember(owner, "The owner likes deploys on Monday", "user")
    project = await app.library.get_project("team")
    await app.accounts.grant("anna", project, "write")
    await app.accounts.grant("bob", project, "read")
    await remember(anna, "Anna's deploy runs at night")
    await remember(anna, "Anna prefers short deploy notes", "user")
    shared = {"The deploy needs the staging key", "Anna's deploy runs at night"}
    assert set(await recalled(anna, "deploy")) == {*shared, "Anna prefers short deploy notes"}
    assert set(await recalled(bob, "deploy")) == shared
    assert set(await recalled(owner, "deploy")) == {*shared, "The owner likes deploys on Monday"}
    with pytest.raises(ReadOnly, match='read-only access to project "team"'):
        await remember(bob, "Bob was here")


async def test_without_a_grant_the_configured_project_is_an_own_one(app: App) -> None:
    await remember(client(app), "The deploy needs the staging key")
    anna = client(app, "anna")
    assert await recalled(anna, "deploy") == []
    await remember(anna, "Anna's deploy runs at night")
    assert await recalled(anna, "deploy") == ["Anna's deploy runs at night"]
    assert await recalled(client(app), "deploy") == ["The deploy needs the staging key"]
    current = await anna("get_current_project")
    assert current["name"] == "team"


async def test_the_log_and_the_memory_say_who_it_was(app: App) -> None:
    anna = client(app, "anna")
    await remember(anna, "The deploy needs the staging key", author="claude")
    await anna("create_entities", entities=[{"name": "Redis", "entity_type": "thing"}])
    [project] = [p for p in await app.library.list_projects() if p.name.startswith("team")]
    _, store = await app.library.open(project.name)
    assert {change.client for change in await store.read_changes()} == {"anna (editor 1)"}
    assert await store.list_authors() == ["anna (claude)"]


async def test_care_in_the_background_is_nobodys(app: App) -> None:
    anna = client(app, "anna")
    await remember(anna, "The deploy needs the staging key", "user")
    await app.memory_access.catch_up(Session(), 10)
    status = await anna("get_memory_status")
    assert status["storage"]["embeddings"] == {"stored": 1, "pending": 0}


async def test_the_end_of_a_server_sums_up_each_accounts_sessions(app: App) -> None:
    anna, bob = client(app, "anna"), client(app, "bob")
    for who, said in ((anna, "redis limits logins"), (bob, "invoices stream rows")):
        await remember(who, said, session_id="s1")
    await app.end_sessions()
    for name, said in (("anna", "redis"), ("bob", "invoices")):
        _, store = await app.library.open(f"team ({name})")
        [summary] = await store.get([f"{name} s1"])
        assert said in summary.text
        [newest] = await store.read_changes(limit=1, newest_first=True)
        assert newest.client == name


async def test_the_bank_and_other_servers_do_not_exist_for_an_account(tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    file.write_text(json.dumps(GATEWAY), encoding="utf-8")
    bank = tmp_path / "work" / "memory-bank"
    bank.mkdir(parents=True)
    (bank / "progress.md").write_text("# Progress\n\nzebra deploys\n", encoding="utf-8")
    app = App(
        read_settings(
            {
                "data_dir": tmp_path / "data",
                "transport": "http",
                "path": bank.parent,
                "toolsets": "memories,graph,history,bank,gateway",
                "gateway_config": file,
            },
            {},
        ),
        embedder=HashingEmbedder(),
    )
    await app.accounts.create_token("anna", "")
    anna, uri = client(app, "anna"), "memory-bank://progress.md"
    offered = {tool.name for tool in app.tools}
    assert {"elsewhere", "track_progress", "recall_memories"} <= offered
    assert "zebra" in (await app.resources.read(Session(), uri)).text
    with act_as(anna.session.account):
        own = {tool.name for tool in app.tools}
        assert app.gateway is None
        assert "memory bank" not in app.instructions
        assert not [each for each in app.resources.list_templates() if "bank" in each.uri]
        assert not app.resources.has_resource(uri)
    assert own < offered
    assert not [name for name in own if "bank" in name or "progress" in name]
    for name in ("elsewhere", "track_progress", "no_such_tool"):
        with pytest.raises(NotFound, match="not found") as refused:
            await anna(name)
        assert not [each for each in offered - own - {name} if each in str(refused.value)]
    with pytest.raises(NotFound):
        await app.resources.read(anna.session, uri)
    assert uri not in {each.uri for each in await app.resources.list_resources(anna.session)}
    told = [
        await anna("recall_memories", query="zebra", include_bank=True),
        await anna("unified_memory_search", query="zebra deploys"),
    ]
    assert "progress.md" not in str(told)
    await app.close()


async def test_a_peer_is_offered_only_what_reads(app: App) -> None:
    berlin = client(app, "berlin", peer=True)
    with act_as(berlin.session.account):
        assert {tool.effect for tool in app.tools} == {Effect.READS, Effect.SESSION_ONLY}
        assert "store_memory" not in app.instructions
    with pytest.raises(ReadOnly):
        await remember(berlin, "x")


async def test_whose_session_it_is_counts_though_nobody_said_who_is_acting(app: App) -> None:
    await client(app)("create_project", name="secret")
    anna = client(app, "anna")
    assert (await anna("list_projects"))["projects"] == []
    assert "secret" not in str(await app.resources.list_resources(anna.session))
    with act_as(Account("bob")):  # a session of nobody's widens nothing
        assert (await client(app)("list_projects"))["projects"] == []


async def test_a_status_tells_an_account_of_its_own_alone(app: App) -> None:
    owner, anna = client(app), client(app, "anna")
    for said in ("one", "two"):
        await remember(owner, said, "user")
    await remember(anna, "three", "user")
    status = await anna("get_memory_status")
    assert status["counts"]["total"] == 1
    assert status["connection"].get("path") is None
    assert status["storage"]["database_size_bytes"] == 0
    assert (await owner("get_memory_status"))["connection"]["path"]


async def test_no_error_names_what_is_kept_below(app: App) -> None:
    anna = client(app, "anna")
    await anna("create_project", name="own")
    await anna("archive_project", name="own")
    for tool, arguments in (
        ("archive_project", {"name": "own"}),
        ("switch_project", {"name": "own"}),
        ("create_project", {"name": "own"}),
        ("read_graph", {"project": "own"}),
    ):
        with pytest.raises(EverkeptError) as refused:
            await anna(tool, **arguments)
        assert "(anna)" not in str(refused.value.to_envelope())


async def test_what_is_shared_for_reading_is_neither_promoted_nor_superseded(app: App) -> None:
    owner, anna = client(app), client(app, "anna")
    kept = (await remember(owner, "The deploy needs the staging key"))["memory_id"]
    await app.accounts.grant("anna", await app.library.get_project("team"), "read")
    for work in (
        anna("promote_memory", memory_id=kept, target_scope="user"),
        remember(anna, "The deploy needs no key", "user", supersedes=kept),
        anna("forget_memory", memory_id=kept),
        anna("tag_memory", memory_id=kept, add=["x"]),
    ):
        with pytest.raises(ReadOnly):
            await work
    await app.memory_access.catch_up(Session(), 10)
    assert await recalled(anna, "deploy") == ["The deploy needs the staging key"]
    assert await recalled(owner, "deploy") == ["The deploy needs the staging key"]
    assert [p.name for p in await app.library.list_projects()] == ["team"]  # anna has made nothing


async def test_the_owners_commands_show_nothing_that_is_an_accounts_alone(app: App) -> None:
    await remember(client(app), "The owner deploys")
    await remember(client(app, "anna"), "Anna deploys in private", "user")
    everywhere = await app.memory_access.list_newest(Session(), RecordFilter(), 10, everywhere=True)
    assert [record.text for _, record in everywhere] == ["The owner deploys"]


async def test_an_account_is_told_what_it_may_do_with_each_project(app: App) -> None:
    owner, anna = client(app), client(app, "anna")
    for name in ("read here", "written here", "hidden"):
        await owner("create_project", name=name)
    for name, access in (("read here", "read"), ("written here", "write")):
        await app.accounts.grant("anna", await app.library.get_project(name), access)
    await anna("create_project", name="hers")
    listed = (await anna("list_projects"))["projects"]
    assert {each["name"]: each["access"] for each in listed} == {
        "hers": "own",
        "read here": "read",
        "written here": "write",
    }
    assert not [p for p in (await owner("list_projects"))["projects"] if "access" in p]


async def test_who_may_only_read_keeps_a_conversation_for_themselves(app: App) -> None:
    owner, anna = client(app), client(app, "anna")
    await remember(owner, "The deploy needs the staging key")
    await app.accounts.grant("anna", await app.library.get_project("team"), "read")
    kept = [(await remember(anna, f"Deploy step {n} failed", "session"))["memory_id"] for n in range(4)]
    for scopes in ({}, {"scope": "session"}):
        found = await anna("recall_memories", query="deploy step", **scopes)
        assert set(kept) <= {memory["id"] for memory in found["memories"]}
    assert "Deploy step 0 failed" in (await anna("get_memory_context"))["context_block"]
    found = await anna("recall_memories", query="deploy step", scope="session")
    assert {memory["access_count"] for memory in found["memories"]} == {3}
    status = await anna("get_memory_status")
    assert status["current_session"]["memories_this_session"] == 4
    await anna("update_memory", memory_id=kept[0], content="Deploy step 0 failed twice")

    made = (await anna("reflect_and_consolidate"))["consolidated_memories"]
    assert [each["scope"] for each in made] == ["user"]
    with pytest.raises(ReadOnly, match="Promote it to `user`"):
        await anna("promote_memory", memory_id=kept[0], target_scope="project")
    await anna("promote_memory", memory_id=kept[0], target_scope="user")
    another = client(app, "anna")  # another conversation
    assert "Deploy step 0 failed twice" in await recalled(another, "deploy step")
    assert "Deploy step 1 failed" not in await recalled(another, "deploy step")

    for who in (owner, client(app, "bob")):
        assert not [text for text in await recalled(who, "deploy step") if "step" in text]
    _, store = await app.library.open("team")
    assert {change.client for change in await store.read_changes()} == {"editor 1"}
    await app.end_sessions()
    with pytest.raises(ReadOnly):
        await remember(anna, "The deploy needs no key")


async def test_an_account_without_a_past_is_not_sent_to_a_command_of_the_owners(app: App) -> None:
    for who, is_told in ((client(app), True), (client(app, "anna"), False)):
        for tool in ("recall_previous_discussions", "unified_memory_search"):
            answer = await who(tool, query="deploys")
            assert answer["warnings"][0]["code"] == "no_history"
            assert ("everkept import history" in str(answer)) == is_told
