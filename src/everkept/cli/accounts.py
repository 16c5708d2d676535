"""`everkept account`, `grant` and `revoke`: who has an account, and which projects it sees."""

from contextlib import AbstractContextManager
from typing import Any, cast

import click

from everkept.accounts.access_log import FOLDER, AccessLog, noted_of_owner
from everkept.accounts.grants import Access, Grant, shown_names
from everkept.app.app import App
from everkept.cli.options import common
from everkept.cli.runner import confirmed, print_json, run_with_app
from everkept.core.projects import Project
from everkept.core.times import iso


@click.group()
def account() -> None:
    """List and remove the accounts of others; `everkept token --user NAME` makes one."""


@account.command("list")
@common
def list_(as_json: bool, **flags: Any) -> None:
    """List users, and the projects that each of them sees."""
    users = run_with_app(_users, **flags)
    if as_json:
        print_json({"accounts": users})
        return
    if not users:
        click.echo("No accounts. `everkept token --user NAME` makes one.")
    for user in users:
        kind = "another server" if user["peer"] else "user"
        leaving = "; being removed, to be finished" if user["leaving"] else ""
        click.echo(f"{user['name']}  {kind} since {user['created_at'][:10]}{leaving}")
        for granted in user["projects"]:
            known_as = (
                "" if granted["shown_as"] == granted["name"] else f" as {granted['shown_as']}"
            )
            click.echo(f"  {granted['access']:5}  {granted['name']}{known_as}")


@account.command()
@common
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
def remove(as_json: bool, name: str, yes: bool, **flags: Any) -> None:
    """Remove the account NAME: its tokens, its grants, and all memories that are its alone.

    Projects that it has made stay, under the names that you know them by, and are yours.
    """

    async def known(app: App) -> str:
        return (await app.accounts.user(name)).name

    user = run_with_app(known, **flags)
    question = f"Remove {user}, with tokens, grants and all memories of its own?"
    if not confirmed(question, yes=yes):
        raise click.Abort

    async def work(app: App) -> list[str]:
        own = [g.project_id for g in await app.accounts.grants_of(user) if g.access == "own"]
        written = AccessLog(app.settings.data_dir / FOLDER)
        with noted_of_owner(written, app.clock, "account remove", user, ids=own):
            await app.accounts.remove_user(user)
        return [each.name for each in await app.library.projects() if each.id in own]

    left = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"removed": user, "projects": left})
        return
    click.echo(f"Removed {user}.")
    if left:
        click.echo(f"Yours from now on: {', '.join(left)}.")


async def _users(app: App) -> list[dict[str, Any]]:
    projects = await app.library.projects()
    shown = {
        user: shown_names(await app.accounts.grants_of(user.name), projects)
        for user in await app.accounts.users()
    }
    return [
        {
            "name": user.name,
            "peer": user.is_peer,
            "created_at": iso(user.created_at),
            "leaving": user.is_leaving,
            "projects": [
                {"name": project.name, "shown_as": name, "access": grant.access}
                for name, (grant, project) in granted.items()
            ],
        }
        for user, granted in shown.items()
    ]


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
