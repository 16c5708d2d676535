from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_the_demo_shows_store_and_recall_and_leaves_nothing(everkept: Run, tmp_path: Path) -> None:
    shown = everkept("demo")
    assert shown.status == 0
    assert "8443" in shown.out
    assert "undo" in shown.out
    assert not (tmp_path / "data").exists()


def test_the_demo_speaks_json(everkept: Run) -> None:
    steps = everkept("demo", "--json").json["steps"]
    assert steps[0]["tool"] == "create_project"
    assert [e["name"] for e in steps[-1]["result"]["entities"]] == ["Orders DB"]


def test_the_demo_reaches_no_database_that_is_in_use(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_DEPLOYMENT_MODE", "remote")
    monkeypatch.setenv("MEMORY_REMOTE_URL", "ws://127.0.0.1:1")
    monkeypatch.setenv("EVERKEPT_NAMESPACE", "other")
    assert everkept("demo").status == 0
