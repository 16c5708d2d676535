"""`everkept forget`: one memory, or those that hooks have stored by themselves."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.moments import moment
from everkept.cli.options import common
from everkept.cli.runner import command_session, confirmed, print_json, run_with_app
from everkept.core.records import Record, Where
from everkept.core.text import clipped, counted
from everkept.errors import InvalidInput

SHOWN = 3  # memories that a question names


@click.command()
@common
@click.argument("memory_id", required=False)
@click.option("--reason", help="Kept with it.")
@click.option("--automatic", is_flag=True, help="All that hooks have stored by themselves.")
@click.option("--before", metavar="TIME", help="Of these, those from before 2026-03-01, …")
@click.option("--session", metavar="ID", help="Of these, those of one session.")
@click.option("--all-projects", is_flag=True, help="Of these, those of every project.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(
    as_json: bool,
    memory_id: str | None,
    reason: str | None,
    automatic: bool,
    before: str | None,
    session: str | None,
    all_projects: bool,
    yes: bool,
    **flags: Any,
) -> None:
    """Forget a memory. `everkept undo` takes it back; `everkept purge` removes it for good.

    With --automatic forget all that hooks have stored by themselves in the project and among your
    own, but pinned ones; with --all-projects too, in every project that is not off.
    """
    if automatic:
        _check_alone({"MEMORY_ID": memory_id, "--reason": reason})
        meant = _meant(before, session)
        _forget_automatic(meant, everywhere=all_projects, as_json=as_json, yes=yes, **flags)
    elif memory_id is None or before or session or all_projects:
        raise InvalidInput(
            "It is not said which memories are meant.",
            hint="Give a MEMORY_ID, or --automatic, with --before TIME, --session ID or "
            "--all-projects.",
            argument="memory_id",
        )
    else:
        _forget_one(memory_id, reason, as_json=as_json, **flags)


def _forget_one(memory_id: str, reason: str | None, *, as_json: bool, **flags: Any) -> None:
    arguments = {"memory_id": memory_id} | ({"reason": reason} if reason else {})

    async def work(app: App) -> dict[str, Any]:
        called = await app.call(await command_session(app), "forget_memory", arguments)
        return called.structured

    gone = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json(gone)
    else:
        click.echo(f"Forgotten: {gone['memory_id']}")


def _meant(before: str | None, session_id: str | None) -> Where:
    until = moment(before, "before")
    return Where(
        before=None if until is None else until - 1,
        sessions=None if session_id is None else (session_id,),
    )


def _forget_automatic(
    where: Where, *, everywhere: bool, as_json: bool, yes: bool, **flags: Any
) -> None:
    async def work(app: App) -> tuple[str, dict[str, int] | None]:
        session = await command_session(app)
        found = await app.shelf.automatic(session, where, everywhere=everywhere)
        if not found:
            project = await app.shelf.project(session)
            return project.name if project else "this folder", {}
        if not _agreed(_question(found), yes=yes):
            return "", None
        return "", await app.shelf.forget_automatic(session, found, everywhere=everywhere)

    project, gone = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"forgotten": sum((gone or {}).values())})
    elif gone:
        is_plain = len(gone) == 1 and not everywhere and flags.get("project") is None
        click.echo(_told(gone, is_plain=is_plain))
    elif gone is None:
        click.echo("Nothing was forgotten.")
    else:
        place = "any project" if everywhere else f"{project} or among your own"
        click.echo(f"No automatic memory in {place} fits; nothing was forgotten.")


def _question(found: Mapping[str, Sequence[Record]]) -> str:
    texts = [clipped(record.text, 60) for records in found.values() for record in records]
    more = "; …" if len(texts) > SHOWN else ""
    counts = {name: len(records) for name, records in found.items()}
    return f"Forget {_counted(counts)} ({'; '.join(texts[-SHOWN:])}{more})?"


def _counted(counts: Mapping[str, int]) -> str:
    """`3 automatic memories of shop`, or how many of which place."""
    many = counted(sum(counts.values()), "automatic memory", "automatic memories")
    if len(counts) == 1:
        return f"{many} of {next(iter(counts))}"
    places = [f"{count:,} of {name}" for name, count in counts.items()]
    return f"{many}, {', '.join(places[:-1])} and {places[-1]}"


def _told(gone: Mapping[str, int], *, is_plain: bool) -> str:
    """With the way back: each place has a change of its own, which a plain undo may not mean."""
    if is_plain:
        return f"Forgot {_counted(gone)}. `everkept undo` takes it back."
    if len(gone) == 1:
        back = f'`everkept undo --project "{next(iter(gone))}"` takes it back'
    else:
        back = "`everkept undo --project NAME` takes back those of one"
    return f"Forgot {_counted(gone)}. {back}."


def _agreed(question: str, *, yes: bool) -> bool:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Say --yes where nobody can be asked.")
    return confirmed(question, yes=yes)


def _check_alone(given: Mapping[str, str | None]) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"--automatic means many memories, and {name} one.",
                hint="Leave one of the two out.",
                argument=name,
                value=value,
            )
