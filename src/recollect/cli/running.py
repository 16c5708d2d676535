"""Running one command: an application for as long as it takes, and its outcome on the terminal."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import click

from recollect.app.app import App
from recollect.cli.options import settings_from
from recollect.core.sessions import Session
from recollect.errors import ReadOnly, RecollectError, Unavailable

T = TypeVar("T")

# A command is on this machine, however assistants are served.
EVERY_TOOL = {"toolsets": "all", "bank_extras": True, "mode_tools": False, "transport": "stdio"}

# What commands choose, kept in a note each for those that follow: `recollect switch-project`
# leaves the first, and what is chosen of a memory bank counts in the same working folder.
SELECTED_PROJECT = "cli.project"
SELECTIONS = {"bank": "cli.bank", "mode": "cli.mode", "updates_bank": "cli.updates_bank"}


def run_with_app(work: Callable[[App], Awaitable[T]], *, writes: bool = False, **flags: Any) -> T:
    """Opens the application as the flags say, does the work, closes it again."""

    async def run() -> T:
        # A command reaches every tool; which ones assistants are offered is another question.
        settings = settings_from(**{**flags, **EVERY_TOOL})
        if writes and settings.read_only:
            raise ReadOnly("This command writes, and only reading is allowed here.")
        app = App(settings)
        try:
            return await work(app)
        finally:
            await app.close()

    return asyncio.run(run())


async def command_session(app: App, *, keeps_bank: bool = True) -> Session:
    """Commands share one choice of project, kept between them; `--project` goes before it.

    So does a bank that the command names itself: then it is not `keeps_bank`.
    """
    chosen = None if app.settings.project else await app.library.note(SELECTED_PROJECT)
    notes = {name: await app.library.note(_key(app, name)) for name in SELECTIONS}
    return Session(
        client="command line",
        project=chosen,
        is_conversation=False,
        bank=notes["bank"] if keeps_bank else None,
        mode=notes["mode"],
        updates_bank=bool(notes["updates_bank"]),
    )


async def keep_selection(app: App, session: Session, before: Session) -> None:
    """What a command chose, for the next one."""
    if session.project != before.project:
        await app.library.set_note(SELECTED_PROJECT, session.project)
    for name in SELECTIONS:
        chosen = getattr(session, name)
        if chosen != getattr(before, name):
            await app.library.set_note(_key(app, name), str(chosen) if chosen else None)


def _key(app: App, name: str) -> str:
    return f"{SELECTIONS[name]} {app.settings.path}"


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def report(error: RecollectError, *, as_json: bool = False) -> int:
    """Prints an error and gives the exit status: 2 for a caller's mistake, 1 for anything else."""
    if as_json:
        print_json(error.envelope())
    click.echo(f"recollect: {error.message}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    candidates: list[dict[str, str]] = error.facts.get("candidates", [])
    for candidate in candidates:
        click.echo(f"  - {candidate['use']}  {candidate['id']}", err=True)
    return 1 if isinstance(error, Unavailable) else 2


def confirmed(question: str, *, yes: bool) -> bool:
    """Asks a person; a program has to say --yes."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError("This removes data for good: say --yes where nobody can be asked.")
    return click.confirm(question, err=True)
