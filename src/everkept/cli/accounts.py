"""`everkept account`, `grant`, `revoke`, `token` and `access-log`: who may use a server."""

from contextlib import AbstractContextManager
from typing import Any, cast

import click

from everkept.accounts.access_log import FOLDER, AccessLog, accesses, noted_of_owner
from everkept.accounts.access_log import Access as LoggedAccess
from everkept.accounts.accounts import User
from everkept.accounts.grants import Access, Grant, create_token, revoke_token, shown_names
from everkept.app.app import App
from everkept.cli.options import Count, common, moment, settings_from
from everkept.cli.runner import confirmed, print_json, run_with_app
from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.sessions import OWNER, checked_account_name
from everkept.core.text import counted
from everkept.core.times import iso, now
from everkept.errors import InvalidInput, visible


@click.group()
def account() -> None:
    """List and remove the accounts of others; `everkept token --user NAME` makes one."""


@account.command("list")
@common
def list_accounts(as_json: bool, **flags: Any) -> None:
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


@click.group(invoke_without_command=True)
@common
@click.option("--label", default="", help="What the token is for.")
@click.option("--user", metavar="NAME", help="Whose it is: somebody with an account of their own.")
@click.option("--peer", metavar="NAME", help="Another server, which reads what it is granted.")
@click.pass_context
def token(
    context: click.Context,
    as_json: bool,
    label: str,
    user: str | None,
    peer: str | None,
    **flags: Any,
) -> None:
    """Make a token for HTTP and print it, once; `list` and `revoke` manage the rest.

    A client sends it as `Authorization: Bearer TOKEN`. Whoever has one sees everything, as you do.
    With --user it opens that user's memories alone, and the projects that `everkept grant` shares.
    """
    context.obj = flags
    if user is not None and peer is not None:
        raise InvalidInput("A token is a user's or a peer's.", hint="Leave one of them out.")
    whose = peer if user is None else user  # one that is empty is nobody's, and so a mistake
    if context.invoked_subcommand is not None and whose is not None:
        raise InvalidInput("--user and --peer are for a new token alone.", hint="Leave them out.")
    if context.invoked_subcommand is None:
        _make(label, whose, is_peer=peer is not None, as_json=as_json, **flags)


@token.command("list")
@common
@click.pass_context
def list_tokens(context: click.Context, as_json: bool, **flags: Any) -> None:
    """List tokens: ids and labels, never the secrets."""

    async def work(app: App) -> tuple[list[Token], dict[str, User]]:
        return await app.library.tokens(), await app.accounts.users_of_tokens()

    found, users = run_with_app(work, **_merged(context, flags))
    tokens = [_row(item, users.get(item.id)) for item in found]
    if as_json:
        print_json({"tokens": tokens})
        return
    if not tokens:
        click.echo("No tokens. `everkept token` makes one.")
    width = max((len(_whose(row)) for row in tokens), default=0)
    for row in tokens:
        columns = (row["id"], row["created_at"][:10], _whose(row).ljust(width), row["label"])
        click.echo("  ".join(columns).rstrip())


@token.command("revoke")
@common
@click.argument("token_id", metavar="ID")
@click.pass_context
def end_token(context: click.Context, as_json: bool, token_id: str, **flags: Any) -> None:
    """Revoke the token with this ID, at once."""

    async def work(app: App) -> None:
        owner = (await app.accounts.users_of_tokens()).get(token_id)
        with _noted_token(app, "token revoke", owner and owner.name, token_id):
            await revoke_token(app.library, token_id)

    run_with_app(work, writes=True, **_merged(context, flags))
    if as_json:
        print_json({"revoked": token_id})
    else:
        click.echo(f"Revoked {token_id}.")


def _make(label: str, user: str | None, *, is_peer: bool, as_json: bool, **flags: Any) -> None:
    async def work(app: App) -> tuple[Token, str, User | None]:
        name = None if user is None else checked_account_name(user)
        with _noted_token(app, "token", name) as ids:
            if name is None:
                made, secret = await create_token(app.library, label, app.clock)
            else:
                made, secret = await app.accounts.create_token(name, label, peer=is_peer)
            ids.append(made.id)
        return made, secret, None if name is None else await app.accounts.user(name)

    made, secret, owner = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(_row(made, owner) | {"token": secret})
        return
    # The secret alone on stdout, so that a script can take it from there.
    click.echo(secret)
    whose = "the owner's, who sees everything" if owner is None else f"{owner.name}'s"
    click.echo(
        f"This token is {whose}, and shown once. Clients send it as "
        f"`Authorization: Bearer {secret[:8]}...`; `everkept token revoke {made.id}` ends it.",
        err=True,
    )


def _noted_token(
    app: App, what: str, about: str | None, *ids: str
) -> AbstractContextManager[list[str]]:
    written = AccessLog(app.settings.data_dir / FOLDER)
    return noted_of_owner(written, app.clock, what, about, ids=ids)


def _whose(row: dict[str, str]) -> str:
    return row.get("user") or (f"{row['peer']} (peer)" if "peer" in row else f"({OWNER})")


def _row(item: Token, owner: User | None) -> dict[str, str]:
    row = {"id": item.id, "label": item.label, "created_at": iso(item.created_at)}
    return row if owner is None else row | {"peer" if owner.is_peer else "user": owner.name}


def _merged(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Options count wherever they stand: before the subcommand or after it."""
    given = {name: value for name, value in flags.items() if value is not None}
    return {**context.obj, **given}


MOST = 100_000
WITH_THE_SERVER = "Each server keeps its own log: --data-dir names the server's data folder."
MAY_HAVE = "may have touched it: more was touched than the line names, or no end is noted."
DAY = 86_400 * 1_000_000  # microseconds


@click.command("access-log")
@common
@click.option("--user", metavar="NAME", help="Only what this user did; `owner` is you.")
@click.option("--id", "record", metavar="ID", help="Only what touched this record.")
@click.option("--since", metavar="TIME", help="Only from then on, as `yesterday`.")
@click.option("--limit", type=Count(1, MOST), default=100, show_default=True)
def access_log(
    as_json: bool,
    project: str | None,
    user: str | None,
    record: str | None,
    since: str | None,
    limit: int,
    **flags: Any,
) -> None:
    """Show who read and changed what: the newest calls of accounts and of other servers.

    --project is a name as they called it, or an id. Of the owner, whom they let in and what they
    granted is here; what they changed is in `everkept log`. Each server has a log of its own.
    """
    settings = settings_from(**flags)
    folder = settings.data_dir / FOLDER
    written = AccessLog(folder)
    found = accesses(
        written,
        user=None if user is None else _named(user),
        project=project,
        record=record,
        since=moment(since, "--since"),
        most=limit,
    )
    _warn_of_haste(written)
    if as_json:
        shown = [access.as_json() for access in found.calls]
        unsure = {} if record is None else {"may_have_touched": found.unsure}
        print_json({"accesses": shown, "broken_lines": found.broken} | unsure)
        return
    for access in found.calls:
        click.echo(_line(access))
    if found.calls:
        click.echo(f"{counted(len(found.calls), 'call')}.", err=True)
    else:
        click.echo(f"0 calls in {folder}. {WITH_THE_SERVER}", err=True)
    if found.unsure:
        click.echo(f"{counted(found.unsure, 'more call')} {MAY_HAVE}", err=True)
    if found.broken:
        click.echo(f"{counted(found.broken, 'line')} cannot be read and left out.", err=True)


def _named(user: str) -> str:
    folded = user.strip().lower()
    return OWNER if folded == OWNER else checked_account_name(user)


def _warn_of_haste(written: AccessLog) -> None:
    """Whoever makes very many calls would push out the lines of what came before."""
    at = written.cut_off_at()
    if at is not None and now() - at < DAY:
        click.echo(
            f"So much is called that the log goes back to {iso(at)[:19].replace('T', ' ')} alone: "
            "older lines had to make room.",
            err=True,
        )


def _line(access: LoggedAccess) -> str:
    """Whatever a caller made up is shown so that it cannot look like another line."""
    who = f"{access.user} (a server)" if access.is_peer else access.user
    parts = [iso(access.at)[:19].replace("T", " "), who, visible(access.what)]
    parts += [visible(access.about)] if access.about else []
    parts += [f"in {visible(access.project)}"] if access.project else []
    parts += [access.outcome]
    parts += [counted(access.count, "id")] if access.count else []
    parts += [f"from {visible(access.address)}"] if access.address else []
    parts += [f"with {visible(access.client)}"] if access.client else []
    return "  ".join(parts)
