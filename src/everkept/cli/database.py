"""`everkept migrate` and `journal`: everything copied into another engine, and pending writes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from everkept.app.engines import empty_library, make_library, name_of, settings_of, standby_of
from everkept.care.database_server import Waiting, discard, retry, retry_all, waiting
from everkept.cli.options import common, settings_from
from everkept.cli.runner import bar, confirmed, harmless, print_json, told_if_interrupted
from everkept.core.text import counted
from everkept.core.times import now
from everkept.errors import InvalidInput, ReadOnly, Refused
from everkept.exchange.migration import End, Migrated
from everkept.exchange.migration import migrate as copy_all
from everkept.settings import Settings, is_server, standby_folder
from everkept.tools.schema import to_json

FORMS = "sqlite:FOLDER, surreal:FOLDER, ws://HOST:PORT or postgresql://HOST/DATABASE"


@click.command()
@common
@click.option("--from", "source", metavar="PLACE", help="Default: where everything is kept now.")
@click.option("--to", "target", metavar="PLACE", required=True, help=f"{FORMS}; an empty one.")
def migrate(
    as_json: bool, source: str | None, target: str, project: str | None, **flags: Any
) -> None:
    """Copy all that is remembered into another engine, and compare the two.

    Projects, records, links, the log, vectors and tokens are copied as they are; what is there
    already of an attempt that was interrupted is not copied again. The source is only read. At
    the end both are compared, record by record. Settings stay as they are: `everkept config`
    shows where they come from.
    """
    if project is not None:
        raise InvalidInput(
            "All projects are copied together.",
            hint="Leave --project out; `everkept export --project` writes one of them.",
            argument="--project",
            value=project,
        )
    settings = settings_from(**flags)
    origin = settings if source is None else settings_of(source, flags, named_by="--from")
    ends = origin, settings_of(target, flags)
    _check(*ends)
    left = "The same command again goes on where this one stopped."
    with told_if_interrupted(lambda: left):
        outcome = asyncio.run(_run(*ends))
    print_json(to_json(outcome)) if as_json else _show_migrated(outcome)


def _check(source: Settings, target: Settings) -> None:
    """Mistakes are told before anything is reached or made."""
    if target.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    if name_of(source) == name_of(target) or _is_one_server(source, target):
        raise InvalidInput(
            f"Both ends are {name_of(source)}.",
            hint="Name another place with --to.",
            argument="--to",
        )
    if source.deployment_mode == "embedded-memory":
        raise Refused(
            "What is kept in memory is another program's, or nobody's.",
            hint="--from names a place to copy from.",
        )
    if empty_library(source):
        raise InvalidInput(
            f"Nothing is stored in {name_of(source)}.",
            hint="--from names a place to copy from.",
            argument="--from",
            value=name_of(source),
        )


def _is_one_server(source: Settings, target: Settings) -> bool:
    """However its address is written."""
    both = source, target
    return all(map(is_server, both)) and standby_folder(source) == standby_folder(target)


async def _run(source: Settings, target: Settings) -> Migrated:
    from everkept.embedders.onnx import OnnxEmbedder

    for settings in (source, target):
        await _expect_nothing_waits(settings)
    first = make_library(source, now, standing_by=False, founds=False)
    second = make_library(target, now, standing_by=False)
    try:
        with bar("Copying") as progress:
            return await copy_all(
                End(first, name_of(source)),
                End(second, name_of(target)),
                OnnxEmbedder.name,
                progress,
            )
    finally:
        await first.close()
        await second.close()


async def _expect_nothing_waits(settings: Settings) -> None:
    """What is kept on this machine for an end of it would be missing there."""
    standby = standby_of(settings)
    waiting, aside = await standby.counts() if standby else (0, 0)
    if waiting:
        raise Refused(
            f"Writes for {name_of(settings)} still wait on this machine: {waiting:,}.",
            hint="A server, or `everkept status`, brings them over once it can be reached.",
        )
    if aside:
        raise Refused(
            f"Writes for {name_of(settings)} are set aside on this machine: {aside:,}.",
            hint="`everkept journal` shows them, and lets you decide.",
        )


def _show_migrated(outcome: Migrated) -> None:
    for each in outcome.stores:
        parts = [
            counted(each.records, "record"),
            counted(each.links, "link"),
            counted(each.log_entries, "log entry", "log entries"),
            counted(each.vectors, "vector"),
        ]
        click.echo(f"  {each.store}: {', '.join(parts)}, sha256 {each.sha256[:16]}")
    click.echo(
        f"Copied {counted(outcome.projects, 'project')} from {outcome.source} to "
        f"{outcome.target}; both are the same."
    )


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
        print_json({"writes": to_json(found)}) if as_json else _show_writes(found)


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


def _show_writes(found: list[Waiting]) -> None:
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
