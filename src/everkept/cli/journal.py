"""`everkept journal`: what waits for a database that was away."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from everkept.care.database_server import Waiting, discard, retry, retry_all, waiting
from everkept.cli.options import common, settings_from
from everkept.cli.runner import confirmed, harmless, print_json
from everkept.core.text import counted
from everkept.errors import InvalidInput, ReadOnly
from everkept.settings import Settings
from everkept.tools.schema import to_json

ALL = "all"


@click.command()
@common
@click.option(
    "--retry",
    "again",
    metavar="NUMBER|all",
    help="Try one again, as the last, or all in their order.",
)
@click.option(
    "--discard",
    "given_up",
    metavar="NUMBER|all",
    help="Give one up for good, or all that are set aside.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def journal(
    as_json: bool,
    again: str | None,
    given_up: str | None,
    yes: bool,
    project: str | None,
    **flags: Any,
) -> None:
    """Show the writes that wait on this machine, and those the database would not take.

    A write waits while the database is away, and is brought over when it is back. What cannot be
    made then, because something it is about is gone, whoever wrote it may not write there any more,
    or the database refuses it, is set aside until you decide. Of what an account wrote the text is
    not shown.
    """
    if project is not None:
        raise InvalidInput(
            "There is one journal for all projects.",
            hint="Leave --project out.",
            argument="--project",
            value=project,
        )
    if again is not None and given_up is not None:
        raise InvalidInput("Either --retry or --discard, not both.", argument="--retry")
    settings = settings_from(**flags)
    if settings.read_only and (again is not None or given_up is not None):
        raise ReadOnly("This command writes, and only reading is allowed here.")
    if again is not None:
        _try_again(settings, again, as_json=as_json)
    elif given_up is not None:
        _give_up(settings, given_up, as_json=as_json, yes=yes)
    else:
        found = asyncio.run(waiting(settings))
        print_json({"writes": to_json(found)}) if as_json else _show(found)


def _try_again(settings: Settings, again: str, *, as_json: bool) -> None:
    if again != ALL:
        _try_one_again(settings, _number(again, "--retry"), as_json=as_json)
        return
    moved = asyncio.run(retry_all(settings))
    if as_json:
        print_json({"writes": [{"write": old, "waits_as": new} for old, new in moved.items()]})
    else:
        verb = "waits" if len(moved) == 1 else "wait"
        click.echo(f"{counted(len(moved), 'write')} {verb} again.")


def _try_one_again(settings: Settings, number: int, *, as_json: bool) -> None:
    new = asyncio.run(retry(settings, number))
    told = f"Write {number} waits again, as number {new}."
    print_json({"write": number, "waits_as": new}) if as_json else click.echo(told)


def _number(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            f'"{text}" is no number of a write.',
            hint=f"Give a number that `everkept journal` shows, or {ALL}.",
            argument=flag,
            value=text,
        ) from None


def _give_up(settings: Settings, given_up: str, *, as_json: bool, yes: bool) -> None:
    aside = {each.number: each for each in asyncio.run(waiting(settings)) if each.reason}
    if given_up != ALL:
        _give_one_up(settings, _number(given_up, "--discard"), aside, as_json=as_json, yes=yes)
        return
    writes = counted(len(aside), "write")
    is_wanted = not aside or confirmed(f"Give up {writes} for good?", yes=yes)
    numbers = list(aside) if is_wanted else []
    for number in numbers:
        asyncio.run(discard(settings, number))
    if as_json:
        print_json({"discarded": numbers})
    else:
        click.echo(f"{writes} given up." if is_wanted else f"{writes} kept.")


def _give_one_up(
    settings: Settings, number: int, aside: Mapping[int, Waiting], *, as_json: bool, yes: bool
) -> None:
    """Shows what it is to whoever is asked."""
    if number in aside and not yes:
        click.echo(harmless(_line(aside[number])), err=True)
    is_wanted = number not in aside or confirmed(f"Give up write {number} for good?", yes=yes)
    if is_wanted:
        asyncio.run(discard(settings, number))
    if as_json:
        print_json({"write": number, "discarded": is_wanted})
    else:
        click.echo(f"Write {number} is given up." if is_wanted else f"Write {number} is kept.")


def _show(found: list[Waiting]) -> None:
    for each in found:
        click.echo(harmless(_line(each)))
        if each.reason:
            click.echo(harmless(f"        set aside {each.set_aside_at}: {each.reason}"))
    aside = sum(each.reason is not None for each in found)
    click.echo(f"{counted(len(found) - aside, 'write')} waiting, {aside:,} set aside.")
    if aside:
        click.echo(
            "`everkept journal --retry NUMBER|all` or `--discard NUMBER|all` decides.", err=True
        )


def _line(each: Waiting) -> str:
    where = f" in {each.store}" if each.store else ""
    where += f" by {each.account}" if each.account else ""
    said = f": {each.content}" if each.content else ""
    return f"{each.number:>6}  {each.at or ''}  {each.what}{where}{said}"
