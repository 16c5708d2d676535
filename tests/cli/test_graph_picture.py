import html
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]

HOSTILE = [
    '"] --> n0; click n0 "https://evil.example"',
    "%%{init: {'theme': 'dark'}}%%",
    "<script>alert(1)</script>",
    "`1. list` **bold** $$x$$ #quot;",
    "a\\N\\",
    '"]; n9 [URL="https://evil.example"',
    "&lt;b&gt; style x:#fff;",
    "right\u202eleft\u200b",
    "end",
    "Umlaut ä 漢字",
]
MERMAID_LINE = re.compile(r'  n\d+\["(?:[^\W_]|[-._/ ]|#\d+;|<br/>)*"\]|  n\d+ -->\|"(?:[^\W_]|[-._/ ]|#\d+;)*"\| n\d+')
DOT_STRING = r'"(?:[^"\\]|\\.)*"'
DOT_LINE = re.compile(rf"  n\d+ \[label={DOT_STRING}(, penwidth=3)?\];|  n\d+ -> n\d+ \[label={DOT_STRING}\];")


@pytest.fixture(autouse=True)
def stored(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of services in this repository's graph."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    names = ["Web", "Shop API", "Orders DB", "Backup"]
    add(everkept, names)
    link(everkept, list(itertools.pairwise(names)))


def add(everkept: Run, names: list[str], kind: str = "service") -> None:
    everkept("create-entities", json.dumps([{"name": name, "entity_type": kind} for name in names]))


def link(everkept: Run, pairs: list[tuple[str, str]], verb: str = "depends_on") -> None:
    relations = [{"from": source, "to": target, "relation_type": verb} for source, target in pairs]
    assert everkept("create-relations", json.dumps(relations)).status == 0


def test_the_whole_graph_is_drawn_for_markdown(everkept: Run) -> None:
    drawn = everkept("graph")
    assert drawn.status == 0
    lines = drawn.out.splitlines()
    assert lines[0] == "graph LR"
    [web] = (line.split("[")[0].strip() for line in lines if '"Web<br/>service"' in line)
    [api] = (line.split("[")[0].strip() for line in lines if '"Shop API<br/>service"' in line)
    assert f'  {web} -->|"depends_on"| {api}' in lines
    assert len(lines) == 1 + 4 + 3


def test_an_entity_is_drawn_with_what_a_few_steps_reach(everkept: Run) -> None:
    near = everkept("graph", "web", "--hops", "1", "--format", "dot").out
    assert "Shop API" in near
    assert "Orders DB" not in near
    assert re.search(r'label="Web\\nservice", penwidth=3', near)
    far = everkept("graph", "Web", "--hops", "3").out
    assert "Backup" in far


@pytest.mark.parametrize("form", ["mermaid", "dot"])
def test_names_add_no_statement_to_a_picture(form: str, everkept: Run) -> None:
    add(everkept, HOSTILE, kind=HOSTILE[0])
    link(everkept, list(itertools.pairwise(HOSTILE)), verb='"| x --> y; %% "];')
    lines = everkept("graph", "--format", form).out.splitlines()
    drawn = [line for line in lines if re.match(r"  n\d", line)]
    assert len(drawn) == 4 + 3 + len(HOSTILE) + len(HOSTILE) - 1
    shape = MERMAID_LINE if form == "mermaid" else DOT_LINE
    assert [line for line in drawn if not shape.fullmatch(line)] == []
    assert "\u202e" not in "".join(lines)


def test_mermaid_shows_names_as_they_are_written(everkept: Run) -> None:
    add(everkept, HOSTILE[:1] + HOSTILE[-1:])
    shown = html.unescape(re.sub(r"#(\d+);", r"&#\1;", everkept("graph").out))
    assert all(f'["{name}<br/>service"]' in shown for name in (HOSTILE[0], HOSTILE[-1]))


def test_dot_shows_names_as_they_are_written(everkept: Run) -> None:
    add(everkept, HOSTILE[4:7])
    labels = re.findall(rf"label=({DOT_STRING})", everkept("graph", "--format", "dot").out)
    shown = {
        html.unescape(re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], each)) for each in labels
    }
    assert {f'"{name}\nservice"' for name in HOSTILE[4:7]} <= shown


def test_a_file_for_a_browser_holds_the_graph_as_data(everkept: Run, tmp_path: Path) -> None:
    add(everkept, HOSTILE, kind=HOSTILE[2])
    written = everkept("graph", "--format", "html", "-o", str(tmp_path / "graph.html"))
    assert written.out == f"Drew 14 entities and 3 relations to {tmp_path / 'graph.html'}.\n"
    page = (tmp_path / "graph.html").read_text(encoding="utf-8")
    [encoded] = re.findall(r'<script type="application/json" id="data">([^<]*)</script>', page)
    data = json.loads(encoded)
    assert {*HOSTILE, "Web"} <= set(data["outline"]["names"])
    assert (data["title"], data["focus"]) == ("Knowledge graph", None)
    focused = everkept("graph", "Web", "--hops", "1", "--format", "html").out
    data = json.loads(re.findall(r'id="data">([^<]*)</script>', focused)[0])
    assert (data["title"], data["outline"]["names"][data["focus"]]) == ("Web", "Web")


def test_a_picture_that_is_cut_says_so(everkept: Run) -> None:
    drawn = everkept("graph", "--limit", "2")
    assert len(drawn.out.splitlines()) == 1 + 2 + 1
    assert "2 entities with the most relations, of 4" in drawn.err
    assert "--limit" in drawn.err
    around = everkept("graph", "Web", "--hops", "4", "--limit", "3")
    assert "3 entities nearest to it, of 4" in around.err
    assert everkept("graph", "Web", "--hops", "4", "--limit", "4").err == ""


def test_mermaid_gets_no_more_relations_than_it_accepts(everkept: Run) -> None:
    names = [f"E{number}" for number in range(33)]
    add(everkept, names)
    link(everkept, [(one, other) for one in names for other in names if one < other])
    drawn = everkept("graph")
    assert drawn.out.count(" -->|") == 480
    assert "51 relations omitted" in drawn.err


def test_a_picture_is_written_to_a_file(everkept: Run, tmp_path: Path) -> None:
    written = everkept("graph", "Web", "--format", "dot", "-o", str(tmp_path / "graph.dot"))
    assert written.out == f"Drew 3 entities and 2 relations to {tmp_path / 'graph.dot'}.\n"
    assert (tmp_path / "graph.dot").read_text(encoding="utf-8").startswith("digraph everkept {")
    refused = everkept("graph", "-o", str(tmp_path / "missing" / "graph.md"))
    assert refused.status == 2
    assert "Cannot write" in refused.err
    assert "--output" in refused.err


@pytest.mark.parametrize(("typed", "near"), [("Shap API", '"Shop API"'), ("orders", '"Orders DB"')])
def test_an_unknown_entity_is_refused_with_near_names(typed: str, near: str, everkept: Run) -> None:
    refused = everkept("graph", typed)
    assert refused.status == 2
    assert f'Entity "{typed}" not found.' in refused.err
    assert f"Did you mean {near}?" in refused.err
    assert refused.out == ""


def test_a_name_of_two_entities_is_refused_with_both(everkept: Run) -> None:
    add(everkept, ["Web"], kind="team")
    refused = everkept("graph", "Web")
    assert refused.status == 2
    assert "Web (team)" in refused.err
    assert everkept("graph", "Web (team)").status == 0


def test_a_graph_without_entities_says_so(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "new")
    assert "no entities yet" in everkept("graph").err
    assert everkept("graph", "--project", "unknown").status == 2


def test_programs_read_the_picture_as_data(everkept: Run) -> None:
    found = everkept("graph", "Backup", "--hops", "1", "--json").json
    assert [each["name"] for each in found["entities"]] == ["Backup", "Orders DB"]
    assert found["relations"] == [{"from": "Orders DB", "to": "Backup", "relation_type": "depends_on"}]
    assert (found["total_entities"], found["cut"]) == (4, False)
