"""Formats of `everkept export`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def filled(everkept: Run) -> Run:
    everkept("create-project", "shop")
    everkept(
        "create-entities", '[{"name": "Orders DB", "entityType": "database", "observations": ["runs PostgreSQL"]}]'
    )
    everkept("remember", "We chose PostgreSQL for orders", "--project", "shop")
    return everkept


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_lines_alone_are_imported_again_and_pages_alone_are_for_people(filled: Run, tmp_path: Path) -> None:
    filled("export", str(tmp_path / "lines"), "--format", "jsonl")
    assert not any(name.endswith(".md") for name in list_files(tmp_path / "lines") - {"README.md"})
    assert "0 records" in filled("import", str(tmp_path / "lines")).out
    filled("export", str(tmp_path / "pages"), "--format", "markdown")
    assert "projects/shop/memories.md" in list_files(tmp_path / "pages")
    assert not any(name.endswith(".jsonl") for name in list_files(tmp_path / "pages"))


def test_pages_and_lines_count_the_same_records_and_links(filled: Run, tmp_path: Path) -> None:
    filled("create-relations", "from=Orders DB", "relation_type=uses", "to=Orders DB")
    lines = filled("export", str(tmp_path / "lines"), "--format", "jsonl", "--json").json
    pages = filled("export", str(tmp_path / "pages"), "--format", "markdown", "--json").json
    assert (pages["records"], pages["links"]) == (lines["records"], lines["links"])
    assert pages["records"] == len((tmp_path / "lines/projects/shop/records.jsonl").read_text("utf-8").splitlines())


def test_a_vault_is_imported_again_and_not_replaced_once_it_is_edited(filled: Run, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    assert "notes" in filled("export", str(vault), "--format", "obsidian").out
    filled("export", str(vault), "--format", "obsidian")
    note = next((vault / "shop" / "memories").iterdir())
    note.write_text(note.read_text(encoding="utf-8").replace("We chose", "They chose"), encoding="utf-8")
    refused = filled("export", str(vault), "--format", "obsidian")
    assert (refused.status, "was edited" in refused.err) == (2, True)
    assert "updated 1" in filled("import", "obsidian", str(vault)).out
    assert "They chose" in filled("recall", "PostgreSQL", "--project", "shop").out


def test_one_graph_is_written_for_the_official_memory_server(filled: Run, tmp_path: Path) -> None:
    folder = tmp_path / "graphs"
    filled("export", str(folder), "--format", "server-memory", "--project", "shop")
    file = folder / "shop" / "memory.jsonl"
    again = filled("import", "server-memory", str(file), "--project", "shop")
    assert "Added 0 entities" in again.out
    other = filled("import", "server-memory", str(file), "--project", "other", "--json").json
    assert other["entities"] == 1
