from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def test_the_demo_shows_store_and_recall_and_leaves_nothing(recollect: Run, tmp_path: Path) -> None:
    shown = recollect("demo")
    assert shown.status == 0
    assert "8443" in shown.out
    assert "undo" in shown.out
    assert not (tmp_path / "data").exists()


def test_the_demo_speaks_json(recollect: Run) -> None:
    steps = recollect("demo", "--json").json["steps"]
    assert steps[0]["tool"] == "create_project"
    assert [e["name"] for e in steps[-1]["result"]["entities"]] == ["Orders DB"]
