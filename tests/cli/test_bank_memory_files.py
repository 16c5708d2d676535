"""Undo, restore and purge of the files below /memories that a model keeps in a bank."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everkept.app.app import App
from everkept.core.sessions import Session
from everkept.settings import read_settings

Run = Callable[..., Any]
Tell = Callable[..., None]


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the model's files are, in the bank of the working folder."""
    folder = tmp_path / "shop"
    (folder / "memory-bank").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder / "memory-bank" / "memories"


@pytest.fixture
def memory(notes: Path, tmp_path: Path) -> Tell:
    """Calls the tool like a model."""

    def tell(command: str, **arguments: Any) -> None:
        async def call() -> None:
            chosen = {"data_dir": tmp_path / "data", "dialect": "anthropic-memory", "path": notes.parent.parent}
            app = App(read_settings(chosen, {}))
            await app.call(Session(client="test"), "memory", {"command": command, **arguments})
            await app.close()

        asyncio.run(call())

    tell("create", path="/memories/a/one.md", file_text="one xyzzy\n")
    tell("create", path="/memories/two.md", file_text="two\n")
    return tell


def read(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def test_undo_brings_back_what_a_model_deleted(memory: Tell, everkept: Run, notes: Path) -> None:
    before = read(notes)
    memory("str_replace", path="/memories/a/one.md", old_str="one", new_str="1")
    memory("delete", path="/memories/a")
    assert read(notes) == {"two.md": "two\n"}
    assert "memories/a/one.md" in everkept("undo").out
    assert read(notes) == {**before, "a/one.md": "1 xyzzy\n"}
    everkept("undo")
    assert read(notes) == before


def test_a_folder_is_one_change(memory: Tell, everkept: Run, notes: Path) -> None:
    memory("create", path="/memories/a/b/three.md", file_text="three\n")
    before = read(notes)
    memory("delete", path="/memories/a")
    everkept("undo")
    assert read(notes) == before


def test_a_file_that_was_written_since_then_is_kept(memory: Tell, everkept: Run, notes: Path) -> None:
    memory("delete", path="/memories/two.md")
    memory("create", path="/memories/two.md", file_text="new\n")
    assert everkept("undo").status == 2
    assert read(notes)["two.md"] == "new\n"
    assert everkept("bank", "restore", "memories/two.md").status == 0
    assert read(notes)["two.md"] == "two\n"


def test_a_purge_erases_the_kept_versions(memory: Tell, everkept: Run, tmp_path: Path) -> None:
    memory("delete", path="/memories/a/one.md")
    assert everkept("purge", "--containing", "xyzzy", "--yes", "--json").json["file_versions"] == 1
    kept = (tmp_path / "data" / "bank-versions").rglob("*")
    assert {path.name for path in kept if path.is_file()} == {"bank.address"}
