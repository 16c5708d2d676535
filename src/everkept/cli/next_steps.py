"""Steps that `setup` offers: connect the clients it found, and import the conversations it found."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from everkept.app.app import App
from everkept.app.unread_transcripts import UnreadTranscripts
from everkept.cli.options import load_command_settings
from everkept.cli.runner import echo, run_with_app
from everkept.clients.hook_entries import HOOK_FORMATS
from everkept.clients.survey import ClientInstallation
from everkept.errors import EverkeptError

IMPORT_COMMAND = "everkept import history"
# Options of `setup` that lead to the same data as the client will use.
_DATA_OPTIONS = ("data_dir", "config", "engine", "database_url", "database_user", "log_level")


def is_interactive() -> bool:
    """Return whether a person can answer."""
    return sys.stdin.isatty()


def offer_connections(found: Iterable[ClientInstallation], connect: Callable[[str], None]) -> None:
    """Offer to connect each installed client that is not connected, or that has no hooks yet."""
    by_client: dict[str, list[ClientInstallation]] = {}
    for each in found:
        by_client.setdefault(each.client, []).append(each)
    for name, entries in by_client.items():
        if not entries[0].is_installed or not (missing := _describe_missing(name, entries)):
            continue
        echo(f"\n{entries[0].title} is installed, and {missing}.")
        try:
            connect(name)
        except EverkeptError as error:
            echo(f"{error.message} {error.hint or ''}".strip(), err=True)


def _describe_missing(name: str, entries: list[ClientInstallation]) -> str:
    kinds = {each.kind for each in entries if each.is_set_up}
    if not kinds:
        return "not connected to Everkept"
    has_hooks = "hooks" in kinds or not kinds <= {"server"} or name not in HOOK_FORMATS
    return "" if has_hooks else "its hooks are not turned on"


def offer_import(flags: Mapping[str, Any], *, run: Callable[[], None]) -> None:
    """Offer to import the conversations that were found, or say how to, if no person can answer."""
    unread = find_unread(flags)
    if unread is None or not unread.total:
        return
    found = f"{unread.describe()} ({unread.format_duration()})"
    if not is_interactive():
        echo(f"To import {found}, run `{IMPORT_COMMAND}`.")
    elif click.confirm(f"Import {found}?", default=True, err=True):
        run()
    else:
        echo(f"To import them later, run `{IMPORT_COMMAND}`.")


def find_unread(flags: Mapping[str, Any]) -> UnreadTranscripts | None:
    """Return the transcripts that no import has read, or None if the data is not on this machine."""
    options: dict[str, Any] = {name: flags.get(name) for name in _DATA_OPTIONS}

    async def work(app: App) -> UnreadTranscripts:
        return await app.history.find_unread()

    try:
        settings = load_command_settings(**options)
        if settings.read_only or settings.deployment_mode != "embedded-file":
            return None  # a server may not answer, and setup does not wait for it
        return run_with_app(work, makes_nothing=True, **options)
    except EverkeptError:  # the client is connected, and the next command reports the fault
        return None
