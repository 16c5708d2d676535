"""Someone who used mem0 moves over."""

from pathlib import Path
from typing import Any

import pytest

from everkept.core.times import parse_time
from python_packages import INSTALL_SECONDS

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(INSTALL_SECONDS + 600)]
PACKAGES = ("mem0ai==2.2.1",)


def test_memories_are_what_the_program_lists(fill: Any, everkept: Any, new_home: Path) -> None:
    listed = {each["id"]: each for each in fill("fill_mem0.py", *PACKAGES)["results"]}
    outcome = everkept("import", "mem0", str(new_home))
    assert (outcome["memories"], outcome["skipped"]) == (len(listed), {"deleted there": 1})
    again = everkept("import", "mem0", str(new_home))
    assert (again["memories"], again["updated"]) == (0, 0)
    found = {each["content"]: each for each in everkept("list", "--scope", "user")["memories"]}
    assert {*found} == {each["memory"] for each in listed.values()}
    ruff = found["I prefer ruff over black"]
    assert (ruff["tags"], ruff["session_id"], ruff["author"]) == (["tools"], "r1", "coder")
    assert ruff["metadata"]["ticket"] == 42
    for each in listed.values():
        there, here = parse_time(each["created_at"]), parse_time(found[each["memory"]]["created_at"])
        assert there // 1000 == here // 1000


def test_the_history_alone_has_the_same_texts(fill: Any, everkept: Any, new_home: Path) -> None:
    listed = fill("fill_mem0.py", *PACKAGES)["results"]
    outcome = everkept("import", "mem0", str(new_home / "history.db"))
    assert (outcome["memories"], outcome["skipped"]) == (len(listed), {"deleted there": 1})
    found = {each["content"] for each in everkept("list", "--scope", "user")["memories"]}
    assert found == {each["memory"] for each in listed}
