"""`everkept migrate`: everything from one engine into another."""

import asyncio
from typing import Any

import click

from everkept.app.engines import empty_library, make_library, name_of, settings_of, standby_of
from everkept.cli.options import common, settings_from
from everkept.cli.runner import bar, print_json, told_if_interrupted
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
    print_json(to_json(outcome)) if as_json else _show(outcome)


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


def _show(outcome: Migrated) -> None:
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
