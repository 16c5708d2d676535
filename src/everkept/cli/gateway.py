"""`everkept gateway`, `check` and `init`: the gateway's file, and what its servers have now."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

import click

from everkept.app.app import App
from everkept.app.gateway_file import Loaded, names_beside
from everkept.app.gateway_file import load as load_file
from everkept.cli.gateway_call import (
    call,
    gateway_config,
    gateway_file,
    opened,
    told_if_slow,
    told_once,
)
from everkept.cli.gateway_commands import command_of
from everkept.cli.options import common, settings_from
from everkept.cli.runner import EVERYTHING, harmless, print_json, reported
from everkept.clients import config_files
from everkept.core.disk import PRIVATE_FILE
from everkept.core.mcp import CONNECT_TIMEOUT, Reach, Upstream
from everkept.core.text import clipped, counted
from everkept.errors import Conflict, EverkeptError, InvalidInput, Refused
from everkept.families.gateway import draft
from everkept.families.gateway.draft import drafted
from everkept.families.gateway.drift import Drift, Level, clashes, drift
from everkept.families.gateway.file_reader import Reading, read
from everkept.families.gateway.file_servers import LONGEST_WAIT, NAME_RULE
from everkept.families.gateway.model import ONLY, GatewayConfig, Problem, fault_in, is_name, passed
from everkept.settings import NO_FILE, Settings, gateway_target, load
from everkept.tools.schema import JSON
from everkept.values import Value, replace

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
    _tell_of_file(
        target, kept, read(text, target.parent), as_json=as_json, is_used=_is_used(flags, target)
    )


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


def _tell_of_file(
    target: Path, kept: Path | None, found: Reading, *, as_json: bool, is_used: bool
) -> None:
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


ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
TAKEN = "Everkept itself has a tool of that name."
SET_APART = "Give it another name or a `prefix`, or serve with `--toolsets gateway` alone."
NOT_SERVED = (
    "Nothing of the file is served beside these toolsets, because a tool in it has the name of "
    "one of ours."
)
_COLOURS: Mapping[str, str | None] = {ERROR: "red", WARNING: "yellow", NOTE: None}


class Asked(Value):
    """What came of asking one server."""

    name: str
    listed: Sequence[JSON] = ()
    found: Sequence[Drift] = ()
    passed: Sequence[str] = ()  # names under which its tools are passed through
    failure: EverkeptError | None = None


class Found(Value):
    """Everything that is to be told."""

    path: Path
    loaded: Loaded
    asked: Sequence[Asked]
    names: Sequence[Drift]  # clashes, above all
    is_served: bool  # else a name of ours keeps the whole file away

    def has(self, level: str) -> bool:
        of_file = (_level(each) for each in self.loaded.warnings)
        drifted = (each.level for one in self.asked for each in one.found)
        return level in (*of_file, *drifted, *(each.level for each in self.names))

    def status(self, *, is_strict: bool) -> int:
        if not self.is_served:
            return 2
        is_wrong = any(one.failure for one in self.asked) or self.has(ERROR)
        return 1 if is_wrong or (is_strict and self.has(WARNING)) else 0


@click.command()
@common
@gateway_config
@click.option("--strict", "is_strict", is_flag=True, help="Warnings end with status 1 too.")
def check(as_json: bool, is_strict: bool, **flags: Any) -> None:
    """Compare the gateway's file with the servers behind it.

    Reads the file, connects to every server that it names, and tells which tools and parameters
    are gone, new, or of another type. Ends with status 0 where all is well, 1 where a server
    cannot be reached or a tool would fail, 2 where the file itself is wrong or cannot be served
    beside the toolsets that are chosen.
    """
    settings = settings_from(**flags)
    path = gateway_file(settings)
    try:
        loaded = load_file(path)
    except InvalidInput as error:
        if "problems" not in error.facts:
            raise
        _tell_problems(path, error.facts["problems"], as_json=as_json)
        sys.exit(2)
    with told_once(settings), reported("Asking the servers"):
        asked = asyncio.run(told_if_slow(_ask_all(loaded.config), "the servers"))
    names = [*_clashes(settings, loaded.config, asked), *_commands(loaded.config)]
    beside = names_beside(settings)
    is_served = not any(tool.name in beside for tool in loaded.config.tools)
    found = Found(path, loaded, asked, names, is_served)
    status = found.status(is_strict=is_strict)
    if as_json:
        print_json(_described(found) | {"served": is_served, "ok": status == 0})
    else:
        _tell(found)
    sys.exit(status)


async def _ask_all(config: GatewayConfig) -> list[Asked]:
    """Side by side; each is as patient as its own time limits."""
    async with opened(each.reach for each in config.upstreams.values()) as upstreams:
        return await asyncio.gather(*(_ask(config, each) for each in upstreams.values()))


async def _ask(config: GatewayConfig, upstream: Upstream) -> Asked:
    name = upstream.name
    try:
        listed = await upstream.tools()
    except EverkeptError as error:
        return Asked(name, failure=error)
    names = [each.ours for each in passed(config, name, listed) if fault_in(each.listing) is None]
    return Asked(name, listed, drift(config, name, listed), names)


def _clashes(settings: Settings, config: GatewayConfig, asked: Sequence[Asked]) -> list[Drift]:
    """Names that our own tools have too, and those that two servers pass through."""
    every = replace(settings, toolsets="all", bank_extras=True, mode_tools=False)
    served, known = names_beside(settings), names_beside(every)
    lines = {tool.name: tool.line for tool in config.tools}
    lines |= {name: config.upstreams[one.name].line_of() for one in asked for name in one.passed}
    found = [
        Drift(ERROR if name in served else NOTE, name, TAKEN, SET_APART, line)
        for name, line in lines.items()
        if name in known
    ]
    return [*found, *clashes(config, {one.name: one.listed for one in asked})]


def _commands(config: GatewayConfig) -> list[Drift]:
    """Tools that one command would have to stand for."""
    found: list[Drift] = []
    first: dict[str, str] = {}
    for tool in config.tools:
        command = command_of(tool.name)
        owner = first.setdefault(command, tool.name)
        if owner != tool.name:
            message = f"`everkept {command}` is the command of {owner} already."
            reached = f"`everkept gateway call {tool.name}` reaches it."
            found.append(Drift(NOTE, tool.name, message, reached, tool.line))
    return found


def _tell_problems(path: Path, problems: Sequence[JSON], *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(path), "ok": False, "problems": list(problems)})
    for problem in problems:
        told = f"{problem['message']} {problem['fix']}".rstrip()
        click.echo(f"{path}:{problem['line']}: {told}", err=True)
    click.echo(f"{counted(len(problems), 'problem')}: the file is not used as it is.", err=True)


def _tell(found: Found) -> None:
    config, asked = found.loaded.config, found.asked
    servers = counted(len(asked), "server")
    click.echo(f"{found.path}: {counted(len(config.tools), 'tool')} in front of {servers}.")
    for warning in found.loaded.warnings:
        level = click.style(_level(warning), fg=_COLOURS[_level(warning)])
        told = _on_one_line(f"{warning.message} {warning.fix}")
        click.echo(f"  line {warning.line}, {level}: {told}")
    for one in asked:
        colour = None if one.failure is None else _COLOURS[ERROR]
        click.secho(_on_one_line(_in_words(one, config)), fg=colour)
        if one.failure is not None and one.failure.hint:
            click.echo(f"  {_on_one_line(one.failure.hint)}")
        _tell_drift(one.found)
    if found.names:
        click.echo("Names:")
        _tell_drift(found.names)
    if not found.is_served:
        click.secho(NOT_SERVED, fg=_COLOURS[ERROR])
    elif found.has(ERROR):
        click.echo("What is marked as an error does not work.")


def _level(warning: Problem) -> Level:
    return ERROR if warning.fails_calls else WARNING


def _in_words(one: Asked, config: GatewayConfig) -> str:
    if one.failure is not None:
        said = one.failure.message
        return said if said.startswith(one.name) else f"{one.name}: {said}"
    tools = sum(tool.upstream == one.name for tool in config.tools)
    wrong = {each.tool for each in one.found if each.tool and each.level == ERROR}
    parts: list[str] = []
    if tools:
        state = f"{len(wrong)} of them wrong" if wrong else "all there"
        parts.append(f"{counted(tools, 'tool')}, {state}")
    if config.upstreams[one.name].pass_through is not None:
        parts.append(f"{len(one.passed)} passed through")
    return f"{one.name}: {'; '.join(parts) or 'answers, and nothing of it is offered'}."


def _tell_drift(found: Sequence[Drift]) -> None:
    for each in found:
        place = f"line {each.line}, " if each.line else ""
        of_tool = f"{_on_one_line(each.tool)}: " if each.tool else ""
        level = click.style(each.level, fg=_COLOURS[each.level])
        told = _on_one_line(f"{each.message} {each.fix}")
        click.echo(f"  {place}{of_tool}{level}: {told}")


def _on_one_line(said: str) -> str:
    """What may hold words of a server, so that none of them looks like a line of ours."""
    return harmless(" ".join(said.split()))


def _described(found: Found) -> JSON:
    return {
        "file": str(found.path),
        "problems": [],
        "warnings": [
            {
                "level": _level(each),
                "line": each.line,
                "message": each.message,
                "fix": each.fix,
            }
            for each in found.loaded.warnings
        ],
        "upstreams": [
            {
                "name": one.name,
                "reached": one.failure is None,
                "error": None if one.failure is None else one.failure.envelope(),
                "tools": [t.name for t in found.loaded.config.tools if t.upstream == one.name],
                "passed_through": list(one.passed),
                "drift": [_row(each) for each in one.found],
            }
            for one in found.asked
        ],
        "clashes": [_row(each) for each in found.names],
    }


def _row(each: Drift) -> JSON:
    return {
        "level": each.level,
        "tool": each.tool,
        "line": each.line,
        "message": each.message,
        "fix": each.fix,
    }


@click.group()
def gateway() -> None:
    """Stable names for the tools of other MCP servers, as one file says."""


@gateway.command()
@common
def schema(**_flags: Any) -> None:
    """Print the JSON Schema of the gateway's file."""
    from everkept.families.gateway.draft import file_schema

    print_json(file_schema())


gateway.add_command(init)
gateway.add_command(check)
gateway.add_command(call)
