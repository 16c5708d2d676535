import json
from pathlib import Path

import pytest

from calling import Client
from recollect.app.app import App
from recollect.engines.memory import MemoryLibrary
from recollect.errors import NotFound
from recollect.settings import load
from recollect.tools.tool import Effect

# A token of the usual encodings is some four characters of a schema.
CHARACTERS_A_TOKEN = 4


def made(tmp_path: Path, **flags: object) -> App:
    return App(load({"data_dir": tmp_path, **flags}, {}), library=MemoryLibrary())


def test_a_read_only_server_offers_only_tools_that_read(tmp_path: Path) -> None:
    tools = list(made(tmp_path, read_only=True).tools)
    assert {tool.effect for tool in tools} == {Effect.READS}
    assert "search_nodes" in {tool.name for tool in tools}


def test_making_an_application_touches_no_file(tmp_path: Path) -> None:
    App(load({"data_dir": tmp_path / "data"}, {}))
    assert list(tmp_path.iterdir()) == []


def test_the_tool_list_costs_little_context(tmp_path: Path) -> None:
    app = made(tmp_path)
    listed = [
        {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
        for tool in app.tools
    ]
    characters = len(json.dumps(listed, separators=(",", ":")))
    assert characters / CHARACTERS_A_TOKEN < 1_700
    assert len(app.instructions) / CHARACTERS_A_TOKEN < 150


async def test_an_unknown_tool_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await Client(made(tmp_path))("search_everything")


async def test_a_configured_project_is_made_at_the_first_write(tmp_path: Path) -> None:
    app = made(tmp_path, project="shop")
    client = Client(app)
    assert await client("read_graph") == {"entities": [], "relations": []}
    assert await app.library.projects() == []
    await client("create_entities", entities=[{"name": "a", "entity_type": "b"}])
    assert [project.name for project in await app.library.projects()] == ["shop"]
    assert (await client("get_current_project"))["name"] == "shop"


async def test_auto_names_the_project_after_the_working_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my shop" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "my shop" / ".git").mkdir()
    client = Client(made(tmp_path, project="auto", path=folder))
    await client("create_entities", entities=[{"name": "a", "entity_type": "b"}])
    assert (await client("get_current_project"))["name"] == "my shop"


async def test_each_call_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(made(tmp_path))
    with caplog.at_level("INFO", logger="recollect"):
        await client("list_projects")
        with pytest.raises(NotFound):
            await client("switch_project", name="none")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == ["list_projects", "switch_project"]
    assert [line.split()[-1] for line in lines] == ["ok", "not_found"]
