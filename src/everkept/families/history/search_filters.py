"""Filters of a search: time ranges and projects."""

import difflib
from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, tzinfo
from typing import Literal

from everkept.core.paths import (
    ends_with,
    is_absolute,
    is_whole,
    is_windows,
    is_within,
    split_exact,
    split_loose,
    starts_with,
    strip_root,
)
from everkept.core.times import to_datetime, to_microseconds

TimeRangeName = Literal["today", "week", "month", "all"]

CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000
MIN_LIKENESS = 0.5  # of two names, so that one may be a misspelling of the other


def compute_bounds(time_range: TimeRangeName, now: int, zone: tzinfo) -> tuple[int | None, int | None]:
    """Return the bounds of the range. Except for `all`, it ends now, plus a minute for clocks that differ."""
    start = compute_start(time_range, now, zone)
    return start, None if start is None else now + CLOCK_SKEW_MICROSECONDS


def compute_start(time_range: TimeRangeName, now: int, zone: tzinfo) -> int | None:
    """Return the first moment of the range: local midnight, seven days ago or a calendar month ago."""
    moment = to_datetime(now).astimezone(zone)
    match time_range:
        case "today":
            start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case "week":
            start = moment - timedelta(days=7)
        case "month":
            start = _subtract_month(moment)
        case "all":
            return None
    return to_microseconds(start)


def _subtract_month(moment: datetime) -> datetime:
    """Return the same day of the previous month, or its last day."""
    year, month = (moment.year, moment.month - 1) if moment.month > 1 else (moment.year - 1, 12)
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


def match_projects(wanted: str, known: Iterable[str]) -> list[str]:
    """Return the folders that match a path or its last parts, and all folders below them."""
    folders = {folder: split_loose(folder) for folder in known if folder}
    asked = split_loose(wanted)
    if not asked:
        return []
    if is_whole(asked):
        return [folder for folder, parts in folders.items() if starts_with(parts, asked)]
    named = [parts for parts in folders.values() if ends_with(parts, asked)]
    if named:
        return [folder for folder, parts in folders.items() if any(starts_with(parts, above) for above in named)]
    count = len(asked)
    return [
        folder
        for folder, parts in folders.items()
        if any(parts[start : start + count] == asked for start in range(len(parts) - count + 1))
    ]


def get_folder_name(path: str) -> str:
    """Return the last part of a folder's path, which is the same on other machines."""
    return next(iter(split_loose(path)[-1:]), "")


def match_named_projects(wanted: str, known: Iterable[str]) -> list[str]:
    """Return the folders that a person names for removal, and all folders below them.

    The name is a full path or complete last parts. Case matters if the file system distinguishes it. `~` and `.` are
    not expanded.
    """
    name = wanted.strip()
    folders = [folder for folder in known if folder]
    named = [name] if is_absolute(name) else [f for f in folders if _ends_with(f, name)]
    return [folder for folder in folders if is_within(folder, named)]


def find_nearest_project(wanted: str, known: Sequence[str]) -> str | None:
    """Return the folder with the most similar name, or None if no name is similar."""
    asked = split_loose(wanted)
    last = asked[-1] if asked else ""

    def likeness(folder: str) -> float:
        parts = split_loose(folder)
        names = ((wanted.lower(), folder.lower()), (last, parts[-1] if parts else ""))
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in names)

    best = max(filter(None, known), key=likeness, default=None)
    return best if best is not None and likeness(best) >= MIN_LIKENESS else None


def _ends_with(folder: str, name: str) -> bool:
    on_windows = is_windows(folder)
    return ends_with(split_exact(folder, as_windows=on_windows), strip_root(split_exact(name, as_windows=on_windows)))
