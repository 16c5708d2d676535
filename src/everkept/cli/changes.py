"""`everkept log`, `undo`, `purge` and `audit`: changes, their reversal, and permanent removal."""

import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

import click

from everkept.accounts.project_changes import label_trashed, open_trashed
from everkept.app.app import App
from everkept.app.change_log import ChangeLogEntry
from everkept.care.purge import MaskResult, PurgeItem, SecretAudit, find_secrets, get_label, mask_secrets, select_items
from everkept.cli.bank import describe_removed_versions, handle_versions_with_secrets, purge_versions, undo_file_write
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import confirm, echo, print_json, read_session, run_with_app
from everkept.cli.tools import format_counts
from everkept.cli.where import PROJECT_CHOSEN, PROJECT_RELEASED, read_chosen
from everkept.core.folder_project import end_choice
from everkept.core.ports import PurgeResult
from everkept.core.projects import USER_PROJECT, TrashedProject
from everkept.core.records import Record
from everkept.core.secrets import mask_text
from everkept.core.sessions import OWNER, find_signer
from everkept.core.short_ids import MIN_TYPED_CHARACTERS
from everkept.core.text import clip_text, compute_name_key, format_count
from everkept.core.times import format_iso, format_local, parse_time
from everkept.errors import InvalidInput, NotFound, Refused
from everkept.families.bank.file_versions import FileWrite
from everkept.families.memories.memory_identity import MEMORY_PREFIX
from everkept.graph.entities import parse_name_and_type
from everkept.jobs.graph_files import MirrorResult
from everkept.jobs.usage_log import count_matching_calls, erase_calls, read_calls
from everkept.settings import AUTO
from everkept.tools.schema import to_json

COMMAND_LINE = "command line"  # client of the changes that commands make
# Places that only their owner may change.
UNCLEANED_PLACES = (
    "backups of the bank (memory-bank-backup-*, next to it or in its backupDir)",
    "git history",
    "other files of the bank",
)


async def import_graph_files(app: App, projects: Sequence[str]) -> None:
    """Import changes in graph files before a purge, so that they are found and do not return."""
    if app.graph_mirrors is not None:
        session = await read_session(app)
        for project in projects:
            await app.graph_mirrors.import_files(project, session)


async def update_graph_files(app: App, projects: Sequence[str]) -> MirrorResult:
    """Update the graph files of these projects after a change outside the tools."""
    found = MirrorResult()
    if app.graph_mirrors is not None:
        session = await read_session(app)
        for project in dict.fromkeys(projects):
            one = await app.graph_mirrors.update_files(project, session)
            found.done.extend(one.done)
            found.left.update(one.left)
    return found


def describe_graph_files(files: MirrorResult) -> dict[str, Any]:
    """Describe the graph files after a purge, for JSON. Return nothing without a bank."""
    if not files.done and not files.left:
        return {}
    return {"cleaned": files.done, "not_cleaned": files.left, "may_hold": list(UNCLEANED_PLACES)}


def print_graph_files(files: MirrorResult) -> None:
    """Print the graph files after a purge, for people."""
    for address in files.done:
        echo(f"Removed it from the graph files in {address}.")
    for address, reason in files.left.items():
        echo(f"Cannot update the graph files in {address}: {reason}", err=True)
    if files.done or files.left:
        echo(f"It may still be in {', '.join(UNCLEANED_PLACES[:-1])}, or {UNCLEANED_PLACES[-1]}.", err=True)


@click.command()
@add_common_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True)
@click.option("--calls", "wants_calls", is_flag=True, help="Show the tool calls on this machine instead of changes.")
def log(as_json: bool, project: str | None, limit: int, wants_calls: bool, **flags: Any) -> None:
    """Show what changed, when, by which tool and account.

    Lists the latest changes of all projects, or of --project. `--calls` lists every tool call with its duration and
    outcome, also calls that only read, but never what was said.
    """
    if wants_calls:
        _show_calls(read_calls(load_command_settings(**flags).data_dir, limit, project), as_json=as_json)
        return

    async def work(app: App) -> tuple[list[ChangeLogEntry], set[str]]:
        entries = await app.change_log.list_entries(project, limit)
        return entries, {user.name for user in await app.accounts.list_users()}

    entries, users = run_with_app(work, **flags)
    rows = [_build_row(entry, users) for entry in entries]
    if as_json:
        print_json({"changes": rows})
        return
    shown = [
        row
        | {
            "at": format_local(parse_time(row["at"])),
            "by": row["account"] or OWNER,
            "state": "undone" if row["undone"] else "",
        }
        for row in rows
    ]
    by = ("by",) if any(row["account"] for row in rows) else ()
    columns = ("change", "at", *by, "tool", "summary", "state")
    build_console().print(build_table("changes", [{c: row[c] for c in columns} for row in shown], spare=("tool",)))


def _show_calls(calls: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"calls": calls})
        return
    by = ("account",) if any("account" in call for call in calls) else ()
    columns = ("at", *by, "tool", "project", "client", "ms", "outcome")
    rows = [{column: call.get(column) for column in columns} for call in calls]
    rows = [row | {"at": format_local(parse_time(str(row["at"])), "seconds")} for row in rows]
    build_console().print(build_table("calls", rows))


@click.command()
@add_common_options
@click.argument("change", required=False)
def undo(as_json: bool, project: str | None, change: str | None, **flags: Any) -> None:
    """Undo CHANGE. Default: the newest change.

    CHANGE is PROJECT:NUMBER, such as shop:12, as shown by `everkept log`. The default is the newest change in the
    selected project, in your user scope, or in the active memory bank's files. It can also be the archiving or deletion
    of any project. You can undo an undo.
    """

    async def work(app: App) -> ChangeLogEntry | FileWrite:
        chosen, is_any = project or await _find_current_project(app), project is None
        if change is None and is_any:
            newest = await app.change_log.find_newest_time(chosen, COMMAND_LINE, or_user=True)
            if files := await undo_file_write(app, newest):
                return files
        before = await read_chosen(app)
        entry = await app.change_log.undo(change, chosen, COMMAND_LINE, or_user=is_any)
        if entry.event is not None:
            if entry.event.before != "active":  # the project is archived again, or in the trash
                await end_choice(app.library, app.settings.path, entry.event.name, entry.event.project.id)
            if (now := await read_chosen(app)) != before:
                told.append(PROJECT_RELEASED if now is None else PROJECT_CHOSEN.format(name=now))
        elif entry.written is None:
            await update_graph_files(app, [entry.project])
        return entry

    told: list[str] = []
    entry = run_with_app(work, writes=True, **flags)
    if isinstance(entry, FileWrite):
        if as_json:
            names = [version.name for version in entry.versions]
            print_json({"undone": {"files": names, "at": format_iso(entry.at)}})
        else:
            echo(f"Undid the newest write of memory bank files. {entry.describe('Restored')}.")
    elif as_json:
        print_json({"undone": _build_row(entry, ()) | {"effect": entry.effect}})
    else:
        echo(f"Undid {entry.reference}. {entry.effect}.")
        for sentence in told:
            echo(sentence)


@click.command()
@add_common_options
@click.argument("names", nargs=-1)
@click.option("--deleted", is_flag=True, help="Purge everything that is already deleted or forgotten.")
@click.option("--containing", metavar="TEXT", help="Purge every item whose name, type or text contains TEXT.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def purge(
    as_json: bool, names: tuple[str, ...], deleted: bool, containing: str | None, yes: bool, **flags: Any
) -> None:
    """Permanently delete entities, memories or a project.

    Their traces in the log, index and graph files are deleted too. NAMES are entity names or ids, or memory ids;
    deleted items count too. Looks in the selected project and in your user scope, or only in --project. With `project`
    as the first word, deletes that project from the trash. You cannot undo a purge.
    """
    if names[:1] == (PROJECT_WORD,):
        run_with_app(lambda app: purge_project(app, names[1:], yes=yes, as_json=as_json), writes=True, **flags)
        return
    if not names and not deleted and not containing:
        raise InvalidInput("Specify what to purge.", hint="Pass NAMES, --deleted or --containing TEXT.")

    async def work(app: App) -> None:
        chosen: dict[str, list[PurgeItem]] = {}
        trash = await _map_trash(app)
        places = await _list_stores(app, trash)
        await import_graph_files(app, places)
        for place in places:
            store = await app.change_log.open_store(place)
            found = await select_items(store, names, deleted=deleted, containing=containing)
            chosen |= {place: found} if found else {}
        for place, trashed in trash.items():
            store = await app.library.get_store(trashed.project)
            found = await select_items(store, names, deleted=False, containing=containing)
            chosen |= {place: found} if found else {}
        _check_all_found(names, chosen)
        purged: dict[str, PurgeResult] = {}
        for place, things in chosen.items():
            if confirm(_format_question(place, things), yes=yes):
                purged[place] = await _purge_items(app, place, trash.get(place), things)
        if purged or not chosen:
            labels = [get_label(thing) for place in purged for thing in chosen[place] if isinstance(thing, Record)]
            is_agreed = containing if yes or purged else None
            beside = {"file_versions": await purge_versions(app, labels, is_agreed)}
            beside["calls"] = _erase_calls_naming(app, is_agreed)
            files = await update_graph_files(app, [place for place in purged if place not in trash])
            _print_purged(as_json, list(purged) or places, list(purged.values()), files, beside)

    run_with_app(work, writes=True, **flags)


async def _map_trash(app: App) -> dict[str, TrashedProject]:
    """Return the projects in the trash by a label, or only those with the name of --project."""
    named = app.settings.project
    trash = await app.project_changes.list_trash()
    return {label_trashed(each): each for each in trash if named in (None, AUTO, each.name)}


async def _purge_items(
    app: App, place: str, trashed: TrashedProject | None, things: Sequence[PurgeItem]
) -> PurgeResult:
    refs = [thing.ref for thing in things]
    if trashed is None:
        return await (await app.change_log.open_store(place)).purge(refs)
    async with open_trashed(app.library, trashed) as store:
        return await store.purge(refs)


def _erase_calls_naming(app: App, text: str | None) -> int:
    """Erase the lines of the call log with a name that contains the text."""
    wanted = (text or "").casefold()
    return erase_calls(app.settings.data_dir, lambda names: wanted in names.casefold()) if wanted else 0


async def _list_stores(app: App, trash: Mapping[str, TrashedProject]) -> list[str]:
    """Return where to purge: in the named project, otherwise in the current one and in the user's."""
    named = app.settings.project
    if named not in (None, AUTO):
        is_live = any(each.name == named for each in await app.guarded.list_projects())
        return [named] if is_live or not trash else []
    here = await _find_current_project(app)
    return [here, USER_PROJECT] if here else [USER_PROJECT]


def _check_all_found(names: Sequence[str], chosen: Mapping[str, Sequence[PurgeItem]]) -> None:
    """Raise NotFound for an unknown name, and purge nothing."""
    ids = [thing.id.removeprefix(MEMORY_PREFIX).lower() for things in chosen.values() for thing in things]
    found = {compute_name_key(get_label(thing)) for things in chosen.values() for thing in things}
    for name in names:
        base, typed = parse_name_and_type(name), name.strip().removeprefix(MEMORY_PREFIX).lower()
        has_id = len(typed) >= MIN_TYPED_CHARACTERS and any(each.startswith(typed) for each in ids)
        if not has_id and compute_name_key(name) not in found and (base or ("",))[0] not in found:
            raise NotFound(
                "entity or memory",
                name,
                hint="Names and ids of deleted items work too. Pass another project with --project.",
            )


def _format_question(place: str, things: Sequence[PurgeItem]) -> str:
    what = ", ".join(clip_text(get_label(thing), 40) for thing in things[:5])
    more = ", …" if len(things) > 5 else ""
    return f"Permanently delete {format_count(len(things), 'item')} from {place} ({what}{more})?"


async def _find_current_project(app: App) -> str | None:
    """Return the selected project, otherwise the one of the working folder."""
    session = await read_session(app)
    if session.project:
        return session.project
    current = await app.memory_access.find_project(session)
    return current.name if current else None


def _print_purged(
    as_json: bool, places: Sequence[str], purged: Sequence[PurgeResult], files: MirrorResult, beside: Mapping[str, int]
) -> None:
    where = " and ".join(places)
    removed = PurgeResult(
        sum(part.records for part in purged),
        sum(part.links for part in purged),
        complete=all(part.complete for part in purged),
    )
    if as_json:
        answer = {"project": where, "purged": to_json(removed) if purged else None}
        answer |= {name: count for name, count in beside.items() if count}
        print_json(answer | (describe_graph_files(files) if purged else {}))
    elif not purged:
        echo(f"Nothing matches in {where}. Nothing was deleted.")
        echo("Conversations are separate. To delete them, run `everkept history forget`.")
    else:
        counted = f"{format_count(removed.records, 'record')} and {format_count(removed.links, 'relation')}"
        echo(f"Permanently deleted {counted} from {where}.")
        if not removed.complete:
            echo(
                "Another process is still reading the old data. Run the command again later to erase it from disk.",
                err=True,
            )
        print_graph_files(files)
    if not as_json:
        _print_beside(beside)


def _print_beside(beside: Mapping[str, int]) -> None:
    """Print what was erased outside the stores."""
    if beside["file_versions"]:
        echo(describe_removed_versions(beside["file_versions"]))
    if beside["calls"]:
        echo(f"Permanently deleted {format_count(beside['calls'], 'line')} of the call log.")


def _build_row(entry: ChangeLogEntry, users: Container[str]) -> dict[str, Any]:
    client = entry.change.client
    return {
        "change": entry.reference,
        "project": entry.project,
        "at": format_iso(entry.change.at),
        "tool": entry.change.tool,
        "client": client,
        "account": find_signer(client) or (client if client in users else None),
        "summary": entry.summary,
        "undone": entry.is_undone,
        "undoes": entry.change.undoes,
    }


@click.group()
@add_common_options
@click.pass_context
def audit(context: click.Context, **flags: Any) -> None:
    """Find secrets in stored text."""
    context.obj = flags


@audit.command()
@add_common_options
@click.option("--mask", is_flag=True, help="Permanently replace the secrets. Asks in a terminal.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.pass_context
def secrets(context: click.Context, mask: bool, yes: bool, **flags: Any) -> None:
    """Find keys, tokens and passwords in stored text.

    Searches all projects, also in the trash, their logs and your memories, kept versions of bank files, and the call
    log. With --mask, replaces them in records, relations, log, index and graph files, and deletes such versions and
    lines, so that no byte remains. Ids, such as that of a session, are not changed. You cannot undo this.
    """
    # Merge the options given before the subcommand and after it.
    if mask and not yes and sys.stdin.isatty():
        click.confirm("Permanently mask all secrets? You cannot undo this.", err=True, abort=True)
    given = {**context.obj, **{name: value for name, value in flags.items() if value}}
    project, as_json = given.pop("project"), given.pop("as_json")

    async def work(app: App) -> tuple[SecretAudit, MaskResult | None, MirrorResult, dict[str, int]]:
        if not mask:
            return await find_secrets(app.library, project), None, MirrorResult(), await handle_beside(app)
        on = [p.name for p in await app.library.list_projects("active") if not p.is_off]
        await import_graph_files(app, [name for name in on if project in (None, name)])
        found = await find_secrets(app.library, project)
        masked = await mask_secrets(app.library, found.findings)
        files = await update_graph_files(app, [f.project for f in found.findings if not f.in_id])
        return found, masked, files, await handle_beside(app)

    async def handle_beside(app: App) -> dict[str, int]:
        handle_calls = erase_calls if mask else count_matching_calls
        calls = handle_calls(app.settings.data_dir, lambda names: mask_text(names)[1]) if project is None else 0
        return {"file_versions": await handle_versions_with_secrets(app, removes=mask), "calls": calls}

    found, masked, files, beside = run_with_app(work, writes=mask, **given)
    if as_json:
        told = {"masked": None if masked is None else to_json(masked)} | describe_graph_files(files)
        told |= {name: count for name, count in beside.items() if count}
        print_json(to_json(found) | told)
    else:
        _print_audit(found, masked, beside)
        print_graph_files(files)
        if mask:
            _print_beside(beside)


def _print_audit(found: SecretAudit, masked: MaskResult | None, beside: Mapping[str, int]) -> None:
    for item in found.findings:
        # Two lines instead of a table, because people copy the long id.
        echo(f"{item.project}  {item.kind} {item.id}  {item.place}: {', '.join(item.secrets)}")
        echo(f"    {item.excerpt}")
    if not found.findings and not any(beside.values()):
        echo("No secrets found.")
    if masked is None and beside["file_versions"]:
        echo(f"{format_count(beside['file_versions'], 'kept version')} of memory bank files with secrets found.")
    if masked is None and beside["calls"]:
        echo(f"{format_count(beside['calls'], 'line')} of the call log with secrets found.")
    if found.left_out:
        echo(f"Not searched: {', '.join(found.left_out)}.", err=True)
    in_ids = sum(item.in_id for item in found.findings)
    if masked is None and (len(found.findings) > in_ids or any(beside.values())):
        echo("To mask them permanently, run `everkept audit secrets --mask`. Change the secrets, too.")
    if masked is not None and (masked.records or masked.links):
        echo(f"Masked in {_format_counts(masked)}, log and index.")
        if not masked.complete:
            echo(
                "Another process is still reading the old data. It is erased from disk when that process is done.",
                err=True,
            )
    if in_ids:
        echo(
            f"{format_count(in_ids, 'secret')} in ids not masked. To delete such a record, run `everkept purge ID`.",
            err=True,
        )


def _format_counts(masked: MaskResult) -> str:
    things = {"record": masked.records, "relation": masked.links}
    return " and ".join(format_count(n, name) for name, n in things.items() if n)


PROJECT_WORD = "project"  # first word of `everkept purge project NAME`


async def purge_project(app: App, names: tuple[str, ...], *, yes: bool, as_json: bool) -> None:
    """Permanently delete the projects in the trash with this name, or the one with this id."""
    if len(names) != 1:
        raise InvalidInput("Specify one project.", hint="Run `everkept purge project NAME`.")
    found = await _find_trashed(app, names[0])
    counted = [(each, await _count_live(app, each)) for each in found]
    if not yes:
        _confirm_name(found[0].name, counted)
    for each in found:
        await app.project_changes.purge(each)
    if all(each.name != found[0].name for each in await app.guarded.list_projects()):
        erase_calls(app.settings.data_dir, lambda line: found[0].name in line.splitlines())
    if as_json:
        print_json({"purged": [_describe(*each) for each in counted]})
    else:
        count = "project" if len(found) == 1 else format_count(len(found), "project")
        echo(f'Permanently deleted {count} "{found[0].name}".')


async def _find_trashed(app: App, name: str) -> list[TrashedProject]:
    one = await app.project_changes.find_trashed(name)
    if one is not None:
        return [each for each in await app.project_changes.list_trash() if each.name == name] or [one]
    live = [each.name for each in await app.guarded.list_projects()]
    if name in live:
        raise Refused(
            f'Project "{name}" is not in the trash.', hint="Delete it first with delete_project.", project=name
        )
    raise NotFound(
        "project", name, message=f'Project "{name}" is not in the trash.', hint="List the trash with list_projects."
    )


async def _count_live(app: App, trashed: TrashedProject) -> Mapping[str, int]:
    return await (await app.library.get_store(trashed.project)).count_live()


def _confirm_name(name: str, counted: list[tuple[TrashedProject, Mapping[str, int]]]) -> None:
    """Show what is deleted, and ask a person for the name."""
    if not sys.stdin.isatty():
        raise Refused("This deletes data permanently.", hint="Confirm in a terminal, or pass --yes.")
    for each, held in counted:
        at = format_local(each.deleted_at)[:10]
        echo(f'Project "{name}", deleted on {at}, has {format_counts(held)}.', err=True)
    echo("This deletes it permanently, and you cannot undo it.", err=True)
    if click.prompt("Type the name of the project", err=True, type=str).strip() != name:
        raise Refused("The name differs. Nothing was deleted.", hint="Run the command again.")


def _describe(trashed: TrashedProject, held: Mapping[str, int]) -> dict[str, Any]:
    at = format_iso(trashed.deleted_at)
    return {"id": trashed.project.id, "name": trashed.name, "deleted_at": at, "counts": dict(held)}
