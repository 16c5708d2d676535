from pathlib import Path

import pytest

from everkept.hooks.workspace import Trail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hooks"


def test_a_trail_is_read_again_by_the_next_hook_of_the_session(folder: Path) -> None:
    Trail(folder, "one").kept("x")
    Trail(folder, "two").full()
    assert Trail(folder, "one").is_kept("x")
    assert not Trail(folder, "one").is_full
    assert not Trail(folder, "two").is_kept("x")
    assert Trail(folder, "two").is_full


def test_looking_at_a_trail_makes_nothing(folder: Path) -> None:
    assert not Trail(folder, "one").is_full
    assert not folder.exists()


def test_a_command_is_failing_until_it_works(folder: Path) -> None:
    trail = Trail(folder, "one")
    trail.failed("make")
    trail.failed("npm test")
    assert Trail(folder, "one").is_failing("make")
    trail.worked("make")
    assert not Trail(folder, "one").is_failing("make")
    assert Trail(folder, "one").has_worked("make")
    assert Trail(folder, "one").is_failing("npm test")


def test_the_edits_that_count_are_those_since_it_began_to_fail(folder: Path) -> None:
    trail = Trail(folder, "one")
    trail.edited("early.py")
    trail.edited("both.py")
    trail.failed("make")
    for file in ("both.py", "a.py", "both.py"):
        trail.edited(file)
        trail.failed("make")
    assert Trail(folder, "one").edited_since_failure("make") == ["both.py", "a.py"]
    assert Trail(folder, "one").edited_since_failure("npm test") == []


def test_a_session_that_does_the_same_for_days_has_a_trail_that_stays_short(folder: Path) -> None:
    trail = Trail(folder, "one")

    def do_the_same() -> None:
        trail.edited("a.py")
        trail.edited("b.py")
        trail.failed("make")
        trail.worked("npm test")

    do_the_same()
    do_the_same()
    [path] = (folder / "sessions").iterdir()
    before = path.read_bytes()
    do_the_same()
    assert path.read_bytes() == before


def test_a_line_that_was_cut_off_spoils_no_other(folder: Path) -> None:
    Trail(folder, "one").kept("x")
    [path] = (folder / "sessions").iterdir()
    path.write_bytes(path.read_bytes() + b"edited half")
    Trail(folder, "one").kept("y")
    assert Trail(folder, "one").is_kept("x")
    assert Trail(folder, "one").is_kept("y")
