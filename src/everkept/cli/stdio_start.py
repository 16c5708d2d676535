"""Server over stdio without the command line, for a start with known arguments."""

import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import everkept
from everkept.app.app import App
from everkept.cli.flags import load_command_settings
from everkept.errors import EverkeptError, InvalidInput
from everkept.settings import (
    GATEWAY,
    NO_FILE,
    Settings,
    choose_toolsets,
    find_plugin_folder,
    find_remote_bank,
    get_gateway_path,
    get_standby_folder,
    is_on_server,
    list_decisive_files,
    list_warnings,
)
from everkept.transports.dispatch import Dispatcher

if TYPE_CHECKING:
    from everkept.first_answers import ServerStart

log = logging.getLogger(__name__)

BACKUP_CHECK_SECONDS = 600.0  # between two looks of a server whether a backup is due

# Settings that may contain a password and are not written down.
SECRET_FLAGS = ("database_url",)
# Modules that parse the arguments, although a known start does not load them.
PARSER_FILES = ("cli/main.py", "cli/options.py", "cli/serve.py")


def resume(start: "ServerStart") -> bool:
    """Serve with the flags that the last start parsed. Return False if that is impossible."""
    flags = None if start.kept is None else start.kept.flags
    if flags is None:
        return False
    try:
        settings = load_server_settings(flags)
        if settings.transport != "stdio":
            return False
        serve_stdio(settings, flags, start)
    except KeyboardInterrupt:
        sys.exit(130)
    except EverkeptError as error:
        from everkept.cli.runner import report_error

        sys.exit(report_error(error, as_json="--json" in sys.argv))
    return True


def load_server_settings(flags: Mapping[str, Any]) -> Settings:
    """Return the settings of a server. Report mistakes before anything starts."""
    path = flags["path"]
    is_unset = path is not None and str(path).startswith("${")  # a client without an open folder left its variable
    settings = load_command_settings(**({**flags, "path": None} if is_unset else flags))
    if is_unset:
        log.warning("the client has no folder for --path %s", path)
    for sentence in list_warnings(settings):
        log.warning("%s", sentence)
    _warn_of_left_writes(settings)
    _check_paths(settings)
    _check_gateway(settings, flags["gateway_config"])
    return settings


def start_side_tasks(settings: Settings) -> "list[asyncio.Task[None]]":
    """Start what a server does beside its calls: scheduled backups, and a look for data of the former plugin."""
    tasks = [asyncio.create_task(_watch_backups(settings), name="scheduled backups")]
    if is_on_server(settings) or find_plugin_folder(settings) is not None:
        from everkept.exchange.plugin_database import announce_plugin_data

        tasks.append(asyncio.create_task(announce_plugin_data(settings), name="plugin data"))
    return tasks


async def _watch_backups(settings: Settings) -> None:
    """Wake the worker whenever a scheduled backup is due."""
    while True:
        await asyncio.sleep(BACKUP_CHECK_SECONDS)
        from everkept.hooks.session_end import wake_worker  # the handshake does not wait for it

        with suppress(OSError, EverkeptError):
            await asyncio.to_thread(wake_worker, settings)


def _warn_of_left_writes(settings: Settings) -> None:
    """Warn of pending writes for an earlier database, which few people have."""
    if not get_standby_folder(settings).parent.is_dir():
        return
    from everkept.app.engines import find_stranded_writes

    for left in asyncio.run(find_stranded_writes(settings)):
        log.warning("%s %s.", left.sentence, left.hint)


def _check_paths(settings: Settings) -> None:
    """Report mistakes in paths before anything starts, if possible."""
    remote = find_remote_bank(settings)
    if remote is not None:
        from everkept.files.resolver import parse_address

        parse_address(remote)
    for name, flag in (("path", "--path"), ("ssh_key", "--ssh-key")):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.exists():
            raise InvalidInput(
                f"{flag} is {path}, which does not exist.",
                hint="Pass an existing path.",
                argument=flag,
                value=str(path),
            )


def _check_gateway(settings: Settings, named: str | None) -> None:
    """A gateway that is served alone must work. Next to other tools, its fault is only a warning."""
    chosen = choose_toolsets(settings) if settings.dialect == "everkept" else ()
    if (GATEWAY in chosen) == (named == NO_FILE) and named is not None:
        raise InvalidInput(
            f"--gateway-config is {named}, and "
            + ("the toolsets include the gateway." if GATEWAY in chosen else "the gateway is not served."),
            hint="Omit it, or add `gateway` to --toolsets.",
            argument="gateway_config",
            value=named,
        )
    if chosen == (GATEWAY,):
        from everkept.app.gateway_file import load

        load(get_gateway_path(settings))


def serve_stdio(settings: Settings, flags: Mapping[str, Any], start: "ServerStart | None") -> None:
    """Serve one client until its input ends."""
    from everkept.transports.stdio import check_answers, claim_stdio
    from everkept.transports.stdio import serve_stdio as serve

    async def run() -> None:
        app = App(settings)
        beside: list[asyncio.Task[None]] = []
        try:
            app.start()
            beside = start_side_tasks(settings)
            dispatcher = Dispatcher(app)
            if start is not None and (start.kept or _list_decisive_files(app)):
                start.flags = _flags_to_json(flags)
                check_answers(dispatcher, start, lambda: _list_decisive_files(app))
            _say_ready(written)
            await serve(dispatcher, read, written, start)
        finally:
            for task in beside:
                task.cancel()
            await app.end_sessions()
            await app.close()

    read, written = claim_stdio()
    asyncio.run(run())


def _say_ready(written: int) -> None:
    """Write one line to standard error, unless it is also the output that the client parses."""
    with suppress(OSError, ValueError, AttributeError):  # the client may have closed it
        output, errors = os.fstat(written), os.fstat(2)
        if not errors.st_ino or not os.path.samestat(output, errors):  # 0: a pipe of Windows
            sys.stderr.write("everkept: ready\n")


def _list_decisive_files(app: App) -> list[str] | None:
    """Return the files that decide a server's first answers, or None if more than files does."""
    if app.gateway is not None:
        return None
    package = f"{everkept.__name__}."
    modules = [module for name, module in sys.modules.items() if name.startswith(package)]
    sources = [module.__file__ for module in modules if module.__file__ is not None]
    return [*PARSER_FILES, *sources, *map(str, list_decisive_files(app.settings))]


def _flags_to_json(flags: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the flags as JSON, or None if they may contain a password."""
    if any(flags[name] is not None for name in SECRET_FLAGS):
        return None
    return {name: str(value) if isinstance(value, Path) else value for name, value in flags.items()}
