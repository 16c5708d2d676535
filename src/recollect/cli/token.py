"""`recollect token`: the keys to a server that speaks HTTP."""

from typing import Any

import click

from recollect.app.app import App
from recollect.app.tokens import create_token, revoke_token
from recollect.cli.options import common
from recollect.cli.running import print_json, run_with_app
from recollect.core.ports import Token
from recollect.core.times import iso


@click.group(invoke_without_command=True)
@common
@click.option("--label", default="", help="What the token is for.")
@click.pass_context
def token(context: click.Context, as_json: bool, label: str, **flags: Any) -> None:
    """Make a token for HTTP and print it, once; `list` and `revoke` manage the rest.

    A client sends it as `Authorization: Bearer TOKEN`.
    """
    context.obj = flags
    if context.invoked_subcommand is None:
        _make(label, as_json=as_json, **flags)


@token.command("list")
@common
@click.pass_context
def list_(context: click.Context, as_json: bool, **flags: Any) -> None:
    """List tokens: ids and labels, never the secrets."""

    async def work(app: App) -> list[Token]:
        return await app.library.tokens()

    tokens = [_row(item) for item in run_with_app(work, **_merged(context, flags))]
    if as_json:
        print_json({"tokens": tokens})
        return
    if not tokens:
        click.echo("No tokens. `recollect token` makes one.")
    for row in tokens:
        click.echo(f"{row['id']}  {row['created_at'][:10]}  {row['label']}".rstrip())


@token.command()
@common
@click.argument("token_id", metavar="ID")
@click.pass_context
def revoke(context: click.Context, as_json: bool, token_id: str, **flags: Any) -> None:
    """Revoke the token with this ID, at once."""
    run_with_app(
        lambda app: revoke_token(app.library, token_id), writes=True, **_merged(context, flags)
    )
    if as_json:
        print_json({"revoked": token_id})
    else:
        click.echo(f"Revoked {token_id}.")


def _make(label: str, *, as_json: bool, **flags: Any) -> None:
    made, secret = run_with_app(
        lambda app: create_token(app.library, label, app.clock), writes=True, **flags
    )
    if as_json:
        print_json(_row(made) | {"token": secret})
        return
    # The secret alone on stdout, so that a script can take it from there.
    click.echo(secret)
    click.echo(
        f"This is shown once. Clients send `Authorization: Bearer {secret[:8]}...`; "
        f"`recollect token revoke {made.id}` ends it.",
        err=True,
    )


def _row(item: Token) -> dict[str, str]:
    return {"id": item.id, "label": item.label, "created_at": iso(item.created_at)}


def _merged(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Options count wherever they stand: before the subcommand or after it."""
    given = {name: value for name, value in flags.items() if value is not None}
    return {**context.obj, **given}
