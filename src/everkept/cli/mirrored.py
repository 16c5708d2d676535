"""What commands do about the files of a graph that they change without calling a tool."""

from collections.abc import Sequence
from typing import Any

import click

from everkept.app.app import App
from everkept.app.bank_mirrors import Settled
from everkept.cli.running import command_session

# Nobody but their owner may change these.
MAY_HOLD = (
    "backups of the bank (memory-bank-backup-*, beside it or in the backupDir that was named)",
    "git history",
    "files of the bank that people or assistants wrote",
)


async def met(app: App, projects: Sequence[str]) -> None:
    """Before anything is erased: what stands in the files alone is found, and does not return."""
    if app.mirrors is not None:
        session = await command_session(app)
        for project in projects:
            await app.mirrors.meet(project, session)


async def settled(app: App, projects: Sequence[str]) -> Settled:
    """After every change outside the tools: the files of these projects' graphs follow it."""
    found = Settled()
    if app.mirrors is not None:
        session = await command_session(app)
        for project in dict.fromkeys(projects):
            one = await app.mirrors.settle(project, session)
            found.done.extend(one.done)
            found.left.update(one.left)
    return found


def told_of(files: Settled) -> dict[str, Any]:
    """For JSON, after something was erased; nothing where there is no bank."""
    if not files.done and not files.left:
        return {}
    return {"cleaned": files.done, "not_cleaned": files.left, "may_hold": list(MAY_HOLD)}


def tell_of(files: Settled) -> None:
    """For people, after something was erased."""
    for address in files.done:
        click.echo(f"The graph's files in {address} are without it.")
    for address, reason in files.left.items():
        click.echo(f"Not reached: the graph's files in {address}: {reason}", err=True)
    if files.done or files.left:
        click.echo(f"It may still be in {', '.join(MAY_HOLD[:-1])}, or {MAY_HOLD[-1]}.", err=True)
