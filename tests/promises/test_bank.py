"""The promises of the memory bank server in their published order. `docs/differences.md` has the differences."""

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.settings import read_settings
from server_processes import StdioServer, stdio_server
from ssh_servers import LOOPBACK, Keys, asyncssh_server

CORE_FILES = ("product-context.md", "active-context.md", "progress.md", "decision-log.md", "system-patterns.md")
TOOLS = {
    "core": "initialize_memory_bank set_memory_bank_path get_memory_bank_status read_memory_bank_file "
    "write_memory_bank_file list_memory_bank_files search_memory_bank get_context_bundle get_context_digest",
    "progress": "track_progress add_progress_entry update_active_context add_session_note update_tasks",
    "decisions": "log_decision",
    "modes": "switch_mode get_current_mode process_umb_command complete_umb",
    "graph": "graph_search graph_upsert_entity graph_add_observation graph_link_entities graph_unlink_entities "
    "graph_open_nodes graph_delete_entity graph_delete_observation graph_rebuild graph_compact",
    "stores": "list_stores select_store register_store unregister_store",
    "backups": "create_backup list_backups restore_backup",
    "batches": "batch_read_files batch_write_files",
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
SCHEME = "memory-bank://"


class Assistant:
    """A client of one server that stays open, with a bank in its project folder."""

    def __init__(self, server: StdioServer, project: Path) -> None:
        self.server = server
        self.project = project
        self.bank = project / "memory-bank"
        self.hello: dict[str, Any] = {}
        self._last = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the whole answer to a request."""
        self._last += 1
        answer = self.server.ask(self._last, method, **params)
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._last)
        return answer

    def result(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.result(tool, **arguments)
        assert not result["isError"], result["content"]
        return result["structuredContent"]

    def text(self, tool: str, **arguments: Any) -> str:
        return self.result(tool, **arguments)["content"][0]["text"]

    def error(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = self.result(tool, **arguments)
        assert result["isError"]
        return result["structuredContent"]

    def read(self, name: str) -> str:
        return (self.bank / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        (self.bank / name).write_text(text, encoding="utf-8")

    def wait_for(self, method: str) -> dict[str, Any]:
        """Return the next notification of this kind."""
        while (message := self.server.receive())["method"] != method:
            continue
        return message["params"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Assistant]:
    folder = tmp_path_factory.mktemp("promises")
    project = folder / "shop"
    project.mkdir()
    options = ("--path", project, "--mode", "code", "--username", "Alice", "--folder", "memory-bank")
    with stdio_server(folder / "data", *options, EVERKEPT_EMBEDDING_MODEL="none") as server:
        assistant = Assistant(server, project)
        assistant.hello = assistant.ask("initialize", **HELLO)["result"]
        server.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assistant("initialize_memory_bank")
        yield assistant


# The protocol and the command line.


def test_the_server_talks_json_rpc_over_stdin_and_stdout_after_a_handshake(shop: Assistant) -> None:
    assert shop.hello["serverInfo"]["name"] == "everkept"
    assert shop.hello["protocolVersion"] == HELLO["protocolVersion"]
    assert shop.ask("ping")["result"] == {}


def test_the_server_exposes_tools_resources_and_their_capabilities(shop: Assistant) -> None:
    assert set(shop.hello["capabilities"]) >= {"tools", "resources"}
    assert shop.hello["capabilities"]["resources"] == {"subscribe": True, "listChanged": True}


def test_the_path_and_folder_of_the_command_line_choose_the_bank(shop: Assistant) -> None:
    assert shop("get_memory_bank_status")["path"] == str(shop.bank)


def test_the_mode_of_the_command_line_is_the_mode_at_the_start(shop: Assistant) -> None:
    assert shop("get_current_mode")["mode"] == "code"


def test_a_tool_call_answers_with_text_content_and_no_error(shop: Assistant) -> None:
    arguments = {"action": "Feature Implementation", "description": "Implemented user authentication module"}
    result = shop.result("track_progress", **arguments)
    assert result["isError"] is False
    [content] = result["content"]
    assert content["type"] == "text"
    said = "Progress tracked successfully. Updated progress.md with entry: ["
    assert content["text"].startswith(said)
    entry = "[Alice] - Feature Implementation: Implemented user authentication module"
    assert content["text"].endswith(entry)


def test_a_resource_is_read_as_markdown_under_its_uri(shop: Assistant) -> None:
    uri = f"{SCHEME}active-context.md"
    [content] = shop.ask("resources/read", uri=uri)["result"]["contents"]
    assert (content["uri"], content["mimeType"]) == (uri, "text/markdown")
    assert content["text"] == shop.read("active-context.md")


# The tools.


def test_all_tools_of_the_published_list_are_offered_with_a_json_schema(shop: Assistant) -> None:
    listed = {tool["name"]: tool for tool in shop.ask("tools/list")["result"]["tools"]}
    assert set(" ".join(TOOLS.values()).split()) <= set(listed)
    assert all(tool["inputSchema"]["type"] == "object" and tool["description"] for tool in listed.values())


def test_initialize_memory_bank_creates_the_five_core_files_and_overwrites_none(shop: Assistant) -> None:
    assert all((shop.bank / name).is_file() for name in CORE_FILES)
    before = shop.read("progress.md")
    assert shop("initialize_memory_bank", path=str(shop.project))["created"] == []
    assert shop.read("progress.md") == before
    assert "Nothing was created" in shop.error("initialize_memory_bank", path=str(shop.project / "shpo"))["message"]


def test_set_memory_bank_path_changes_the_location_of_the_bank(shop: Assistant) -> None:
    other = shop.project.parent / "other"
    (other / "memory-bank").mkdir(parents=True)
    (other / "memory-bank" / "notes.md").write_text("x", encoding="utf-8")
    assert shop.text("set_memory_bank_path", path=str(other)) == f"Memory Bank path set to {other / 'memory-bank'}"
    assert shop("list_memory_bank_files")["files"] == ["notes.md"]
    assert shop("set_memory_bank_path")["path"] == str(shop.bank)


def test_get_memory_bank_status_shows_the_files_and_what_is_missing(shop: Assistant) -> None:
    status = shop("get_memory_bank_status")
    assert (status["coreFilesPresent"], status["missingCoreFiles"]) == (list(CORE_FILES), [])
    assert status["isComplete"] is True


def test_read_memory_bank_file_returns_the_content_with_an_etag(shop: Assistant) -> None:
    shop.write("read.md", "one\ntwo\n")
    answer = shop("read_memory_bank_file", filename="read.md")
    assert answer["content"] == "one\ntwo\n"
    assert len(answer["etag"]) == 16
    assert shop.text("read_memory_bank_file", filename="read.md", includeEtag=False) == "one\ntwo\n"


def test_write_memory_bank_file_writes_a_file_or_refuses_to_overwrite_the_change_of_another(shop: Assistant) -> None:
    etag = shop("write_memory_bank_file", filename="write.md", content="one")["etag"]
    shop.write("write.md", "by hand")
    refused = shop.error("write_memory_bank_file", filename="write.md", content="two", ifMatchEtag=etag)
    assert refused["error"] == "ETAG_MISMATCH"
    assert "+by hand" in shop.error("write_memory_bank_file", filename="write.md", content="two")["difference"]
    assert shop.read("write.md") == "by hand"
    shop("write_memory_bank_file", filename="write.md", content="two", force=True)
    assert shop.read("write.md") == "two"


def test_list_memory_bank_files_lists_all_files(shop: Assistant) -> None:
    assert set(CORE_FILES) <= set(shop("list_memory_bank_files")["files"])


def test_search_memory_bank_finds_lines_with_their_place(shop: Assistant) -> None:
    shop.write("search.md", "# Search\n\nThe zebra lives here.\n")
    answer = shop("search_memory_bank", query="ZEBRA")
    assert [(line["file"], line["line"]) for line in answer["results"]] == [("search.md", 3)]
    assert answer["metadata"]["truncated"] is False
    assert shop("search_memory_bank", query="ZEBRA lives", caseSensitive=True)["results"] == []


def test_get_context_bundle_returns_all_context_in_one_call(shop: Assistant) -> None:
    bundle = shop("get_context_bundle")["bundle"]
    assert set(bundle) == set(CORE_FILES)
    assert bundle["progress.md"]["content"] == shop.read("progress.md")


def test_get_context_digest_summarizes_what_the_project_is_and_where_it_stands(shop: Assistant) -> None:
    product = shop.read("product-context.md").replace("[What the project is, and whom it is for]", "A shop for tea.")
    shop.write("product-context.md", product)
    shop("update_active_context", tasks=["Fix login"])
    shop("track_progress", action="Feature", description="Logins are limited")
    shop("log_decision", title="Use tabs", context="c", decision="d")
    digest = shop("get_context_digest")["digest"]
    assert digest["projectOverview"] == "A shop for tea."
    assert digest["currentContext"]["tasks"] == ["Fix login"]
    assert digest["recentDecisions"][0]["title"] == "Use tabs"
    assert "Logins are limited" in " ".join(digest["recentProgress"])


def test_track_progress_logs_a_milestone_with_file_and_status(shop: Assistant) -> None:
    shop("track_progress", action="Fix", description="typo", filename="a.py", status="success")
    assert "[Alice] - Fix: typo (file: a.py, status: success)" in shop.read("progress.md")
    assert "[Alice] Fix: typo" in shop.read("active-context.md")


def test_add_progress_entry_adds_details_with_the_author(shop: Assistant) -> None:
    answer = shop("add_progress_entry", type="feature", summary="Cart", details="All of it", files=["cart.py"])
    text = shop.read("progress.md")
    assert "] [Alice] \N{SPARKLES} Feature: Cart" in text
    assert f"<!-- ID: {answer['entryId']} -->" in text


def test_update_active_context_sets_tasks_issues_and_next_steps(shop: Assistant) -> None:
    shop("update_active_context", tasks=["T"], issues=["I"], nextSteps=["N"])
    text = shop.read("active-context.md")
    assert all(f"- {item}\n" in text for item in "TIN")
    shop("update_active_context", issues=[])
    assert "- I\n" not in shop.read("active-context.md")


def test_add_session_note_adds_an_observation_with_the_author(shop: Assistant) -> None:
    shop("add_session_note", note="It is slow", category="observation")
    assert "] [Alice] \N{EYES} It is slow\n" in shop.read("active-context.md")


def test_update_tasks_adds_removes_and_replaces_tasks(shop: Assistant) -> None:
    assert shop("update_tasks", replace=["A", "B"])["tasks"] == ["A", "B"]
    assert shop("update_tasks", add=["C"], remove=["A"])["tasks"] == ["B", "C"]


def test_log_decision_logs_context_alternatives_and_consequences(shop: Assistant) -> None:
    shop("log_decision", title="Use Go", context="Speed", decision="Go", alternatives=["C"], consequences=["Faster"])
    text = shop.read("decision-log.md")
    section = text[text.index("## Use Go") :]
    assert "- **Author:** Alice" in section
    assert all(said in section for said in ("- **Context:** Speed", "- **Decision:** Go", "  - C", "  - Faster"))


def test_switch_mode_changes_the_mode_and_get_current_mode_shows_it(shop: Assistant) -> None:
    assert shop.text("switch_mode", mode="debug").startswith("Successfully switched to mode debug")
    assert shop("get_current_mode")["mode"] == "debug"
    shop("switch_mode", mode="code")


def test_process_umb_command_understands_a_request_and_complete_umb_ends_the_update(shop: Assistant) -> None:
    text = shop.text("process_umb_command", command="please update the memory bank")
    assert text.startswith("[MEMORY BANK: UPDATING]")
    assert shop("get_current_mode")["umbActive"] is True
    assert shop.text("complete_umb").startswith("[MEMORY BANK: ACTIVE]")
    assert "Invalid UMB command" in shop.error("process_umb_command", command="hello")["message"]


def build_graph(shop: Assistant, *names: str) -> list[str]:
    return [shop("graph_upsert_entity", name=name, entityType="service")["entity"]["id"] for name in names]


def test_graph_upsert_entity_creates_and_updates_an_entity(shop: Assistant) -> None:
    made = shop("graph_upsert_entity", name="Cart", entityType="service", attrs={"port": 1})["entity"]
    assert shop("graph_upsert_entity", name="cart", entityType="service")["entity"]["attrs"] == {"port": 1}
    again = shop("graph_upsert_entity", name="Cart", entityType="service", attrs={"port": 2})["entity"]
    assert (again["id"], again["attrs"]) == (made["id"], {"port": 2})


def test_graph_add_observation_adds_it_to_an_entity(shop: Assistant) -> None:
    [owner] = build_graph(shop, "Observed")
    observation = shop("graph_add_observation", entity="Observed", text="It is new")["observation"]
    assert (observation["entityId"], observation["source"]["kind"]) == (owner, "manual")


def test_graph_search_finds_entities_and_observations_with_their_ids(shop: Assistant) -> None:
    build_graph(shop, "Quagga API")
    observation = shop("graph_add_observation", entity="Quagga API", text="Runs on port 8443")["observation"]
    assert shop("graph_search", query="quagga")["entities"][0]["observations"][0]["id"] == observation["id"]
    assert shop("graph_search", query="port 8443")["observations"][0]["id"] == observation["id"]


def test_graph_link_entities_creates_and_graph_unlink_entities_removes_a_relation(shop: Assistant) -> None:
    ids = build_graph(shop, "Left", "Right")
    ends = {"from": "Left", "to": "Right", "relationType": "uses"}
    relation = shop("graph_link_entities", **ends)["relation"]
    assert [relation["fromId"], relation["toId"]] == ids
    shop("graph_unlink_entities", **ends)
    assert shop("graph_open_nodes", nodes=["Left"])["relations"] == []


def test_graph_open_nodes_returns_known_entities_with_their_details(shop: Assistant) -> None:
    build_graph(shop, "Known")
    shop("graph_upsert_entity", name="Known", entityType="person")
    opened = shop("graph_open_nodes", nodes=["Known", "Unknown"])
    assert sorted(entity["entityType"] for entity in opened["entities"]) == ["person", "service"]
    assert opened["notFound"] == ["Unknown"]


def test_graph_delete_observation_deletes_one_and_graph_delete_entity_all(shop: Assistant) -> None:
    build_graph(shop, "Doomed")
    for text in ("one", "two"):
        shop("graph_add_observation", entity="Doomed", text=text)
    found = shop("graph_open_nodes", nodes=["Doomed"])["observations"]
    shop("graph_delete_observation", observationId=found[0]["id"])
    left = shop("graph_open_nodes", nodes=["Doomed"])["observations"]
    assert [o["text"] for o in left] == [found[1]["text"]]
    shop("graph_delete_entity", entity="Doomed")
    assert shop.error("graph_open_nodes", nodes=["Doomed"])["error"] == "not_found"


def test_a_part_of_a_name_never_deletes_an_entity(shop: Assistant) -> None:
    """The public server matches a part of the name."""
    build_graph(shop, "Precious thing")
    assert shop.error("graph_delete_entity", entity="Precious")["error"] == "not_found"


def test_graph_rebuild_reads_the_file_again_and_graph_compact_shortens_it(shop: Assistant) -> None:
    build_graph(shop, "Kept")
    for number in range(3):
        shop("graph_upsert_entity", name="Kept", entityType="service", attrs={"n": number})
    lines = len(shop.read("graph/graph.jsonl").splitlines())
    shop("graph_compact")
    assert len(shop.read("graph/graph.jsonl").splitlines()) < lines
    shop("graph_rebuild")
    assert shop("graph_open_nodes", nodes=["Kept"])["entities"][0]["attrs"] == {"n": 2}


def test_stores_are_registered_listed_selected_and_unregistered(shop: Assistant) -> None:
    second = shop.project.parent / "second"
    (second / "memory-bank").mkdir(parents=True)
    shop("register_store", storeId="second", path=str(second))
    assert {"second"} <= {store["id"] for store in shop("list_stores")["stores"]}
    assert shop("select_store", storeId="second")["memoryBankDir"] == str(second / "memory-bank")
    assert shop("set_memory_bank_path")["path"] == str(shop.bank)
    shop("unregister_store", storeId="second")
    assert shop.error("get_memory_bank_status", storeId="second")["error"] == "not_found"


def test_every_id_that_list_stores_shows_works_as_store_id(shop: Assistant) -> None:
    for store in shop("list_stores")["stores"]:
        assert shop("get_memory_bank_status", storeId=store["id"])["path"]


def test_an_unknown_store_is_an_error(shop: Assistant) -> None:
    """The public server uses the active bank instead."""
    assert "not found in registry" in shop.error("list_memory_bank_files", storeId="nowhere")["message"]


def test_create_backup_copies_the_files_and_the_graph(shop: Assistant) -> None:
    build_graph(shop, "Backed up")
    backup = Path(shop("create_backup")["backupPath"])
    assert (backup / "progress.md").read_bytes() == (shop.bank / "progress.md").read_bytes()
    assert (backup / "graph" / "graph.jsonl").is_file()


def test_list_backups_lists_them_and_restore_backup_restores_one(shop: Assistant) -> None:
    shop.write("restored.md", "before")
    backup = shop("create_backup")["id"]
    assert backup in [listed["id"] for listed in shop("list_backups")["backups"]]
    shop.write("restored.md", "after")
    restored = shop("restore_backup", backupId=backup)
    assert shop.read("restored.md") == "before"
    assert Path(restored["preRestoreBackupPath"]).is_dir()


def test_batch_write_files_and_batch_read_files_handle_several_files(shop: Assistant) -> None:
    files = [{"filename": f"batch-{name}.md", "content": name} for name in "ab"]
    assert shop("batch_write_files", files=files)["metadata"]["successful"] == 2
    read = shop("batch_read_files", files=["batch-a.md", "batch-b.md", "batch-c.md"])
    assert [read["results"][f"batch-{name}.md"]["content"] for name in "abc"] == ["a", "b", ""]
    assert (read["metadata"]["successful"], read["metadata"]["failed"]) == (2, 1)
    assert shop.error("batch_read_files", files=["batch-c.md"])["error"] == "FILE_NOT_FOUND"


def test_the_schema_of_track_progress_is_the_published_one(shop: Assistant) -> None:
    [tool] = [tool for tool in shop.ask("tools/list")["result"]["tools"] if tool["name"] == "track_progress"]
    schema = tool["inputSchema"]
    assert set(schema["required"]) == {"action", "description"}
    types = {name: schema["properties"][name]["type"] for name in ("action", "description", "filename", "status")}
    assert set(types.values()) == {"string"}
    assert schema["properties"]["status"]["enum"] == ["success", "error", "warning"]


# The resources.


def test_the_five_core_files_are_listed_as_resources(shop: Assistant) -> None:
    listed = {resource["uri"]: resource for resource in shop.ask("resources/list")["result"]["resources"]}
    assert {f"{SCHEME}{name}" for name in CORE_FILES} <= set(listed)
    assert listed[f"{SCHEME}progress.md"]["description"] == "Progress history"


def test_a_resource_is_read_as_text_or_binary(shop: Assistant) -> None:
    shop.write("text.md", "words")
    (shop.bank / "picture.png").write_bytes(b"\x89PNG\0")
    [text] = shop.ask("resources/read", uri=f"{SCHEME}text.md")["result"]["contents"]
    [picture] = shop.ask("resources/read", uri=f"{SCHEME}picture.png")["result"]["contents"]
    assert text["text"] == "words"
    assert (picture["mimeType"], base64.b64decode(picture["blob"])) == ("image/png", b"\x89PNG\0")


def test_a_subscriber_hears_of_a_changed_resource(shop: Assistant) -> None:
    uri = f"{SCHEME}watched.md"
    shop.write("watched.md", "x")
    shop.ask("resources/subscribe", uri=uri)
    shop.write("watched.md", "longer")
    assert shop.wait_for("notifications/resources/updated") == {"uri": uri}
    shop.ask("resources/unsubscribe", uri=uri)


def test_a_client_hears_of_a_new_resource(shop: Assistant) -> None:
    shop.ask("resources/list")
    shop.write("appeared.md", "x")
    assert shop.wait_for("notifications/resources/list_changed") == {}


# The modes.


@pytest.mark.parametrize(
    ("mode", "tools"),
    [
        ("architect", {"log_decision", "graph_upsert_entity", "graph_search"}),
        ("code", {"track_progress", "write_memory_bank_file", "batch_write_files"}),
        ("ask", {"search_memory_bank", "get_context_digest"}),
        ("debug", {"add_session_note", "graph_search"}),
        ("test", {"track_progress", "write_memory_bank_file"}),
    ],
)
def test_each_mode_names_its_key_tools(shop: Assistant, mode: str, tools: set[str]) -> None:
    assert tools <= set(shop("switch_mode", mode=mode)["tools"])
    shop("switch_mode", mode="code")


def test_a_mode_guides_and_forbids_no_tool(shop: Assistant) -> None:
    """With `--mode-tools`, a server offers only the tools of its mode."""
    shop("switch_mode", mode="ask")
    shop("track_progress", action="a", description="d")
    shop("switch_mode", mode="code")


def test_a_mode_that_does_not_exist_is_refused(shop: Assistant) -> None:
    assert "mode" in shop.error("switch_mode", mode="sleep")["message"]


# The errors.


def test_a_missing_bank_is_an_error_with_code_path_and_suggestion(shop: Assistant) -> None:
    empty = shop.project.parent / "empty"
    (empty / "memory-bank").mkdir(parents=True)
    shop("register_store", storeId="empty", path=str(empty))
    shop("select_store", storeId="empty")
    for file in (*(empty / "memory-bank").iterdir(),):
        file.unlink()
    (empty / "memory-bank").rmdir()
    error = shop.ask("resources/read", uri=f"{SCHEME}progress.md")["error"]
    told = shop.error("get_memory_bank_status")
    shop("select_store", path=str(shop.project))
    assert error["code"] == -32000
    assert error["message"].startswith("Memory Bank not found")
    for data in (error["data"], told):
        assert data["expectedPath"] == str(empty / "memory-bank")
        assert "initialize_memory_bank" in data["suggestion"]


def test_an_unknown_tool_and_an_unknown_method_have_the_code_for_unknown_methods(shop: Assistant) -> None:
    assert shop.ask("tools/call", name="no_such_tool", arguments={})["error"]["code"] == -32601
    assert shop.ask("no/such/method")["error"]["code"] == -32601


def test_wrong_parameters_have_a_code_and_wrong_arguments_an_error_that_names_them(shop: Assistant) -> None:
    """A wrong argument of a tool is a failed result, so that the assistant can correct it."""
    assert shop.ask("tools/call", name=7)["error"]["code"] == -32602
    assert shop.error("track_progress", action="a")["argument"] == "description"


# Logs, remote banks and security.


def test_all_file_operations_work_on_another_machine_over_ssh(tmp_path: Path) -> None:
    there = tmp_path / "there" / "shop"
    there.mkdir(parents=True)

    async def work() -> None:
        async with asyncssh_server(tmp_path / "there", Keys.made_in(tmp_path / "keys")) as server:
            options = server.options
            settings = {
                "data_dir": tmp_path / "data",
                "toolsets": "bank",
                "remote": True,
                "ssh_user": server.user,
                "ssh_host": f"{LOOPBACK}:{server.port}",
                "ssh_path": "/shop",
                "ssh_key": options.key,
                "known_hosts": options.known_hosts,
                "embedding_model": "none",
            }
            app, session = App(read_settings(settings, {})), Session("test")
            await app.call(session, "initialize_memory_bank", {})
            for text in ("one", "two"):
                await app.call(session, "write_memory_bank_file", {"filename": "notes.md", "content": text})
            await app.call(session, "graph_upsert_entity", {"name": "Cart", "entityType": "service"})
            assert (there / "memory-bank" / "notes.md").read_text(encoding="utf-8") == "two"
            assert "Cart" in (there / "memory-bank" / "graph" / "graph.jsonl").read_text(encoding="utf-8")
            assert app.bank is not None
            assert app.bank.versions is not None
            bank = await app.bank.banks.open_in_folder(app.bank.banks.options.place or "")
            assert [v.size for v in await app.bank.versions.list_versions(bank, "notes.md")] == [len("one")]
            await app.close()

    asyncio.run(work())


def test_several_stores_with_entities_of_any_type_and_relation_serve_one_session(shop: Assistant) -> None:
    third = shop.project.parent / "third"
    (third / "memory-bank").mkdir(parents=True)
    build_graph(shop, "Ada")
    shop("register_store", storeId="third", path=str(third))
    for name in ("Ada", "Engine"):
        shop("graph_upsert_entity", name=name, entityType=f"my {name}", storeId="third")
    link = {"from": "Ada", "to": "Engine", "relationType": "dreams_of", "storeId": "third"}
    assert shop("graph_link_entities", **link)["relation"]["relationType"] == "dreams_of"
    assert "dreams_of" in (third / "memory-bank" / "graph" / "graph.jsonl").read_text(encoding="utf-8")
    assert "dreams_of" not in shop.read("graph/graph.jsonl")


@pytest.mark.parametrize("name", ["../secret.md", "/etc/hosts.md", "sub/a.md", "a.txt", "a\0.md"])
def test_no_tool_leaves_the_folder_of_the_bank(shop: Assistant, name: str) -> None:
    assert shop.error("read_memory_bank_file", filename=name)["error"] in ("refused", "invalid_input")
    assert shop.error("write_memory_bank_file", filename=name, content="x")["error"] in ("refused", "invalid_input")


def test_entries_name_their_author(shop: Assistant) -> None:
    shop("add_session_note", note="by whom")
    assert "[Alice] by whom" in shop.read("active-context.md")


def test_the_graph_is_stored_as_json_lines_that_begin_with_the_marker(shop: Assistant) -> None:
    build_graph(shop, "Lined up")
    shop("graph_add_observation", entity="Lined up", text="It has lines")
    first, *events = [json.loads(line) for line in shop.read("graph/graph.jsonl").splitlines()]
    assert first == {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"}
    assert {event["type"] for event in events} >= {"entity_upsert", "observation_add"}


def test_writes_that_arrive_together_are_all_kept(shop: Assistant) -> None:
    names = [f"Parallel {number}" for number in range(20)]
    for number, name in enumerate(names):
        arguments = {"name": name, "entityType": "thing"}
        shop.server.request(f"p{number}", "tools/call", name="graph_upsert_entity", arguments=arguments)
    answers = [shop.server.receive_answer() for _ in names]
    assert {answer["id"] for answer in answers if "result" in answer} == {f"p{number}" for number in range(20)}
    text = shop.read("graph/graph.jsonl")
    assert all(f'"{name}"' in text for name in names)


def test_the_server_writes_logs_to_stderr_and_only_messages_to_stdout(tmp_path: Path) -> None:
    with stdio_server(tmp_path, "-p", tmp_path, "-m", "test", "-u", "Bob", "-f", "bank", "-d") as server:
        server.request(1, "initialize", **HELLO)
        server.request(2, "tools/call", name="initialize_memory_bank", arguments={})
        assert server.close_input() == 0
        assert [message["id"] for message in server.rest()] == [1, 2]
        told = server.finish()
    assert "initialize_memory_bank" in told
    assert '"jsonrpc"' not in told
    assert (tmp_path / "bank" / "progress.md").is_file()
