"""A gateway as a client meets it: whole processes, with servers behind them."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from episodic_server import CONVERSATION
from gateway_front import JSON, Front, actor, answered, call, mapped, names, npx, text, write
from processes import acting
from server_processes import HANG, INITIALIZE, META, HttpServer, command, http_server, run, stdio_server

# The example of the design, as it stands there.
EXAMPLE = """\
{
  "upstream": {
    "command": "npx",
    "args": ["-y", "@obra/episodic-memory"]
  },
  "tools": [
    {
      "name": "memory__search",
      "description": "Search past conversation history",
      "inputSchema": {
        "type": "object",
        "properties": {
          "query": {
            "type": "string",
            "description": "Search query"
          },
          "limit": {
            "type": "number",
            "description": "Maximum results to return",
            "default": 10
          }
        },
        "required": ["query"]
      },
      "upstream": {
        "tool": "episodic-memory__search",
        "paramMapping": {
          "query": "query",
          "limit": "limit"
        }
      }
    },
    {
      "name": "memory__read",
      "description": "Read full conversation by path",
      "inputSchema": {
        "type": "object",
        "properties": {
          "path": {
            "type": "string",
            "description": "Conversation file path"
          }
        },
        "required": ["path"]
      },
      "upstream": {
        "tool": "episodic-memory__read",
        "paramMapping": {
          "path": "path"
        }
      }
    }
  ]
}
"""
MISSPELT = '{\n  "upstream": {"command": "x"},\n  "tols": []\n}\n'
PRIVATE: JSON = META | {"example.org/private": "kept here", "progressToken": "of the client"}
READS = {"annotations": {"readOnlyHint": True}}


@pytest.fixture(params=[("stdio", "2026-07-28"), ("http", "legacy")], ids=["stdio", "http"])
def router(request: pytest.FixtureRequest, tmp_path: Path) -> Front:
    """Each transport once, where the era makes no difference."""
    return Front(tmp_path, *request.param)


def _heard(folder: Path) -> list[JSON]:
    lines = (folder / "heard").read_text("utf-8").splitlines()
    messages = [json.loads(line) for line in lines]
    return [each["params"] for each in messages if each.get("method") == "tools/call"]


async def test_the_example_of_the_design_works_as_it_stands(front: Front) -> None:
    front.variables = npx(front.folder / "bin")
    write(front.file, EXAMPLE)
    with front.running():
        async with front.connect() as client:
            listed = (await client.list_tools()).tools
            described = [each.model_dump(by_alias=True, exclude_unset=True, mode="json") for each in listed]
            configured = json.loads(EXAMPLE)["tools"]
            for tool in configured:
                del tool["upstream"]
            assert [tool | described[n] for n, tool in enumerate(configured)] == described
            found = await answered(client, "memory__search", query="the harbour", limit=3)
            assert text(found).startswith("Found 1 relevant conversation (of 3)")
            assert not found.is_error
            await answered(client, "memory__search", query="the harbour", other="not sent")
            read = await answered(client, "memory__read", path=CONVERSATION)
            assert text(read).startswith("# Conversation")
            missing = await answered(client, "memory__read", path="/none")
            assert missing.is_error
            assert text(missing) == "Error: File not found: /none"
            refused = await answered(client, "memory__search", query="the harbour", limit=900)
            assert refused.is_error
            assert text(refused) == "Error: limit: must be from 1 to 50"
    asked = [(each["name"], each["arguments"]) for each in _heard(front.folder / "bin")]
    assert asked == [
        ("search", {"query": "the harbour", "limit": 3}),
        ("search", {"query": "the harbour"}),
        ("read", {"path": CONVERSATION}),
        ("read", {"path": "/none"}),
        ("search", {"query": "the harbour", "limit": 900}),
    ]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_client_and_a_server_behind_it_need_not_be_of_one_era(front: Front, era: str) -> None:
    tools = [mapped("ours", "echo", {"said": "heard"}), mapped("steps", "progress", {})]
    write(front.file, {"upstream": actor("--era", era), "tools": tools})
    steps: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append((progress, total, message))

    with front.running():
        async with front.connect() as client:
            assert await call(client, "ours", said="hello") == {"heard": "hello"}
            await client.call_tool("steps", {}, progress_callback=on_progress)
    assert steps == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_tools_are_passed_through_whole_with_a_prefix(router: Front) -> None:
    passing = actor() | {"passThrough": {"prefix": "there_", "hide": ["crash"]}}
    write(router.file, {"upstream": passing})
    with router.running():
        async with router.connect() as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert "there_echo" in listed
            assert "there_crash" not in listed
            assert listed["there_echo"].description == "Does echo."
            assert await call(client, "there_echo", any="thing") == {"any": "thing"}
            assert len(text(await answered(client, "there_big", bytes=300_000))) == 300_000


async def test_several_servers_stand_behind_one_file(router: Front) -> None:
    tools = [mapped(f"who_{name}", "name", {}, server=name) for name in ("a", "b")]
    upstreams = {name: actor("--name", name) for name in ("a", "b")}
    write(router.file, {"upstreams": upstreams, "tools": tools})
    with router.running():
        async with router.connect() as client:
            answers = await asyncio.gather(*(call(client, f"who_{name}") for name in "ab"))
    assert answers == [{"name": "a"}, {"name": "b"}]


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_nothing_of_the_client_reaches_the_server_behind(tmp_path: Path, way: str) -> None:
    variables = npx(tmp_path / "bin")
    file, heard = tmp_path / "tools.json", tmp_path / "bin" / "heard"
    secret = run("token", "--data-dir", tmp_path / "data").stdout.strip()
    with acting("episodic_server:listen", heard) as upstream:
        config = json.loads(EXAMPLE)
        if way == "http":
            config["upstream"] = {"url": f"http://127.0.0.1:{upstream.hear()}/mcp"}
        write(file, config)
        given = ("--toolsets", "gateway", "--gateway-config", file)
        with http_server(tmp_path / "data", *given, **variables) as server:
            called = {"name": "memory__search", "arguments": {"query": "harbour"}, "_meta": PRIVATE}
            status, answer = server.ask("tools/call", called, Authorization=f"Bearer {secret}", Cookie="of=the client")
    assert status == 200, answer
    assert answer["result"]["content"][0]["text"].startswith("Found 1")
    told = heard.read_text("utf-8")
    assert '"harbour"' in told
    for private in (secret, "Bearer", "example.org", "of the client", "of=the client"):
        assert private not in told


def test_the_environment_of_the_server_behind_is_what_the_file_names(tmp_path: Path) -> None:
    upstream = actor() | {"env": {"GIVEN": "${OF_OURS}", "PLAIN": "as it is"}}
    write(tmp_path / "tools.json", {"upstream": upstream, "tools": [mapped("env", "env", {})]})
    given = ("--toolsets", "gateway", "--gateway-config", tmp_path / "tools.json")
    with stdio_server(tmp_path / "data", *given, OF_OURS="a secret", OTHER="another") as server:
        server.ask(0, "initialize", **INITIALIZE)
        environment = server.call("env")
    assert environment["GIVEN"] == "a secret"
    assert environment["PLAIN"] == "as it is"
    assert not {"OF_OURS", "OTHER", "EVERKEPT_CONFIG"} & environment.keys()


async def test_who_may_only_read_is_offered_what_only_reads(router: Front) -> None:
    router.options = ("--toolsets", "gateway", "--read-only")
    tools = [mapped("look", "echo", {}, **READS), mapped("change", "echo", {})]
    write(router.file, {"upstream": actor(), "tools": tools})
    with router.running():
        async with router.connect() as client:
            assert await names(client) == ["look"]
            assert await call(client, "look") == {}
            with pytest.raises(Exception, match="change"):
                await client.call_tool("change", {})


def _in_the_config_folder(folder: Path) -> dict[str, str]:
    """A home with a gateway's file where ours is looked for, on every platform."""
    for base in ("config", "config/Library/Application Support"):
        place = folder / base / "everkept"
        place.mkdir(parents=True)
        write(place / "tools.json", {"upstream": actor(), "tools": [mapped("ours", "echo", {}, **READS)]})
    config = str(folder / "config")
    return {"HOME": config, "USERPROFILE": config, "XDG_CONFIG_HOME": config} | {
        "LOCALAPPDATA": config,
        "EVERKEPT_CONFIG": "",
    }


@pytest.mark.parametrize(("options", "is_served"), [((), True), (("--gateway-config", "none"), False)])
def test_a_file_in_the_config_folder_adds_its_tools_unless_it_is_declined(
    tmp_path: Path, options: tuple[str, ...], is_served: bool
) -> None:
    variables = _in_the_config_folder(tmp_path)
    with stdio_server(tmp_path / "data", *options, **variables) as server:
        server.ask(0, "initialize", **INITIALIZE)
        listed = [tool["name"] for tool in server.ask(1, "tools/list")["result"]["tools"]]
        assert "search_nodes" in listed
        assert ("ours" in listed) is is_served


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_bad_file_alone_is_the_callers_mistake_with_its_line(tmp_path: Path, transport: str) -> None:
    bad = write(tmp_path / "tools.json", MISSPELT)
    given = ("--transport", transport, "--port", 0, "--data-dir", tmp_path / "data")
    done = run("serve", *given, "--toolsets", "gateway", "--gateway-config", bad)
    assert done.returncode == 2
    assert str(bad) in done.stderr
    assert "line 3" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_file_beside_other_toolsets_is_reported_and_they_are_served(tmp_path: Path) -> None:
    bad = write(tmp_path / "tools.json", MISSPELT)
    given = ("--toolsets", "graph,gateway", "--gateway-config", bad, "--project", "p")
    with stdio_server(tmp_path / "data", *given) as server:
        greeting = server.ask(0, "initialize", **INITIALIZE)["result"]
        assert "gateway" in greeting["instructions"]
        assert server.call("list_projects")
        said = server.finish()
    assert str(bad) in said
    assert "line 3" in said


def _until(is_so: Callable[[], bool]) -> None:
    """Each look is a request, which takes its time."""
    deadline = time.monotonic() + HANG
    while not is_so():
        assert time.monotonic() < deadline


def _listed(server: HttpServer) -> list[str]:
    _, answer = server.ask("tools/list", {})
    return [tool["name"] for tool in answer["result"]["tools"]]


def test_a_file_that_becomes_invalid_is_reported_and_the_old_one_stays(tmp_path: Path) -> None:
    config: dict[str, Any] = {"upstream": actor(), "tools": [mapped("ours", "echo", {"x": "x"})]}
    file = write(tmp_path / "tools.json", config)
    given = ("--toolsets", "gateway", "--gateway-config", file, "--no-token")
    with http_server(tmp_path / "data", *given) as server:
        assert _listed(server) == ["ours"]
        write(file, '{"upstream": ')
        _until(lambda: "fault" in server.ask("server/discover", {})[1]["result"]["instructions"])
        assert _listed(server) == ["ours"]
        params = {"name": "ours", "arguments": {"x": "still"}}
        assert server.ask("tools/call", params)[1]["result"]["structuredContent"] == {"x": "still"}
        config["tools"].append(mapped("more", "echo", {}))
        write(file, config)
        _until(lambda: "more" in _listed(server))
        assert _listed(server) == ["ours", "more"]
    assert any(str(file) in line for line in server.said)


async def test_a_everkept_behind_itself_is_one_more_process_and_no_chain(tmp_path: Path) -> None:
    """It reads the same file, and offers what is behind it to no other gateway."""
    folder = tmp_path / "home" / ".config" / "everkept"
    folder.mkdir(parents=True)
    program, *arguments = command("serve", "--data-dir", tmp_path / "behind")
    behind = {"command": program, "args": arguments, "passThrough": {"prefix": "behind_"}}
    write(folder / "tools.json", {"upstream": behind | {"start": "at-start"}})
    variables = {"HOME": str(tmp_path / "home"), "EVERKEPT_CONFIG": ""}
    front = Front(tmp_path, "stdio", options=("--toolsets", "graph,gateway"), variables=variables)
    front.file.symlink_to(folder / "tools.json")
    async with front.connect() as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "behind_store_memory" in names
        assert not any(name.startswith("behind_behind_") for name in names)
        children = psutil.Process().children(recursive=True)
        servers = [child for child in children if "everkept" in child.cmdline()]
        assert len(servers) == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--toolsets", "memories", "--gateway-config", "FILE"),
        ("--dialect", "server-memory", "--gateway-config", "FILE"),
        ("--toolsets", "gateway", "--gateway-config", "none"),
        ("--toolsets", "gateway,gateway", "--gateway-config", "MISSING"),
    ],
)
def test_a_file_that_would_not_be_served_is_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = write(tmp_path / "tools.json", {"upstream": actor(), "tools": []})
    places = {"FILE": str(file), "MISSING": str(tmp_path / "missing.json")}
    given = [places.get(option, option) for option in options]
    done = run("serve", "--data-dir", tmp_path / "data", *given)
    assert done.returncode == 2
    assert "gateway" in done.stderr
    assert "Traceback" not in done.stderr
