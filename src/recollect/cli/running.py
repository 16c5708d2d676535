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

SELECTED_PROJECT = "cli.project"  # the note that `recollect switch-project` leaves


def run_with_app(work: Callable[[App], Awaitable[T]], *, writes: bool = False, **flags: Any) -> T:
    """Opens the application as the flags say, does the work, closes it again."""

    async def run() -> T:
        settings = settings_from(**flags)
        if writes and settings.read_only:
            raise ReadOnly("This command writes, and only reading is allowed here.")
        app = App(settings)
        try:
            return await work(app)
        finally:
            await app.close()

    return asyncio.run(run())


async def command_session(app: App) -> Session:
    """Commands share one choice of project, kept between them; `--project` goes before it."""
    chosen = None if app.settings.project else await app.library.note(SELECTED_PROJECT)
    return Session(client="command line", project=chosen, is_conversation=False)


async def keep_selection(app: App, session: Session, before: str | None) -> None:
    if session.project != before:
        await app.library.set_note(SELECTED_PROJECT, session.project)


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
