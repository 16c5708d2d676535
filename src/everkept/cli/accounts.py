"""`everkept account`, `grant`, `revoke`, `token` and `access-log`: access to a server."""

from contextlib import AbstractContextManager
from typing import Any, cast

import click

from everkept.accounts.access_log import LOG_FOLDER, AccessLog, find_calls, log_owner_command
from everkept.accounts.access_log import LoggedCall as LoggedAccess
from everkept.accounts.accounts import User
from everkept.accounts.grants import AccessLevel, Grant, create_token, map_shown_names, revoke_token
from everkept.accounts.subjects import LinkedSubject, Subjects
from everkept.app.app import App
from everkept.cli.options import CountRange, add_common_options, load_command_settings, parse_typed_time
from everkept.cli.runner import confirm, echo, print_json, run_with_app
from everkept.core.ports import Token
from everkept.core.projects import Project
from everkept.core.sessions import OWNER, validate_account_name
from everkept.core.short_ids import MIN_TYPED_CHARACTERS
from everkept.core.text import format_count
from everkept.core.times import format_iso, format_local, read_clock
from everkept.errors import AmbiguousId, InvalidInput, escape_name


@click.group()
def account() -> None:
    """List, link and remove accounts.

    To create an account, run `everkept token --user NAME`.
    """


@account.command("list")
@add_common_options
def list_accounts(as_json: bool, **flags: Any) -> None:
    """List accounts and the projects that each of them can access."""
    users = run_with_app(_read_users, **flags)
    if as_json:
        print_json({"accounts": users})
        return
    if not users:
        echo("No accounts yet. To create one, run `everkept token --user NAME`.")
    for user in users:
        kind = "another server" if user["peer"] else "user"
        leaving = "; removal not finished" if user["leaving"] else ""
        echo(f"{user['name']}  {kind} since {user['created_at'][:10]}{leaving}")
        if user.get("records"):
            echo(f"  stored {format_count(user['records'], 'record')}, {format_count(user['size'], 'byte')}")
        for linked in user["subjects"]:
            echo(f"  signs in as {linked['subject']} at {linked['issuer']}")
        for granted in user["projects"]:
            known_as = "" if granted["shown_as"] == granted["name"] else f" as {granted['shown_as']}"
            echo(f"  {granted['access']:5}  {granted['name']}{known_as}")


@account.command()
@add_common_options
@click.argument("name")
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def remove(as_json: bool, name: str, yes: bool, **flags: Any) -> None:
    """Remove the account NAME.

    Its tokens, grants and private memories are deleted too. You become the owner of the projects it created.
    """

    async def known(app: App) -> str:
        return (await app.accounts.get_user(name)).name

    user = run_with_app(known, **flags)
    question = f'Permanently remove account "{user}" with its tokens, grants and private memories?'
    if not confirm(question, yes=yes):
        raise click.Abort

    async def work(app: App) -> list[str]:
        own = [g.project_id for g in await app.accounts.list_user_grants(user) if g.access == "own"]
        written = AccessLog(app.settings.data_dir / LOG_FOLDER)
        with log_owner_command(written, app.clock, "account remove", user, ids=own):
            await app.accounts.remove_user(user)
        return [each.name for each in await app.library.list_projects() if each.id in own]

    left = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"removed": user, "projects": left})
        return
    echo(f"Removed {user}.")
    if left:
        echo(f"You now own {', '.join(left)}.")


async def _read_users(app: App) -> list[dict[str, Any]]:
    from everkept.app.overview import measure_account

    projects = await app.library.list_projects()
    subjects = await _build_subjects(app).list()
    shown = {
        user: map_shown_names(await app.accounts.list_user_grants(user.name), projects)
        for user in await app.accounts.list_users()
    }
    return [
        {
            "name": user.name,
            "peer": user.is_peer,
            "created_at": format_iso(user.created_at),
            "leaving": user.is_leaving,
            **({} if user.is_peer else (await measure_account(app.guarded, user.name))._asdict()),
            "subjects": [_build_subject_row(each) for each in subjects if each.user == user.name],
            "projects": [
                {"name": project.name, "shown_as": name, "access": grant.access}
                for name, (grant, project) in granted.items()
            ],
        }
        for user, granted in shown.items()
    ]


_ISSUER_HELP = "OpenID provider of the person. Default: the setting oauth_issuer."


@account.command("link")
@add_common_options
@click.argument("name")
@click.argument("subject")
@click.option("--issuer", metavar="URL", help=_ISSUER_HELP)
def link_subject(as_json: bool, name: str, subject: str, issuer: str | None, **flags: Any) -> None:
    """Give a person at an OpenID provider the account NAME. Takes effect immediately.

    SUBJECT is the `sub` of the person's tokens; the server shows it when it refuses them. The account is created if it
    does not exist.
    """

    async def work(app: App) -> LinkedSubject:
        with _log_subject(app, "account link", validate_account_name(name)):
            return await _build_subjects(app).link(name, _get_issuer(app, issuer), subject)

    linked = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(_build_subject_row(linked))
    else:
        echo(f'"{linked.subject}" of {linked.issuer} now has account "{linked.user}".')


@account.command("unlink")
@add_common_options
@click.argument("subject")
@click.option("--issuer", metavar="URL", help=_ISSUER_HELP)
def unlink_subject(as_json: bool, subject: str, issuer: str | None, **flags: Any) -> None:
    """Take the account from a person at an OpenID provider. Takes effect immediately. The account stays."""

    async def work(app: App) -> LinkedSubject:
        with _log_subject(app, "account unlink", None):
            return await _build_subjects(app).unlink(_get_issuer(app, issuer), subject)

    ended = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(_build_subject_row(ended))
    else:
        echo(f'"{ended.subject}" of {ended.issuer} no longer has account "{ended.user}".')


def _build_subjects(app: App) -> Subjects:
    return Subjects(app.library, app.accounts)


def _get_issuer(app: App, given: str | None) -> str:
    issuer = given or app.settings.oauth_issuer
    if issuer is None:
        raise InvalidInput(
            "The OpenID provider is unknown.", hint="Pass --issuer, or set oauth_issuer in the settings."
        )
    return issuer


def _log_subject(app: App, what: str, user: str | None) -> AbstractContextManager[list[str]]:
    return log_owner_command(AccessLog(app.settings.data_dir / LOG_FOLDER), app.clock, what, user)


def _build_subject_row(linked: LinkedSubject) -> dict[str, str]:
    return {"user": linked.user, "issuer": linked.issuer, "subject": linked.subject}


ACCESS_TEXTS = {"read": "only read", "write": "read and change", "own": "do everything with"}


@click.command()
@add_common_options
@click.argument("name", metavar="PROJECT")
@click.option("--user", required=True, metavar="NAME", help="User to give access to.")
@click.option("--access", type=click.Choice(("read", "write")), default="read", help="Access to give. Default: read.")
def grant(as_json: bool, name: str, user: str, access: str, **flags: Any) -> None:
    """Give a user access to PROJECT. Takes effect immediately.

    To create a user, run `everkept token --user NAME`. To see who has access, run `everkept account list`.
    """

    async def work(app: App) -> Grant:
        project = await app.accounts.look_up(app.library.get_project(name))
        whose = (await app.accounts.get_user(user)).name
        with _log_grant(app, f"grant {access}", whose, project):
            return await app.accounts.grant(whose, project, cast(AccessLevel, access))

    granted = run_with_app(work, writes=True, **flags)
    if as_json:
        row = {"user": granted.user, "project": name, "access": granted.access}
        print_json(row | {"shown_as": granted.name})
    else:
        known_as = "" if granted.name == name else f', as "{granted.name}"'
        echo(f'{granted.user} can now {ACCESS_TEXTS[granted.access]} "{name}"{known_as}.')


@click.command()
@add_common_options
@click.argument("name", metavar="PROJECT")
@click.option("--user", required=True, metavar="NAME", help="User who loses access.")
def revoke(as_json: bool, name: str, user: str, **flags: Any) -> None:
    """Remove a user's access to PROJECT. Takes effect immediately. What the user has written in it stays."""

    async def work(app: App) -> str:
        project = await app.accounts.look_up(app.library.get_project(name))
        whose = (await app.accounts.get_user(user)).name
        with _log_grant(app, "revoke", whose, project):
            return await app.accounts.revoke(whose, project)

    hidden_from = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"user": hidden_from, "project": name, "access": None})
    else:
        echo(f'{hidden_from} can no longer access "{name}".')


def _log_grant(app: App, what: str, user: str, project: Project) -> AbstractContextManager[list[str]]:
    written = AccessLog(app.settings.data_dir / LOG_FOLDER)
    return log_owner_command(written, app.clock, what, user, project=project)


@click.group(invoke_without_command=True)
@add_common_options
@click.option("--label", default="", help="Label that describes the token.")
@click.option("--user", metavar="NAME", help="Account the token belongs to. Created if it does not exist.")
@click.option("--peer", metavar="NAME", help="Peer server the token belongs to. It can read what you grant it.")
@click.pass_context
def token(context: click.Context, as_json: bool, label: str, user: str | None, peer: str | None, **flags: Any) -> None:
    """Create an HTTP token and print it once.

    Clients send it as `Authorization: Bearer TOKEN`. A token without --user has full access. A token with --user can
    access only that user's memories and the projects granted to them.
    """
    context.obj = flags
    if user is not None and peer is not None:
        raise InvalidInput("A token belongs to a user or to a peer, not to both.", hint="Pass --user or --peer.")
    whose = peer if user is None else user  # an empty name is a mistake
    if context.invoked_subcommand is not None and whose is not None:
        raise InvalidInput("--user and --peer are only for a new token.", hint="Omit them.")
    if context.invoked_subcommand is None:
        _create_token(label, whose, is_peer=peer is not None, as_json=as_json, **flags)


@token.command("list")
@add_common_options
@click.pass_context
def list_tokens(context: click.Context, as_json: bool, **flags: Any) -> None:
    """List tokens: ids and labels, never the secrets."""

    async def work(app: App) -> tuple[list[Token], dict[str, User]]:
        return await app.library.list_tokens(), await app.accounts.map_token_users()

    found, users = run_with_app(work, **_merge_flags(context, flags))
    tokens = [_build_row(item, users.get(item.id)) for item in found]
    if as_json:
        print_json({"tokens": tokens})
        return
    if not tokens:
        echo("No tokens yet. To create one, run `everkept token`.")
    width = max((len(_format_owner(row)) for row in tokens), default=0)
    for row in tokens:
        columns = (row["id"], row["created_at"][:10], _format_owner(row).ljust(width), row["label"])
        echo("  ".join(columns).rstrip())


@token.command("revoke")
@add_common_options
@click.argument("token_id", metavar="ID")
@click.pass_context
def end_token(context: click.Context, as_json: bool, token_id: str, **flags: Any) -> None:
    """Revoke the token with this ID. Takes effect immediately."""

    async def work(app: App) -> str:
        whole = await _find_token(app, token_id)
        owner = (await app.accounts.map_token_users()).get(whole)
        with _log_token(app, "token revoke", owner and owner.name, whole):
            await revoke_token(app.library, whole)
        return whole

    revoked = run_with_app(work, writes=True, **_merge_flags(context, flags))
    if as_json:
        print_json({"revoked": revoked})
    else:
        echo(f"Revoked {revoked}.")


async def _find_token(app: App, typed: str) -> str:
    """Return the id that begins so, or the text itself. Raise AmbiguousId."""
    titles = {each.id: each.label for each in await app.library.list_tokens()}
    found = {each: title for each, title in titles.items() if each.startswith(typed)}
    if typed in titles or len(typed) < MIN_TYPED_CHARACTERS:
        return typed
    if len(found) > 1:
        raise AmbiguousId("token", typed, found)
    return next(iter(found), typed)


def _create_token(label: str, user: str | None, *, is_peer: bool, as_json: bool, **flags: Any) -> None:
    async def work(app: App) -> tuple[Token, str, User | None]:
        name = None if user is None else validate_account_name(user)
        with _log_token(app, "token", name) as ids:
            if name is None:
                made, secret = await create_token(app.library, label, app.clock)
            else:
                made, secret = await app.accounts.create_token(name, label, peer=is_peer)
            ids.append(made.id)
        return made, secret, None if name is None else await app.accounts.get_user(name)

    made, secret, owner = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(_build_row(made, owner) | {"token": secret})
        return
    # Print only the secret on stdout, for scripts.
    echo(secret)
    whose = "the owner (full access)" if owner is None else owner.name
    echo(
        f"This token is for {whose} and is shown only once. Send it as `Authorization: Bearer {secret[:8]}...`. "
        f"To revoke it, run `everkept token revoke {made.id}`.",
        err=True,
    )


def _log_token(app: App, what: str, about: str | None, *ids: str) -> AbstractContextManager[list[str]]:
    written = AccessLog(app.settings.data_dir / LOG_FOLDER)
    return log_owner_command(written, app.clock, what, about, ids=ids)


def _format_owner(row: dict[str, str]) -> str:
    return row.get("user") or (f"{row['peer']} (peer)" if "peer" in row else f"({OWNER})")


def _build_row(item: Token, owner: User | None) -> dict[str, str]:
    row = {"id": item.id, "label": item.label, "created_at": format_iso(item.created_at)}
    return row if owner is None else row | {"peer" if owner.is_peer else "user": owner.name}


def _merge_flags(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Merge the options given before the subcommand and after it."""
    given = {name: value for name, value in flags.items() if value is not None}
    return {**context.obj, **given}


MAX_CALLS = 100_000
SERVER_LOG_HINT = "Each server has its own log. Pass the server's data folder with --data-dir."
UNSURE_NOTE = "may have touched it: the line does not list all ids, or the call did not end."
DAY_MICROSECONDS = 86_400 * 1_000_000


@click.command("access-log")
@add_common_options
@click.option("--user", metavar="NAME", help="Only calls of this user. `owner` is you.")
@click.option("--id", "record", metavar="ID", help="Only calls that touched this record.")
@click.option("--since", metavar="TIME", help="Only calls from this time on, such as `yesterday`.")
@click.option("--limit", type=CountRange(1, MAX_CALLS), default=100, show_default=True)
def access_log(
    as_json: bool,
    project: str | None,
    user: str | None,
    record: str | None,
    since: str | None,
    limit: int,
    **flags: Any,
) -> None:
    """Show who read or changed what.

    Lists the latest calls of accounts and peers. For the owner, it lists grants, tokens and removals; other changes of
    the owner are in `everkept log`. --project is an id, or a name as the account knows it. Each server has its own log.
    """
    settings = load_command_settings(**flags)
    folder = settings.data_dir / LOG_FOLDER
    written = AccessLog(folder)
    found = find_calls(
        written,
        user=None if user is None else _normalize_user(user),
        project=project,
        record=record,
        since=parse_typed_time(since, "--since"),
        most=limit,
    )
    _warn_if_truncated(written, None if user is None else _normalize_user(user))
    if as_json:
        shown = [access.as_json() for access in found.calls]
        unsure = {} if record is None else {"may_have_touched": found.unsure}
        print_json({"accesses": shown, "broken_lines": found.broken} | unsure)
        return
    for access in found.calls:
        echo(_format_access(access))
    if found.calls:
        echo(f"{format_count(len(found.calls), 'call')}.", err=True)
    else:
        echo(f"0 calls in {folder}. {SERVER_LOG_HINT}", err=True)
    if found.unsure:
        echo(f"{format_count(found.unsure, 'more call')} {UNSURE_NOTE}", err=True)
    if found.broken:
        echo(f"{format_count(found.broken, 'line')} skipped because they cannot be read.", err=True)


def _normalize_user(user: str) -> str:
    folded = user.strip().lower()
    return OWNER if folded == OWNER else validate_account_name(user)


def _warn_if_truncated(written: AccessLog, user: str | None) -> None:
    """Warn if lines of the last day are deleted. Many calls of an account delete only its own older lines."""
    at = written.find_cutoff(user)
    if at is not None and read_clock() - at < DAY_MICROSECONDS:
        since = format_local(at, "seconds")
        echo(f"Older lines of an account were deleted to limit the log. It is complete since {since}.", err=True)


def _format_access(access: LoggedAccess) -> str:
    """Format an access so that text from a caller cannot look like another line."""
    who = f"{access.user} (a server)" if access.is_peer else access.user
    parts = [format_local(access.at, "seconds"), who, escape_name(access.what)]
    parts += [escape_name(access.about)] if access.about else []
    parts += [f"in {escape_name(access.project)}"] if access.project else []
    parts += [access.outcome]
    parts += [f"and {access.more:,} more like this"] if access.more else []
    parts += [format_count(access.count, "id")] if access.count else []
    parts += [f"from {escape_name(access.address)}"] if access.address else []
    parts += [f"with {escape_name(access.client)}"] if access.client else []
    return "  ".join(parts)
