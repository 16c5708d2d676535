"""`everkept config`: the settings, where they come from, and the file that holds them."""

from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from everkept.cli.options import common
from everkept.cli.render import console
from everkept.cli.runner import print_json
from everkept.core import disk
from everkept.errors import Conflict, InvalidInput
from everkept.settings import Settings, config_paths, explained, load, warnings_of
from everkept.settings.template import template


@click.group(invoke_without_command=True)
@common
@click.pass_context
def config(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Show each setting, its value and where that comes from."""
    context.obj = flags
    if context.invoked_subcommand is not None:
        return
    rows = [{"setting": e.name, "value": e.value, "from": e.source} for e in explained(flags)]
    warnings = warnings_of(load(flags))
    if as_json:
        print_json({"settings": rows, "warnings": warnings})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("setting", no_wrap=True)
    for column in ("value", "from"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_plain(row[column])) for column in ("setting", "value", "from")))
    console().print(table)
    for warning in warnings:
        click.echo(f"everkept: {warning}", err=True)


@config.command()
@common
@click.pass_context
def path(context: click.Context, as_json: bool, **flags: Any) -> None:
    """Print where the config file is, or where it would be."""
    used, own = config_paths(_merged(context, flags))
    file = used or _known(own)
    if as_json:
        print_json({"path": str(file), "exists": used is not None})
    else:
        click.echo(str(file))


@config.command()
@common
@click.option("--force", is_flag=True, help="Overwrite the file that is there.")
@click.pass_context
def init(context: click.Context, as_json: bool, force: bool, **flags: Any) -> None:
    """Write a config file with every setting and its default, commented out."""
    used, own = config_paths(_merged(context, flags))
    file = _known(own)
    _write(file, template(Settings), force=force)
    if as_json:
        print_json({"written": str(file)})
        return
    click.echo(f"Written: {file}")
    if used is not None and used != file:
        click.echo(f"{used} is not read any more: take over what it says.", err=True)


def _known(own: Path | None) -> Path:
    if own is None:
        raise InvalidInput("No home folder is known.", hint="Set HOME, or EVERKEPT_CONFIG.")
    return own


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write it for its owner only: the file may come to hold a password."""
    disk.make_folder(file.parent)
    try:
        (disk.replace if force else disk.create)(file, text.encode("utf-8"))
    except FileExistsError:
        raise Conflict(
            f"{file} is there already.", hint="--force overwrites it.", file=str(file)
        ) from None


def _merged(context: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Options count wherever they stand: before the subcommand or after it."""
    return {**context.obj, **{name: value for name, value in flags.items() if value is not None}}


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
