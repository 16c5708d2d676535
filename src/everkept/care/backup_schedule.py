"""Backups on a schedule. A file in the data folder has the schedule, its last result and the backups to keep.

Hooks and servers ask whether one is due, and the background worker writes it. Only files that the schedule wrote are
ever deleted, and only after a newer backup is verified.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everkept.core.care_results import FIX_COMMAND, DoctorFinding, Progress
from everkept.core.disk import make_folder, replace, translate_os_errors
from everkept.core.times import Clock, format_ago
from everkept.errors import EverkeptError
from everkept.settings import Settings, get_schedule_path
from everkept.values import Value, as_dict
from everkept.values import replace as with_values

if TYPE_CHECKING:
    from everkept.care.check_context import CheckContext
    from everkept.engines.sqlite.archive import WrittenBackup

HOUR_MICROSECONDS = 3_600 * 1_000_000
PERIODS: Mapping[str, int] = {
    "hourly": HOUR_MICROSECONDS,
    "daily": 24 * HOUR_MICROSECONDS,
    "weekly": 7 * 24 * HOUR_MICROSECONDS,
}
RETRY_MICROSECONDS = HOUR_MICROSECONDS  # between an attempt that failed and the next one
KEPT_BACKUPS = 7
BACKUPS_CHECK = "backups"
FOLDER_SUFFIX = "-backups"  # of the folder next to the data folder
UNFINISHED = "The backup did not finish."


class BackupSchedule(Value):
    """Period and folder of scheduled backups, how many are kept, and the result of the last attempt."""

    every: str  # one of PERIODS
    keep: int
    folder: str
    files: Sequence[str] = ()  # that the schedule wrote and has not deleted, oldest first
    tried_at: int = 0  # microseconds since 1970, like all times
    done_at: int = 0
    problem: str = ""  # of the last attempt

    def is_due(self, now: int) -> bool:
        """Return whether the next backup is due. A time in the future is one of a wrong clock."""
        is_fresh = 0 <= now - self.done_at < PERIODS[self.every]
        is_tried = 0 <= now - self.tried_at < RETRY_MICROSECONDS
        return not is_fresh and not (is_tried and self.problem)

    def is_late(self, now: int) -> bool:
        """Return whether two backups in a row are missing."""
        return not 0 <= now - self.done_at < 2 * PERIODS[self.every]


def read_schedule(settings: Settings) -> BackupSchedule | None:
    """Return the schedule, or None if there is none, or its file cannot be read."""
    try:
        given: dict[str, Any] = json.loads(get_schedule_path(settings).read_bytes())
        schedule = BackupSchedule(**given)
        return schedule if schedule.every in PERIODS and schedule.keep > 0 else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def get_backup_folder(settings: Settings) -> Path:
    """Return the folder of the schedule, or the one next to the data folder."""
    schedule, data = read_schedule(settings), settings.data_dir
    return data.with_name(data.name + FOLDER_SUFFIX) if schedule is None else Path(schedule.folder)


def save_schedule(settings: Settings, schedule: BackupSchedule | None) -> None:
    """Save the schedule, or end it if it is None. Its backups stay."""
    path = get_schedule_path(settings)
    with translate_os_errors(path):
        if schedule is None:
            path.unlink(missing_ok=True)
        else:
            make_folder(path.parent)
            replace(path, json.dumps(as_dict(schedule)).encode("ascii"))


def is_backup_due(settings: Settings, now: int) -> bool:
    schedule = read_schedule(settings)
    return schedule is not None and schedule.is_due(now)


def check_schedule(context: "CheckContext") -> Iterator[DoctorFinding]:
    """Check whether scheduled backups succeed, if there are any."""
    schedule, now = read_schedule(context.settings), context.clock()
    if schedule is None:
        return
    if not schedule.problem and not schedule.is_late(now):
        yield DoctorFinding(BACKUPS_CHECK, "ok", f"Backups are written {schedule.every} to {schedule.folder}.")
        return
    why = f" ({schedule.problem})" if schedule.problem else ""
    what = f"The last scheduled backup was written {format_ago(schedule.done_at, now)}{why}."

    def run() -> str:
        made = run_schedule(context.settings, schedule, context.clock, lambda _done, _total: None)
        return f"saved {made.file}"

    yield DoctorFinding(BACKUPS_CHECK, "problem", what, FIX_COMMAND, run)


def run_schedule(settings: Settings, schedule: BackupSchedule, clock: Clock, report: Progress) -> "WrittenBackup":
    """Write the backup that is due and delete those that are too many. Save the schedule with the result."""
    from everkept.care.backup import back_up  # hooks only ask whether one is due
    from everkept.care.check_context import get_sqlite_care
    from everkept.engines.sqlite.archive import format_moment

    folder, now = Path(schedule.folder), clock()
    tried = with_values(schedule, tried_at=now, problem=UNFINISHED)
    save_schedule(settings, tried)
    try:
        made = back_up(get_sqlite_care(settings), folder / f"everkept-{format_moment(now)}.zip", clock, report)
    except EverkeptError as error:
        save_schedule(settings, with_values(tried, problem=error.message))
        raise
    files = [*schedule.files, str(made.file)]
    save_schedule(settings, with_values(tried, files=files[-schedule.keep :], done_at=now, problem=""))
    for file in files[: -schedule.keep]:
        with suppress(OSError):  # its disk may be unmounted
            Path(file).unlink(missing_ok=True)
    return made
