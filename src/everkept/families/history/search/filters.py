"""Which turns a question means: since when, and of which projects."""

import difflib
import re
from calendar import monthrange
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

TimeRange = Literal["today", "week", "month", "all"]

CLOCKS_APART = 60 * 1_000_000  # microseconds
NEAR_ENOUGH = 0.5  # likeness of two names from which one may be meant by the other

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEPARATORS = re.compile(r"[/\\]+")
_DRIVE = re.compile(r"[a-z]:$")
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def bounds(time_range: TimeRange, now: int, zone: tzinfo) -> tuple[int | None, int | None]:
    """The first and the last moment that count. What is dated in the future is in no range but
    `all`; clocks of two machines may be a little apart."""
    start = since(time_range, now, zone)
    return start, None if start is None else now + CLOCKS_APART


def since(time_range: TimeRange, now: int, zone: tzinfo) -> int | None:
    """The first moment that counts: local midnight, seven days ago, a calendar month ago."""
    moment = (_EPOCH + timedelta(microseconds=now)).astimezone(zone)
    match time_range:
        case "today":
            start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case "week":
            start = moment - timedelta(days=7)
        case "month":
            start = _month_back(moment)
        case "all":
            return None
    return (start.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)


def _month_back(moment: datetime) -> datetime:
    """The same day of the month before, or its last one."""
    year, month = (moment.year, moment.month - 1) if moment.month > 1 else (moment.year - 1, 12)
    return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))


def projects_meant(wanted: str, known: Iterable[str]) -> list[str]:
    """The folders that a filter means: one by its path or its last parts, and all below it."""
    folders = {folder: _parts(folder) for folder in known if folder}
    asked = _parts(wanted)
    if not asked:
        return []
    if _is_whole(asked):
        return [folder for folder, parts in folders.items() if parts[: len(asked)] == asked]
    named = [parts for parts in folders.values() if parts[-len(asked) :] == asked]
    if named:
        return [folder for folder, parts in folders.items() if _is_below_any(parts, named)]
    return [folder for folder, parts in folders.items() if _holds(parts, asked)]


def last_part(path: str) -> str:
    """The name of a folder, for who has it elsewhere."""
    return next(iter(_parts(path)[-1:]), "")


def projects_named(wanted: str, known: Iterable[str]) -> list[str]:
    """The folders that somebody names who wants to remove them, with all below them.

    A folder is named by its path or by its last parts in full, and where case tells folders apart,
    in that case. `~` and `.` stand for nothing here.
    """
    name = wanted.strip()
    folders = [folder for folder in known if folder]
    is_path = name.startswith("/") or _WINDOWS.match(name)
    named = [name] if is_path else [folder for folder in folders if _ends_with(folder, name)]
    return [folder for folder in folders if any(_is_within(folder, other) for other in named)]


def nearest_project(wanted: str, known: Sequence[str]) -> str | None:
    """The folder whose name is most like what was asked for, if any is."""
    asked = _parts(wanted)
    last = asked[-1] if asked else ""

    def likeness(folder: str) -> float:
        parts = _parts(folder)
        names = ((wanted.lower(), folder.lower()), (last, parts[-1] if parts else ""))
        return max(difflib.SequenceMatcher(None, *pair).ratio() for pair in names)

    best = max(filter(None, known), key=likeness, default=None)
    return best if best is not None and likeness(best) >= NEAR_ENOUGH else None


def _parts(path: str) -> tuple[str, ...]:
    """A path as it is compared: whatever its case, its separators, and a slash at its end.

    An absolute one begins with an empty part, or with its drive. `~` stands for a folder that is
    not known here, so that what follows it must do.
    """
    plain = path.strip().lower()
    parts = _SEPARATORS.split(plain)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    if parts[0] in ("~", "."):
        parts = parts[1:]
    return tuple(parts) if any(parts) else ()


def _ends_with(folder: str, name: str) -> bool:
    asked = _exact_parts(name, _is_windows(folder))
    return bool(asked) and _exact_parts(folder, _is_windows(folder))[-len(asked) :] == asked


def _is_within(folder: str, other: str) -> bool:
    if _is_windows(folder) != _is_windows(other):
        return False
    above = _exact_parts(other, _is_windows(other))
    return bool(above) and _exact_parts(folder, _is_windows(folder))[: len(above)] == above


def _exact_parts(path: str, is_windows: bool) -> tuple[str, ...]:
    """As its machine compares it: only on Windows without its case."""
    plain = path.replace("\\", "/").lower() if is_windows else path
    return tuple(part for part in plain.split("/") if part)


def _is_windows(path: str) -> bool:
    return bool(_WINDOWS.match(path))


def _is_whole(parts: tuple[str, ...]) -> bool:
    return not parts[0] or bool(_DRIVE.match(parts[0]))


def _is_below_any(parts: tuple[str, ...], folders: Iterable[tuple[str, ...]]) -> bool:
    return any(parts[: len(folder)] == folder for folder in folders)


def _holds(parts: tuple[str, ...], asked: tuple[str, ...]) -> bool:
    return any(
        parts[start : start + len(asked)] == asked for start in range(len(parts) - len(asked) + 1)
    )
