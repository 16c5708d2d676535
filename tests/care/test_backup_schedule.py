from pathlib import Path

import pytest

from data_folders import everything, filled, restored
from everkept.care.backup_schedule import (
    HOUR_MICROSECONDS,
    BackupSchedule,
    check_schedule,
    is_backup_due,
    read_schedule,
    run_schedule,
    save_schedule,
)
from everkept.care.check_context import CheckContext
from everkept.core.times import read_clock
from everkept.errors import EverkeptError
from everkept.settings import Settings, get_schedule_path, read_settings
from everkept.values import replace

DAY = 24 * HOUR_MICROSECONDS
NOW = 2_000_000_000_000_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    filled(tmp_path / "data", "shop")
    return read_settings({"data_dir": tmp_path / "data"}, {"EVERKEPT_CONFIG": "none"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "copies"
    made.mkdir()
    return made


def run(settings: Settings, at: int) -> Path:
    schedule = read_schedule(settings)
    assert schedule is not None
    return run_schedule(settings, schedule, lambda: at, lambda _done, _total: None).file


def test_a_backup_is_due_a_day_after_the_last_one(settings: Settings, folder: Path) -> None:
    assert not is_backup_due(settings, NOW)  # there is no schedule
    save_schedule(settings, BackupSchedule("daily", 3, str(folder)))
    assert is_backup_due(settings, NOW)
    run(settings, NOW)
    assert not is_backup_due(settings, NOW + DAY - 1)
    assert is_backup_due(settings, NOW + DAY)
    assert is_backup_due(settings, NOW - 1)  # the clock was wrong then


def test_only_backups_of_the_schedule_are_deleted_and_the_newest_are_kept(settings: Settings, folder: Path) -> None:
    foreign = folder / "everkept-2020-01-01-000000-000.zip"
    foreign.write_bytes(b"a backup of someone else")
    save_schedule(settings, BackupSchedule("daily", 2, str(folder)))
    made = [run(settings, NOW + day * DAY) for day in range(4)]
    assert sorted(folder.iterdir()) == sorted([foreign, *made[-2:]])
    restored(folder.parent / "elsewhere", made[-1])
    assert everything(folder.parent / "elsewhere")["stores"] == everything(settings.data_dir)["stores"]


def test_an_attempt_that_fails_keeps_the_others_and_waits_an_hour(settings: Settings, folder: Path) -> None:
    save_schedule(settings, BackupSchedule("daily", 1, str(folder)))
    first = run(settings, NOW)
    folder.rename(folder.parent / "unmounted")
    with pytest.raises(EverkeptError, match="Cannot find the folder"):
        run(settings, NOW + DAY)
    schedule = read_schedule(settings)
    assert schedule is not None
    assert schedule.done_at == NOW
    assert "Cannot find the folder" in schedule.problem
    assert not is_backup_due(settings, NOW + DAY + HOUR_MICROSECONDS - 1)
    assert is_backup_due(settings, NOW + DAY + HOUR_MICROSECONDS)
    (folder.parent / "unmounted").rename(folder)
    assert first.is_file()
    second = run(settings, NOW + 2 * DAY)
    assert [*folder.iterdir()] == [second]


def test_a_process_that_dies_leaves_an_attempt_that_did_not_finish(settings: Settings, folder: Path) -> None:
    schedule = BackupSchedule("daily", 1, str(folder))
    save_schedule(settings, schedule)

    def die(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_schedule(settings, schedule, lambda: NOW, die)
    left = read_schedule(settings)
    assert left is not None
    assert left.problem == "The backup did not finish."
    assert is_backup_due(settings, NOW + HOUR_MICROSECONDS)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"every": "yearly", "keep": 1, "folder": "/x"}', '{"every": 1}'])
def test_a_broken_file_is_no_schedule(settings: Settings, content: str) -> None:
    get_schedule_path(settings).write_text(content, encoding="utf-8")
    assert read_schedule(settings) is None
    assert not is_backup_due(settings, NOW)


def test_the_doctor_reports_missing_backups_and_writes_one(settings: Settings, folder: Path) -> None:
    save_schedule(settings, BackupSchedule("daily", 3, str(folder)))
    run(settings, read_clock() - 3 * DAY)
    context = CheckContext(settings, read_clock)
    [late] = check_schedule(context)
    assert late.severity == "problem"
    assert "3 days ago" in late.what
    assert late.mend is not None
    assert "saved" in late.mend()
    [fine] = check_schedule(context)
    assert fine.severity == "ok"
    schedule = read_schedule(settings)
    assert schedule is not None
    save_schedule(settings, replace(schedule, problem="The disk is full."))
    [failed] = check_schedule(context)
    assert "The disk is full." in failed.what
