import json
from pathlib import PurePath, PureWindowsPath

import jsonschema
import pytest

from everkept.app.app import App
from everkept.core.json_text import JsonDocument
from everkept.core.mcp import UpstreamEndpoint, UpstreamProgram
from everkept.errors import NotFound
from everkept.families.gateway import draft
from everkept.families.gateway.draft import build_file_schema
from everkept.families.gateway.file_reader import parse_file
from everkept.families.gateway.model import GatewayConfig
from everkept.settings import read_settings

FOLDER = PurePath("/home/ada/everkept")


def config(name: str) -> GatewayConfig:
    found = parse_file(draft.read_ready_file(name, FOLDER), PurePath("/"))
    assert (found.problems, found.warnings) == ([], [])
    assert found.config is not None
    return found.config


def test_there_are_files_for_three_servers() -> None:
    assert draft.list_ready_names() == ["episodic-memory", "everkept", "server-memory"]


@pytest.mark.parametrize("name", draft.list_ready_names())
def test_a_ready_made_file_reads_without_a_word(name: str) -> None:
    assert config(name).tools
    jsonschema.validate(JsonDocument(draft.read_ready_file(name, FOLDER)).value, build_file_schema())
    assert draft.read_ready_file(name, FOLDER).startswith("// ")


@pytest.mark.parametrize("name", draft.list_ready_names())
def test_every_parameter_of_a_ready_made_tool_is_passed_on(name: str) -> None:
    for tool in config(name).tools:
        assert list(tool.input_schema["properties"]) == list(tool.mapping)
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.annotations is not None
        assert tool.name == f"memory__{tool.name.removeprefix('memory__')}"


def test_episodic_memory_comes_from_git_because_npm_does_not_have_it() -> None:
    way = config("episodic-memory").upstreams["upstream"].reach.way
    assert isinstance(way, UpstreamProgram)
    assert way.args == ("-y", "--package", "github:obra/episodic-memory", "episodic-memory-mcp-server")


def test_the_graph_of_server_memory_is_a_file_in_our_data_folder() -> None:
    way = config("server-memory").upstreams["upstream"].reach.way
    assert isinstance(way, UpstreamProgram)
    assert way.env == {"MEMORY_FILE_PATH": f"{FOLDER.as_posix()}/server-memory.jsonl"}
    odd = draft.read_ready_file("server-memory", PureWindowsPath(r'C:\Users\Ada\"here"'))
    assert r'"C:/Users/Ada/\"here\"/server-memory.jsonl"' in odd


def test_the_tools_of_server_memory_are_all_there() -> None:
    assert [tool.tool for tool in config("server-memory").tools] == [
        "create_entities",
        "create_relations",
        "add_observations",
        "delete_entities",
        "delete_observations",
        "delete_relations",
        "read_graph",
        "search_nodes",
        "open_nodes",
    ]


def test_the_tools_of_another_everkept_are_described_as_it_describes_them() -> None:
    ours = App(read_settings({"toolsets": "memories"}, {})).tools
    for tool in config("everkept").tools:
        assert tool.input_schema == json.loads(json.dumps(ours.get(tool.tool).input_schema))
        assert tool.description == ours.get(tool.tool).description


def test_the_token_of_another_everkept_comes_from_the_environment() -> None:
    way = config("everkept").upstreams["upstream"].reach.way
    assert isinstance(way, UpstreamEndpoint)
    assert way.headers == {"Authorization": "Bearer ${EVERKEPT_TOKEN}"}


def test_another_name_is_not_found() -> None:
    with pytest.raises(NotFound) as missing:
        draft.read_ready_file("../model", FOLDER)
    assert "server-memory" in str(missing.value)
