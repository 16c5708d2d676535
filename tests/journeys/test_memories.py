"""Memories through real servers: several processes, crashes, sessions and their ends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.engines.sqlite.library import SqliteLibrary
from server_processes import INITIALIZE, StdioServer, http_server, stdio_server

MODEL = "everkept-minilm-1"
MANY_LOOKS = 600  # at a tenth of a second each: only a hang takes as long


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def one(data: Path) -> Iterator[StdioServer]:
    with stdio_server(data, "--project", "shop", MEMORY_SESSION_ID="one") as server:
        server.ask(0, "initialize", **INITIALIZE)
        yield server


@pytest.fixture
def two(data: Path) -> Iterator[StdioServer]:
    with stdio_server(data, "--project", "shop", MEMORY_SESSION_ID="two") as server:
        server.ask(0, "initialize", **INITIALIZE)
        yield server


def stored(server: StdioServer, content: str, scope: str = "project", **more: Any) -> str:
    answer = server.call("store_memory", content=content, type="semantic", scope=scope, **more)
    return answer["memory_id"]


def recalled(server: StdioServer, query: str, **more: Any) -> list[str]:
    """Asks again while the model loads: an answer that lacks a leg says so."""
    for _ in range(MANY_LOOKS):
        answer = server.call("recall_memories", query=query, **more)
        if "warnings" not in answer:
            break
    return [memory["content"] for memory in answer["memories"]]


def wait_for_vectors(server: StdioServer, count: int) -> None:
    """The background embeds; each look is a call to the server, which takes its time."""
    for _ in range(MANY_LOOKS):
        embeddings = server.call("get_memory_status")["storage"]["embeddings"]
        if embeddings["stored"] >= count:
            return
        server.call("recall_memories", query="anything at all", strategy="vector")
    raise AssertionError(embeddings)


def test_what_one_process_stores_another_recalls_by_words_and_by_meaning(one: StdioServer, two: StdioServer) -> None:
    stored(two, "Lunch is at noon")
    assert recalled(one, "lunch") == ["Lunch is at noon"]
    stored(one, "Purchases are kept in PostgreSQL")
    assert "Purchases are kept in PostgreSQL" in recalled(two, "PostgreSQL", strategy="keyword")
    wait_for_vectors(one, 2)
    found = recalled(two, "which database stores the orders?", strategy="vector", limit=1)
    assert found == ["Purchases are kept in PostgreSQL"]


def test_a_crash_before_the_vector_was_made_loses_nothing(data: Path, one: StdioServer) -> None:
    texts = [f"Fact number {number} about the harbour" for number in range(20)]
    for text in texts:
        stored(one, text)
    one.process.kill()
    one.process.wait()
    with stdio_server(data, "--project", "shop") as again:
        again.ask(0, "initialize", **INITIALIZE)
        assert len(recalled(again, "harbour", strategy="keyword", limit=50)) == len(texts)
        wait_for_vectors(again, len(texts))
        assert len(recalled(again, "a port for ships", strategy="vector", limit=50)) == len(texts)


def test_each_session_sees_its_own_and_all_see_the_projects_and_the_users(one: StdioServer, two: StdioServer) -> None:
    mine = stored(one, "A passing thought of one", "session")
    stored(one, "A lasting thought of the project")
    stored(one, "A general thought of the user", "user")
    assert len(recalled(one, "thought")) == 3
    assert "A passing thought of one" not in recalled(two, "thought")
    assert len(recalled(two, "thought")) == 2
    one.call("promote_memory", memory_id=mine, target_scope="user")
    assert "A passing thought of one" in recalled(two, "thought")


def test_the_end_of_a_server_leaves_a_summary_of_its_session(data: Path, one: StdioServer) -> None:
    stored(one, "Authentication uses signed cookies")
    stored(one, "Authentication fails when the clock is wrong", "session")
    assert one.close_input() == 0

    async def summary() -> str:
        library = SqliteLibrary(data)
        _, store = await library.open("shop")
        [session] = await store.get(["one"])
        await library.close()
        return session.text

    assert "uthentication" in asyncio.run(summary())


def test_two_processes_of_one_session_write_its_summary_once(data: Path) -> None:
    with (
        stdio_server(data, "--project", "shop", MEMORY_SESSION_ID="same") as first,
        stdio_server(data, "--project", "shop", MEMORY_SESSION_ID="same") as second,
    ):
        for server in (first, second):
            server.ask(0, "initialize", **INITIALIZE)
        for number in range(4):
            stored(first, f"The parser failed on line {number}", "session")
        stored(second, "The parser failed at the end of the file", "session")
        for server in (first, second):
            server.request(2, "tools/call", name="reflect_and_consolidate", arguments={})
        answers = [server.receive()["result"]["structuredContent"] for server in (first, second)]
        assert all("consolidated_memories" in answer for answer in answers)
        found = first.call("recall_memories", query="parser failed", limit=50)["memories"]
        assert len([m for m in found if not m.get("consolidated")]) == 1
        assert len([m for m in found if m.get("consolidated")]) == 5


def test_without_a_session_of_its_own_a_connection_passes_one(data: Path) -> None:
    with http_server(data, "--no-token") as server:
        note = {"content": "x", "type": "episodic", "scope": "session"}
        _, refused = server.ask("tools/call", {"name": "store_memory", "arguments": note})
        assert "session_id" in refused["result"]["content"][0]["text"]
        named = note | {"session_id": "s"}
        _, stored = server.ask("tools/call", {"name": "store_memory", "arguments": named})
        assert stored["result"]["structuredContent"]["scope"] == "session"
        query = {"query": "x", "session_id": "s"}
        _, found = server.ask("tools/call", {"name": "recall_memories", "arguments": query})
        assert len(found["result"]["structuredContent"]["memories"]) == 1


def test_the_four_documents_are_read_and_tell_of_changes(one: StdioServer, two: StdioServer) -> None:
    listed = one.ask(2, "resources/list")["result"]["resources"]
    uris = [
        "memory://status",
        "memory://session/summary",
        "memory://project/knowledge-graph",
        "memory://user/preferences",
    ]
    assert [resource["uri"] for resource in listed][:4] == uris
    one.ask(3, "resources/subscribe", uri="memory://user/preferences")
    stored(two, "Prefers tabs over spaces", "user")
    notice = one.receive()
    assert notice["method"] == "notifications/resources/updated"
    assert notice["params"]["uri"] == "memory://user/preferences"
    read = one.ask(4, "resources/read", uri="memory://user/preferences")
    [content] = read["result"]["contents"]
    assert content["mimeType"] == "text/markdown"
    assert "Prefers tabs over spaces" in content["text"]
    for number, uri in enumerate(uris):
        [content] = one.ask(10 + number, "resources/read", uri=uri)["result"]["contents"]
        assert content["text"]
