"""Notes of basic-memory and Obsidian as a graph."""

import json
from pathlib import Path

import pytest

from everkept.errors import InvalidInput
from everkept.exchange.foreign import ForeignSource, Machine
from everkept.exchange.sources.note_folders import BASIC_MEMORY, OBSIDIAN
from foreign_stores import Home, unpack_rival
from plugin_databases import read_files


def write(root: Path, **notes: str) -> Path:
    for name, text in notes.items():
        path = root / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


async def test_a_note_of_basic_memory_is_an_entity_with_relations_and_comes_once(home: Home, tmp_path: Path) -> None:
    folder = unpack_rival("basic-memory", tmp_path)
    before = read_files(folder)
    first = await home.take(BASIC_MEMORY, folder)
    assert (first.entities, first.observations, first.skipped) == (3, 4, {"task": 1})
    assert await home.triples() == {
        ("Shop API", "depends_on", "Orders DB"),
        ("Shop API", "links_to", "Orders DB"),
        ("Shop API", "is part of", "Shop"),
    }
    again = await home.take(BASIC_MEMORY, folder)
    assert (again.entities, again.observations, again.links, again.updated) == (0, 0, 0, 0)
    assert read_files(folder) == before


async def test_projects_of_basic_memory_become_projects(home: Home, tmp_path: Path) -> None:
    work, web = write(tmp_path / "work", Port="- 8080"), write(tmp_path / "web", Port="- 9090")
    config = tmp_path / "config"
    config.mkdir()
    named = {"projects": {"work": {"path": str(work)}, "web": str(web)}}
    (config / "config.json").write_text(json.dumps(named), encoding="utf-8")
    outcome = await home.take(BASIC_MEMORY, config)
    assert (outcome.projects, outcome.entities) == (["web", "work"], 2)
    machine = Machine({"BASIC_MEMORY_CONFIG_DIR": str(config)}, tmp_path, "linux")
    assert BASIC_MEMORY.find(machine) == [config]


async def test_a_vault_becomes_a_graph_and_its_tagged_notes_memories(home: Home, tmp_path: Path) -> None:
    vault = write(
        tmp_path / "vault",
        Orders="---\naliases: [orders database]\n---\nOrders live in [[PostgreSQL|Postgres]]. #decision\n",
        Rule="---\ntags: [memory, style]\ntype: workflow\n---\nRun ruff before a commit.\n",
    )
    outcome = await home.take(OBSIDIAN, vault)
    assert (outcome.entities, outcome.memories) == (2, 1)
    rule = (await home.memories())["Run ruff before a commit."]
    assert (rule.type, rule.tags) == ("procedural", ("style",))
    assert ("Orders", "links_to", "PostgreSQL") in await home.triples()


def test_vaults_are_found_in_the_list_of_obsidian(tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "obsidian"
    settings.mkdir(parents=True)
    (settings / "obsidian.json").write_text('{"vaults": {"a": {"path": "/notes", "ts": 1}}}', encoding="utf-8")
    assert OBSIDIAN.find(Machine({}, tmp_path, "linux")) == [Path("/notes")]
    assert OBSIDIAN.find(Machine({}, tmp_path / "none", "linux")) == []


@pytest.mark.parametrize("source", [BASIC_MEMORY, OBSIDIAN], ids=["basic-memory", "obsidian"])
async def test_a_place_without_notes_is_refused(home: Home, tmp_path: Path, source: ForeignSource) -> None:
    index = tmp_path / "memory.db"  # basic-memory keeps one beside its configuration
    index.write_bytes(b"SQLite format 3\0" + bytes(200))
    for place in (tmp_path, tmp_path / "none", index):
        with pytest.raises(InvalidInput) as refused:
            await home.take(source, place)
        assert str(place) in refused.value.message
