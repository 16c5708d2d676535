"""What is offered to clients beside the server: the plugin, the bundle and the registry's entry."""

import json
import os
import re
import runpy
import shutil
import subprocess
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml

from everkept import __version__
from everkept.app.app import App
from everkept.cli.main import COMMANDS as COMMAND_LINE
from everkept.cli.serve import serve
from everkept.core.sessions import Session
from everkept.hooks.entry import load_handler
from everkept.settings import read_settings
from scratch_checkout import PROJECT, Checkout, scratch_checkout

PLUGIN = PROJECT / "plugin"
COMMANDS = sorted((PLUGIN / "commands").glob("*.md"))
SKILL = PLUGIN / "skills/long-term-memory/SKILL.md"
TOOL = "mcp__plugin_everkept_everkept__"
bundle = runpy.run_path(str(PROJECT / "tools/bundle.py"))


def read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def frontmatter(path: Path) -> dict[str, Any]:
    _, head, _ = path.read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(head)


def tools() -> list[str]:
    return [tool.name for tool in App(read_settings({}, {})).tools]


def test_everything_that_is_offered_has_one_version() -> None:
    marketplace = read(PROJECT / ".claude-plugin/marketplace.json")
    registry = read(PROJECT / "server.json")
    versions = [
        *(plugin["version"] for plugin in marketplace["plugins"]),
        read(PLUGIN / ".claude-plugin/plugin.json")["version"],
        bundle["manifest"]()["version"],
        registry["version"],
        *(package["version"] for package in registry["packages"]),
    ]
    assert versions == [__version__] * 5


def test_the_plugin_holds_the_program_as_links_into_the_checkout() -> None:
    links = [path for path in PLUGIN.iterdir() if path.is_symlink()]
    assert {path.name for path in links} >= {"run", "run.cmd", "src", "tools", "requirements"}
    assert [path for path in links if path.resolve() != PROJECT / path.name] == []


def test_the_plugin_starts_a_server_with_options_that_exist() -> None:
    (server,) = read(PLUGIN / ".mcp.json")["mcpServers"].values()
    assert (PLUGIN / server["command"].removeprefix("${CLAUDE_PLUGIN_ROOT}/")).is_file()
    command, *options = server["args"]
    assert command == "serve"
    serve.make_context("serve", options)


def hook_commands() -> Iterator[tuple[str, dict[str, Any]]]:
    for event, matchers in read(PLUGIN / "hooks/hooks.json")["hooks"].items():
        for matcher in matchers:
            for hook in matcher["hooks"]:
                yield event, hook


def test_every_hook_calls_its_own_event_and_holds_nobody_up() -> None:
    for event, hook in hook_commands():
        assert hook["command"] == f'"${{CLAUDE_PLUGIN_ROOT}}/everkept" hook {event}'
        assert hook["timeout"] <= 15
        # One that is not waited for is called off when the session ends.
        assert "async" not in hook


def test_every_hook_is_for_an_event_that_has_a_handler() -> None:
    assert [event for event, _ in hook_commands() if load_handler(event) is None] == []


@pytest.mark.parametrize("command", COMMANDS, ids=lambda path: path.stem)
def test_a_command_is_described_and_allows_tools_that_exist(command: Path) -> None:
    head = frontmatter(command)
    assert head["description"]
    allowed = [name.strip() for name in head["allowed-tools"].split(",")]
    assert [name for name in allowed if name.removeprefix(TOOL) not in tools()] == []


def test_no_page_takes_the_program_for_one_that_is_on_the_path() -> None:
    for page in (*COMMANDS, SKILL, PLUGIN / "README.md"):
        text = page.read_text("utf-8")
        named = set(re.findall(r"`everkept ([a-z-]+)", text))
        assert named == set(), page
        for command in re.findall(r'/everkept" ([a-z]+)`|/everkept/run ([a-z]+)', text):
            assert "".join(command) in COMMAND_LINE, page


def test_the_commands_are_the_four_that_were_promised() -> None:
    names = [path.stem for path in COMMANDS]
    assert names == ["forget", "memory-status", "recall", "remember"]


def test_the_skill_is_short_and_has_a_name_of_its_own() -> None:
    assert frontmatter(SKILL)["name"] == SKILL.parent.name
    assert SKILL.parent.name not in {path.stem for path in COMMANDS}
    assert len(SKILL.read_text("utf-8").splitlines()) < 120


@pytest.mark.parametrize("page", [*COMMANDS, SKILL], ids=lambda path: path.stem)
def test_the_tools_and_arguments_that_a_page_names_exist(page: Path) -> None:
    known = set(tools()) | {"depends_on"}  # a relation, as an example
    for tool in App(read_settings({}, {})).tools:
        known |= set(tool.input_schema["properties"])
    named = re.findall(r"`((?:[a-z]+_)+[a-z]+)`", page.read_text("utf-8"))
    assert [name for name in named if name not in known] == []


async def test_every_call_that_the_skill_teaches_works(tmp_path: Path) -> None:
    app = App(read_settings({"data_dir": tmp_path, "project": "shop"}, {}))
    examples = [json.loads(found) for found in re.findall(r"```json\n(.*?)```", SKILL.read_text("utf-8"), re.DOTALL)]
    assert len(examples) >= 10
    for example in examples:
        answer = await app.call(Session(), example["name"], example["arguments"])
        assert not answer.is_error
    found = await app.call(Session(), "recall_memories", {"query": "Which database stores the orders?"})
    assert "PostgreSQL" in found.facts["memories"][0]["content"]
    entities = (await app.call(Session(), "search_nodes", {"query": "Shop API"})).facts["entities"]
    assert [relation["to"] for relation in entities[0]["relations"]] == ["PostgreSQL"]
    await app.close()


def installed(checkout: Checkout, tmp_path: Path, version: str = "1") -> Path:
    """A copy of the plugin as a client makes it: what the links lead to is in it."""
    (checkout.root / "src").mkdir(exist_ok=True)
    for name in ("README.md", "LICENSE", "run.cmd"):
        shutil.copy(PROJECT / name, checkout.root / name)
    if not (checkout.root / "plugin").exists():
        shutil.copytree(PLUGIN, checkout.root / "plugin", symlinks=True)
    copy = shutil.copytree(checkout.root / "plugin", tmp_path / f"cache/{version}")
    assert not (copy / "run").is_symlink()
    return copy


Launch = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return scratch_checkout(tmp_path)


@pytest.fixture
def launch(checkout: Checkout, tmp_path: Path) -> Launch:
    def run(plugin: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(plugin / "everkept"), *arguments],
            capture_output=True,
            check=False,
            cwd="/",
            encoding="utf-8",
            env=checkout.variables | {"CLAUDE_PLUGIN_DATA": str(tmp_path / "kept")},
            input="{}",
            timeout=60,
        )

    return run


def test_an_installed_plugin_is_set_up_by_its_server_and_not_by_its_hooks(
    checkout: Checkout, launch: Launch, tmp_path: Path
) -> None:
    plugin = installed(checkout, tmp_path)
    before = launch(plugin, "hook", "UserPromptSubmit")
    assert (before.stdout, before.stderr, before.returncode) == ("", "", 0)
    assert "not set up yet" in launch(plugin, "hook", "SessionStart").stdout
    assert launch(plugin, "serve", "--project", "auto").stdout == "ran serve --project auto\n"
    assert launch(plugin, "hook", "SessionStart").stdout == "ran hook SessionStart\n"


def test_an_update_of_the_plugin_keeps_its_environment(checkout: Checkout, launch: Launch, tmp_path: Path) -> None:
    launch(installed(checkout, tmp_path, "1"), "serve")
    (tmp_path / "kept/venv/in use").touch()
    updated = installed(checkout, tmp_path, "2")
    assert launch(updated, "serve").stdout == "ran serve\n"
    assert (tmp_path / "kept/venv/in use").exists()
    assert launch(updated, "hook", "SessionEnd").stdout == "ran hook SessionEnd\n"


def test_a_plugin_in_a_checkout_uses_the_environment_of_the_checkout(
    checkout: Checkout, launch: Launch, tmp_path: Path
) -> None:
    installed(checkout, tmp_path)
    assert launch(checkout.root / "plugin", "serve").stdout == "ran serve\n"
    assert checkout.environment.exists()
    assert not (tmp_path / "kept").exists()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    with zipfile.ZipFile(bundle["build"](folder)) as archive:
        archive.extractall(folder)
    return folder


def test_a_bundle_made_twice_is_the_same(unpacked: Path, tmp_path: Path) -> None:
    (first,) = unpacked.glob("*.mcpb")
    assert first.name == f"everkept-{__version__}.mcpb"
    second: Path = bundle["build"](tmp_path)
    assert sha256(second.read_bytes()).digest() == sha256(first.read_bytes()).digest()
    assert [path.name for path in tmp_path.iterdir()] == [second.name]


def test_a_bundle_names_the_tools_that_its_server_offers(unpacked: Path) -> None:
    manifest = read(unpacked / "manifest.json")
    assert [tool["name"] for tool in manifest["tools"]] == tools()
    assert (unpacked / manifest["server"]["entry_point"]).is_file()


def test_a_bundle_holds_the_program_and_nothing_else_of_the_checkout(unpacked: Path) -> None:
    top = {path.name for path in unpacked.iterdir() if path.suffix != ".mcpb"}
    assert top == {"LICENSE", "README.md", "manifest.json", "pyproject.toml", "src"}
    assert (unpacked / "src/everkept/embedders/model").is_dir()


def test_a_bundle_gets_the_versions_that_were_tested_and_no_tools_of_ours(unpacked: Path) -> None:
    uv = tomllib.loads((unpacked / "pyproject.toml").read_text("utf-8"))["tool"]["uv"]
    pinned = "".join((PROJECT / f"requirements/{name}.txt").read_text("utf-8") for name in ("run", "remote"))
    assert len(uv["constraint-dependencies"]) == len({*re.findall(r"^\S+==\S+(?: ;.*)?", pinned, re.MULTILINE)})
    assert any(pin.startswith("apsw==") for pin in uv["constraint-dependencies"])
    assert uv["default-groups"] == []
    whole = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    project = tomllib.loads((unpacked / "pyproject.toml").read_text("utf-8"))
    needed = whole.pop("optional-dependencies")["remote"] + whole.pop("dependencies")
    assert project["project"].pop("dependencies") == needed
    assert project["project"] == whole
    assert "dependency-groups" not in project


def test_the_entry_for_the_registry_obeys_its_rules() -> None:
    entry = read(PROJECT / "server.json")
    assert re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+/[A-Za-z0-9._-]+", entry["name"])
    assert 0 < len(entry["description"]) <= 100
    (package,) = entry["packages"]
    assert package["transport"] == {"type": "stdio"}
    words = [each.get("name") for each in package["packageArguments"]]
    assert words == [None, "--project"]


def test_the_entry_for_the_registry_has_the_defaults_of_the_code() -> None:
    (package,) = read(PROJECT / "server.json")["packages"]
    variables = {each["name"]: each.get("default") for each in package["environmentVariables"]}
    # A default for the toolsets would keep a gateway's file from adding its own.
    assert variables == {"EVERKEPT_DATA_DIR": None, "EVERKEPT_TOOLSETS": None}


def test_the_readme_names_the_server_as_the_registry_wants_it() -> None:
    name = read(PROJECT / "server.json")["name"]
    assert f"mcp-name: {name}" in (PROJECT / "README.md").read_text("utf-8")


def test_what_the_plugin_starts_may_be_executed() -> None:
    assert os.access(PLUGIN / "everkept", os.X_OK)
