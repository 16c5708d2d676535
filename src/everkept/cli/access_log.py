"""`everkept access-log`: who read and changed what over HTTP."""

from typing import Any

import click

from everkept.app.access_log import FOLDER, Access, AccessLog, accesses
from everkept.cli.moments import moment
from everkept.cli.options import Count, common, settings_from
from everkept.cli.running import print_json
from everkept.core.accounts import OWNER, checked_account_name
from everkept.core.text import counted
from everkept.core.times import iso, now
from everkept.errors import visible

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


def _line(access: Access) -> str:
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
