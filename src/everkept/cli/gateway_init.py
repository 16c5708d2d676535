"""`everkept gateway init`: a first file for the gateway, from what a server says it has."""

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import click

from everkept.app.app import App
from everkept.cli.gateway_call import gateway_config, opened, told_if_slow, told_once
from everkept.cli.options import common, settings_from
from everkept.cli.runner import EVERYTHING, print_json, reported
from everkept.clients import config_files
from everkept.core.disk import PRIVATE_FILE
from everkept.core.text import clipped, counted
from everkept.core.upstreams import CONNECT_TIMEOUT, Reach
from everkept.errors import Conflict, InvalidInput, Refused
from everkept.families.gateway import draft
from everkept.families.gateway.draft import drafted
from everkept.families.gateway.file_reader import Reading, read
from everkept.families.gateway.file_servers import LONGEST_WAIT, NAME_RULE
from everkept.families.gateway.model import ONLY, GatewayConfig
from everkept.families.gateway.upstream_tools import is_name
from everkept.settings import NO_FILE, gateway_target, load
from everkept.tools.schema import JSON

_VARIABLE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
COMMAND = "everkept gateway init --prefix notes__ -- npx -y some-memory-server"


@click.command(context_settings={"allow_interspersed_args": False})
@common
@gateway_config
@click.option("--url", help="A server over HTTP, instead of a COMMAND.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="With --url.")
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="For the COMMAND; without a value, the one that is set when it is started.",
)
@click.option(
    "--cwd",
    metavar="FOLDER",
    help="Where the COMMAND runs; else this folder where an ARG names something in it.",
)
@click.option(
    "--connect-timeout",
    type=click.FloatRange(0, LONGEST_WAIT, min_open=True),
    metavar="SECONDS",
    help=f"How long the server may take to answer first; {CONNECT_TIMEOUT:.0f} if left out.",
)
@click.option("--prefix", help="What stands before the names of the tools.")
@click.option("--name", help="The server's name in the file, where others will join it.")
@click.option(
    "--ready", "ready_name", metavar="NAME", help=f"Ready-made: {', '.join(draft.ready_names())}."
)
@click.option("--print", "is_printed", is_flag=True, help="Print the file, write nothing.")
@click.option("--force", is_flag=True, help="Replace the file that is there; a copy is kept.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[--] [COMMAND [ARG]...]")
def init(
    as_json: bool,
    prefix: str | None,
    name: str | None,
    ready_name: str | None,
    is_printed: bool,
    force: bool,
    url: str | None,
    headers: tuple[str, ...],
    variables: tuple[str, ...],
    cwd: str | None,
    connect_timeout: float | None,
    command: tuple[str, ...],
    **flags: Any,
) -> None:
    """Write a first gateway file by asking a server for its tools.

    The server is the program that COMMAND starts, or the address of --url. Every tool gets an
    entry under its own name, which you are free to change. `--ready` writes a file for a server
    that is known already, and asks nobody.
    """
    settings = settings_from(**flags)
    if flags.get("gateway_config") == NO_FILE:
        raise click.UsageError("--gateway-config none names no file that could be written.")
    target = gateway_target(settings)
    beside = (command, url, headers, variables, cwd, connect_timeout, prefix is not None, name)
    if ready_name is not None and any(beside):
        raise click.UsageError("--ready says it all: no server, --prefix or --name beside it.")
    if prefix and not is_name(prefix):
        raise click.UsageError(f"--prefix is {clipped(prefix)!r}; it must be {NAME_RULE}.")
    server = None if ready_name else _server(command, url, headers, variables, cwd)
    if server is not None and connect_timeout is not None:
        server["connectTimeout"] = connect_timeout
    if not (is_printed or force):
        _refuse_existing(target)
    if server is None:
        text = draft.text(str(ready_name))
    else:
        with told_once(settings):
            text = _asked(server, target, prefix=prefix, name=name)
    if is_printed:
        click.echo(text, nl=False)
        return
    kept = _write(target, text)
    if server is not None and "cwd" in server and cwd is None and not as_json:
        click.echo(f"It runs in {server['cwd']}, where its arguments lead; --cwd names another.")
    _tell(target, kept, read(text, target.parent), as_json=as_json, is_used=_is_used(flags, target))


def _refuse_existing(target: Path) -> None:
    if config_files.read(target) is not None:
        raise Conflict(
            f"{target} is there already.",
            hint="--force replaces it and keeps a copy; --print shows what would be written.",
            file=str(target),
        )


def _server(
    command: Sequence[str],
    url: str | None,
    headers: Sequence[str],
    variables: Sequence[str],
    cwd: str | None,
) -> JSON:
    """The server as the file has it."""
    if bool(command) == (url is not None):
        raise click.UsageError(
            f"Name one server: a COMMAND, --url or --ready ({', '.join(draft.ready_names())}). "
            f"As in `{COMMAND}`."
        )
    if url is not None:
        if variables or cwd:
            raise click.UsageError("--env and --cwd are for a COMMAND, not for --url.")
        server: JSON = {"url": url}
        return server | {"headers": dict(map(_header, headers))} if headers else server
    if headers:
        raise click.UsageError("--header is for --url, not for a COMMAND.")
    program, *args = command
    # Commands are typed in one folder, and the file is used from all.
    has_folder = Path(program).name != program
    server = {"command": str(Path(program).expanduser().absolute()) if has_folder else program}
    if args:
        server["args"] = args
    if variables:
        server["env"] = dict(map(_variable, variables))
    if cwd is not None or any(map(_is_here, args)):
        server["cwd"] = str(Path(cwd or ".").expanduser().absolute())
    return server


def _is_here(argument: str) -> bool:
    """Whether it names something, as seen from this folder."""
    try:
        path = Path(argument)
        return bool(argument) and not path.is_absolute() and path.exists()
    except (OSError, ValueError):
        return False


def _header(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name.strip():
        # The value is not repeated: it may be a secret.
        raise click.UsageError("--header takes NAME=VALUE, as in 'Authorization=Bearer ${TOKEN}'.")
    return name.strip(), value.strip()


def _variable(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not _VARIABLE_NAME.fullmatch(name):
        # The value is not repeated: it may be a secret.
        raise click.UsageError(
            f"--env takes NAME or NAME=VALUE, and {clipped(name)!r} is no name of a variable: "
            "letters, digits and `_`."
        )
    return name, value if separator else f"${{{name}}}"


def _asked(server: JSON, target: Path, *, prefix: str | None, name: str | None) -> str:
    # It runs where the file is to be; while that is nowhere, not just in any folder.
    folder = target.parent if target.parent.is_dir() else Path.home()
    reach = _reach(server, folder, name or ONLY)
    whom = clipped(" ".join(_words(server)), 60)
    with reported(f"Asking {whom}"):
        tools = asyncio.run(told_if_slow(_tools_of(reach), whom))
    if not tools:
        raise Refused(f"{reach.name} has no tools: there is nothing to write.")
    text = drafted(server, tools, prefix=prefix or "", name=name)
    if prefix is None:
        _refuse_own_names(read(text, target.parent))
    return text


def _words(server: JSON) -> list[str]:
    return [server.get("url") or server["command"], *server.get("args", [])]


async def _tools_of(reach: Reach) -> list[JSON]:
    async with opened([reach]) as upstreams:
        return await upstreams[reach.name].tools()


def _reach(server: JSON, folder: Path, name: str) -> Reach:
    """By the rules of the file: what it would refuse is refused before anything starts."""
    text = json.dumps({"upstreams": {name: {**server, "passThrough": True}}})
    found = read(text, folder)
    if found.config is None:
        first = found.problems[0]
        raise InvalidInput(_with_options(first.message, name), hint=first.fix or None)
    return found.config.upstreams[name].reach


def _with_options(message: str, name: str) -> str:
    """What the file calls `upstreams.notes.url` was given as `--url`."""
    message = message.replace(f"`upstreams.{name}.headers.", "`--header ")
    message = message.replace(f"`upstreams.{name}.env.", "`--env ")
    return message.replace(f"`upstreams.{name}.", "`--").replace("`--command`", "COMMAND")


def _refuse_own_names(found: Reading) -> None:
    """Beside our own tools, which is the usual way to serve it, such a file could not be used."""
    own = {tool.name for tool in App(load(EVERYTHING)).tools}
    config = cast(GatewayConfig, found.config)
    clashes = [tool.name for tool in config.tools if tool.name in own]
    if clashes:
        raise Refused(
            f"Everkept itself has tools of these names: {clipped(', '.join(clashes), 200)}.",
            hint="--prefix notes__ sets the server's apart; --prefix '' keeps its names, for "
            "`everkept serve --toolsets gateway`.",
        )


def _write(target: Path, text: str) -> Path | None:
    """The copy of what was there, if anything was."""
    before = config_files.read(target)
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    if before is not None:
        with suppress(PermissionError):  # it is another user's
            # It may hold a password; the copy that is made of it gets its rights.
            target.chmod(PRIVATE_FILE)
    kept = None if before is None else config_files.back_up(target, before.raw, moment)
    config_files.replace(target, text.encode("utf-8"))
    return kept


def _is_used(flags: dict[str, Any], target: Path) -> bool:
    """Whether it is found without being named."""
    return load({**flags, "gateway_config": None}).gateway_config == target


def _tell(target: Path, kept: Path | None, found: Reading, *, as_json: bool, is_used: bool) -> None:
    config = cast(GatewayConfig, found.config)
    names = [tool.name for tool in config.tools]
    if as_json:
        warnings = [
            {"line": each.line, "message": each.message, "fix": each.fix} for each in found.warnings
        ]
        copy = str(kept) if kept else None
        print_json({"written": str(target), "kept": copy, "tools": names, "warnings": warnings})
        return
    click.echo(f"Written: {target}" + (f"; as it was: {kept}" if kept else ""))
    click.echo(f"{counted(len(names), 'tool')}: {clipped(', '.join(names), 500)}")
    for warning in found.warnings:
        click.echo(f"{target}, {warning}", err=True)
    named = "" if is_used else f" --gateway-config {target}"
    click.echo(f"`everkept gateway check{named}` compares it with its servers at any time.")
    if is_used:
        click.echo(
            "A server that watches this file already has the tools now; others have them from "
            "their next start on."
        )
    else:
        click.echo(f"It is read where it is named: `everkept serve{named}`.")
