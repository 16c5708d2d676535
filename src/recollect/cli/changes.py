"""`recollect log`, `undo` and `purge`: what changed, taking it back, removing it for good."""

from typing import Any

import click

from recollect.app.app import App
from recollect.app.purging import called, select
from recollect.app.timeline import Entry
from recollect.cli.options import common
from recollect.cli.render import console, table_of
from recollect.cli.running import command_session, confirmed, print_json, run_with_app
from recollect.core.ports import Purged
from recollect.core.projects import USER
from recollect.core.text import clipped
from recollect.core.times import iso
from recollect.errors import InvalidInput, NoActiveProject
from recollect.settings import AUTO
from recollect.tools.schema import to_json


@click.command()
@common
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
def log(as_json: bool, project: str | None, limit: int, **flags: Any) -> None:
    """Show what changed, when and by which tool, newest first, in all projects."""
    entries = run_with_app(lambda app: app.timeline.entries(project, limit), **flags)
    rows = [_row(entry) for entry in entries]
    if as_json:
        print_json({"changes": rows})
        return
    shown = [
        row | {"at": row["at"][:19].replace("T", " "), "state": "undone" if row["undone"] else ""}
        for row in rows
    ]
    columns = ("change", "at", "tool", "summary", "state")
    console().print(table_of("changes", [{c: row[c] for c in columns} for row in shown]))


@click.command()
@common
@click.argument("change", required=False)
def undo(as_json: bool, project: str | None, change: str | None, **flags: Any) -> None:
    """Take a CHANGE back, by default the newest; an undo can be undone too.

    The newest is that of the selected project, else of the working folder's, or of your memories
    of user scope. CHANGE is PROJECT:NUMBER as `recollect log` shows it, or a number with
    --project.
    """

    async def work(app: App) -> Entry:
        chosen = project or await _here(app)
        return await app.timeline.undo(change, chosen, "command line", or_user=project is None)

    entry = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"undone": _row(entry)})
    else:
        click.echo(f"Undone {entry.reference}: {entry.change.tool} {entry.summary}")


@click.command()
@common
@click.argument("names", nargs=-1)
@click.option("--deleted", is_flag=True, help="Everything that was deleted.")
@click.option("--containing", metavar="TEXT", help="Whatever has TEXT in its name, type or text.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def purge(
    as_json: bool,
    names: tuple[str, ...],
    deleted: bool,
    containing: str | None,
    yes: bool,
    **flags: Any,
) -> None:
    """Remove entities and memories for good, with every trace in log, index and file.

    NAMES are names or ids of entities, or ids of memories, live or deleted. The project is
    --project, the selected one, or that of the working folder; `--project @user` are the memories
    of user scope. There is no undo.
    """
    if not names and not deleted and not containing:
        raise InvalidInput(
            "Nothing to purge was named.", hint="Give NAMES, --deleted or --containing TEXT."
        )

    async def work(app: App) -> None:
        project = await _project(app, names)
        store = await app.timeline.store(project)
        chosen = await select(store, names, deleted=deleted, containing=containing)
        if not chosen:
            _say(as_json, project, None)
            return
        what = ", ".join(clipped(called(thing), 40) for thing in chosen[:5])
        more = ", …" if len(chosen) > 5 else ""
        question = f"Remove {len(chosen)} things from {project} for good ({what}{more})?"
        if confirmed(question, yes=yes):
            _say(as_json, project, await store.purge([thing.ref for thing in chosen]))

    run_with_app(work, writes=True, **flags)


async def _project(app: App, names: tuple[str, ...]) -> str:
    """Whose things are meant: memories of the user are known by their ids."""
    chosen = app.settings.project if app.settings.project != AUTO else None
    if chosen is None and names:
        user = await app.library.user()
        if len(await user.get(names, include_deleted=True)) == len(set(names)):
            return USER
    project = chosen or await _here(app)
    if project is None:
        raise NoActiveProject(hint="Say --project NAME.")
    return project


async def _here(app: App) -> str | None:
    """The selected project, else the one of the working folder."""
    session = await command_session(app)
    if session.project:
        return session.project
    current = await app.shelf.project(session)
    return current.name if current else None


def _say(as_json: bool, project: str, purged: Purged | None) -> None:
    if as_json:
        print_json({"project": project, "purged": to_json(purged) if purged else None})
    elif purged is None:
        click.echo("Nothing fits; nothing was removed.")
    else:
        click.echo(f"Removed {purged.records} records and {purged.links} relations for good.")
        if not purged.complete:
            click.echo(
                "Another process is still reading old pages: run the command again when it has "
                "finished, so that the bytes go too.",
                err=True,
            )


def _row(entry: Entry) -> dict[str, Any]:
    return {
        "change": entry.reference,
        "project": entry.project,
        "at": iso(entry.change.at),
        "tool": entry.change.tool,
        "client": entry.change.client,
        "summary": entry.summary,
        "undone": entry.is_undone,
        "undoes": entry.change.undoes,
    }
