"""Views in a chat: which clients hear of them, and their pages. Both eras, over stdio and HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest

from everkept.first_answers import VIEW_EXTENSION
from everkept.views.pages import MIME_TYPE, read_page
from view_clients import DRAWS, Era, ViewClient, run_server

GRAPH, PAST, MEMORIES = (
    {"ui": {"resourceUri": f"ui://everkept/{name}"}, "ui/resourceUri": f"ui://everkept/{name}"}
    for name in ("graph", "past", "memories")
)
QUIET = {
    **dict.fromkeys(("search_nodes", "read_graph", "search_knowledge_graph"), GRAPH),
    "recall_previous_discussions": PAST,
}
TRANSPORTS = pytest.mark.parametrize("transport", ["stdio", "http"])
ERAS: tuple[Era, Era] = ("handshake", "stateless")


@TRANSPORTS
def test_views_are_offered_to_clients_that_draw_them_and_to_no_other(transport: str, tmp_path: Path) -> None:
    for era in ERAS:
        with run_server(transport, tmp_path) as server:
            plain = ViewClient(server, era, {})
            assert "extensions" not in plain.hello["capabilities"]
            assert plain.list_views() == {}
            listed = plain.ask("tools/list")["tools"]
        with run_server(transport, tmp_path) as server:
            drawing = ViewClient(server, era, DRAWS)
            assert drawing.hello["capabilities"]["extensions"] == {VIEW_EXTENSION: {}}
            assert drawing.list_views() == QUIET
            tools = drawing.ask("tools/list")["tools"]
            assert [{key: tool[key] for key in tool if key != "_meta"} for tool in tools] == listed
            assert "ui://" not in json.dumps(drawing.ask("resources/list"))


@pytest.mark.parametrize(
    "capabilities",
    [
        {"extensions": {VIEW_EXTENSION: {}}},
        {"extensions": {VIEW_EXTENSION: {"mimeTypes": ["text/html"]}}},
        {"extensions": {VIEW_EXTENSION: None}},
        {"extensions": []},
        {"experimental": DRAWS["extensions"]},
    ],
    ids=json.dumps,
)
def test_a_client_that_does_not_name_our_type_gets_no_views(capabilities: dict[str, Any], tmp_path: Path) -> None:
    with run_server("http", tmp_path) as server:
        for era in ERAS:
            client = ViewClient(server, era, capabilities)
            assert "extensions" not in client.hello["capabilities"]
            assert client.list_views() == {}


@TRANSPORTS
def test_a_page_can_be_read_with_its_type_and_metadata(transport: str, tmp_path: Path) -> None:
    for era in ERAS:
        with run_server(transport, tmp_path, "--views", "all") as server:
            client = ViewClient(server, era, DRAWS)
            assert client.list_views() == QUIET | {"recall_memories": MEMORIES}
            for name in ("graph", "past", "memories"):
                uri = f"ui://everkept/{name}"
                [content] = client.ask("resources/read", uri=uri)["contents"]
                assert content == {
                    "uri": uri,
                    "mimeType": MIME_TYPE,
                    "text": read_page(name),
                    "_meta": {"ui": {"prefersBorder": True}},
                }


@pytest.mark.parametrize(
    ("views", "offered"),
    [("off", {}), ("quiet", QUIET), ("all", QUIET | {"recall_memories": MEMORIES})],
    ids=["off", "quiet", "all"],
)
def test_a_setting_chooses_the_views(views: str, offered: dict[str, Any], tmp_path: Path) -> None:
    with run_server("http", tmp_path, "--views", views) as server:
        for era in ERAS:
            client = ViewClient(server, era, DRAWS)
            assert client.list_views() == offered
            assert ("extensions" in client.hello["capabilities"]) == bool(offered)
            for meta in (GRAPH, MEMORIES):
                is_read = "result" in client.respond("resources/read", uri=meta["ui/resourceUri"])
                assert is_read == (meta in offered.values())
            for uri in ("ui://everkept/picture", "ui://everkept/../../pyproject", "ui://other/graph"):
                assert client.respond("resources/read", uri=uri)["error"]["data"]["uri"] == uri


def test_the_other_dialect_has_the_view_of_the_graph(tmp_path: Path) -> None:
    with run_server("http", tmp_path, "--dialect", "server-memory") as server:
        assert ViewClient(server, "handshake", DRAWS).list_views() == {"read_graph": GRAPH, "search_nodes": GRAPH}
