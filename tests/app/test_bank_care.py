import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from recollect.app import bank_care
from recollect.app.app import App
from recollect.core.sessions import Session
from recollect.engines.memory.library import MemoryLibrary
from recollect.settings import load

ENTITY = {"name": "Shop API", "entity_type": "service", "observations": ["Runs on 8443"]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "memory-bank").mkdir(parents=True)
    return folder


@pytest.fixture
async def app(home: Path, tmp_path: Path) -> AsyncIterator[App]:
    flags: dict[str, Any] = {"data_dir": tmp_path, "path": home, "toolsets": "all"}
    app = App(load(flags | {"project": "auto"}, {}), library=MemoryLibrary())
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


async def test_the_end_of_the_program_brings_files_and_view_up_to_date(
    app: App, home: Path
) -> None:
    await app.call(Session(), "create_entities", {"entities": [ENTITY]})
    await app.close()
    assert "entity_upsert" in events(home)
    view = home / "memory-bank" / "graph" / "graph.md"
    assert "Shop API" in view.read_text(encoding="utf-8")


async def test_the_view_is_written_when_nothing_changed_for_a_moment(
    app: App, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bank_care, "QUIET", 0.01)
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
