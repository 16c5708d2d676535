"""`everkept log`, `undo`, `purge` and `audit`: what changed, its reversal, and removal for good."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

import click

from everkept.app.app import App
from everkept.app.change_log import Entry
from everkept.care.purge import Audit, Masked, Thing, called, find_secrets, mask_secrets, select
from everkept.cli.options import common
from everkept.cli.render import console, table_of
from everkept.cli.runner import command_session, confirmed, print_json, run_with_app
from everkept.core.ports import Purged
from everkept.core.projects import USER
from everkept.core.sessions import OWNER, signer_of
from everkept.core.text import clipped, normalised
from everkept.core.times import iso
from everkept.errors import InvalidInput, NotFound
from everkept.graph.lookup import name_and_type
from everkept.jobs.graph_files import Settled
from everkept.settings import AUTO
from everkept.tools.schema import to_json

# Nobody but their owner may change these.
MAY_HOLD = (
    "backups of the bank (memory-bank-backup-*, beside it or in the backupDir that was named)",
    "git history",
    "files of the bank that people or assistants wrote",
)


async def met(app: App, projects: Sequence[str]) -> None:
    """Before anything is erased: what stands in the files alone is found, and does not return."""
    if app.mirrors is not None:
        session = await command_session(app)
        for project in projects:
            await app.mirrors.meet(project, session)


async def settled(app: App, projects: Sequence[str]) -> Settled:
    """After every change outside the tools: the files of these projects' graphs follow it."""
    found = Settled()
    if app.mirrors is not None:
        session = await command_session(app)
        for project in dict.fromkeys(projects):
            one = await app.mirrors.settle(project, session)
            found.done.extend(one.done)
            found.left.update(one.left)
    return found


def told_of(files: Settled) -> dict[str, Any]:
    """For JSON, after something was erased; nothing where there is no bank."""
    if not files.done and not files.left:
        return {}
    return {"cleaned": files.done, "not_cleaned": files.left, "may_hold": list(MAY_HOLD)}


def tell_of(files: Settled) -> None:
    """For people, after something was erased."""
    for address in files.done:
        click.echo(f"The graph's files in {address} are without it.")
    for address, reason in files.left.items():
        click.echo(f"Not reached: the graph's files in {address}: {reason}", err=True)
    if files.done or files.left:
        click.echo(f"It may still be in {', '.join(MAY_HOLD[:-1])}, or {MAY_HOLD[-1]}.", err=True)


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


@click.group()
@common
@click.pass_context
def audit(context: click.Context, **flags: Any) -> None:
    """Find what should not have been stored."""
    context.obj = flags


@audit.command()
@common
@click.option("--mask", is_flag=True, help="Replace what is found, for good.")
@click.pass_context
def secrets(context: click.Context, mask: bool, **flags: Any) -> None:
    """Look for keys, tokens and passwords in all projects, their logs and the user's memories.

    With --mask they are replaced in records, relations, log and index, so that no byte of them
    stays in the database, nor in the graph files of memory banks. Ids, as that of a session, are
    left. There is no undo.
    """
    # Options count wherever they stand: before the subcommand or after it.
    given = {**context.obj, **{name: value for name, value in flags.items() if value}}
    project, as_json = given.pop("project"), given.pop("as_json")

    async def work(app: App) -> tuple[Audit, Masked | None, Settled]:
        if not mask:
            return await find_secrets(app.library, project), None, Settled()
        on = [p.name for p in await app.library.projects("active") if not p.is_off]
        await met(app, [name for name in on if project in (None, name)])
        found = await find_secrets(app.library, project)
        masked = await mask_secrets(app.library, found.findings)
        return found, masked, await settled(app, [f.project for f in found.findings if not f.in_id])

    found, masked, files = run_with_app(work, writes=mask, **given)
    if as_json:
        told = {"masked": None if masked is None else to_json(masked)} | told_of(files)
        print_json(to_json(found) | told)
    else:
        _tell(found, masked)
        tell_of(files)


def _tell(found: Audit, masked: Masked | None) -> None:
    for item in found.findings:
        # Two lines and no table: an id is long, and it is what one copies from here.
        click.echo(
            f"{item.project}  {item.kind} {item.id}  {item.place}: {', '.join(item.secrets)}"
        )
        click.echo(f"    {item.excerpt}")
    if not found.findings:
        click.echo("No secrets found.")
    if found.left_out:
        click.echo(f"Not looked into: {', '.join(found.left_out)}.", err=True)
    in_ids = sum(item.in_id for item in found.findings)
    if masked is None and len(found.findings) > in_ids:
        click.echo("`everkept audit secrets --mask` replaces them. Change the secrets, too.")
    if masked is not None and (masked.records or masked.links):
        click.echo(f"Masked in {_counted(masked)}, log and index.")
        if not masked.complete:
            click.echo(
                "Another process is still reading old pages: their bytes go when it has finished.",
                err=True,
            )
    if in_ids:
        click.echo(
            f"Left in ids: {in_ids}. `everkept purge ID` removes such a record for good.",
            err=True,
        )


def _counted(masked: Masked) -> str:
    things = {"record": masked.records, "relation": masked.links}
    return " and ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in things.items() if n)
