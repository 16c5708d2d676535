"""`everkept backup --schedule`, and what `status` shows of it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everkept.care.backup_schedule import (
    KEPT_BACKUPS,
    PERIODS,
    BackupSchedule,
    get_backup_folder,
    read_schedule,
    run_schedule,
    save_schedule,
)
from everkept.care.check_context import CheckContext, get_sqlite_care
from everkept.cli.runner import echo, show_progress
from everkept.core.disk import make_folder, translate_os_errors
from everkept.core.text import format_count
from everkept.core.times import format_ago, format_iso, parse_time, read_clock
from everkept.errors import InvalidInput, ReadOnly
from everkept.settings import Settings
from everkept.values import replace

NO_SCHEDULE = "off"


def set_schedule(settings: Settings, every: str, keep: int | None, folder: Path | None) -> dict[str, Any]:
    """Write the first backup of a schedule, and keep the schedule if that succeeds. Return both."""
    _refuse_if_read_only(settings)
    get_sqlite_care(settings)  # raises Refused for an engine with its own backups
    data, before = settings.data_dir, read_schedule(settings)
    earlier = before or BackupSchedule(every, KEPT_BACKUPS, str(get_backup_folder(settings)))
    chosen = Path(earlier.folder) if folder is None else folder
    is_inside = chosen.resolve().is_relative_to(data.resolve())
    if is_inside or (chosen.exists() and not chosen.is_dir()):
        raise InvalidInput(
            f"{chosen} is {'inside the data folder' if is_inside else 'a file'}.",
            hint="With --schedule, specify another folder, preferably on another disk.",
            argument="FILE",
            value=str(chosen),
        )
    with translate_os_errors(chosen):
        make_folder(chosen)
    schedule = replace(earlier, every=every, keep=keep or earlier.keep, folder=str(chosen))
    try:
        with show_progress("Backing up") as progress:
            run_schedule(settings, schedule, read_clock, progress)
    except BaseException:
        save_schedule(settings, before)
        raise
    return describe_backups(settings)


def end_schedule(settings: Settings) -> dict[str, Any]:
    """End the schedule and keep its backups."""
    _refuse_if_read_only(settings)
    save_schedule(settings, None)
    return describe_backups(settings)


def _refuse_if_read_only(settings: Settings) -> None:
    if settings.read_only:
        raise ReadOnly("A schedule writes backups, but the setting read_only is on.")


def describe_backups(settings: Settings) -> dict[str, Any]:
    """Return the last backup and the schedule, if they exist."""
    told: dict[str, Any] = {}
    if (care := CheckContext(settings, read_clock).care) is None:
        return told
    if last := care.find_last_backup():
        file, at = last
        told["last"] = {"file": str(file), "at": format_iso(at), "exists": file.is_file()}
    if schedule := read_schedule(settings):
        told["schedule"] = {
            "every": schedule.every,
            "keep": schedule.keep,
            "folder": schedule.folder,
            "files": len(schedule.files),
            "next_at": format_iso(schedule.done_at + PERIODS[schedule.every]),
            **({"problem": schedule.problem} if schedule.problem else {}),
        }
    return told


def print_schedule(told: Mapping[str, Any]) -> None:
    schedule: Mapping[str, Any] | None = told.get("schedule")
    if schedule is None:
        echo("No backups are scheduled. Earlier ones are kept.")
        return
    echo(f"Saved {told['last']['file']}. Verified.")
    echo(f"Everkept now backs up {schedule['every']} and keeps {format_count(schedule['keep'], 'backup')}.")
    echo("To end this, run `everkept backup --schedule off`.")


def format_backups(told: Mapping[str, Any]) -> str:
    """Format the last backup and the schedule in one line."""
    now = read_clock()
    last: Mapping[str, Any] | None = told.get("last")
    schedule: Mapping[str, Any] | None = told.get("schedule")
    if last is None:
        said = "none yet"
    elif last["exists"]:
        said = f"last {format_ago(parse_time(last['at']), now)}: {last['file']}"
    else:
        said = f"last {format_ago(parse_time(last['at']), now)}, but {last['file']} no longer exists"
    if schedule is None:
        return f"{said}; to schedule them, run `everkept backup --schedule daily`"
    parts = [said, f"{schedule['every']}, the last {schedule['keep']} are kept"]
    if problem := schedule.get("problem"):
        parts.append(f"the last attempt failed: {problem}")
    return "; ".join(parts)
