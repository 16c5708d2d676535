"""`recollect import`: taking in what other memory servers keep."""

from pathlib import Path
from typing import Any

import click

from recollect.app.app import App
from recollect.app.imports import Imported, import_server_memory
from recollect.app.projects import DEFAULT_PROJECT
from recollect.cli.mirrored import settled
from recollect.cli.options import common
from recollect.cli.progress import bar
from recollect.cli.running import command_session, print_json, run_with_app
from recollect.core.sessions import Call
from recollect.tools.schema import to_json

SHOWN_LINES = 10


@click.group("import")
def import_() -> None:
    """Take in what another memory server keeps."""


@import_.command("server-memory")
@common
@click.argument("file", type=click.Path(path_type=Path))
def server_memory(as_json: bool, file: Path, project: str | None, **flags: Any) -> None:
    """Read the JSONL FILE of the official memory server into a project, by default `default`.

    Running it again adds only what is new. Lines that cannot be read are reported and left out.
    """

    async def work(app: App) -> Imported:
        call = Call(await command_session(app), "import")
        store = await app.choice.to_write(call, None)
        with bar("Importing") as progress:
            mask = app.settings.mask_secrets
            outcome = await import_server_memory(file, store, app.clock, progress, mask=mask)
        await settled(app, [project or DEFAULT_PROJECT])
        return outcome

    try:
        outcome = run_with_app(work, writes=True, project=project or DEFAULT_PROJECT, **flags)
    except KeyboardInterrupt:
        click.echo("Stopped; what was imported is kept. Run it again to go on.", err=True)
        raise
    if as_json:
        print_json(to_json(outcome))
        return
    click.echo(
        f"Added {outcome.entities} entities, {outcome.observations} observations and "
        f"{outcome.relations} relations to {project or DEFAULT_PROJECT}."
    )
    if outcome.masked:
        click.echo(f"  masked on the way in: {', '.join(outcome.masked)}", err=True)
    for item in outcome.unreadable[:SHOWN_LINES]:
        click.echo(f"  line {item.line} was left out: {item.reason}", err=True)
    if len(outcome.unreadable) > SHOWN_LINES:
        rest = len(outcome.unreadable) - SHOWN_LINES
        click.echo(f"  … and {rest} more lines; --json lists them all.", err=True)
