"""`everkept history`: what is kept of past conversations, what is left out, and forgetting."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

import click

from everkept.app.app import App
from everkept.app.history import topmost
from everkept.cli.options import Count, common
from everkept.cli.render import console, table_of
from everkept.cli.runner import bar, confirmed, print_json, run_with_app
from everkept.core.records import Record
from everkept.core.search_ports import Search
from everkept.core.text import clipped, counted
from everkept.core.times import iso
from everkept.errors import InvalidInput, NotFound
from everkept.families.history.ingest.removal import Forgotten
from everkept.families.history.search_filters import projects_named
from everkept.tools.schema import to_json

_SEPARATOR = re.compile(r"[/\\]")


@click.group()
def history() -> None:
    """Past conversations: what is kept, what is left out."""


@history.command("list")
@common
@click.option("--limit", type=Count(1, 10_000), default=20, show_default=True)
def list_(as_json: bool, limit: int, project: str | None, **flags: Any) -> None:
    """List conversations, the newest first."""
    found = run_with_app(lambda app: app.past.conversations(limit, project), **flags)
    rows = [_conversation(record) for record in found]
    if as_json:
        print_json({"conversations": rows})
    elif not rows:
        click.echo("No conversation is kept yet: `everkept import history` takes them in.")
    else:
        for row in rows:
            when = row["ended"][:16].replace("T", " ")
            place = row["project_path"] or "no project"
            click.echo(f"{when}  {row['source']}  {place}  {counted(row['turns'], 'turn')}")
            click.echo(f"  {row['id']}  {row['title']}")


@history.command()
@common
@click.option("--conversation", "conversations", multiple=True, metavar="ID", help="This one.")
@click.option("--searches", is_flag=True, help="What was searched for, instead.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(
    as_json: bool,
    project: str | None,
    conversations: tuple[str, ...],
    searches: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Remove conversations for good: those of a --project, or single ones.

    A project is its folder, or the last part of it. What is forgotten is not taken in again; of a
    project nothing new is either, until `everkept history include` names its folder.
    """
    if not (project or conversations or searches):
        raise InvalidInput(
            "Nothing is named.", hint="Say --project FOLDER, --conversation ID or --searches."
        )

    async def work(app: App) -> tuple[Forgotten, list[str], int] | None:
        folders = await app.past.folders(project) if project else {}
        titles = await app.past.titles(conversations)
        if not confirmed(f"Remove {_named(folders, titles, searches)} for good?", yes=yes):
            return None
        with bar("Forgetting") as progress:
            gone = await app.past.forget(list(folders), conversations, progress)
        asked = await app.past.forget_searches() if searches else 0
        return gone, topmost(list(folders)), asked

    outcome = run_with_app(work, writes=True, **flags)
    if outcome is None:
        return
    gone, folders, asked = outcome
    if as_json:
        print_json({**to_json(gone), "excluded": folders, "searches": asked})
        return
    if project or conversations:
        removed = counted(gone.conversations, "conversation")
        click.echo(f"Removed {removed} with {counted(gone.turns, 'turn')}.")
        if not gone.complete:
            click.echo("A reader keeps old pages alive; run it again later.", err=True)
    for folder in folders:
        click.echo(f"{folder} is left out from now on; `everkept history include` ends that.")
    if searches:
        click.echo(f"Removed {counted(asked, 'search', 'searches')}.")


@history.command()
@common
@click.argument("folder")
def exclude(as_json: bool, folder: str, **flags: Any) -> None:
    """Take no conversation of FOLDER in any more, nor of what lies below it.

    `*` stands for any name. What is in stays; `everkept history forget` removes it.
    """
    names = _folders(folder)

    async def work(app: App) -> bool:
        return any([await app.past.exclude(name) for name in names])

    changed = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"excluded": names, "changed": changed})
    else:
        state = "left out from now on" if changed else "left out already"
        click.echo(f"{' and '.join(names)}: {state}.")


@history.command()
@common
@click.argument("folder")
def include(as_json: bool, folder: str, **flags: Any) -> None:
    """Take the conversations of FOLDER in again, with the next import.

    What was forgotten stays forgotten.
    """

    async def work(app: App) -> list[str]:
        known = await app.past.excluded()
        meant = [name for name in known if name in _folders(folder)]
        meant = meant or projects_named(folder, known)
        if not meant:
            raise NotFound(
                "folder that a command has left out",
                folder,
                hint="`everkept history excluded` shows them.",
            )
        for name in meant:
            await app.past.include(name)
        return meant

    names = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"included": names})
    else:
        click.echo(
            f"{' and '.join(names)}: taken in again, with the next import; what was forgotten "
            "stays forgotten."
        )


@history.command()
@common
def excluded(as_json: bool, **flags: Any) -> None:
    """Show which folders are left out."""

    async def work(app: App) -> list[dict[str, str]]:
        by_command = [{"folder": f, "by": "command"} for f in await app.past.excluded()]
        of_settings = [{"folder": f, "by": "history_exclude"} for f in app.past.excluded_always]
        return of_settings + by_command

    rows = run_with_app(work, **flags)
    if as_json:
        print_json({"excluded": rows})
    elif rows:
        console().print(table_of("excluded", rows))
    else:
        click.echo("No folder is left out.")


@history.command()
@common
@click.option("--limit", type=Count(1, 10_000), default=20, show_default=True)
def searches(as_json: bool, limit: int, **flags: Any) -> None:
    """Show what was searched for, the newest first. It is kept on this machine alone."""
    found = run_with_app(lambda app: app.past.searches(limit), **flags)
    rows = [_search(search) for search in found]
    if as_json:
        print_json({"searches": rows})
    elif rows:
        shown = [row | {"at": row["at"][:16].replace("T", " ")} for row in rows]
        columns = ("at", "tool", "query", "results")
        console().print(table_of("searches", [{c: row[c] for c in columns} for row in shown]))
    else:
        click.echo("Nothing was searched for yet.")


def _conversation(record: Record) -> dict[str, Any]:
    facets = record.facets
    return {
        "id": record.id,
        "session_id": record.session,
        "title": clipped(record.name or "", 80),
        "source": facets.get("source", ""),
        "project_path": record.scope,
        "turns": facets.get("turns", 0),
        "started": iso(record.at),
        "ended": iso(facets.get("ended") or record.at),
    }


def _search(search: Search) -> dict[str, Any]:
    return {
        "at": iso(search.at),
        "tool": search.tool,
        "query": search.query,
        "filters": dict(search.filters),
        "results": search.results,
        "milliseconds": search.milliseconds,
    }


def _named(folders: Mapping[str, int], titles: Sequence[str], searches: bool) -> str:
    parts = [f"{counted(n, 'conversation')} of {folder}" for folder, n in folders.items()]
    parts += [f'the conversation "{title}"' for title in titles]
    return " and ".join([*parts, "all that was searched for"] if searches else parts)


def _folders(typed: str) -> list[str]:
    """A folder as transcripts may name it: as it is written, and where a link leads.

    Patterns stay as they are typed, and bare names, which mean folders of that name anywhere.
    """
    name = typed.strip().rstrip("/\\") or typed.strip()
    if not name:
        raise InvalidInput("The folder is blank.", argument="folder", value=typed)
    if "*" in name or "?" in name or not _SEPARATOR.search(name):
        return [name]
    path = Path(name).expanduser()
    if not path.is_absolute() and PureWindowsPath(name).is_absolute():
        return [name]  # a path of another system: transcripts may come from there
    whole = Path(os.path.normpath(Path.cwd() / path))
    if not path.is_absolute() and not whole.is_dir():
        raise InvalidInput(
            f"There is no folder {whole}.",
            hint="Name a folder by its whole path, a pattern with *, or a name alone.",
            argument="folder",
            value=typed,
        )
    return list(dict.fromkeys((str(whole), os.path.realpath(whole))))
