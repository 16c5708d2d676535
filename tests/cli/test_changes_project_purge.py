"""Deleted projects on the command line: shown, restored, undone and purged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_folders import holders

Run = Callable[..., Any]
WORD = "xyzzy-quokka"


@pytest.fixture
def trash(everkept: Run) -> Run:
    everkept("create-project", "shop")
    everkept("create-entities", "name=Ada", "entity_type=person", f"observations={WORD}", "--project", "shop")
    everkept("delete-project", "shop", "--yes")
    return everkept


def test_delete_project_says_until_when_and_how(everkept: Run) -> None:
    everkept("create-project", "shop")
    said = everkept("delete-project", "shop", "--yes").out
    assert "To restore it until 20" in " ".join(said.split())
    assert 'everkept purge project "shop"' in " ".join(said.split())


def test_undo_brings_a_deleted_project_back(trash: Run) -> None:
    assert 'Restored project "shop" from the trash' in trash("undo").out
    assert "Ada" in trash("read-graph", "--project", "shop").out
    [newest, before, *_] = trash("log", "--project", "shop", "--json").json["changes"]
    assert (newest["tool"], newest["undoes"]) == ("undo", 2)
    assert (before["summary"], before["undone"]) == ('Deleted project "shop"', True)


def test_status_and_list_projects_say_what_is_in_the_trash(trash: Run) -> None:
    assert "In the trash: shop (until 20" in trash("status").out
    [told] = trash("status", "--json").json["trash"]
    assert told["name"] == "shop"
    assert told in trash("list-projects", "--json").json["trash"]
    assert "shop" in trash("list-projects").out
    trash("restore-project", "shop")
    assert "In the trash" not in trash("status").out
    assert "trash" not in trash("list-projects", "--json").json


def test_a_purge_asks_for_the_name_and_shows_what_the_project_holds(trash: Run, tmp_path: Path) -> None:
    assert trash("purge", "project", "shop").status == 2
    wrong = trash("purge", "project", "shop", stdin="shap\n", terminal=True)
    assert wrong.status == 2
    assert "has 1 entity, 1 observation" in wrong.err
    assert "Nothing was deleted" in wrong.err
    assert holders(tmp_path / "data", WORD) != []
    done = trash("purge", "project", "shop", stdin="shop\n", terminal=True)
    assert 'Permanently deleted project "shop".' in done.out
    assert holders(tmp_path / "data", WORD) == []
    assert trash("restore-project", "shop").status == 2
    assert trash("undo").status == 2
    assert trash("log", "--json").json["changes"] == []


def test_only_what_is_in_the_trash_is_purged(trash: Run, tmp_path: Path) -> None:
    trash("create-project", "live")
    refused = trash("purge", "project", "live", "--yes")
    assert refused.status == 2
    assert "everkept delete-project" in refused.err
    assert trash("purge", "project", "nowhere", "--yes").status == 2
    assert trash("purge", "project", "--yes").status == 2
    assert trash("purge", "project", "shop", "live", "--yes").status == 2
    assert holders(tmp_path / "data", WORD) != []


def test_a_project_with_the_same_name_outlives_the_purge(trash: Run, tmp_path: Path) -> None:
    trash("create-project", "shop")
    trash("create-entities", "name=Grace", "entity_type=person", "--project", "shop")
    taken = trash("restore-project", "shop")
    assert taken.status == 2
    assert "--new-name" in taken.err or "new_name" in taken.err
    [purged] = trash("purge", "project", "shop", "--yes", "--json").json["purged"]
    assert purged["counts"]["entity"] == 1
    assert holders(tmp_path / "data", WORD) == []
    assert "Grace" in trash("read-graph", "--project", "shop").out
