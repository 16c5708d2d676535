"""`everkept grant` and `everkept revoke`: which projects a user sees."""

from contextlib import AbstractContextManager
from typing import Any, cast

import click

from everkept.app.access_log import FOLDER, AccessLog, noted_of_owner
from everkept.app.accounts.grants import Access, Grant
from everkept.app.app import App
from everkept.cli.options import common
from everkept.cli.running import print_json, run_with_app
from everkept.core.projects import Project

ALLOWED = {"read": "only read", "write": "read and change", "own": "do everything with"}


@click.command()
@common
@click.argument("name", metavar="PROJECT")
@click.option("--user", required=True, metavar="NAME", help="Who is to see it.")
@click.option(
    "--access", type=click.Choice(("read", "write")), default="read", help="Default: read."
)
def grant(as_json: bool, name: str, user: str, access: str, **flags: Any) -> None:
    """Let a user see PROJECT, at once; without --access write, to read alone.

    `everkept token --user NAME` makes a user; `everkept account list` shows who sees what.
    """

    async def work(app: App) -> Grant:
        project = await app.accounts.found(app.library.project(name))
        whose = (await app.accounts.user(user)).name
        with _noted(app, f"grant {access}", whose, project):
            return await app.accounts.grant(whose, project, cast(Access, access))

    granted = run_with_app(work, writes=True, **flags)
    if as_json:
        row = {"user": granted.user, "project": name, "access": granted.access}
        print_json(row | {"shown_as": granted.name})
    else:
        known_as = "" if granted.name == name else f', as "{granted.name}"'
        click.echo(f'{granted.user} may {ALLOWED[granted.access]} "{name}"{known_as} from now on.')


@click.command()
@common
@click.argument("name", metavar="PROJECT")
@click.option("--user", required=True, metavar="NAME", help="Who is to see it no longer.")
def revoke(as_json: bool, name: str, user: str, **flags: Any) -> None:
    """Hide PROJECT from a user again, at once. What the user has written in it stays."""

    async def work(app: App) -> str:
        project = await app.accounts.found(app.library.project(name))
        whose = (await app.accounts.user(user)).name
        with _noted(app, "revoke", whose, project):
            return await app.accounts.revoke(whose, project)

    hidden_from = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"user": hidden_from, "project": name, "access": None})
    else:
        click.echo(f'{hidden_from} no longer sees "{name}".')


def _noted(app: App, what: str, user: str, project: Project) -> AbstractContextManager[list[str]]:
    written = AccessLog(app.settings.data_dir / FOLDER)
    return noted_of_owner(written, app.clock, what, user, project=project)
