"""`everkept bank`: earlier versions of a memory bank's files, and their part in `undo` and `purge`."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from everkept.app.app import App
from everkept.cli.options import add_common_options
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_json, read_session, run_with_app
from everkept.core.secrets import mask_text
from everkept.core.sessions import ToolCall
from everkept.core.text import format_count
from everkept.core.times import format_iso
from everkept.errors import EverkeptError, Refused
from everkept.families.bank.banks import Bank
from everkept.families.bank.file_versions import FileVersion, FileVersions, FileWrite


def add_bank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--store-id", metavar="ID", help="Registered bank. Default: the active bank."),
        click.option(
            "--path", type=click.Path(path_type=Path), help="Project folder of the bank. Default: the working folder."
        ),
    ):
        command = option(command)
    return command


@click.group()
def bank() -> None:
    """Show and restore earlier versions of memory bank files."""


@bank.command()
@add_common_options
@add_bank_options
@click.argument("file")
def history(as_json: bool, file: str, store_id: str | None, path: Path | None, **flags: Any) -> None:
    """Show the earlier versions of FILE, newest first.

    Everkept keeps the content before each of its writes on this machine. Changes by other programs are in git or
    in a backup.
    """

    async def work(app: App) -> list[FileVersion]:
        versions, found = await _open_bank(app, store_id, path)
        return await versions.list_versions(found, file)

    rows = [_describe_version(version) for version in run_with_app(work, **_add_path(flags, path))]
    if as_json:
        print_json({"versions": rows})
    elif not rows:
        echo(f"No earlier version of {file} is kept.")
    else:
        build_console().print(build_table("versions", rows))
        echo(f"To restore one, run `everkept bank restore {file} ID`.")


@bank.command()
@add_common_options
@add_bank_options
@click.argument("file")
@click.argument("version", required=False)
def restore(
    as_json: bool, file: str, version: str | None, store_id: str | None, path: Path | None, **flags: Any
) -> None:
    """Restore a VERSION of FILE, by default the newest one.

    VERSION is an id from `everkept bank history`, or its beginning. The replaced content becomes a version too, so
    you can undo it.
    """

    async def work(app: App) -> FileVersion:
        versions, found = await _open_bank(app, store_id, path)
        return await versions.restore(found, file, version)

    done = run_with_app(work, writes=True, **_add_path(flags, path))
    if as_json:
        print_json({"restored": _describe_version(done) | {"filename": done.name}})
    else:
        echo(f"Restored {done.name} to its content before {format_iso(done.at)}.")
        echo("To reverse this, run `everkept undo`.")


@bank.command()
@add_common_options
@add_bank_options
def trust(as_json: bool, store_id: str | None, path: Path | None, **flags: Any) -> None:
    """Let hooks show open tasks from a memory bank.

    A repository from a stranger may contain a memory bank, so hooks show nothing of it before you use it. A bank counts
    as used after Everkept has changed one of its files, or after this command.
    """

    async def work(app: App) -> Bank:
        versions, found = await _open_bank(app, store_id, path)
        await versions.trust(found)
        return found

    trusted = run_with_app(work, writes=True, **_add_path(flags, path))
    if as_json:
        print_json({"trusted": trusted.address})
    else:
        echo(f"Hooks now show open tasks from {trusted.address}.")


async def undo_file_write(app: App, after: int | None) -> FileWrite | None:
    """Undo the newest write of the active bank's files, if it is newer than the change at `after`."""
    try:
        versions, found = await _open_bank(app)
        newest = await versions.find_last_write(found)
    except EverkeptError:  # no bank, or an unreachable one
        return None
    if newest is None or newest.at <= (after or 0):
        return None
    await versions.undo(found, newest)
    return newest


async def purge_versions(app: App, texts: Iterable[str], containing: str | None) -> int:
    """Permanently delete the earlier versions of the active bank's files that name one of the texts."""
    words = [rf"(?<!\w){re.escape(text)}(?!\w)" for text in texts if text.strip()]
    pattern = "|".join([*words, *([re.escape(containing)] if containing else [])])
    return await _remove_versions(app, re.compile(pattern, re.IGNORECASE).search) if pattern else 0


async def handle_versions_with_secrets(app: App, *, removes: bool) -> int:
    """Count the earlier versions of the files of all banks that contain a secret, or permanently delete them."""
    versions = None if app.bank is None else app.bank.versions
    if versions is None:
        return 0
    act = versions.remove_all_matching if removes else versions.count_all_matching
    return await act(lambda text: mask_text(text)[1])


def describe_removed_versions(count: int) -> str:
    return f"Permanently deleted {format_count(count, 'earlier version')} of memory bank files."


async def _remove_versions(app: App, is_meant: Callable[[str], object]) -> int:
    try:
        versions, found = await _open_bank(app)
    except EverkeptError:  # no bank, or an unreachable one
        return 0
    return await versions.remove_matching(found, is_meant)


async def _open_bank(app: App, store_id: str | None = None, path: Path | None = None) -> tuple[FileVersions, Bank]:
    """Return the versions and the bank of a command. Raise Refused if no versions are kept."""
    if app.bank is None or app.bank.versions is None:
        raise Refused("No versions are kept in memory.", hint="Use another deployment_mode.")
    session = await read_session(app, keeps_bank=path is None)
    return app.bank.versions, await app.bank.banks.require_bank(ToolCall(session, "bank"), store_id)


def _add_path(flags: dict[str, Any], path: Path | None) -> dict[str, Any]:
    return flags if path is None else flags | {"path": path.expanduser().resolve()}


def _describe_version(version: FileVersion) -> dict[str, Any]:
    return {"id": version.etag, "replaced_at": format_iso(version.at), "bytes": version.size}
