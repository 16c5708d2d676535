"""`everkept timeline`: what happened, day by day."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime
from itertools import groupby
from typing import Any

import click
from rich.text import Text

from everkept.app.app import App
from everkept.app.change_log import ChangeLog, ChangeLogEntry
from everkept.cli.options import CountRange, add_common_options, parse_typed_time
from everkept.cli.render import build_console, print_item
from everkept.cli.runner import echo, print_json, require_project, run_with_app
from everkept.core.projects import USER_PROJECT
from everkept.core.text import format_count
from everkept.core.times import LocalZone, format_iso, to_datetime
from everkept.errors import InvalidInput

MAX_CHANGES = 10_000
READ_FACTOR = 4  # between two reads of the log
UNKNOWN_PLACE = "memory bank"  # stands for the writes of a bank without a project
YOU = "you"  # stands for the changes of memories that belong to no project


@click.command()
@add_common_options
@click.option("--since", metavar="TIME", help="Only changes since this time, such as 2026-03-01, or last week.")
@click.option("--until", metavar="TIME", help="Only changes up to this time.")
@click.option(
    "--limit", type=CountRange(1, MAX_CHANGES), default=200, show_default=True, help="Newest changes to show."
)
def timeline(
    as_json: bool, project: str | None, since: str | None, until: str | None, limit: int, **flags: Any
) -> None:
    """Show what happened by day, newest day first.

    Lists the changes of all projects, or of --project, in words. Days and hours are those of this machine. To undo a
    change, run `everkept log` and `everkept undo`.
    """
    after, before = parse_typed_time(since, "since"), parse_typed_time(until, "until", end=True)
    if after is not None and before is not None and after > before:
        raise InvalidInput("--since is later than --until.", hint="Pass an earlier time with --since.")

    async def work(app: App) -> tuple[list[ChangeLogEntry], bool]:
        await require_project(app, {"project": project})
        return await _read_changes(app.change_log, project, after, before, limit)

    entries, is_cut = run_with_app(work, **flags)
    if as_json:
        print_json({"days": [_describe_day(day, found) for day, found in _group_by_day(entries)], "cut": is_cut})
        return
    _print_days(entries, names_projects=project is None)
    if not entries:
        echo("No changes." if since is None and until is None else "No changes in this time.")
    if is_cut:
        echo(f"Showing the newest {format_count(limit, 'change')}. To show more, pass --limit.", err=True)


async def _read_changes(
    log: ChangeLog, project: str | None, after: int | None, before: int | None, limit: int
) -> tuple[list[ChangeLogEntry], bool]:
    """Read the changes of a time, newest first, and whether there are more."""
    asked = limit + 1
    while True:
        listed = await log.list_entries(project, asked)
        found = [each for each in listed if _is_within(each.change.at, after, before)]
        is_whole = len(listed) < asked or (after is not None and listed[-1].change.at < after)
        if is_whole or len(found) > limit or asked > MAX_CHANGES:
            return found[:limit], len(found) > limit or not is_whole
        asked *= READ_FACTOR


def _is_within(at: int, after: int | None, before: int | None) -> bool:
    return (after is None or at >= after) and (before is None or at <= before)


def _group_by_day(entries: Sequence[ChangeLogEntry]) -> list[tuple[date, list[ChangeLogEntry]]]:
    return [(day, list(found)) for day, found in groupby(entries, lambda entry: _read_moment(entry).date())]


def _read_moment(entry: ChangeLogEntry) -> datetime:
    return to_datetime(entry.change.at).astimezone(LocalZone())


def _describe_day(day: date, entries: Sequence[ChangeLogEntry]) -> dict[str, Any]:
    changes = [
        {
            "change": entry.reference,
            "project": entry.project,
            "at": format_iso(entry.change.at),
            "summary": entry.summary,
            "undone": entry.is_undone,
        }
        for entry in entries
    ]
    return {"day": day.isoformat(), "changes": changes}


def _print_days(entries: Sequence[ChangeLogEntry], *, names_projects: bool) -> None:
    out = build_console()
    for number, (day, found) in enumerate(_group_by_day(entries)):
        if number:
            out.print()
        title = f"{day:%A, %Y-%m-%d}"
        counts = _count_projects(found) if names_projects else format_count(len(found), "change")
        out.print(Text(title, style="bold") + Text(f"  {counts}", style="dim"), soft_wrap=True)
        for entry in found:
            place = f"{_name_place(entry)}: " if names_projects else ""
            undone = Text("  undone", style="dim") if entry.is_undone else Text()
            head = Text(f"  {_read_moment(entry):%H:%M}  ", style="cyan")
            print_item(out, Text(place, style="dim") + Text(entry.summary) + undone, head)


def _count_projects(entries: Sequence[ChangeLogEntry]) -> str:
    """Return the number of changes, with the projects that had the most."""
    names = Counter(map(_name_place, entries))
    places = ", ".join(f"{name} {count:,}" for name, count in names.most_common(3))
    return f"{format_count(len(entries), 'change')} ({places}{', …' if len(names) > 3 else ''})"


def _name_place(entry: ChangeLogEntry) -> str:
    return YOU if entry.project == USER_PROJECT else entry.project or UNKNOWN_PLACE
