"""`everkept account`: who has an account here, and what they see."""

from typing import Any

import click

from everkept.app.access_log import FOLDER, AccessLog, noted_of_owner
from everkept.app.accounts.grants import shown_names
from everkept.app.app import App
from everkept.cli.options import common
from everkept.cli.running import confirmed, print_json, run_with_app
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
