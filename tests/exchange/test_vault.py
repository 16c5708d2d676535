"""A vault of Obsidian: written, imported again, edited."""

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from everkept.core.ports import RecordStore
from everkept.core.records import Insert, Record, RecordFilter, Update
from everkept.engines.memory.library import MemoryLibrary
from everkept.errors import InvalidInput
from everkept.exchange.exporter import export_library
from everkept.exchange.sources.note_folders import OBSIDIAN
from everkept.exchange.vault import refuse_edited_notes, write_notes
from everkept.families.memories.memory_identity import build_variant, compute_text_key
from everkept.graph.entities import compute_observation_key
from everkept.values import replace
from foreign_stores import Home
from records import batch, entity, link, memory

NOW = 1_760_000_000_000_000
TEXTS = (
    "Prices are integers\n\n- in cents\n- [[never]] floats",
    "%% links %%\nlooks like our own comment",
    "---\nquoted: yes\n---",
    'Path C:\\x "quoted" #tag ünïcode \U0001f600: [x] | ^mark',
)
TODO = "[ ] todo of two\n\n  indented lines"
OBSERVATIONS = ("Listens on 8443", "depends_on [[Orders DB]]", TODO, "ends ^with-a-mark")


def ignore(_done: int, _total: int) -> None:
    """Show no progress."""


async def export_vault(home: Home, folder: Path) -> Path:
    await export_library(home.library, folder, ignore, history=False, accounts=False, write_store=write_notes)
    return folder


async def fill(store: RecordStore, *, scope: str) -> None:
    own = scope[:1]
    memories = [
        Record(
            id=f"mem_{own}{number}",
            kind="memory",
            text=text,
            type="semantic",
            name_key=compute_text_key(text),
            variant=build_variant(scope, None, None),
            scope=scope,
            importance=0.8,
            tags=("decision", "two words"),
            author="ada",
            facets={"source": {"tool": "Edit"}, **({"pinned": True} if number == 0 else {})},
            created_at=NOW,
            updated_at=NOW + number,
        )
        for number, text in enumerate(TEXTS)
    ]
    named = (("e1", f"Shop: API/{own}", "service"), ("e2", "Orders DB", "database"))
    entities = [entity(name, id=f"{number}{own}", type=kind, variant=kind) for number, name, kind in named]
    told = [
        Record(
            id=f"0b{own}-{number}",
            kind="observation",
            text=text,
            name_key=compute_observation_key(text),
            parent=f"e1{own}",
            created_at=NOW,
            updated_at=NOW,
        )
        for number, text in enumerate(OBSERVATIONS)
    ]
    await store.commit(batch(*map(Insert, [*memories, *entities, *told])))
    ends = [("e1", "is part of", "e2"), ("e2", "feeds", "e1"), ("mem_", "related_to", "e1")]
    links = [
        link(f"{source}{own}{'0' if source == 'mem_' else ''}", verb, f"{target}{own}") for source, verb, target in ends
    ]
    await store.commit(batch(*map(Insert, links)))


async def read_all(home: Home, project: str | None) -> dict[str, dict[str, Any]]:
    """Return all that a vault shows of each record, by id."""
    store = await home.open(project)
    names = ("kind", "name", "type", "text", "parent", "scope", "importance", "tags", "author", "occurred_at")
    times = ("created_at", "updated_at")
    shown: dict[str, dict[str, Any]] = {}
    for each in await store.scan(RecordFilter()):
        fields = (*names, *(times if each.kind == "memory" else ()))
        shown[each.id] = {
            **{name: getattr(each, name) for name in fields if (name, each.kind) != ("name", "memory")},
            "pinned": each.facets.get("pinned"),
        }
    return shown


@pytest.fixture
async def full(home: Home) -> Home:
    await fill(await home.open("shop"), scope="project")
    await fill(await home.open(None), scope="user")
    return home


async def test_a_vault_becomes_the_same_memories_and_graph_in_an_empty_home(full: Home, tmp_path: Path) -> None:
    vault = await export_vault(full, tmp_path / "vault")
    other = Home(MemoryLibrary())
    first = await other.take(OBSIDIAN, vault)
    assert (first.memories, first.entities, first.observations) == (8, 4, 8)
    for project in ("shop", None):
        assert await read_all(other, project) == await read_all(full, project)
        assert await other.triples(project) == await full.triples(project)
    again = await other.take(OBSIDIAN, vault)
    assert (again.memories, again.entities, again.links, again.updated, again.older) == (0, 0, 0, 0, 0)
    await other.library.close()


async def test_a_vault_that_nobody_edited_changes_nothing(full: Home, tmp_path: Path) -> None:
    vault = await export_vault(full, tmp_path / "vault")
    before = [await (await full.open(project)).scan(RecordFilter()) for project in ("shop", None)]
    outcome = await full.take(OBSIDIAN, vault)
    assert (outcome.updated, outcome.older, outcome.memories, outcome.links) == (0, 0, 0, 0)
    assert [await (await full.open(project)).scan(RecordFilter()) for project in ("shop", None)] == before


async def test_edits_new_lines_and_new_notes_come_back(full: Home, tmp_path: Path) -> None:
    vault = await export_vault(full, tmp_path / "vault")
    memory_note = next(path for path in (vault / "shop" / "memories").iterdir() if "Prices" in path.name)
    memory_note.write_text(
        memory_note.read_text(encoding="utf-8").replace("integers", "whole numbers").replace("0.8", "0.9"),
        encoding="utf-8",
    )
    note = next(path for path in (vault / "shop").glob("*.md") if "API" in path.name)
    text = note.read_text(encoding="utf-8").replace("Listens on 8443", "Listens on 9090")
    note.write_text(text.replace("- Listens", "- owned by Ada\n- uses [[Orders DB]]\n- Listens"), encoding="utf-8")
    (vault / "shop" / "Deploy.md").write_text("Blue-green, see [[Orders DB]].", encoding="utf-8")
    outcome = await full.take(OBSIDIAN, vault)
    assert (outcome.updated, outcome.entities, outcome.observations) == (2, 1, 2)
    shop = await read_all(full, "shop")
    assert (shop["mem_p0"]["text"][:23], shop["mem_p0"]["importance"]) == ("Prices are whole number", 0.9)
    assert shop["mem_p0"]["pinned"] is True
    assert shop["0bp-0"]["text"] == "Listens on 9090"
    assert ("Shop: API/p", "uses", "Orders DB") in await full.triples("shop")
    assert ("Deploy", "links_to", "Orders DB") in await full.triples("shop")


async def test_lines_below_the_links_of_a_note_belong_to_it(full: Home, tmp_path: Path) -> None:
    """The end of the file is where people add a line."""
    vault = await export_vault(full, tmp_path / "vault")
    note = next(path for path in (vault / "shop").glob("*.md") if "API" in path.name)
    with note.open("a", encoding="utf-8") as file:
        file.write("- owned by Ada\n- uses [[Orders DB]]\n")
    memory_note = next(path for path in (vault / "shop" / "memories").iterdir() if "Prices" in path.name)
    with memory_note.open("a", encoding="utf-8") as file:
        file.write("\nFor invoices too.\n")
    outcome = await full.take(OBSIDIAN, vault)
    assert (outcome.updated, outcome.observations, outcome.links) == (1, 1, 1)
    shop = await read_all(full, "shop")
    assert shop["mem_p0"]["text"] == f"{TEXTS[0]}\n\nFor invoices too."
    assert "owned by Ada" in {each["text"] for each in shop.values()}
    again = await full.take(OBSIDIAN, vault)
    assert (again.updated, again.observations, again.links) == (0, 0, 0)


async def test_a_change_here_since_the_export_stays(full: Home, tmp_path: Path) -> None:
    vault = await export_vault(full, tmp_path / "vault")
    store = await full.open("shop")
    key = compute_text_key("Changed here")
    await store.commit(batch(Update("mem_p3", {"text": "Changed here", "name_key": key}, 1), at=NOW + 100))
    outcome = await full.take(OBSIDIAN, vault)
    assert (outcome.older, outcome.updated) == (1, 0)
    assert (await read_all(full, "shop"))["mem_p3"]["text"] == "Changed here"


async def test_another_export_refuses_to_replace_an_edited_note(full: Home, tmp_path: Path) -> None:
    vault = await export_vault(full, tmp_path / "vault")
    refuse_edited_notes(vault)
    refuse_edited_notes(tmp_path / "none")
    note = next((vault / "shop").glob("*.md"))
    note.write_text("edited", encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        refuse_edited_notes(vault)
    assert str(note) in refused.value.message


async def test_texts_that_begin_alike_get_notes_of_their_own(home: Home, tmp_path: Path) -> None:
    store = await home.open("shop")
    same = "The same sixty characters at the beginning of a long text, and "
    await store.commit(batch(*(Insert(memory(f"{same}{each}")) for each in ("a", "b"))))
    vault = await export_vault(home, tmp_path / "vault")
    assert len(list((vault / "shop" / "memories").iterdir())) == 2


HOSTILE = (
    "\U0001f389" * 60 + " one",
    "\U0001f389" * 60 + " two",
    "../../../outside",
    "..\\..\\outside",
    "/etc/passwd",
    "CON",
    "aux .txt",
    "com\u00b9",
    "LPT9.md",
    "Same title\nfirst",
    "same TITLE\nsecond",
    "Same title\nthird",
    "Same title a/../../../x",
    "caf\u00e9\nfirst",
    "cafe\u0301\nsecond",
    "trailing. . .",
    ".hidden",
    "\u202egpj.exe",
)
RESERVED = re.compile(r"(con|prn|aux|nul|com[0-9\u00b9]|lpt[0-9])\s*(\.|$)", re.IGNORECASE)


def _list_notes(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix == ".md"]


async def test_no_text_leads_out_of_the_vault_or_onto_another_note(tmp_path: Path) -> None:
    home = Home(MemoryLibrary())
    store = (await home.library.open((await home.library.create("shop", "")).name))[1]
    ids = [f"mem-{number}-a/../../../x" for number in range(len(HOSTILE))]
    pairs = zip(ids, HOSTILE, strict=True)
    await store.commit(batch(*(Insert(replace(memory(text), id=own)) for own, text in pairs)))
    folder = await export_vault(home, tmp_path / "vault")
    notes = _list_notes(tmp_path)
    assert len(notes) == len(HOSTILE)
    assert all(path.parent == folder / "shop" / "memories" for path in notes)
    folded = {unicodedata.normalize("NFC", path.name).casefold() for path in notes}
    assert len(folded) == len(HOSTILE)
    for path in notes:
        assert not RESERVED.match(path.name), path.name
        assert len(path.name.encode()) < 230
    texts = "".join(path.read_text("utf-8") for path in notes)
    assert all(text in texts for text in HOSTILE)
