import pytest

from everkept.hooks.tool_use import (
    AutomaticMemory,
    build_edit,
    build_failure,
    build_fix,
    build_success,
    format_failure_head,
)

TOLD_AT_THE_START = 0.5


@pytest.mark.parametrize(
    "notice",
    [
        build_failure("pytest", ["E boom"]),
        build_success("npm install", "install"),
        build_fix("pytest", ["a.py"], ["E boom"]),
        build_edit("a.py"),
    ],
)
def test_what_nobody_asked_for_is_not_told_at_the_start_of_a_session(notice: AutomaticMemory) -> None:
    assert 0 < notice.importance < TOLD_AT_THE_START


def test_a_failure_has_its_command_and_the_telling_lines() -> None:
    notice = build_failure("pytest  -q", ["E boom", "1 failed"])
    assert notice.text == "`pytest -q` failed:\nE boom\n1 failed"
    assert notice.text.startswith(format_failure_head("pytest -q"))


def test_a_repair_says_what_was_edited_in_between_and_what_had_been_wrong() -> None:
    assert build_fix("pytest", ["a.py", "b.py"], ["E boom"]).text == (
        "`pytest` failed and then succeeded, after edits of a.py, b.py. It had failed with:\nE boom"
    )
    assert build_fix("pytest", [], []).text == ("`pytest` failed and then succeeded, with no file edited in between.")
    many = build_fix("pytest", [f"{i}.py" for i in range(12)], [])
    assert many.text.endswith("6.py, 7.py and 4 more.")


def test_of_all_notices_a_repair_matters_most_and_is_the_projects() -> None:
    repaired = build_fix("pytest", [], [])
    others = [build_failure("x", []), build_success("x", "build"), build_edit("x")]
    assert repaired.scope == "project"
    assert all(each.scope == "session" for each in others)
    assert [each.importance for each in (repaired, *others)] == [0.45, 0.4, 0.3, 0.2]


def test_a_long_command_is_shortened() -> None:
    assert len(build_failure("x" * 5_000, []).text) < 250
