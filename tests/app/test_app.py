import asyncio
import re
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import NotFound, ReadOnly, Refused
from everkept.settings import read_settings
from everkept.tools.tool import Effect
from hash_embedder import HashingEmbedder
from tool_calls import Client

# A token of the usual encodings is some four characters of a schema.


def made(tmp_path: Path, **flags: object) -> App:
    return App(read_settings({"data_dir": tmp_path, **flags}, {}), library=MemoryLibrary())


def test_a_read_only_server_offers_only_tools_that_read(tmp_path: Path) -> None:
    tools = list(made(tmp_path, read_only=True).tools)
    assert {tool.effect for tool in tools} == {Effect.READS, Effect.SESSION_ONLY}
    assert {"search_nodes", "switch_project"} <= {tool.name for tool in tools}


async def test_a_writing_tool_is_refused_where_only_reading_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ReadOnly):
        await Client(made(tmp_path, read_only=True))("create_project", name="x")


def test_the_instructions_name_only_tools_that_are_offered(tmp_path: Path) -> None:
    for flags in (
        {},
        {"read_only": True},
        {"project": "auto"},
        {"dialect": "server-memory"},
        {"dialect": "anthropic-memory"},
    ):
        app = made(tmp_path, **flags)
        named = set(re.findall(r"\b(?:[a-z]+_)+[a-z]+\b", app.instructions))
        assert [name for name in named if name not in app.tools] == []
    assert "switch_project" in made(tmp_path).instructions
    assert "switch_project" not in made(tmp_path, project="auto").instructions


async def test_a_project_that_is_yet_to_be_made_is_told_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "my shop"
    (folder / ".git").mkdir(parents=True)
    for flags, name in (({"project": "x"}, "x"), ({"project": "auto", "path": folder}, "my shop")):
        current = await Client(made(tmp_path, **flags))("get_current_project")
        assert f'"{name}"' in current["message"]


def test_making_an_application_touches_no_file(tmp_path: Path) -> None:
    App(read_settings({"data_dir": tmp_path / "data"}, {}))
    assert list(tmp_path.iterdir()) == []


async def test_an_unknown_tool_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        await Client(made(tmp_path))("search_everything")


async def test_a_configured_project_is_made_at_the_first_write(tmp_path: Path) -> None:
    app = made(tmp_path, project="shop")
    client = Client(app)
    assert await client("read_graph") == {"entities": [], "relations": []}
    assert await app.library.list_projects() == []
    await client("create_entities", entities=[{"name": "a", "entity_type": "b"}])
    assert [project.name for project in await app.library.list_projects()] == ["shop"]
    assert (await client("get_current_project"))["name"] == "shop"


async def test_auto_names_the_project_after_the_working_folder(tmp_path: Path) -> None:
    folder = tmp_path / "my shop" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "my shop" / ".git").mkdir()
    client = Client(made(tmp_path, project="auto", path=folder))
    await client("create_entities", entities=[{"name": "a", "entity_type": "b"}])
    assert (await client("get_current_project"))["name"] == "my shop"


async def test_each_call_is_one_line_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    client = Client(made(tmp_path))
    with caplog.at_level("INFO", logger="everkept"):
        await client("list_projects")
        with pytest.raises(NotFound):
            await client("switch_project", name="none")
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split()[0] for line in lines] == ["list_projects", "switch_project"]
    assert [line.split()[-1] for line in lines] == ["ok", "not_found"]


async def test_a_memory_that_was_just_stored_is_found_by_other_words(tmp_path: Path) -> None:
    class Late(HashingEmbedder):
        async def embed(self, texts: Sequence[str]) -> Any:
            if "Photosynthesis experiments" in texts:
                for _ in range(3_000):  # turns of the loop, in which a search that does not wait is over
                    await asyncio.sleep(0)
            return await super().embed(texts)

    flags = {"data_dir": tmp_path, "project": "shop", "recall_time_limit": 60.0}
    app = App(read_settings(flags, {}), library=MemoryLibrary(), embedder=Late())
    client = Client(app)
    await client("store_memory", content="Photosynthesis experiments", type="semantic", scope="project")
    found = await client("recall_memories", query="photosynthetic experimentation")
    assert [memory["content"] for memory in found["memories"]] == ["Photosynthesis experiments"]
    assert "warnings" not in found
    await app.close()


async def test_a_recall_says_that_a_memory_that_was_just_stored_is_not_embedded_yet(tmp_path: Path) -> None:
    class Slow(HashingEmbedder):
        async def embed(self, texts: Sequence[str]) -> Any:
            if "Photosynthesis experiments" in texts:
                await asyncio.Event().wait()
            return await super().embed(texts)

    flags = {"data_dir": tmp_path, "project": "shop", "recall_time_limit": 0.5}
    app = App(read_settings(flags, {}), library=MemoryLibrary(), embedder=Slow())
    client = Client(app)
    await client("store_memory", content="Photosynthesis experiments", type="semantic", scope="project")
    found = await client("recall_memories", query="photosynthetic experimentation", strategy="vector")
    assert found["memories"] == []
    message = "1 of 1 memory has no embedding yet, so only its words are searched."
    assert {"code": "partial_results", "message": message} in found["warnings"]
    await app.close()


async def test_yesterday_is_that_of_the_machines_own_calendar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    getattr(time, "tzset", lambda: None)()
    at_nine = int(datetime(2026, 11, 15, 9).astimezone().timestamp() * 1_000_000)
    app = App(
        read_settings({"data_dir": tmp_path, "project": "p"}, {}),
        library=MemoryLibrary(),
        embedder=HashingEmbedder(),
        clock=lambda: at_nine,
    )
    client = Client(app)
    moments = {"yesterday": datetime(2026, 11, 14, 14), "today": datetime(2026, 11, 15, 7)}
    for day, moment in moments.items():
        await client(
            "store_memory",
            content=f"The deployment went well, said {day}",
            type="episodic",
            scope="project",
            occurred_at=moment.astimezone().isoformat(),
        )
    found = await client("recall_memories", query="the deployment of yesterday", explain=True)
    dated = [m["content"] for m in found["memories"] if m["why"].get("date")]
    assert dated == ["The deployment went well, said yesterday"]
    await app.close()
    monkeypatch.undo()
    getattr(time, "tzset", lambda: None)()


async def test_over_http_only_banks_that_were_named_on_the_machine_are_used(tmp_path: Path) -> None:
    library = MemoryLibrary()
    (tmp_path / "private").mkdir()

    def served(**flags: object) -> Client:
        given = {"data_dir": tmp_path, "toolsets": "bank", **flags}
        return Client(App(read_settings(given, {}), library=library))

    private = str(tmp_path / "private")
    with pytest.raises(Refused, match="is not a registered memory bank"):
        await served(transport="http")("initialize_memory_bank", path=private)
    assert list((tmp_path / "private").iterdir()) == []
    named = served(transport="http", path=tmp_path / "private")
    made = await named("initialize_memory_bank", path=".")
    assert made["path"] == str(tmp_path / "private" / "memory-bank")
    await served()("register_store", storeId="mine", path=private)
    status = await served(transport="http")("get_memory_bank_status", storeId="mine")
    assert status["isComplete"] is True
