"""`everkept export` and `import`: all data as files, and data of other programs."""

import asyncio
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everkept.accounts.project_rule import DEFAULT_PROJECT, ProjectRule
from everkept.app.app import App
from everkept.app.history import ImportRequest
from everkept.cli.changes import update_graph_files
from everkept.cli.options import FolderPath, add_common_options, parse_typed_time
from everkept.cli.runner import echo, print_json, read_session, report_interruption, run_with_app, show_progress
from everkept.core.library import ReplicaUse, track_replica_use
from everkept.core.ports import RecordStore
from everkept.core.projects import WorkspaceInfo, find_workspace, find_workspace_key
from everkept.core.sessions import Session, ToolCall
from everkept.core.text import format_count
from everkept.errors import InvalidInput, StoreUnreachable, escape_name
from everkept.exchange.exporter import ExportResult
from everkept.exchange.exporter import export_library as write
from everkept.exchange.importer import ServerMemoryImport, import_server_memory
from everkept.families.history.ingest.checkpoints import ImportCounts
from everkept.families.history.ingest.checkpoints import ImportReport as Conversations
from everkept.tools.schema import to_json

if TYPE_CHECKING:
    from everkept.exchange.plugin_import import PluginTarget


def _require_complete(app: App, noted: ReplicaUse) -> None:
    """Refuse an incomplete export, because people rely on it. A replica may be outdated."""
    if noted.is_degraded or app.library.condition.waiting:
        raise StoreUnreachable(
            "The database is unreachable or has pending writes, so the export would be incomplete.",
            hint="Try again when `everkept status` shows no pending writes.",
        )


@click.command()
@add_common_options
@click.argument("folder", metavar="DIR", type=FolderPath())
@click.option("--no-history", is_flag=True, help="Skip past conversations.")
@click.option("--no-accounts", is_flag=True, help="Skip accounts' private data.")
def export(as_json: bool, folder: Path, no_history: bool, no_accounts: bool, project: str | None, **flags: Any) -> None:
    """Export all data, or one --project, to the folder DIR.

    Writes Markdown for people and JSON Lines for git and `everkept import DIR`. Updates an earlier export in place.
    Skips forgotten items; use `everkept backup` to save everything.
    """

    place = folder.resolve()

    async def work(app: App) -> ExportResult:
        if app.settings.data_dir.resolve() in (place, *place.parents):
            raise InvalidInput(f"{folder} is inside the data folder.", hint="Use a folder outside of it.")
        with show_progress("Exporting") as progress, track_replica_use() as noted:
            await app.library.list_projects()
            _require_complete(app, noted)
            written = await write(
                app.library, folder, progress, project=project, history=not no_history, accounts=not no_accounts
            )
        _require_complete(app, noted)
        return written

    left = f"What is in {folder} may be outdated. To update it, run the same command again."
    with report_interruption(lambda: left):
        outcome = run_with_app(work, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    echo(
        f"Wrote {format_count(outcome.records, 'record')} and "
        f"{format_count(outcome.links, 'link')} of "
        f"{format_count(outcome.projects, 'project')} to {outcome.folder}."
    )
    if outcome.accounts:
        echo(f"  with private data of {format_count(len(outcome.accounts), 'account')}; to skip it, pass --no-accounts")
    if outcome.archived:
        echo(f"  skipped because archived (see `everkept restore-project`): {', '.join(outcome.archived)}", err=True)
    if outcome.off:
        echo(f"  skipped because off: {', '.join(outcome.off)}", err=True)


MAX_SHOWN_LINES = 10
WATCH_SECONDS = 2.0  # between two checks of the transcripts


class ImportGroup(click.Group):
    """Group whose argument may be a folder instead of a command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        return "DIR", folder, args


@click.group("import", cls=ImportGroup, subcommand_metavar="DIR | COMMAND [ARGS]...")
def import_() -> None:
    """Import an export, or data from another program.

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

    with _report_interruption("imported"):
        outcome = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    echo(
        f"Added {format_count(outcome.records, 'record')} and "
        f"{format_count(outcome.links, 'link')}, "
        f"changed {outcome.updated}; {outcome.unchanged} were there already."
    )
    for count, what in (
        (outcome.older, "newer here, and kept unchanged"),
        (outcome.forgotten, "forgotten here, and stay so"),
        (outcome.left_out, "skipped: excluded, memory off, or parent missing"),
    ):
        if count:
            echo(f"  {count} {what}", err=True)
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


@import_.command("server-memory")
@add_common_options
@click.argument("file", type=click.Path(path_type=Path))
def import_server_file(as_json: bool, file: Path, project: str | None, **flags: Any) -> None:
    """Import the JSONL file of the official memory server.

    The items go to --project, or to the project `default`. You can run it again: it adds only what is new. Lines that
    cannot be read are listed and skipped.
    """

    async def work(app: App) -> tuple[ServerMemoryImport, str]:
        call = ToolCall(await read_session(app), "import")
        store = await app.project_rule.open_to_write(call, None)
        with show_progress("Importing") as progress:
            mask = app.settings.mask_secrets
            outcome = await import_server_memory(file, store, app.clock, progress, mask=mask)
        name = await _find_project_name(app, call)
        await update_graph_files(app, [name])
        return outcome, name

    with _report_interruption("imported"):
        outcome, name = run_with_app(work, writes=True, project=project or DEFAULT_PROJECT, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    echo(
        f"Added {format_count(outcome.entities, 'entity', 'entities')}, "
        f"{format_count(outcome.observations, 'observation')} and "
        f"{format_count(outcome.relations, 'relation')} to {name}."
    )
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)
    for item in outcome.unreadable[:MAX_SHOWN_LINES]:
        echo(f"  line {item.line} skipped: {item.reason}", err=True)
    if len(outcome.unreadable) > MAX_SHOWN_LINES:
        rest = len(outcome.unreadable) - MAX_SHOWN_LINES
        echo(f"  … and {rest} more lines. To list all, pass --json.", err=True)


async def _find_project_name(app: App, call: ToolCall) -> str:
    """Return the project that was imported into: `auto` stands for that of the working folder."""
    active = await app.project_rule.find_active(call)
    return app.settings.project or DEFAULT_PROJECT if active is None else active.name


@import_.command("surrealdb-memory")
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
    from everkept.exchange.plugin_database import find_plugin_place, note_import, open_plugin_database
    from everkept.exchange.plugin_import import PluginImport, import_plugin

    async def work(app: App) -> PluginImport:
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

    with _report_interruption("imported"):
        outcome = run_with_app(work, writes=not dry_run, project=project or DEFAULT_PROJECT, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    echo(
        f"{'Would add' if dry_run else 'Added'} {format_count(outcome.memories, 'memory', 'memories')}, "
        f"{format_count(outcome.entities, 'entity', 'entities')} and {format_count(outcome.links, 'relation')} "
        f"from {outcome.place} to {', '.join(outcome.projects)}; "
        f"updated {outcome.updated}, {outcome.unchanged} unchanged."
    )
    for count, what in (
        (outcome.older, "newer here, and kept unchanged"),
        (outcome.forgotten, "forgotten here, and stay so"),
        (outcome.left_out, "links skipped: their other end is missing, or in another project"),
    ):
        if count:
            echo(f"  {count} {what}", err=True)
    if outcome.masked:
        echo(f"  masked: {', '.join(outcome.masked)}", err=True)
    for row in outcome.unreadable[:MAX_SHOWN_LINES]:
        echo(f"  skipped {row.id}: {row.reason}", err=True)
    if len(outcome.unreadable) > MAX_SHOWN_LINES:
        echo(f"  … and {len(outcome.unreadable) - MAX_SHOWN_LINES} more. To list all, pass --json.", err=True)


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


@import_.command("history")
@add_common_options
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--source", "sources", multiple=True, metavar="NAME", help="Import only from this assistant.")
@click.option("--since", metavar="TIME", help="Only conversations since this time, such as 2026-03-01.")
@click.option("--watch", is_flag=True, help="Keep running and import new turns as they appear.")
@click.option("--embed", is_flag=True, help="Compute embeddings right away.")
def import_history(
    as_json: bool,
    files: tuple[Path, ...],
    sources: tuple[str, ...],
    since: str | None,
    watch: bool,
    embed: bool,
    **flags: Any,
) -> None:
    """Import past conversations of your assistants.

    Finds transcripts of Claude Code, Codex CLI, Gemini CLI and Cursor on this machine, or reads FILES. With `--source
    jsonl FILE`, reads lines with session, author, timestamp and text. Run it again at any time: it adds only what is
    new and resumes after an interruption.
    """
    wanted = ImportRequest(sources, files, parse_typed_time(since, "since"))

    async def once(app: App) -> Conversations:
        with show_progress("Reading conversations") as progress:
            outcome = await app.history.import_transcripts(wanted, progress)
        if embed:
            with show_progress("Embedding") as progress:
                embedded = await app.history.embed(progress)
            if embedded and not as_json:
                echo(f"Embedded {format_count(embedded, 'text')}.")
        return outcome

    async def work(app: App) -> Conversations:
        outcome = await once(app)
        _print_outcome(outcome, await app.history.count_pending(), as_json=as_json)
        if watch:
            echo("Watching for new conversations. Press Ctrl-C to stop.", err=True)
        while watch:
            await asyncio.sleep(WATCH_SECONDS)
            latest = await once(app)
            if not (latest.total.turns or latest.total.turns_changed):
                continue
            if as_json:
                _print_outcome(latest, await app.history.count_pending(), as_json=True)
            else:
                when = datetime.now(UTC).astimezone().strftime("%H:%M:%S")
                echo(f"{when}  {_format_news(latest.total)}")
        return outcome

    with _report_interruption("read"):
        outcome = run_with_app(work, writes=True, **flags)
    if files and _is_unreadable(outcome.total):
        echo("everkept: found no conversation in the file.", err=True)
        sys.exit(1)


@contextmanager
def _report_interruption(done: str) -> Generator[None, None, None]:
    """Print after an interruption that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"Stopped. Everything {done} so far is saved. Run the command again to continue.", err=True)
        raise


def _is_unreadable(total: ImportCounts) -> bool:
    """Return whether the named files contain no conversation."""
    found = total.turns + total.turns_changed + total.turns_left_out + total.unchanged
    return not found and bool(total.failed or total.skipped)


def _format_news(total: ImportCounts) -> str:
    parts = [(total.turns, "new turn"), (total.turns_changed, "changed turn")]
    return ", ".join(format_count(count, what) for count, what in parts if count)


def _print_outcome(outcome: Conversations, waiting: int, *, as_json: bool) -> None:
    total = outcome.total
    if as_json:
        print_json({**to_json(outcome), "total": to_json(total), "without_vectors": waiting})
        return
    if not total.transcripts:
        echo("Found no conversations on this machine.")
        return
    echo(
        f"Read {total.read} of {format_count(total.transcripts, 'transcript')}"
        f" ({total.unchanged} unchanged): {format_count(total.conversations, 'new conversation')},"
        f" {format_count(total.turns, 'new turn')}, "
        f"{format_count(total.code, 'piece', 'pieces')} of code,"
        f" {format_count(total.decisions, 'decision')}."
    )
    for line in _list_remarks(total):
        echo(f"  {line}", err=True)
    for failure in outcome.failures[:MAX_SHOWN_LINES]:
        echo(f"  {failure.name} cannot be read: {failure.reason}", err=True)
    if len(outcome.failures) > MAX_SHOWN_LINES:
        rest = len(outcome.failures) - MAX_SHOWN_LINES
        echo(f"  … and {rest} more. To list all, pass --json.", err=True)
    if waiting:
        echo(
            f"{format_count(waiting, 'text')} can be found by words now, and by meaning after embedding. "
            "To embed now, run `everkept index`."
        )


def _list_remarks(total: ImportCounts) -> Iterator[str]:
    if total.turns_changed or total.turns_removed:
        yield f"changed {format_count(total.turns_changed, 'turn')}, removed {total.turns_removed}"
    if total.conversations_left_out or total.turns_left_out:
        yield (
            f"skipped {format_count(total.conversations_left_out, 'conversation')}, "
            f"{format_count(total.turns_left_out, 'turn')}: "
            "excluded, off, marked, deleted, or too old"
        )
    if total.masked:
        yield f"masked: {_format_counts(total.masked)}"
    if total.skipped:
        yield f"skipped records: {_format_counts(total.skipped)}"


def _format_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
