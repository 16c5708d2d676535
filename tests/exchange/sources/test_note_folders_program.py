"""Someone who used basic-memory moves over."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from python_packages import INSTALL_SECONDS, find_python

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(INSTALL_SECONDS + 600)]
PACKAGES = ("basic-memory==0.24.1",)
MINOR = 12  # of the oldest Python 3 that the program supports
PARAGRAPH = ("Shop API", "Serves the checkout.")  # text that the program does not list as an observation


def read_index(folder: Path) -> tuple[set[tuple[str, str]], set[tuple[str, str, str]]]:
    """Return the observations and the relations that the program sees in its notes."""
    database = sqlite3.connect((folder / ".basic-memory" / "memory.db").as_uri() + "?mode=ro", uri=True)
    told = (
        "SELECT title, '[' || category || '] ' || content || coalesce(' (' || context || ')', '') "
        "FROM observation JOIN entity ON entity.id = entity_id"
    )
    linked = "SELECT title, relation_type, to_name FROM relation JOIN entity ON entity.id = from_id"
    found = set(database.execute(told)), set(database.execute(linked))
    database.close()
    return found


def test_notes_become_what_the_program_sees_in_them(fill: Any, everkept: Any, new_home: Path) -> None:
    fill("fill_basic_memory.py", *PACKAGES, python=find_python(MINOR))
    outcome = everkept("import", "basic-memory")
    assert outcome["projects"] == ["garden", "main"]
    graphs = [everkept("read-graph", "--project", name) for name in outcome["projects"]]
    entities = [entity for graph in graphs for entity in graph["entities"]]
    observations, relations = read_index(new_home)
    assert {(e["name"], o["content"]) for e in entities for o in e["observations"]} == observations | {PARAGRAPH}
    assert {(r["from"], r["relation_type"], r["to"]) for graph in graphs for r in graph["relations"]} == relations
    assert {each["name"]: each["entity_type"] for each in entities}["Orders DB"] == "database"
    again = everkept("import", "basic-memory")
    assert (again["entities"], again["observations"], again["links"]) == (0, 0, 0)
