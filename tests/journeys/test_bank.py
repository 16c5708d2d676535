"""A memory bank through real servers: two windows, a crash, an editor, another program's folder."""

import json
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server_processes import INITIALIZE, StdioServer, http_server, run, stdio_server

MANY_LOOKS = 600  # at a tenth of a second each: only a hang takes as long
EACH = 25  # entries that each of two windows makes

# As the public server leaves a folder, with a name from its earlier days.
PUBLIC_FOLDER = {
    "product-context.md": "# Project Overview\n\n## Description\n\nA shop.\n",
    "activeContext.md": "# Current Context\n\n## Ongoing Tasks\n\n- Ship the cart\n\n"
    "## Known Issues\n\n- Slow login\n\n## Next Steps\n\n- Measure\n\n"
    "## Current Session Notes\n\n- [10:30:00] [Alice] Work: began\n\n## Our own heading\n\nKept.\n",
    "progress.md": "# Project Progress\n\n## Update History\n\n- [2026-02-13 10:30:00] [Alice] - Feature: The cart\n",
    "decision-log.md": "# Decision Log\n\n## Use PostgreSQL\n- **Date:** 2026-02-13 10:30:00\n"
    "- **Author:** Alice\n- **Context:** Orders grow\n- **Decision:** PostgreSQL\n",
    "graph/graph.jsonl": "\n".join(
        [
            '{"type":"memory_bank_graph","source":"memory-bank-mcp","version":"1"}',
            '{"type":"entity_upsert","entity":{"id":"ent_dCaO4uichTpa","name":"Shop API",'
            '"entityType":"service","createdAt":"2026-03-02T13:00:00.000Z",'
            '"updatedAt":"2026-03-02T13:00:00.000Z"},"ts":"2026-03-02T13:00:00.000Z"}',
            '{"type":"observation_add","observation":{"id":"obs_5dNQbd6hsN2S",'
            '"entityId":"ent_dCaO4uichTpa","text":"Runs on port 8443","source":{"kind":"manual"},'
            '"timestamp":"2026-03-02T13:00:00.000Z"},"ts":"2026-03-02T13:00:00.000Z"}',
            "",
        ]
    ),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository with a bank that the public server made."""
    folder = tmp_path / "shop"
    for name, text in PUBLIC_FOLDER.items():
        path = folder / "memory-bank" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def one(data: Path, home: Path) -> Iterator[StdioServer]:
    with served(data, home, "Ada") as server:
        yield server


def served(data: Path, home: Path, name: str) -> Any:
    return stdio_server(data, "--toolsets", "all", "--path", home, "--username", name, "--project", "auto")


def opened(server: StdioServer) -> StdioServer:
    server.ask(0, "initialize", **INITIALIZE)
    return server


def text_of(home: Path, name: str) -> str:
    return (home / "memory-bank" / name).read_bytes().decode("utf-8")


def test_a_folder_of_the_public_server_is_all_there(one: StdioServer, home: Path) -> None:
    opened(one)
    digest = one.call("get_context_digest")["digest"]
    assert digest["currentContext"]["tasks"] == ["Ship the cart"]
    assert digest["recentDecisions"][0]["title"] == "Use PostgreSQL"
    [node] = one.call("graph_open_nodes", nodes=["shop api"])["entities"]
    assert node["id"] == "ent_dCaO4uichTpa"
    assert one.call("search_nodes", query="8443")["entities"][0]["name"] == "Shop API"
    one.call("update_tasks", add=["Write tests"])
    assert (home / "memory-bank" / "active-context.md").exists()
    assert not (home / "memory-bank" / "activeContext.md").exists()
    kept = text_of(home, "active-context.md")
    assert "## Our own heading\n\nKept.\n" in kept
    assert "- [10:30:00] [Alice] Work: began" in kept


def test_two_windows_lose_nothing_of_what_they_note(data: Path, home: Path) -> None:
    failures: list[str] = []

    def note(name: str) -> None:
        with served(data, home, name) as server:
            opened(server)
            for number in range(EACH):
                arguments = {"action": "Step", "description": f"{name} {number}"}
                answer = server.ask(1, "tools/call", name="track_progress", arguments=arguments)
                if answer["result"].get("isError"):
                    failures.append(str(answer))
                entity = {"name": f"{name} {number}", "entityType": "step"}
                server.call("graph_upsert_entity", **entity)

    threads = [threading.Thread(target=note, args=(name,)) for name in ("Ada", "Bob")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    progress = text_of(home, "progress.md")
    log = text_of(home, "graph/graph.jsonl")
    for name in ("Ada", "Bob"):
        for number in range(EACH):
            assert progress.count(f"[{name}] - Step: {name} {number}\n") == 1
            assert log.count(f'"name":"{name} {number}"') == 1
    assert "Feature: The cart" in progress


def test_what_a_killed_server_had_not_mirrored_comes_with_the_next_call(data: Path, home: Path) -> None:
    with served(data, home, "Ada") as server:
        opened(server)
        server.call("graph_open_nodes", nodes=["Shop API"])
        created = [{"name": "Orders DB", "entity_type": "database", "observations": []}]
        server.call("create_entities", entities=created)
        server.process.kill()
    with served(data, home, "Ada") as server:
        opened(server)
        server.call("graph_upsert_entity", name="Cart", entityType="service")
    lines = [json.loads(line) for line in text_of(home, "graph/graph.jsonl").splitlines()]
    names = [line["entity"]["name"] for line in lines if line["type"] == "entity_upsert"]
    assert sorted(names) == ["Cart", "Orders DB", "Shop API"]


def test_a_subscriber_hears_of_an_editors_change(one: StdioServer, home: Path) -> None:
    opened(one)
    uri = "memory-bank://progress.md"
    listed = one.ask(1, "resources/list")["result"]["resources"]
    assert uri in [resource["uri"] for resource in listed]
    for spelled in (uri, "memory-bank://progress"):
        [read] = one.ask(1, "resources/read", uri=spelled)["result"]["contents"]
        assert read["mimeType"] == "text/markdown"
        assert "The cart" in read["text"]
    one.ask(1, "resources/subscribe", uri=uri)
    (home / "memory-bank" / "progress.md").write_text("# By hand\n", encoding="utf-8")
    assert one.receive()["method"] == "notifications/resources/updated"
    [read] = one.ask(1, "resources/read", uri=uri)["result"]["contents"]
    assert read["text"] == "# By hand\n"


def test_recalling_reaches_the_bank(one: StdioServer) -> None:
    opened(one)
    for _ in range(MANY_LOOKS):
        answer = one.call("recall_memories", query="which database for orders", include_bank=True)
        if "warnings" not in answer:
            break
    assert answer["bank"][0]["file"] == "decision-log.md"
    assert one.call("recall_memories", query="which database for orders").get("bank") is None


def test_a_missing_bank_is_told_with_where_it_was_expected(data: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with served(data, tmp_path / "empty", "Ada") as server:
        opened(server)
        arguments = {"action": "a", "description": "b"}
        result = server.ask(1, "tools/call", name="track_progress", arguments=arguments)["result"]
        assert result["isError"]
        told = result["structuredContent"]
        assert told["expectedPath"] == str(tmp_path / "empty" / "memory-bank")
        assert told["suggestion"] == "Use initialize_memory_bank to create one."


def test_a_connection_without_state_names_the_store_in_each_call(data: Path, home: Path) -> None:
    with http_server(data, "--toolsets", "bank", "--no-token") as server:

        def call(tool: str, **arguments: Any) -> Any:
            _, message = server.ask("tools/call", {"name": tool, "arguments": arguments})
            return message["result"]

        assert call("get_memory_bank_status")["isError"]
        refused = call("register_store", storeId="shop", path=str(home))
        assert "everkept register-store ID PATH" in json.dumps(refused["structuredContent"])
        assert run("register-store", "shop", home, "--data-dir", data).returncode == 0
        status = call("get_memory_bank_status", storeId="shop")["structuredContent"]
        assert status["path"] == str(home / "memory-bank")
        assert call("get_memory_bank_status", storeId="shp")["isError"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--remote", "--remote-user", "me"], "--remote needs --remote-host"),
        (["--remote-host", "example.com"], "--remote-host needs --remote"),
        (["--mode", "sing"], "'sing' is not one of"),
        (["--folder", "../x"], "../x"),
        (["--path", "/does/not/exist"], "/does/not/exist"),
        (["--ssh-key", "/no/key"], "/no/key"),
        (["--toolsets", ""], "toolsets"),
        (["--remote", "--remote-user", "me", "--remote-host", "a b", "--remote-path", "x"], "a b"),
    ],
)
def test_options_that_do_not_go_together_are_told_at_the_start(data: Path, options: list[str], said: str) -> None:
    ended = run("serve", "--data-dir", data, *options)
    assert ended.returncode == 2
    assert said in ended.stderr
