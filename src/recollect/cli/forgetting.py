"""`recollect forget`: one memory, or those that hooks have stored by themselves."""

import sys
from typing import Any

import click

from recollect.app.app import App
from recollect.cli.moments import moment
from recollect.cli.options import common
from recollect.cli.running import command_session, confirmed, print_json, run_with_app
from recollect.core.records import Where
from recollect.core.text import clipped, counted
from recollect.errors import InvalidInput

SHOWN = 3  # memories that a question names


@click.command()
@common
@click.argument("memory_id", required=False)
@click.option("--reason", help="Kept with it.")
@click.option("--automatic", is_flag=True, help="All that hooks have stored by themselves.")
@click.option("--before", metavar="TIME", help="Of these, those from before 2026-03-01, …")
@click.option("--session", metavar="ID", help="Of these, those of one session.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(
    as_json: bool,
    memory_id: str | None,
    reason: str | None,
    automatic: bool,
    before: str | None,
    session: str | None,
    yes: bool,
    **flags: Any,
) -> None:
    """Forget a memory. `recollect undo` takes it back; `recollect purge` removes it for good.

    With --automatic forget all that hooks have stored by themselves, but pinned ones.
    """
    if automatic:
        _check_alone(memory_id=memory_id, reason=reason)
        _forget_automatic(before, session, as_json=as_json, yes=yes, **flags)
    elif memory_id is None or before or session:
        raise InvalidInput(
            "It is not said which memories are meant.",
            hint="Give a MEMORY_ID, or --automatic with --before TIME or --session ID.",
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


def _forget_automatic(
    before: str | None, session_id: str | None, *, as_json: bool, yes: bool, **flags: Any
) -> None:
    until = moment(before, "before")
    where = Where(
        before=None if until is None else until - 1,
        sessions=None if session_id is None else (session_id,),
    )

    async def work(app: App) -> int | None:
        session = await command_session(app)
        found = await app.shelf.automatic(session, where)
        if not found:
            return 0
        named = "; ".join(clipped(record.text, 60) for record in found[-SHOWN:])
        more = "; …" if len(found) > SHOWN else ""
        counted_ones = counted(len(found), "automatic memory", "automatic memories")
        if not _agreed(f"Forget {counted_ones} ({named}{more})?", yes=yes):
            return None
        return await app.shelf.forget(session, [record.id for record in found])

    gone = run_with_app(work, writes=True, **flags)
    if as_json:
        print_json({"forgotten": gone or 0})
    elif gone:
        counted_ones = counted(gone, "automatic memory", "automatic memories")
        click.echo(f"Forgot {counted_ones}. `recollect undo` takes it back.")
    else:
        nothing = "No automatic memory fits; n" if gone == 0 else "N"
        click.echo(f"{nothing}othing was forgotten.")


def _agreed(question: str, *, yes: bool) -> bool:
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("Say --yes where nobody can be asked.")
    return confirmed(question, yes=yes)


def _check_alone(**given: str | None) -> None:
    for name, value in given.items():
        if value is not None:
            raise InvalidInput(
                f"--automatic means many memories, and `{name}` one.",
                hint="Leave one of the two out.",
                argument=name,
                value=value,
            )
