"""`everkept import server-memory` and `surrealdb-memory`: the graph or database of another program."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everkept.accounts.project_rule import DEFAULT_PROJECT, ProjectRule
from everkept.app.app import App
from everkept.cli.changes import update_graph_files
from everkept.cli.import_sources import build_machine, find_import_project, print_kept, report_interruption_of_import
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_first, print_json, read_session, run_with_app, show_progress
from everkept.clients.config_files import ClientEnvironment
from everkept.core.disk import is_own_place
from everkept.core.folder_project import explain_folder_project
from everkept.core.ports import RecordStore
from everkept.core.projects import WorkspaceInfo, find_workspace, find_workspace_key
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import format_count
from everkept.errors import InvalidInput
from everkept.exchange.server_memory_import import (
    ServerMemoryImport,
    copy_graph,
    find_memory_files,
    import_server_memory,
    read_server_file,
)
from everkept.tools.schema import to_json

if TYPE_CHECKING:
    from everkept.exchange.plugin_import import PluginImport, PluginTarget


@click.command("server-memory")
@add_common_options
@click.argument("file", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Only show what would become what.")
def import_server_file(as_json: bool, file: Path | None, dry_run: bool, project: str | None, **flags: Any) -> None:
    """Import the JSONL file of the official memory server.

    Without FILE, looks where MEMORY_FILE_PATH and the entries of your clients say, and beside the program. A file in
    this folder goes to the folder's project, any other file to `default`. To choose, pass --project. You can run it
    again: it adds only what is new. Lines that cannot be read are listed and skipped.
    """
    files = list_memory_files() if file is None else [file.expanduser()]
    if not files:
        raise InvalidInput("Cannot find a file of the official memory server on this machine.", hint="Pass its FILE.")
    into = find_import_project(files, project=project, asks=not dry_run and not as_json, **flags)
    outcome = run_server_import(files, project=into, dry_run=dry_run, **flags)
    if as_json:
        print_json(to_json(outcome))
    else:
        print_server_import(outcome, is_named=project is not None)


def list_memory_files() -> list[Path]:
    """Return the files of the official memory server on this machine."""
    here = build_machine()
    places = ClientEnvironment(here.environment, here.home, here.platform, Path.cwd())
    return [file for file in find_memory_files(places) if is_own_place(file)]


def run_server_import(files: Sequence[Path], *, project: str | None, dry_run: bool, **flags: Any) -> ServerMemoryImport:
    """Import the files, or count what an import would add."""
    into = find_import_project(files, project=project, **flags)

    async def work(app: App) -> ServerMemoryImport:
        parsed = [item for file in files for item in await asyncio.to_thread(read_server_file, file)]
        call = ToolCall(await read_session(app), "import")
        if dry_run:
            store = await copy_graph(await app.project_rule.open_to_read(call, None))
        else:
            store = await app.project_rule.open_to_write(call, None)
        with show_progress("Importing") as progress:
            outcome = await import_server_memory(parsed, store, app.clock, progress, mask=app.settings.mask_secrets)
        outcome.place, outcome.dry_run = ", ".join(map(str, files)), dry_run
        outcome.project = await _find_project_name(app, call)
        if not dry_run:
            await update_graph_files(app, [outcome.project])
        outcome.folder_project = (await explain_folder_project(app.library, app.settings.path)).name
        return outcome

    with report_interruption_of_import():
        return run_with_app(work, writes=not dry_run, project=into, **flags)


def print_server_import(outcome: ServerMemoryImport, *, is_named: bool = False) -> None:
    """Print what was imported. `is_named`: the command names the project."""
    if outcome.dry_run:
        rows = [{**to_json(each), "project": outcome.project} for each in outcome.kinds]
        build_console().print(build_table("items", rows))
    echo(
        f"{'Would add' if outcome.dry_run else 'Added'} {format_count(outcome.entities, 'entity', 'entities')}, "
        f"{format_count(outcome.observations, 'observation')} and {format_count(outcome.relations, 'relation')} "
        f"from {outcome.place} to {outcome.project}."
    )
    if not is_named and outcome.folder_project not in (None, outcome.project):
        here = outcome.folder_project
        echo(f"This folder uses project {here}. To import into it, run the command again with --project {here}.")
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)
    print_first([f"line {item.line} skipped: {item.reason}" for item in outcome.unreadable], "more lines")


@click.command("surrealdb-memory")
@add_common_options
@click.argument("place", metavar="[PATH|URL]", required=False)
@click.option("--namespace", metavar="NAME", help="Namespace of the plugin. Default: memory.")
@click.option("--database", metavar="NAME", help="Database of the plugin. Default: default.")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
def import_plugin_database(
    as_json: bool,
    place: str | None,
    namespace: str | None,
    database: str | None,
    dry_run: bool,
    project: str | None,
    **flags: Any,
) -> None:
    """Import memories and graph of the surrealdb-memory plugin.

    PATH is the folder of its database, URL the address of its server. Without either, the plugin's settings name it.
    Memories of scope user stay in that scope. The rest goes to --project, otherwise to the project of its session's
    folder or to `default`. Running it again adds only what is new. The folder is copied before it is opened.
    """
    outcome = run_plugin_import(place, namespace, database, project=project, dry_run=dry_run, **flags)
    if as_json:
        print_json(to_json(outcome))
    else:
        print_plugin_import(outcome)


def run_plugin_import(
    place: str | None,
    namespace: str | None = None,
    database: str | None = None,
    *,
    project: str | None,
    dry_run: bool,
    **flags: Any,
) -> "PluginImport":
    from everkept.exchange.plugin_database import find_plugin_place, note_import, open_plugin_database
    from everkept.exchange.plugin_import import import_plugin

    async def work(app: App) -> "PluginImport":
        found = find_plugin_place(app.settings, flags, place, namespace=namespace, database=database)
        call = ToolCall(await read_session(app), "import")
        async with open_plugin_database(found) as plugin:
            await plugin.list_ids()  # before a project is created for it
            paths = await plugin.list_project_paths() if project is None else []
            target = await _open_target(app, call, paths, writes=not dry_run)
            with show_progress("Importing") as progress:
                mask = app.settings.mask_secrets
                outcome = await import_plugin(plugin, target, app.clock, progress, mask=mask, dry_run=dry_run)
        if not dry_run:
            note_import(app.settings, found.shown)
            await update_graph_files(app, outcome.projects)
        return outcome

    into = load_command_settings(project=project, **flags).project or DEFAULT_PROJECT
    with report_interruption_of_import():
        return run_with_app(work, writes=not dry_run, project=into, **flags)


def print_plugin_import(outcome: "PluginImport") -> None:
    if outcome.dry_run:
        kinds = (("memory", "memory"), ("entity", "entity"), ("session", "session"), ("link", "relation"))
        counts = (outcome.memories, outcome.entities, outcome.sessions, outcome.links)
        rows = [{"kind": kind, "becomes": into, "count": n} for (kind, into), n in zip(kinds, counts, strict=True)]
        build_console().print(build_table("items", rows))
    echo(
        f"{'Would add' if outcome.dry_run else 'Added'} {format_count(outcome.memories, 'memory', 'memories')}, "
        f"{format_count(outcome.entities, 'entity', 'entities')} and {format_count(outcome.links, 'relation')} "
        f"from {outcome.place} to {', '.join(outcome.projects)}; "
        f"updated {outcome.updated:,}, {outcome.unchanged:,} unchanged."
    )
    print_kept(outcome, (outcome.left_out, "links skipped: their other end is missing, or in another project"))
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)
    print_first([f"skipped {row.id}: {row.reason}" for row in outcome.unreadable])


def _find_workspace(path: str) -> WorkspaceInfo | None:
    """Return the workspace of a folder, or None if the folder is gone or of another machine."""
    is_here = find_workspace_key(path) is not None and Path(path).is_dir()
    return find_workspace(Path(path)) if is_here else None


async def _open_target(app: App, call: ToolCall, paths: Sequence[str], *, writes: bool) -> "PluginTarget":
    """Open the user's store, the project that the command names, and those of the folders that are workspaces here."""
    from everkept.exchange.plugin_import import PluginTarget

    async def open_project(rule: ProjectRule, call: ToolCall) -> RecordStore:
        return await (rule.open_to_write(call, None) if writes else rule.open_to_read(call, None))

    main = await open_project(app.project_rule, call)
    name = await _find_project_name(app, call)
    projects, folders = {name: main}, dict[str, str]()
    for path in paths:
        home = _find_workspace(path)
        if home is None:
            continue
        rule, alone = ProjectRule(app.library, workspace=home), ToolCall(Session(client="command line"), "import")
        store = await open_project(rule, alone)
        active = await rule.find_active(alone)
        folders[path] = home.name if active is None else active.name
        projects.setdefault(folders[path], store)
    return PluginTarget(await app.library.open_user_store(), projects, name, folders)


async def _find_project_name(app: App, call: ToolCall) -> str:
    """Return the project that was imported into, or that an import would create."""
    active = await app.project_rule.find_active(call)
    return await app.project_rule.find_pending_name(call) or DEFAULT_PROJECT if active is None else active.name
