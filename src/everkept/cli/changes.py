"""`everkept log`, `undo` and `purge`: what changed, taking it back, removing it for good."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import click

from everkept.app.app import App
from everkept.app.bank_mirrors import Settled
from everkept.app.purging import Thing, called, select
from everkept.app.timeline import Entry
from everkept.cli.mirrored import met, settled, tell_of, told_of
from everkept.cli.options import common
from everkept.cli.render import console, table_of
from everkept.cli.running import command_session, confirmed, print_json, run_with_app
from everkept.core.accounts import OWNER, signer_of
from everkept.core.ports import Purged
from everkept.core.projects import USER
from everkept.core.text import clipped, normalised
from everkept.core.times import iso
from everkept.errors import InvalidInput, NotFound
from everkept.graph.lookup import name_and_type
from everkept.settings import AUTO
from everkept.tools.schema import to_json


@click.command()
@common
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
def log(as_json: bool, project: str | None, limit: int, **flags: Any) -> None:
    """Show what changed, when and by which tool, newest first, in all projects; where others
    have accounts, by whom too."""

    async def work(app: App) -> tuple[list[Entry], set[str]]:
        entries = await app.timeline.entries(project, limit)
        return entries, {user.name for user in await app.accounts.users()}

    entries, users = run_with_app(work, **flags)
    rows = [_row(entry, users) for entry in entries]
    if as_json:
        print_json({"changes": rows})
        return
    shown = [
        row
        | {
            "at": row["at"][:16].replace("T", " "),
            "by": row["account"] or OWNER,
            "state": "undone" if row["undone"] else "",
        }
        for row in rows
    ]
    by = ("by",) if any(row["account"] for row in rows) else ()
    columns = ("change", "at", *by, "tool", "summary", "state")
    console().print(table_of("changes", [{c: row[c] for c in columns} for row in shown]))


@click.command()
@common
@click.argument("change", required=False)
def undo(as_json: bool, project: str | None, change: str | None, **flags: Any) -> None:
    """Take a CHANGE back, by default the newest; an undo can be undone too.

    The newest is that of the selected project, else of the working folder's, or of your memories
    of user scope. CHANGE is PROJECT:NUMBER as `everkept log` shows it, or a number with
    --project.
    """

    async def work(app: App) -> Entry:
        chosen = project or await _here(app)
        entry = await app.timeline.undo(change, chosen, "command line", or_user=project is None)
        await settled(app, [entry.project])
        return entry

    entry = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"undone": _row(entry, ())})
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
    """Remove entities and memories for good, with every trace in log, index and graph files.

    NAMES are names or ids of entities, or ids of memories, live or deleted. They are looked for in
    the selected project, else the one of the working folder, and among the memories of user scope
    (`@user`); with --project there alone. There is no undo.
    """
    if not names and not deleted and not containing:
        raise InvalidInput(
            "Nothing to purge was named.", hint="Give NAMES, --deleted or --containing TEXT."
        )

    async def work(app: App) -> None:
        chosen: dict[str, list[Thing]] = {}
        places = await _places(app)
        await met(app, places)
        for place in places:
            store = await app.timeline.store(place)
            found = await select(store, names, deleted=deleted, containing=containing)
            chosen |= {place: found} if found else {}
        _check_all_found(names, chosen)
        purged: dict[str, Purged] = {}
        for place, things in chosen.items():
            if confirmed(_question(place, things), yes=yes):
                store = await app.timeline.store(place)
                purged[place] = await store.purge([thing.ref for thing in things])
        if purged or not chosen:
            files = await settled(app, list(purged))
            _say(as_json, list(purged) or places, list(purged.values()), files)

    run_with_app(work, writes=True, **flags)


async def _places(app: App) -> list[str]:
    """Where a purge looks: in the project that is named, else in the one at hand and the user's."""
    named = app.settings.project
    if named not in (None, AUTO):
        return [named]
    here = await _here(app)
    return [here, USER] if here else [USER]


def _check_all_found(names: Sequence[str], chosen: Mapping[str, Sequence[Thing]]) -> None:
    """A name that means nothing anywhere is a mistake, and then nothing is removed."""
    found = {thing.id for things in chosen.values() for thing in things}
    found |= {normalised(called(thing)) for things in chosen.values() for thing in things}
    for name in names:
        base = name_and_type(name)
        if name not in found and normalised(name) not in found and (base or ("",))[0] not in found:
            raise NotFound(
                "entity or memory",
                name,
                hint="Names and ids of deleted ones work too; --project names another project.",
            )


def _question(place: str, things: Sequence[Thing]) -> str:
    what = ", ".join(clipped(called(thing), 40) for thing in things[:5])
    more = ", …" if len(things) > 5 else ""
    return f"Remove {len(things)} things from {place} for good ({what}{more})?"


async def _here(app: App) -> str | None:
    """The selected project, else the one of the working folder."""
    session = await command_session(app)
    if session.project:
        return session.project
    current = await app.shelf.project(session)
    return current.name if current else None


def _say(as_json: bool, places: Sequence[str], purged: Sequence[Purged], files: Settled) -> None:
    where = " and ".join(places)
    removed = Purged(
        sum(part.records for part in purged),
        sum(part.links for part in purged),
        complete=all(part.complete for part in purged),
    )
    if as_json:
        answer = {"project": where, "purged": to_json(removed) if purged else None}
        print_json(answer | (told_of(files) if purged else {}))
    elif not purged:
        click.echo(f"Nothing fits in {where}; nothing was removed.")
    else:
        counted = f"{removed.records} records and {removed.links} relations"
        click.echo(f"Removed {counted} from {where} for good.")
        if not removed.complete:
            click.echo(
                "Another process is still reading old pages: run the command again when it has "
                "finished, so that the bytes go too.",
                err=True,
            )
        tell_of(files)


def _row(entry: Entry, users: Container[str]) -> dict[str, Any]:
    client = entry.change.client
    return {
        "change": entry.reference,
        "project": entry.project,
        "at": iso(entry.change.at),
        "tool": entry.change.tool,
        "client": client,
        "account": signer_of(client) or (client if client in users else None),
        "summary": entry.summary,
        "undone": entry.is_undone,
        "undoes": entry.change.undoes,
    }
