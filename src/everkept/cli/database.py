"""`everkept migrate` and `journal`: copy to another engine, and pending writes."""

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
from everkept.cli.runner import confirm, echo, print_json, replace_controls, report_interruption, show_progress
from everkept.core.ports import FIRST_MODEL, Library
from everkept.core.text import format_count
from everkept.core.times import read_clock
from everkept.errors import InvalidInput, ReadOnly, Refused
from everkept.exchange.migration import MigrationEnd, MigrationResult
from everkept.exchange.migration import migrate_library as copy_all
from everkept.jobs.claims import read_models
from everkept.settings import Settings, get_standby_folder, is_on_server
from everkept.tools.schema import to_json

PLACE_FORMS = "sqlite:FOLDER, surreal:FOLDER, ws://HOST:PORT or postgresql://HOST/DATABASE"


@click.command()
@add_common_options
@click.option("--from", "source", metavar="PLACE", help="Default: the current place.")
@click.option("--to", "target", metavar="PLACE", required=True, help=f"{PLACE_FORMS}. Must be empty.")
def migrate(as_json: bool, source: str | None, target: str, project: str | None, **flags: Any) -> None:
    """Copy all data to another database engine, and compare both.

    Copies projects, records, links, the log, embeddings and tokens unchanged. Run it again to continue an interrupted
    copy. The source is only read. At the end, both are compared record by record. Settings stay unchanged: to see them,
    run `everkept config`.
    """
    if project is not None:
        raise InvalidInput(
            "Migration copies all projects.",
            hint="Omit --project. To write one project, run `everkept export --project`.",
            argument="--project",
            value=project,
        )
    settings = load_command_settings(**flags)
    origin = settings if source is None else load_address_settings(source, flags, named_by="--from")
    ends = origin, load_address_settings(target, flags)
    _check_ends(*ends)
    left = "Run the same command again to continue."
    with report_interruption(lambda: left):
        outcome = asyncio.run(_run_migration(*ends))
    print_json(to_json(outcome)) if as_json else _print_migration(outcome)


def _check_ends(source: Settings, target: Settings) -> None:
    """Check the places before anything is reached or created."""
    if target.read_only:
        raise ReadOnly("This command writes, but the setting read_only is on.")
    if format_place(source) == format_place(target) or _is_one_server(source, target):
        raise InvalidInput(
            f"Both ends are {format_place(source)}.", hint="Pass another database with --to.", argument="--to"
        )
    if source.deployment_mode == "embedded-memory":
        raise Refused(
            "Data in memory cannot be copied by another program.", hint="Pass a place to copy from with --from."
        )
    if build_empty_library(source):
        raise InvalidInput(
            f"No data found in {format_place(source)}.",
            hint="Pass a place to copy from with --from.",
            argument="--from",
            value=format_place(source),
        )


def _is_one_server(source: Settings, target: Settings) -> bool:
    """Return whether both are one server, however their addresses are written."""
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
    """Refuse while writes are pending on this machine, because they would be missing in the copy."""
    standby = find_standby(settings)
    waiting, aside = await standby.count_writes() if standby else (0, 0)
    if waiting:
        raise Refused(
            f"Writes for {format_place(settings)} pending on this machine: {waiting:,}.",
            hint="Make the database reachable, then run `everkept status` to send them.",
        )
    if aside:
        raise Refused(
            f"Writes for {format_place(settings)} rejected on this machine: {aside:,}.",
            hint="Retry or discard them with `everkept journal`.",
        )


def _print_migration(outcome: MigrationResult) -> None:
    for each in outcome.stores:
        parts = [
            format_count(each.records, "record"),
            format_count(each.links, "link"),
            format_count(each.log_entries, "log entry", "log entries"),
            format_count(each.vectors, "vector"),
        ]
        echo(f"  {each.store}: {', '.join(parts)}, sha256 {each.sha256[:16]}")
    echo(
        f"Copied {format_count(outcome.projects, 'project')} from {outcome.source} to {outcome.target}. Both are equal."
    )


ALL_WRITES = "all"


@click.command()
@add_common_options
@click.option("--retry", "again", metavar="NUMBER|all", help="Retry a rejected write, or all of them in order.")
@click.option(
    "--discard", "given_up", metavar="NUMBER|all", help="Permanently discard a rejected write, or all of them."
)
@click.option("--yes", is_flag=True, help="Skip the confirmation prompt.")
def journal(
    as_json: bool, again: str | None, given_up: str | None, yes: bool, project: str | None, **flags: Any
) -> None:
    """Show pending and rejected writes.

    While the database is unreachable, writes are saved on this machine and sent when it is back. A write the database
    cannot accept is rejected and kept until you retry or discard it. The text of account writes is not shown.
    """
    if project is not None:
        raise InvalidInput(
            "The journal is for all projects.", hint="Omit --project.", argument="--project", value=project
        )
    if again is not None and given_up is not None:
        raise InvalidInput("Pass either --retry or --discard.", argument="--retry")
    settings = load_command_settings(**flags)
    if settings.read_only and (again is not None or given_up is not None):
        raise ReadOnly("This command writes, but the setting read_only is on.")
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
        verb = "is" if len(moved) == 1 else "are"
        echo(f"{format_count(len(moved), 'write')} {verb} pending again.")


def _retry_one(settings: Settings, number: int, *, as_json: bool) -> None:
    new = asyncio.run(retry_write(settings, number))
    told = f"Write {number} is pending again as number {new}."
    print_json({"write": number, "waits_as": new}) if as_json else echo(told)


def _parse_number(text: str, flag: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(
            f'"{text}" is not the number of a write.',
            hint=f"Use a number from `everkept journal`, or {ALL_WRITES}.",
            argument=flag,
            value=text,
        ) from None


def _discard(settings: Settings, given_up: str, *, as_json: bool, yes: bool) -> None:
    aside = {each.number: each for each in asyncio.run(list_journal_writes(settings)) if each.reason}
    if given_up != ALL_WRITES:
        _discard_one(settings, _parse_number(given_up, "--discard"), aside, as_json=as_json, yes=yes)
        return
    writes = format_count(len(aside), "write")
    is_wanted = not aside or confirm(f"Permanently discard {writes}?", yes=yes)
    numbers = list(aside) if is_wanted else []
    for number in numbers:
        asyncio.run(discard_write(settings, number))
    if as_json:
        print_json({"discarded": numbers})
    else:
        echo(f"Discarded {writes}." if is_wanted else f"Kept {writes}.")


def _discard_one(
    settings: Settings, number: int, aside: Mapping[int, JournalWrite], *, as_json: bool, yes: bool
) -> None:
    """Show the write before the question."""
    if number in aside and not yes:
        echo(replace_controls(_format_write(aside[number])), err=True)
    is_wanted = number not in aside or confirm(f"Permanently discard write {number}?", yes=yes)
    if is_wanted:
        asyncio.run(discard_write(settings, number))
    if as_json:
        print_json({"write": number, "discarded": is_wanted})
    else:
        echo(f"Discarded write {number}." if is_wanted else f"Kept write {number}.")


def _print_writes(found: list[JournalWrite]) -> None:
    for each in found:
        echo(replace_controls(_format_write(each)))
        if each.reason:
            echo(replace_controls(f"        rejected {each.set_aside_at}: {each.reason}"))
    aside = sum(each.reason is not None for each in found)
    echo(f"{format_count(len(found) - aside, 'pending write')}, {aside:,} rejected.")
    if aside:
        echo("To handle a rejected write, run `everkept journal --retry NUMBER` or `--discard NUMBER`.", err=True)


def _format_write(each: JournalWrite) -> str:
    where = f" in {each.store}" if each.store else ""
    where += f" by {each.account}" if each.account else ""
    said = f": {each.content}" if each.content else ""
    return f"{each.number:>6}  {each.at or ''}  {each.what}{where}{said}"
