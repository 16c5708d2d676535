"""`everkept migrate` and `journal`: everything copied into another engine, and pending writes."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click

from everkept.app.build import build_embedder
from everkept.app.engines import build_empty_library, find_standby, format_place, load_address_settings, make_library
from everkept.care.database_server import (
    JournalWrite,
    discard_write,
    list_journal_writes,
    retry_all_writes,
    retry_write,
)
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.runner import confirm, print_json, replace_controls, report_interruption, show_progress
from everkept.core.ports import Library
from everkept.core.text import format_count
from everkept.core.times import read_clock
from everkept.errors import InvalidInput, ReadOnly, Refused
from everkept.exchange.migration import MigrationEnd, MigrationResult
from everkept.exchange.migration import migrate_library as copy_all
from everkept.jobs.model_claim import FIRST_MODEL, read_models
from everkept.settings import Settings, get_standby_folder, is_on_server
from everkept.tools.schema import to_json

PLACE_FORMS = "sqlite:FOLDER, surreal:FOLDER, ws://HOST:PORT or postgresql://HOST/DATABASE"


@click.command()
@add_common_options
@click.option("--from", "source", metavar="PLACE", help="Default: where everything is kept now.")
@click.option("--to", "target", metavar="PLACE", required=True, help=f"{PLACE_FORMS}; an empty one.")
def migrate(as_json: bool, source: str | None, target: str, project: str | None, **flags: Any) -> None:
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
    settings = load_command_settings(**flags)
    origin = settings if source is None else load_address_settings(source, flags, named_by="--from")
    ends = origin, load_address_settings(target, flags)
    _check_ends(*ends)
    left = "The same command again goes on where this one stopped."
    with report_interruption(lambda: left):
        outcome = asyncio.run(_run_migration(*ends))
    print_json(to_json(outcome)) if as_json else _print_migration(outcome)


def _check_ends(source: Settings, target: Settings) -> None:
    """Mistakes are told before anything is reached or made."""
    if target.read_only:
        raise ReadOnly("This command writes, and only reading is allowed here.")
    if format_place(source) == format_place(target) or _is_one_server(source, target):
        raise InvalidInput(
            f"Both ends are {format_place(source)}.", hint="Name another place with --to.", argument="--to"
        )
    if source.deployment_mode == "embedded-memory":
        raise Refused(
            "What is kept in memory is another program's, or nobody's.", hint="--from names a place to copy from."
        )
    if build_empty_library(source):
        raise InvalidInput(
            f"Nothing is stored in {format_place(source)}.",
            hint="--from names a place to copy from.",
            argument="--from",
            value=format_place(source),
        )


def _is_one_server(source: Settings, target: Settings) -> bool:
    """However its address is written."""
    both = source, target
    return all(map(is_on_server, both)) and get_standby_folder(source) == get_standby_folder(target)


async def _run_migration(source: Settings, target: Settings) -> MigrationResult:
    for settings in (source, target):
        await _require_empty_journal(settings)
    first = make_library(source, read_clock, standing_by=False, founds=False)
    second = make_library(target, read_clock, standing_by=False)
    try:
        with show_progress("Copying") as progress:
            return await copy_all(
                MigrationEnd(first, format_place(source)),
                MigrationEnd(second, format_place(target)),
                await _read_model(source, first),
                progress,
            )
    finally:
        await first.close()
        await second.close()


async def _read_model(source: Settings, library: Library) -> str:
    """Return the model whose vectors are copied. Other texts are embedded again."""
    embedder = build_embedder(source)
    return (await read_models(library)).current or (embedder.name if embedder else FIRST_MODEL)


async def _require_empty_journal(settings: Settings) -> None:
    """What is kept on this machine for an end of it would be missing there."""
    standby = find_standby(settings)
    waiting, aside = await standby.count_writes() if standby else (0, 0)
    if waiting:
        raise Refused(
            f"Writes for {format_place(settings)} still wait on this machine: {waiting:,}.",
            hint="A server, or `everkept status`, brings them over once it can be reached.",
        )
    if aside:
        raise Refused(
            f"Writes for {format_place(settings)} are set aside on this machine: {aside:,}.",
            hint="`everkept journal` shows them, and lets you decide.",
        )


def _print_migration(outcome: MigrationResult) -> None:
    for each in outcome.stores:
        parts = [
            format_count(each.records, "record"),
            format_count(each.links, "link"),
            format_count(each.log_entries, "log entry", "log entries"),
            format_count(each.vectors, "vector"),
        ]
        click.echo(f"  {each.store}: {', '.join(parts)}, sha256 {each.sha256[:16]}")
    click.echo(
        f"Copied {format_count(outcome.projects, 'project')} from {outcome.source} to "
        f"{outcome.target}; both are the same."
    )


ALL_WRITES = "all"


@click.command()
@add_common_options
@click.option("--retry", "again", metavar="NUMBER|all", help="Try one again, as the last, or all in their order.")
@click.option("--discard", "given_up", metavar="NUMBER|all", help="Give one up for good, or all that are set aside.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def journal(
    as_json: bool, again: str | None, given_up: str | None, yes: bool, project: str | None, **flags: Any
) -> None:
    """Show the writes that wait on this machine, and those the database would not take.

    A write waits while the database is away, and is brought over when it is back. What cannot be
    made then, because something it is about is gone, whoever wrote it may not write there any more,
    or the database refuses it, is set aside until you decide. Of what an account wrote the text is
    not shown.
    """
    if project is not None:
        raise InvalidInput(
            "There is one journal for all projects.", hint="Leave --project out.", argument="--project", value=project
        )
    if again is not None and given_up is not None:
        raise InvalidInput("Either --retry or --discard, not both.", argument="--retry")
    settings = load_command_settings(**flags)
    if settings.read_only and (again is not None or given_up is not None):
        raise ReadOnly("This command writes, and only reading is allowed here.")
    if again is not None:
        _retry(settings, again, as_json=as_json)
    elif given_up is not None:
        _discard(settings, given_up, as_json=as_json, yes=yes)
    else:
        found = asyncio.run(list_journal_writes(settings))
        print_json({"writes": to_json(found)}) if as_json else _print_writes(found)


def _retry(settings: Settings, again: str, *, as_json: bool) -> None:
    if again != ALL_WRITES:
        _retry_one(settings, _parse_number(again, "--retry"), as_json=as_json)
        return
    moved = asyncio.run(retry_all_writes(settings))
    if as_json:
        print_json({"writes": [{"write": old, "waits_as": new} for old, new in moved.items()]})
    else:
        verb = "waits" if len(moved) == 1 else "wait"
        click.echo(f"{format_count(len(moved), 'write')} {verb} again.")


def _retry_one(settings: Settings, number: int, *, as_json: bool) -> None:
    new = asyncio.run(retry_write(settings, number))
    told = f"Write {number} waits again, as number {new}."
    print_json({"write": number, "waits_as": new}) if as_json else click.echo(told)


def _parse_number(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            f'"{text}" is no number of a write.',
            hint=f"Give a number that `everkept journal` shows, or {ALL_WRITES}.",
            argument=flag,
            value=text,
        ) from None


def _discard(settings: Settings, given_up: str, *, as_json: bool, yes: bool) -> None:
    aside = {each.number: each for each in asyncio.run(list_journal_writes(settings)) if each.reason}
    if given_up != ALL_WRITES:
        _discard_one(settings, _parse_number(given_up, "--discard"), aside, as_json=as_json, yes=yes)
        return
    writes = format_count(len(aside), "write")
    is_wanted = not aside or confirm(f"Give up {writes} for good?", yes=yes)
    numbers = list(aside) if is_wanted else []
    for number in numbers:
        asyncio.run(discard_write(settings, number))
    if as_json:
        print_json({"discarded": numbers})
    else:
        click.echo(f"{writes} given up." if is_wanted else f"{writes} kept.")


def _discard_one(
    settings: Settings, number: int, aside: Mapping[int, JournalWrite], *, as_json: bool, yes: bool
) -> None:
    """Shows what it is to whoever is asked."""
    if number in aside and not yes:
        click.echo(replace_controls(_format_write(aside[number])), err=True)
    is_wanted = number not in aside or confirm(f"Give up write {number} for good?", yes=yes)
    if is_wanted:
        asyncio.run(discard_write(settings, number))
    if as_json:
        print_json({"write": number, "discarded": is_wanted})
    else:
        click.echo(f"Write {number} is given up." if is_wanted else f"Write {number} is kept.")


def _print_writes(found: list[JournalWrite]) -> None:
    for each in found:
        click.echo(replace_controls(_format_write(each)))
        if each.reason:
            click.echo(replace_controls(f"        set aside {each.set_aside_at}: {each.reason}"))
    aside = sum(each.reason is not None for each in found)
    click.echo(f"{format_count(len(found) - aside, 'write')} waiting, {aside:,} set aside.")
    if aside:
        click.echo("`everkept journal --retry NUMBER|all` or `--discard NUMBER|all` decides.", err=True)


def _format_write(each: JournalWrite) -> str:
    where = f" in {each.store}" if each.store else ""
    where += f" by {each.account}" if each.account else ""
    said = f": {each.content}" if each.content else ""
    return f"{each.number:>6}  {each.at or ''}  {each.what}{where}{said}"
