"""`everkept export`: everything as files that people read and git compares."""

from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.app.exchange.writing import Exported
from everkept.app.exchange.writing import export as write
from everkept.cli.options import Folder, common
from everkept.cli.progress import bar
from everkept.cli.running import print_json, run_with_app, told_if_interrupted
from everkept.core.conditions import Answering, answering
from everkept.core.text import counted
from everkept.errors import InvalidInput, StoreAway
from everkept.tools.schema import to_json


def _expect_all_of_it(app: App, noted: Answering) -> None:
    """An export is what people fall back on: what was last seen is not good enough."""
    if noted.is_degraded or app.library.condition.waiting:
        raise StoreAway(
            "The database is away, or is being brought what was written before: not everything "
            "can be exported now.",
            hint="Try again when `everkept status` shows that nothing waits.",
        )


@click.command()
@common
@click.argument("folder", metavar="DIR", type=Folder())
@click.option("--no-history", is_flag=True, help="Leave past conversations out.")
@click.option("--no-accounts", is_flag=True, help="Leave out what is an account's alone.")
def export(
    as_json: bool,
    folder: Path,
    no_history: bool,
    no_accounts: bool,
    project: str | None,
    **flags: Any,
) -> None:
    """Write all that is remembered, or one --project, into the folder DIR.

    Markdown for people, and JSON lines that git compares well and `everkept import DIR` takes in
    again. What an earlier export has left in DIR is brought up to date. What is forgotten is not
    written; `everkept backup` keeps everything.
    """

    place = folder.resolve()

    async def work(app: App) -> Exported:
        if app.settings.data_dir.resolve() in (place, *place.parents):
            raise InvalidInput(
                f"{folder} lies inside the data folder.", hint="Name a folder outside of it."
            )
        with bar("Exporting") as progress, answering() as noted:
            await app.library.projects()
            _expect_all_of_it(app, noted)
            written = await write(
                app.library,
                folder,
                progress,
                project=project,
                history=not no_history,
                accounts=not no_accounts,
            )
        _expect_all_of_it(app, noted)
        return written

    left = f"What is in {folder} may be older; the same command again brings it up to date."
    with told_if_interrupted(lambda: left):
        outcome = run_with_app(work, **flags)
    if as_json:
        print_json(to_json(outcome))
        return
    click.echo(
        f"Wrote {counted(outcome.records, 'record')} and {counted(outcome.links, 'link')} of "
        f"{counted(outcome.projects, 'project')} to {outcome.folder}."
    )
    if outcome.accounts:
        click.echo(
            f"  with what is theirs alone of {counted(len(outcome.accounts), 'account')}; "
            "--no-accounts leaves it out"
        )
    if outcome.archived:
        click.echo(
            f"  not written, because archived: {', '.join(outcome.archived)}; "
            "`everkept restore-project` brings one back",
            err=True,
        )
    if outcome.off:
        click.echo(f"  not written, because switched off: {', '.join(outcome.off)}", err=True)
