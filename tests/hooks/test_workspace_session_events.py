from pathlib import Path

import pytest

from everkept.hooks.workspace import SessionEvents


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "hooks"


def test_a_trail_is_read_again_by_the_next_hook_of_the_session(folder: Path) -> None:
    SessionEvents(folder, "one").add_stored("x")
    SessionEvents(folder, "two").mark_full()
    assert SessionEvents(folder, "one").is_stored("x")
    assert not SessionEvents(folder, "one").is_full
    assert not SessionEvents(folder, "two").is_stored("x")
    assert SessionEvents(folder, "two").is_full


def test_looking_at_a_trail_makes_nothing(folder: Path) -> None:
    assert not SessionEvents(folder, "one").is_full
    assert not folder.exists()


def test_a_command_is_failing_until_it_works(folder: Path) -> None:
    trail = SessionEvents(folder, "one")
    trail.add_failure("make")
    trail.add_failure("npm test")
    assert SessionEvents(folder, "one").is_failing("make")
    trail.add_success("make")
    assert not SessionEvents(folder, "one").is_failing("make")
    assert SessionEvents(folder, "one").has_worked("make")
    assert SessionEvents(folder, "one").is_failing("npm test")


def test_the_edits_that_count_are_those_since_it_began_to_fail(folder: Path) -> None:
    trail = SessionEvents(folder, "one")
    trail.add_edit("early.py")
    trail.add_edit("both.py")
    trail.add_failure("make")
    for file in ("both.py", "a.py", "both.py"):
        trail.add_edit(file)
        trail.add_failure("make")
    assert SessionEvents(folder, "one").list_edits_since_failure("make") == ["both.py", "a.py"]
    assert SessionEvents(folder, "one").list_edits_since_failure("npm test") == []


def test_a_session_that_does_the_same_for_days_has_a_trail_that_stays_short(folder: Path) -> None:
    trail = SessionEvents(folder, "one")

    def do_the_same() -> None:
        trail.add_edit("a.py")
        trail.add_edit("b.py")
        trail.add_failure("make")
        trail.add_success("npm test")

    do_the_same()
    do_the_same()
    [path] = (folder / "sessions").iterdir()
    before = path.read_bytes()
    do_the_same()
    assert path.read_bytes() == before


def test_a_line_that_was_cut_off_spoils_no_other(folder: Path) -> None:
    SessionEvents(folder, "one").add_stored("x")
    [path] = (folder / "sessions").iterdir()
    path.write_bytes(path.read_bytes() + b"edited half")
    SessionEvents(folder, "one").add_stored("y")
    assert SessionEvents(folder, "one").is_stored("x")
    assert SessionEvents(folder, "one").is_stored("y")
