from pathlib import Path

import pytest

from recollect.hooks.marks import EDITED, FAILED, WORKED
from recollect.hooks.trail import KEPT, Trail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "hooks"


def test_a_trail_is_read_again_by_the_next_hook_of_the_session(folder: Path) -> None:
    Trail(folder, "one").add((KEPT, "x"))
    assert Trail(folder, "one").has(KEPT, "x")
    assert not Trail(folder, "two").has(KEPT, "x")


def test_looking_at_a_trail_makes_nothing(folder: Path) -> None:
    assert not Trail(folder, "one").is_failing("x")
    assert not folder.exists()


def test_a_command_is_failing_until_it_works(folder: Path) -> None:
    trail = Trail(folder, "one")
    trail.add((FAILED, "x"))
    assert trail.is_failing("x")
    assert not trail.is_failing("y")
    trail.add((WORKED, "x"))
    assert not trail.is_failing("x")


def test_the_edits_that_count_are_those_since_it_began_to_fail(folder: Path) -> None:
    Trail(folder, "one").add((EDITED, "before.py"), (FAILED, "x"), (EDITED, "with blank.py"))
    Trail(folder, "one").add((FAILED, "x"), (EDITED, "b.py"), (EDITED, "with blank.py"))
    assert Trail(folder, "one").edited_since_failure("x") == ["with blank.py", "b.py"]
    assert Trail(folder, "one").edited_since_failure("y") == []


def test_a_line_that_was_cut_off_spoils_no_other(folder: Path) -> None:
    trail = Trail(folder, "one")
    trail.add((FAILED, "x"))
    (file,) = folder.rglob("*.txt")
    with file.open("ab") as opened:
        opened.write(b"fail\xff")
    trail.add((WORKED, "x"))
    assert not Trail(folder, "one").is_failing("x")
