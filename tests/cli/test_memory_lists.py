import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def stored(everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memories of this repository, of the user, and of another project."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    everkept("remember", "Orders are in PostgreSQL", "--tag", "db", "--tag", "decision", "--author", "Ada")
    everkept("remember", "Run the tests first", "--type", "procedural", "--pin", "--author", "Ada")
    everkept("remember", "I like tea", "--scope", "user", "--author", "Bob")
    everkept("remember", "Elsewhere", "--project", "other", "--author", "Ada")


def count(everkept: Run, *arguments: str) -> Any:
    return everkept("list", "--facets", "--json", *arguments).json


def test_facets_count_the_memories_by_trait(everkept: Run) -> None:
    found = count(everkept)
    assert found["total"] == 3
    assert found["facets"] == {
        "project": {"shop": 2, "@user": 1},
        "type": {"semantic": 2, "procedural": 1},
        "scope": {"project": 2, "user": 1},
        "tag": {"db": 1, "decision": 1},
        "author": {"Ada": 2, "Bob": 1},
        "session": {},
        "flag": {"pinned": 1},
    }


def test_filters_restrict_the_counts_of_other_traits(everkept: Run) -> None:
    found = count(everkept, "--type", "procedural", "--pinned")
    assert found["total"] == 1
    assert found["facets"]["author"] == {"Ada": 1}
    assert count(everkept, "--type", "procedural")["facets"]["type"] == {"semantic": 2, "procedural": 1}
    assert count(everkept, "--until", "2020-01-01")["total"] == 0


def test_facets_cover_all_projects_on_request(everkept: Run) -> None:
    assert count(everkept, "--all-projects")["facets"]["project"] == {"shop": 2, "other": 1, "@user": 1}


def test_forgotten_memories_are_counted_on_request(everkept: Run) -> None:
    memory = everkept("list", "--tag", "db", "--json").json["memories"][0]["id"]
    everkept("forget", memory)
    assert count(everkept)["total"] == 2
    assert count(everkept, "--forgotten")["facets"]["tag"] == {"db": 1, "decision": 1}


def test_people_read_the_counts_by_trait(everkept: Run) -> None:
    shown = everkept("list", "--facets").out
    assert shown.startswith("3 memories.\nProject\n")
    assert "\nTag\n    1  db\n    1  decision\n" in shown
    assert "Session" not in shown


def test_a_folder_without_memories_counts_those_of_the_user(
    everkept: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "new" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "new")
    assert count(everkept)["facets"]["project"] == {"@user": 1}


def test_an_unknown_project_is_refused(everkept: Run) -> None:
    refused = everkept("list", "--facets", "--project", "unknown")
    assert refused.status == 2
    assert "unknown" in refused.err


def test_people_read_memories_without_markup(everkept: Run) -> None:
    everkept("remember", "Deploys need **two** reviews and *no* open bugs", "--project", "shop")
    for words in (("list",), ("recall", "deploys")):
        assert "Deploys need two reviews and no open bugs" in everkept(*words, "--project", "shop").out
    assert "**two**" in everkept("list", "--project", "shop", "--json").out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not read TZ again")
def test_people_read_times_of_their_time_zone(everkept: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    everkept("create-project", "late")
    at = datetime.fromisoformat(everkept("log", "--json").json["changes"][0]["at"])
    monkeypatch.setenv("TZ", "TST-5:30")
    time.tzset()
    shown = f"{at + timedelta(hours=5.5):%Y-%m-%d %H:%M}"
    try:
        for words in (("log",), ("list-projects",), ("log", "--calls")):
            assert shown in everkept(*words).out
    finally:
        monkeypatch.undo()
        time.tzset()
