import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept import __version__
from everkept.cli.main import COMMANDS
from server_processes import http_server

Run = Callable[..., Any]

MAX_HTTP_MODULES = 600  # the SDK would load 340 more

# What a server over stdio must not load: each costs more than the whole rest of the start.
HEAVY = {
    "rich",
    "mcp",
    "pydantic",
    "anyio",
    "starlette",
    "uvicorn",
    "numpy",
    "orjson",
    "platformdirs",
    "tree_sitter",
    "backports.zstd",
}


def test_the_version_is_told(everkept: Run) -> None:
    assert __version__ in everkept("--version").out


def test_a_path_that_the_system_refuses_is_named(everkept: Run) -> None:
    for command in (("restore",), ("import", "obsidian")):
        refused = everkept(*command, "x" * 300)
        assert (refused.status, refused.out) == (1, "")
        assert "x cannot be used (" in refused.err


def test_every_command_can_be_loaded_and_takes_the_common_options(everkept: Run) -> None:
    groups = {
        "account": "list",
        "import": "server-memory",
        "history": "list",
        "gateway": "check",
        "peer": "list",
        "bank": "history",
    }
    for name in COMMANDS:
        words = [name, groups[name]] if name in groups else [name]
        page = everkept(*words, "--help")
        assert page.status == 0
        for option in ("--data-dir", "--project", "--json", "--log-level"):
            assert option in page.out, (name, option)


def test_help_is_a_command(everkept: Run) -> None:
    assert everkept("help").out == everkept("--help").out
    assert everkept("help", "remember").out == everkept("remember", "--help").out
    assert everkept("help", "history", "list").out == everkept("history", "list", "--help").out
    assert "entities" in everkept("help", "search-nodes").out
    assert "Did you mean 'recall'?" in everkept("help", "recal").err
    assert everkept("help", "recall", "it").status == 2


def test_the_options_of_a_command_come_before_the_common_ones(everkept: Run) -> None:
    page = everkept("recall", "--help").out
    assert page.index("--strategy") < page.index("--data-dir")


LISTING = "import sys; from everkept.cli.main import main; main(); print(*sys.modules, file=sys.stderr)"


def loaded_by_serve(*options: str, sent: bytes = b"") -> set[str]:
    """The modules that a server has loaded by its end."""
    ended = subprocess.run(
        [sys.executable, "-c", LISTING, "serve", *options], input=sent, capture_output=True, timeout=60, check=True
    )
    return set(ended.stderr.decode().split())


def heavy(loaded: set[str]) -> set[str]:
    return HEAVY & {name.partition(".")[0] for name in loaded}


def test_a_start_over_stdio_loads_nothing_heavy() -> None:
    loaded = loaded_by_serve("--data-dir", "unused")
    assert heavy(loaded) == set()
    # The handshake is answered before the application is put together.
    assert not any(name.startswith(("apsw", "everkept.families")) for name in loaded)


def test_a_server_over_http_answers_without_the_sdk(tmp_path: Path) -> None:
    program = [sys.executable, "-c", LISTING]
    with http_server(tmp_path, "--no-token", program=program) as server:
        session = server.open_session()
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert server.exchange(listing, session)[0] == 200
        assert server.ask("tools/call", {"name": "list_projects", "arguments": {}})[0] == 200
        server.stop()
    loaded = set(server.said[-1].split())
    assert heavy(loaded) == {"uvicorn", "orjson"}
    assert len(loaded) < MAX_HTTP_MODULES


def test_the_handshake_and_the_list_of_tools_need_no_quick_encoder(tmp_path: Path) -> None:
    asked = [
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"id": 2, "method": "tools/list"},
    ]
    lines = "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in asked)
    loaded = loaded_by_serve("--data-dir", str(tmp_path), sent=lines.encode())
    assert "everkept.families.graph.toolset" in loaded
    assert "orjson" not in loaded


def request(method: str, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


def families(loaded: set[str]) -> set[str]:
    """The families that were loaded, and the network for vectors, which some of them need."""
    ours = {name.removeprefix("everkept.") for name in loaded if name.startswith("everkept.")}
    inside = {name.split(".")[1] for name in ours if name.startswith("families.")}
    return inside | {name for name in ours if name == "embedders"}


@pytest.mark.parametrize(
    ("tool", "arguments", "needed", "most"),
    [
        ("open_nodes", {"names": ["a"]}, {"graph"}, 150),
        ("get_memory_status", {}, {"memories", "bank", "history", "embedders"}, 210),
    ],
)
def test_a_first_call_loads_only_the_family_that_it_is_for(
    tmp_path: Path, tool: str, arguments: dict[str, Any], needed: set[str], most: int
) -> None:
    options = ("--data-dir", str(tmp_path), "--project", "test")
    sent = request("tools/call", name=tool, arguments=arguments)
    loaded = loaded_by_serve(*options, sent=sent)
    assert families(loaded) == needed
    assert heavy(loaded) <= {"orjson"}  # it writes a call's answer
    assert len([name for name in loaded if name.startswith("everkept")]) <= most


def test_a_list_loads_every_family_and_nothing_heavy(tmp_path: Path) -> None:
    loaded = loaded_by_serve("--data-dir", str(tmp_path), sent=request("tools/list"))
    assert {"graph", "memories", "history"} <= families(loaded)
    assert heavy(loaded) | loaded & {"apsw.ext", "sqlite3"} == set()


def test_a_gateway_alone_lists_its_tools_without_anything_heavy_or_ours(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    upstream = {"tool": "search", "paramMapping": {}}
    tool = {"name": "t", "description": "", "inputSchema": {"type": "object"}, "upstream": upstream}
    path.write_text(json.dumps({"upstream": {"command": "x"}, "tools": [tool]}), "utf-8")
    listing = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
    options = ("--toolsets", "gateway", "--gateway-config", str(path))
    loaded = loaded_by_serve(*options, "--data-dir", str(tmp_path / "data"), sent=listing + b"\n")
    assert "everkept.families.gateway.toolset" in loaded
    assert heavy(loaded) | loaded & {"jsonschema", "apsw"} == set()
    assert not any(name.startswith("everkept.families.memories") for name in loaded)
