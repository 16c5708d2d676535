import os
import re
from pathlib import Path

import pytest

from everkept.errors import StoreBusy
from everkept.hooks.workspace import FAULTS_FILE, MAX_LOG_BYTES, read_recent_faults, record_fault


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hooks' own, in a data folder that is there."""
    return tmp_path / "hooks"


def raised(error: Exception) -> Exception:
    with pytest.raises(type(error)) as caught:
        raise error
    return caught.value


def test_a_fault_is_a_line_with_time_event_and_reason(folder: Path) -> None:
    record_fault(folder, "SessionStart", StoreBusy("_meta.db is locked.", hint="Try again."))
    line = (folder / FAULTS_FILE).read_text("utf-8")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT[\d:.]{12}Z SessionStart store_busy: _meta\.db is locked\. Try again\.\n", line
    )


def test_the_newest_fault_comes_first(folder: Path) -> None:
    for number in range(30):
        record_fault(folder, "PreCompact", f"fault {number}")
    found = read_recent_faults(folder, limit=2)
    assert [fault.reason for fault in found] == ["fault 29", "fault 28"]
    assert {fault.event for fault in found} == {"PreCompact"}


def test_an_unexpected_error_is_told_by_type_and_place_alone(folder: Path) -> None:
    record_fault(folder, "UserPromptSubmit", raised(ValueError("what was asked in confidence")))
    [fault] = read_recent_faults(folder)
    assert re.fullmatch(r"ValueError in test_workspace_faults\.py, line \d+", fault.reason)


def test_an_error_of_the_system_names_its_file(folder: Path) -> None:
    record_fault(folder, "SessionEnd", raised(PermissionError(13, "Permission denied", "/data/x.db")))
    assert read_recent_faults(folder)[0].reason == "PermissionError: Permission denied (/data/x.db)"


def test_secrets_are_masked_and_lines_stay_lines(folder: Path) -> None:
    record_fault(folder, "SessionEnd", "first\nsecond password=hunter2hunter2 " + "long " * 200)
    [fault] = read_recent_faults(folder)
    assert "hunter2" not in fault.reason
    assert fault.reason.startswith("first second")
    assert len(fault.reason) < 500


def test_a_name_that_is_no_word_is_not_repeated(folder: Path) -> None:
    record_fault(folder, "a b\nc", "x")
    record_fault(folder, "", "x")
    assert [fault.event for fault in read_recent_faults(folder)] == ["?", "?"]


def test_the_log_stays_small_and_keeps_what_is_new(folder: Path) -> None:
    reason = "x" * 300
    for number in range(1_500):
        record_fault(folder, "SessionStart", f"{number} {reason}")
        assert (folder / FAULTS_FILE).stat().st_size <= MAX_LOG_BYTES + 400
    found = read_recent_faults(folder, limit=1_500)
    assert 200 < len(found) < 1_000
    assert [fault.reason.split()[0] for fault in found[:2]] == ["1499", "1498"]
    assert [path.name for path in folder.iterdir()] == [FAULTS_FILE]


def test_only_the_owner_can_read_it(folder: Path) -> None:
    record_fault(folder, "SessionStart", "x")
    if os.name == "posix":
        assert (folder / FAULTS_FILE).stat().st_mode & 0o777 == 0o600
        assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_data_folder_nothing_is_made(tmp_path: Path) -> None:
    record_fault(tmp_path / "data" / "hooks", "SessionStart", "x")
    record_fault(None, "SessionStart", "x")
    assert list(tmp_path.iterdir()) == []
    assert read_recent_faults(tmp_path / "data" / "hooks") == []


def test_where_the_log_cannot_be_written_nobody_fails(tmp_path: Path) -> None:
    (tmp_path / "hooks").write_text("a file where the folder should be", "utf-8")
    record_fault(tmp_path / "hooks", "SessionStart", "x")
    assert read_recent_faults(tmp_path / "hooks") == []


def test_rubbish_in_the_log_is_passed_over(folder: Path) -> None:
    record_fault(folder, "SessionStart", "good")
    (folder / FAULTS_FILE).write_bytes(b"\xff\xff\nrubbish\n" + (folder / FAULTS_FILE).read_bytes())
    assert [fault.reason for fault in read_recent_faults(folder)] == ["good"]


def test_it_is_said_aloud_only_where_that_is_wanted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_fault(folder, "SessionStart", "quiet")
    assert capsys.readouterr() == ("", "")
    record_fault(folder, "SessionStart", "loud", echo=True)
    assert capsys.readouterr() == ("", "everkept hook SessionStart: loud\n")


def test_a_reason_of_any_length_is_told_in_a_moment(folder: Path) -> None:
    record_fault(folder, "SessionEnd", "password=" * 2_000_000)
    [fault] = read_recent_faults(folder)
    assert len(fault.reason) < 500
