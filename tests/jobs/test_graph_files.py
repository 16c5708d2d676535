import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.ports import Library
from everkept.core.sessions import Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.jobs import graph_files
from everkept.settings import read_settings

ENTITY = {"name": "Shop API", "entity_type": "service", "observations": ["Runs on 8443"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "memory-bank").mkdir(parents=True)
    return folder


@pytest.fixture
async def app(home: Path, tmp_path: Path) -> AsyncIterator[App]:
    flags: dict[str, Any] = {"data_dir": tmp_path, "path": home, "toolsets": "all"}
    app = App(read_settings(flags | {"project": "auto"}, {}), library=MemoryLibrary())
    yield app
    await app.close()


def events(home: Path) -> list[str]:
    log = home / "memory-bank" / "graph" / "graph.jsonl"
    if not log.exists():
        return []
    return [json.loads(line)["type"] for line in log.read_text(encoding="utf-8").splitlines()]


async def test_what_another_family_wrote_is_mirrored_soon_after(app: App, home: Path) -> None:
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    async with asyncio.timeout(30):
        while "observation_add" not in events(home):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    assert events(home) == ["memory_bank_graph", "entity_upsert", "observation_add"]


async def test_the_end_of_the_program_brings_files_and_view_up_to_date(app: App, home: Path) -> None:
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    await app.close()
    assert "entity_upsert" in events(home)
    view = home / "memory-bank" / "graph" / "graph.md"
    assert "Shop API" in view.read_text(encoding="utf-8")


async def test_the_view_is_written_when_nothing_changed_for_a_moment(
    app: App, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graph_files, "VIEW_QUIET_SECONDS", 0.01)
    await app.call(Session(), "graph_upsert_entity", {"name": "Cart", "entityType": "service"})
    view = home / "memory-bank" / "graph" / "graph.md"
    async with asyncio.timeout(30):
        while not view.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)


async def test_without_a_bank_no_folder_is_made(app: App, home: Path) -> None:
    (home / "memory-bank").rmdir()
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    await app.close()
    assert not (home / "memory-bank").exists()


async def test_a_bank_that_cannot_be_written_disturbs_nobody(app: App, home: Path) -> None:
    (home / "memory-bank" / "graph").write_text("in the way", encoding="utf-8")
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    await app.close()
    assert (home / "memory-bank" / "graph").read_text(encoding="utf-8") == "in the way"


# As another program leaves it: with an id that is made in another way than ours.
FOREIGN = [
    {"type": "memory_bank_graph", "source": "memory-bank-mcp", "version": "1"},
    {
        "type": "entity_upsert",
        "entity": {
            "id": "ent_anotherway01",
            "name": "Cart",
            "entityType": "service",
            "createdAt": "2026-03-02T13:00:00.000Z",
            "updatedAt": "2026-03-02T13:00:00.000Z",
        },
        "ts": "2026-03-02T13:00:00.000Z",
    },
]


def another(home: Path, tmp_path: Path, library: Library, **flags: Any) -> App:
    """As another process on the same data."""
    given: dict[str, Any] = {"data_dir": tmp_path, "path": home, "project": "auto"} | flags
    return App(read_settings(given, {}), library=library)


async def names(app: App) -> list[str]:
    found = await app.call(Session(), "graph_search", {"query": "*"})
    return sorted(entity["name"] for entity in found.facts["entities"])


async def test_what_a_process_without_the_bank_wrote_is_mirrored_soon_after_a_read(
    app: App, home: Path, tmp_path: Path
) -> None:
    await app.call(Session(), "graph_upsert_entity", {"name": "Cart", "entityType": "service"})
    await app.close()
    other = another(home, tmp_path, app.library, toolsets="graph")
    await other.call(Session(), "create_entities", {"entities": [ENTITY]})
    assert "observation_add" not in events(home)
    reader = another(home, tmp_path, app.library, toolsets="bank")
    assert await names(reader) == ["Cart", "Shop API"]
    async with asyncio.timeout(30):
        while "observation_add" not in events(home):  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    await reader.close()
    assert "Shop API" in (home / "memory-bank/graph/graph.md").read_text(encoding="utf-8")


async def test_neither_a_read_nor_a_write_corrects_what_git_brought(app: App, home: Path, tmp_path: Path) -> None:
    log = home / "memory-bank" / "graph" / "graph.jsonl"
    log.parent.mkdir()
    log.write_text("".join(json.dumps(line) + "\n" for line in FOREIGN), encoding="utf-8")
    brought = log.read_bytes()
    reader = another(home, tmp_path, app.library, toolsets="bank")
    assert await names(reader) == ["Cart"]
    assert await names(reader) == ["Cart"]
    await reader.close()
    assert log.read_bytes() == brought
    await app.call(Session(), "graph_upsert_entity", {"name": "Ada", "entityType": "person"})
    assert log.read_bytes().startswith(brought)
    added = [json.loads(line) for line in log.read_bytes().removeprefix(brought).splitlines()]
    assert [line["entity"]["name"] for line in added] == ["Ada"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("graph_search", {"query": "*"}),
        ("get_context_digest", {}),
        ("graph_upsert_entity", {"name": "Ada", "entityType": "person"}),
    ],
)
async def test_a_bank_that_was_removed_and_made_again_gets_its_graph_file_back(
    app: App, home: Path, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    await app.call(Session(), "graph_upsert_entity", {"name": "Cart", "entityType": "service"})
    shutil.rmtree(home / "memory-bank")
    (home / "memory-bank").mkdir()
    later = another(home, tmp_path, app.library, toolsets="bank")
    await later.call(Session(), tool, arguments)
    await later.close()
    assert events(home)[:2] == ["memory_bank_graph", "entity_upsert"]


async def test_making_a_bank_writes_the_graph_that_its_project_has(app: App, home: Path) -> None:
    await app.call(Session(), "graph_upsert_entity", {"name": "Cart", "entityType": "service"})
    shutil.rmtree(home / "memory-bank")
    await app.call(Session(), "initialize_memory_bank", {"path": str(home)})
    await app.close()
    assert events(home) == ["memory_bank_graph", "entity_upsert"]


async def test_a_write_to_a_project_that_was_named_gives_the_bank_no_project(home: Path, tmp_path: Path) -> None:
    log = home / "memory-bank" / "graph" / "graph.jsonl"
    log.parent.mkdir()
    before = '{"type":"memory_bank_graph","source":"memory-bank-mcp","version":"1"}\n'
    log.write_text(before, encoding="utf-8")
    flags: dict[str, Any] = {"data_dir": tmp_path, "path": home, "toolsets": "all"}
    app = App(read_settings(flags | {"project": "other"}, {}), library=MemoryLibrary())
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    await app.close()
    assert log.read_text(encoding="utf-8") == before
