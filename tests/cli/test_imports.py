import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_a_file_of_the_official_server_is_taken_in_once(recollect: Run, tmp_path: Path) -> None:
    lines = [
        {"type": "entity", "name": "Ada", "entityType": "person", "observations": ["x"]},
        {"type": "relation", "from": "Ada", "to": "Ghost", "relationType": "sees"},
    ]
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{broken", encoding="utf-8")
    before = path.read_bytes()
    first = recollect("import", "server-memory", str(path), "--json").json
    assert (first["entities"], first["observations"], first["relations"]) == (1, 1, 1)
    assert [item["line"] for item in first["unreadable"]] == [3]
    again = recollect("import", "server-memory", str(path))
    assert "Added 0 entities, 0 observations and 0 relations to default." in again.out
    assert "line 3" in again.err
    assert path.read_bytes() == before
    into = recollect("import", "server-memory", str(path), "--project", "shop", "--json").json
    assert into["entities"] == 1
    names = [p["name"] for p in recollect("list-projects", "--json").json["projects"]]
    assert names == ["default", "shop"]


def test_a_missing_file_is_the_callers_mistake(recollect: Run, tmp_path: Path) -> None:
    assert recollect("import", "server-memory", str(tmp_path / "none")).status == 2
