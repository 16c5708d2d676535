"""`everkept audit`: what should not have been stored, and masking it."""

from typing import Any

import click

from everkept.app.app import App
from everkept.app.auditing import Audit, Masked, find_secrets, mask_secrets
from everkept.app.bank_mirrors import Settled
from everkept.cli.mirrored import met, settled, tell_of, told_of
from everkept.cli.options import common
from everkept.cli.running import print_json, run_with_app
from everkept.tools.schema import to_json


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
