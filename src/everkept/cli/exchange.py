"""`everkept export` and `import`: all data as files, and data of other programs."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.changes import update_graph_files
from everkept.cli.import_found import import_found
from everkept.cli.import_history import import_history
from everkept.cli.import_programs import import_plugin_database, import_server_file
from everkept.cli.import_sources import build_source_command, print_kept, report_interruption_of_import
from everkept.cli.options import FolderPath, add_common_options
from everkept.cli.runner import echo, print_json, report_interruption, run_with_app, show_progress
from everkept.core.library import track_replica_use
from everkept.core.text import format_count
from everkept.errors import InvalidInput, escape_name
from everkept.exchange.exporter import ExportParts, ExportResult, WriteStore, require_complete, write_server_memory
from everkept.exchange.exporter import export_library as write
from everkept.exchange.sources import SOURCES
from everkept.tools.schema import to_json

FORMATS = ("jsonl", "markdown", "obsidian", "server-memory")


@click.command()
@add_common_options
@click.argument("folder", metavar="DIR", type=FolderPath())
@click.option("--no-history", is_flag=True, help="Skip past conversations.")
@click.option("--no-accounts", is_flag=True, help="Skip accounts' private data.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Format. Default: jsonl and markdown together.")
def export(
    as_json: bool,
    folder: Path,
    no_history: bool,
    no_accounts: bool,
    form: str | None,
    project: str | None,
    **flags: Any,
) -> None:
    """Export all data, or one --project, to the folder DIR.

    Writes Markdown for people and JSON Lines for git and `everkept import DIR`. Updates an earlier export in place.
    Skips forgotten items; use `everkept backup` to save everything.

    Format obsidian writes a vault of memories and entities, which you can edit and import with `everkept import
    obsidian DIR`. Format server-memory writes each graph as the official memory server does. Both skip conversations.
    """
    from everkept.exchange.vault import refuse_edited_notes, write_notes

    place = folder.resolve()
    write_store: WriteStore | None = {"obsidian": write_notes, "server-memory": write_server_memory}.get(form or "")
    parts: ExportParts = "lines" if form == "jsonl" else "pages" if form == "markdown" else "all"
    is_ours = write_store is None

    async def work(app: App) -> ExportResult:
        if app.settings.data_dir.resolve() in (place, *place.parents):
            raise InvalidInput(f"{folder} is inside the data folder.", hint="Use a folder outside of it.")
        with show_progress("Exporting") as progress, track_replica_use() as noted:
            await app.library.list_projects()
            require_complete(app.library, noted)
            if form == "obsidian":
                refuse_edited_notes(folder)
            written = await write(
                app.library,
                folder,
                progress,
                project=project,
                history=is_ours and not no_history,
                accounts=is_ours and not no_accounts,
                parts=parts,
                write_store=write_store,
            )
        require_complete(app.library, noted)
        return written

    left = f"What is in {folder} may be outdated. To update it, run the same command again."
    with report_interruption(lambda: left):
        outcome = run_with_app(work, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    noun = "note" if form == "obsidian" else "line" if form == "server-memory" else "record"
    links = f" and {format_count(outcome.links, 'link')}" if is_ours else ""
    echo(
        f"Wrote {format_count(outcome.records, noun)}{links} of "
        f"{format_count(outcome.projects, 'project')} to {outcome.folder}."
    )
    if outcome.accounts:
        echo(f"  with private data of {format_count(len(outcome.accounts), 'account')}; to skip it, pass --no-accounts")
    if outcome.archived:
        echo(f"  skipped because archived (see `everkept restore-project`): {', '.join(outcome.archived)}", err=True)
    if outcome.off:
        echo(f"  skipped because off: {', '.join(outcome.off)}", err=True)


class ImportGroup(click.Group):
    """Group whose argument may be a folder instead of a command. Without an argument, it looks on this machine."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_automatic = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, [import_found.name or "", *args] if is_automatic else args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return "DIR", folder, args


@click.group("import", cls=ImportGroup, subcommand_metavar="[DIR | COMMAND] [ARGS]...")
def import_() -> None:
    """Import an export, or data from another program.

    Without an argument, looks for data of other programs on this machine, and asks whether to import it.

    DIR is a folder written by `everkept export`. You can run it again: it adds only what is new. Items you have
    forgotten stay forgotten. If an item changed on both sides, the newer version wins.
    """


@click.command("DIR")
@add_common_options
@click.argument("folder", metavar="DIR", type=FolderPath())
@click.option("--no-folders", is_flag=True, help="Do not link imported projects to folders on this machine.")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
@click.option(
    "--account",
    "same",
    multiple=True,
    metavar="NAME",
    help="Import private data of account NAME into the account of the same name here. Repeatable.",
)
def folder(as_json: bool, folder: Path, no_folders: bool, yes: bool, same: tuple[str, ...], **flags: Any) -> None:
    """Import the folder DIR written by `everkept export`.

    Asks before it links an imported project to a folder on this machine.
    """
    from everkept.exchange.importer import ExportImport, import_export, link_claimed

    async def work(app: App) -> ExportImport:
        excluded = [*app.history.configured_exclusions, *await app.history.list_excluded()]
        with show_progress("Importing") as progress:
            outcome = await import_export(
                app.library,
                folder,
                app.clock,
                progress,
                mask=app.settings.mask_secrets,
                excluded=excluded,
                folders=yes and not no_folders,
                same=same,
            )
        if not no_folders:
            await link_claimed(app.library, outcome, _select_claims(outcome.claimed))
        await update_graph_files(app, outcome.projects)
        return outcome

    with report_interruption_of_import():
        outcome = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    echo(
        f"Added {format_count(outcome.records, 'record')} and "
        f"{format_count(outcome.links, 'link')}; "
        f"updated {outcome.updated:,}, {outcome.unchanged:,} unchanged."
    )
    print_kept(outcome, (outcome.left_out, "skipped: excluded, memory off, or parent missing"))
    if outcome.off:
        echo(f"  skipped because off: {', '.join(outcome.off)}", err=True)
    for path, name in outcome.folders.items():
        echo(f"  {escape_name(path)} is now the folder of {name}", err=True)
    if outcome.claimed and not no_folders:
        echo(
            f"  {format_count(len(outcome.claimed), 'folder')} not linked to a project; to link, import with --yes",
            err=True,
        )
    for user in outcome.accounts:
        echo(f"  with private data of {user}", err=True)
    for user in outcome.strangers:
        echo(
            f"  skipped private data of {user}, because this account is missing here or belongs to "
            f"another person. If it is the same person, run `everkept token --user {user}`, "
            f"then import with `--account {user}`",
            err=True,
        )
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)


def _select_claims(claimed: Mapping[str, str]) -> list[str]:
    """Ask a person which folders get the project that an export names. A program links none."""
    if not sys.stdin.isatty():
        return []
    return [
        path
        for path, name in claimed.items()
        if click.confirm(f'Link the folder {escape_name(path)} to project "{name}"?', err=True)
    ]


import_.add_command(import_found)
import_.add_command(import_server_file)
import_.add_command(import_plugin_database)
for each in SOURCES.values():
    import_.add_command(build_source_command(each))
import_.add_command(import_history)
