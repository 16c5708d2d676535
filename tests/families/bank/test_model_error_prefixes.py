from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import BankNotFound, EverkeptError, InvalidInput
from everkept.settings import read_settings


@pytest.fixture
def app(tmp_path: Path) -> App:
    flags = {"data_dir": tmp_path / "data", "path": tmp_path, "toolsets": "bank"}
    return App(read_settings(flags | {"bank_extras": True}, {}), library=MemoryLibrary())


async def said(app: App, tool: str, **arguments: Any) -> str:
    with pytest.raises(EverkeptError) as caught:
        await app.call(Session(), tool, arguments)
    return str(caught.value)


async def test_an_error_begins_with_what_was_attempted(app: App, tmp_path: Path) -> None:
    await app.call(Session(), "initialize_memory_bank", {"path": str(tmp_path)})
    deleting = await said(app, "graph_delete_entity", entity="Nobody")
    assert deleting.startswith("Failed to delete entity: Entity not found")
    observation = await said(app, "graph_delete_observation", observationId="obs_none")
    assert observation.startswith("Failed to delete observation: Observation not found")
    restoring = await said(app, "restore_backup", backupId="memory-bank-backup-2026-02-13T10-30-00-000Z")
    assert restoring.startswith("Error restoring backup: Backup not found")
    graph = tmp_path / "memory-bank" / "graph"
    graph.mkdir()
    (graph / "graph.jsonl").write_text("{}\n", encoding="utf-8")
    assert (await said(app, "graph_rebuild")).startswith("Failed to rebuild snapshot: ")
    await app.close()


@pytest.mark.parametrize(
    ("tool", "arguments", "way_out"),
    [
        ("update_tasks", {"add": ["x"]}, "Use set_memory_bank_path or initialize_memory_bank first."),
        ("create_backup", {}, "Use set_memory_bank_path or initialize_memory_bank first."),
        ("graph_upsert_entity", {"name": "x", "entityType": "y"}, "Use initialize_memory_bank first."),
    ],
)
async def test_a_missing_bank_is_told_in_the_words_of_the_tool(
    app: App, tmp_path: Path, tool: str, arguments: dict[str, Any], way_out: str
) -> None:
    with pytest.raises(BankNotFound) as caught:
        await app.call(Session(), tool, arguments)
    assert str(caught.value).startswith(f"Memory Bank not initialized. {way_out}")
    assert caught.value.facts["expectedPath"] == str(tmp_path / "memory-bank")
    await app.close()


async def test_a_wrong_argument_is_no_failed_attempt(app: App) -> None:
    with pytest.raises(InvalidInput) as caught:
        await app.call(Session(), "restore_backup", {})
    assert caught.value.message == "Argument `backupId` is required."
    with pytest.raises(InvalidInput) as caught:
        await app.call(Session(), "read_memory_bank_file", {"filename": ""})
    assert caught.value.message == "`filename` is empty."
    await app.close()
