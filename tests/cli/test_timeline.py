import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def stored(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    everkept("remember", "Orders are in PostgreSQL")
    everkept("remember", "I like tea", "--scope", "user")
    everkept("create-entities", json.dumps([{"name": "Shop API", "entity_type": "service"}]))
    everkept("remember", "Elsewhere", "--project", "other")


def summaries(found: Any) -> list[str]:
    return [change["summary"] for day in found["days"] for change in day["changes"]]


def test_a_timeline_shows_each_day_with_its_changes(everkept: Run) -> None:
    shown = everkept("timeline")
    assert shown.status == 0
    title, *lines = shown.out.splitlines()
    assert re.fullmatch(r"\w+day, \d{4}-\d\d-\d\d  \d changes \(.*shop 3.*\)", title)
    assert [line for line in lines if not re.match(r"  \d\d:\d\d  (shop|other|you): \S", line)] == []
    assert any('shop: Added memory "Orders are in PostgreSQL"' in line for line in lines)
    assert any('you: Added memory "I like tea"' in line for line in lines)
    assert "Elsewhere" in lines[0]


def test_a_timeline_of_one_project_shows_only_that(everkept: Run) -> None:
    shown = everkept("timeline", "--project", "other").out
    assert "Elsewhere" in shown
    assert "Orders" not in shown
    assert "other:" not in shown
    assert everkept("timeline", "--project", "unknown").status == 2


def test_times_bound_a_timeline(everkept: Run) -> None:
    assert summaries(everkept("timeline", "--since", "today", "--json").json)
    assert everkept("timeline", "--until", "2020-01-01").out == "No changes in this time.\n"
    assert everkept("timeline", "--since", "2001-01-01", "--until", "2001-01-31", "--json").json["days"] == []
    refused = everkept("timeline", "--since", "2021-01-01", "--until", "2020-01-01")
    assert refused.status == 2
    assert "--since is later than --until" in refused.err
    assert everkept("timeline", "--since", "whenever").status == 2


def test_a_timeline_that_is_cut_says_so(everkept: Run) -> None:
    found = everkept("timeline", "--limit", "2", "--json").json
    assert len(summaries(found)) == 2
    assert found["cut"] is True
    assert "newest 2 changes" in everkept("timeline", "--limit", "2").err
    whole = everkept("timeline", "--json").json
    assert whole["cut"] is False
    assert len(summaries(whole)) == 6


def test_undone_changes_are_marked(everkept: Run) -> None:
    everkept("undo", "--project", "shop")
    shown = everkept("timeline", "--project", "shop").out
    [line] = [line for line in shown.splitlines() if "Added entity Shop API" in line]
    assert line.endswith("undone")
    assert "Deleted entity Shop API" in shown


def test_hostile_text_stays_on_its_line(everkept: Run) -> None:
    everkept("remember", "first\n\x1b[31m\u202esecond")
    shown = everkept("timeline", "--limit", "1").out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert len(shown.splitlines()) == 2


def test_an_empty_timeline_says_so(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERKEPT_DATA_DIR", str(tmp_path / "empty"))
    assert everkept("timeline").out == "No changes.\n"
