"""`everkept gateway`, `check` and `init`: the gateway's file, and the present tools of its servers."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import click

from everkept.app.app import App
from everkept.app.gateway_file import LoadedGateway, list_own_names
from everkept.app.gateway_file import load as load_file
from everkept.cli.flags import silence_warnings
from everkept.cli.gateway_call import (
    GATEWAY_LOGS,
    call,
    gateway_config,
    get_gateway_file,
    open_upstreams,
    report_if_slow,
)
from everkept.cli.gateway_commands import to_command_name
from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.runner import FULL_SETTINGS, print_json, replace_controls, show_tool_progress
from everkept.clients import config_files
from everkept.core.disk import PRIVATE_FILE, make_folder
from everkept.core.mcp import CONNECT_SECONDS, Upstream, UpstreamSettings
from everkept.core.text import clip_text, format_count
from everkept.errors import Conflict, EverkeptError, InvalidInput, Refused
from everkept.families.gateway import draft
from everkept.families.gateway.draft import draft_file
from everkept.families.gateway.drift import Drift, Level, find_clashes, find_drift
from everkept.families.gateway.file_reader import ParsedFile, parse_file
from everkept.families.gateway.file_servers import MAX_WAIT_SECONDS, NAME_RULE
from everkept.families.gateway.model import (
    SINGLE_UPSTREAM,
    FileProblem,
    GatewayConfig,
    find_fault,
    find_passed,
    is_name,
)
from everkept.settings import NO_FILE, Settings, get_gateway_path, read_settings
from everkept.tools.schema import JSON
from everkept.values import Value, replace

_VARIABLE_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
EXAMPLE_COMMAND = "everkept gateway init --prefix notes__ -- npx -y some-memory-server"


@click.command(context_settings={"allow_interspersed_args": False})
@add_common_options
@gateway_config
@click.option("--url", help="Address of a server over HTTP, instead of a COMMAND.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", help="With --url: header to send. Repeatable."
)
@click.option(
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Variable for COMMAND. Without a value, passes the current one. Repeatable.",
)
@click.option(
    "--cwd", metavar="FOLDER", help="Working folder of COMMAND. Default: this folder, if an ARG names a file in it."
)
@click.option(
    "--connect-timeout",
    type=click.FloatRange(0, MAX_WAIT_SECONDS, min_open=True),
    metavar="SECONDS",
    help=f"Time limit for the first answer. Default: {CONNECT_SECONDS:.0f}.",
)
@click.option("--prefix", help="Prefix for the names of the tools.")
@click.option("--name", help="Name of the server in the file, if you will add others.")
@click.option("--ready", "ready_name", metavar="NAME", help=f"Ready-made file: {', '.join(draft.list_ready_names())}.")
@click.option("--print", "is_printed", is_flag=True, help="Print the file and write nothing.")
@click.option("--force", is_flag=True, help="Replace the existing file and keep a copy.")
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
    """Write a gateway file with the tools of a server.

    The server is the program that COMMAND starts, or the address of --url. Each tool keeps its name, which you can
    change in the file. `--ready` writes the file for a well-known server without starting it.
    """
    settings = load_command_settings(**flags)
    if flags.get("gateway_config") == NO_FILE:
        raise click.UsageError("--gateway-config is `none`. Pass a file to write.")
    target = get_gateway_path(settings)
    beside = (command, url, headers, variables, cwd, connect_timeout, prefix is not None, name)
    if ready_name is not None and any(beside):
        raise click.UsageError("--ready cannot be combined with a server, --prefix or --name.")
    if prefix and not is_name(prefix):
        raise click.UsageError(f"--prefix is {clip_text(prefix)!r}; it must be {NAME_RULE}.")
    server = None if ready_name else _build_server(command, url, headers, variables, cwd)
    if server is not None and connect_timeout is not None:
        server["connectTimeout"] = connect_timeout
    if not (is_printed or force):
        _refuse_existing(target)
    if server is None:
        text = draft.read_ready_file(str(ready_name), settings.data_dir)
    else:
        with silence_warnings(settings, GATEWAY_LOGS):
            text = _draft_from_server(server, target, prefix=prefix, name=name)
    if is_printed:
        click.echo(text, nl=False)
        return
    if ready_name is not None:
        make_folder(settings.data_dir)  # it may hold a file of the server
    kept = _write_file(target, text)
    if server is not None and "cwd" in server and cwd is None and not as_json:
        click.echo(f"It runs in {server['cwd']}, because its arguments are there. To change that, pass --cwd.")
    _print_file(target, kept, parse_file(text, target.parent), as_json=as_json, is_used=_is_used(flags, target))


def _refuse_existing(target: Path) -> None:
    if config_files.read_config_file(target) is not None:
        raise Conflict(
            f"{target} already exists.",
            hint="To replace it and keep a copy, pass --force. To see the new file, pass --print.",
            file=str(target),
        )


def _build_server(
    command: Sequence[str], url: str | None, headers: Sequence[str], variables: Sequence[str], cwd: str | None
) -> JSON:
    """Return the server in the form of the file."""
    if bool(command) == (url is not None):
        raise click.UsageError(
            f"Specify one server: a COMMAND, --url or --ready "
            f"({', '.join(draft.list_ready_names())}). "
            f"Example: `{EXAMPLE_COMMAND}`."
        )
    if url is not None:
        if variables or cwd:
            raise click.UsageError("--env and --cwd are for a COMMAND, not for --url.")
        server: JSON = {"url": url}
        return server | {"headers": dict(map(_parse_header, headers))} if headers else server
    if headers:
        raise click.UsageError("--header is for --url, not for a COMMAND.")
    program, *args = command
    # A command is typed in one folder, but the file is used from all.
    has_folder = Path(program).name != program
    server = {"command": str(Path(program).expanduser().absolute()) if has_folder else program}
    if args:
        server["args"] = args
    if variables:
        server["env"] = dict(map(_parse_variable, variables))
    if cwd is not None or any(map(_is_relative_path, args)):
        server["cwd"] = str(Path(cwd or ".").expanduser().absolute())
    return server


def _is_relative_path(argument: str) -> bool:
    """Return whether it names a file in this folder."""
    try:
        path = Path(argument)
        return bool(argument) and not path.is_absolute() and path.exists()
    except (OSError, ValueError):
        return False


def _parse_header(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not separator or not name.strip():
        # The value is not repeated, because it may be a secret.
        raise click.UsageError("--header takes NAME=VALUE, for example 'Authorization=Bearer ${TOKEN}'.")
    return name.strip(), value.strip()


def _parse_variable(given: str) -> tuple[str, str]:
    name, separator, value = given.partition("=")
    if not _VARIABLE_NAME.fullmatch(name):
        # The value is not repeated, because it may be a secret.
        raise click.UsageError(
            f"--env takes NAME or NAME=VALUE, and {clip_text(name)!r} is not the name of a variable. "
            "Use letters, digits and `_`."
        )
    return name, value if separator else f"${{{name}}}"


def _draft_from_server(server: JSON, target: Path, *, prefix: str | None, name: str | None) -> str:
    # It runs in the folder of the file, if that exists, and not in an arbitrary one.
    folder = target.parent if target.parent.is_dir() else Path.home()
    reach = _build_reach(server, folder, name or SINGLE_UPSTREAM)
    whom = clip_text(" ".join(_get_words(server)), 60)
    with show_tool_progress(f"Asking {whom}"):
        tools = asyncio.run(report_if_slow(_read_tools(reach), whom))
    if not tools:
        raise Refused(f"{reach.name} has no tools.", hint="Use another server.")
    text = draft_file(server, tools, prefix=prefix or "", name=name)
    if prefix is None:
        _refuse_own_names(parse_file(text, target.parent))
    return text


def _get_words(server: JSON) -> list[str]:
    return [server.get("url") or server["command"], *server.get("args", [])]


async def _read_tools(reach: UpstreamSettings) -> list[JSON]:
    async with open_upstreams([reach]) as upstreams:
        return await upstreams[reach.name].list_tools()


def _build_reach(server: JSON, folder: Path, name: str) -> UpstreamSettings:
    """Check it by the rules of the file before anything starts."""
    text = json.dumps({"upstreams": {name: {**server, "passThrough": True}}})
    found = parse_file(text, folder)
    if found.config is None:
        first = found.problems[0]
        raise InvalidInput(_replace_paths(first.message, name), hint=first.fix or None)
    return found.config.upstreams[name].reach


def _replace_paths(message: str, name: str) -> str:
    """Name options instead of keys: `upstreams.notes.url` was given as `--url`."""
    message = message.replace(f"`upstreams.{name}.headers.", "`--header ")
    message = message.replace(f"`upstreams.{name}.env.", "`--env ")
    return message.replace(f"`upstreams.{name}.", "`--").replace("`--command`", "COMMAND")


def _refuse_own_names(found: ParsedFile) -> None:
    """Refuse names of our tools, because a server cannot offer two tools of one name."""
    own = {tool.name for tool in App(read_settings(FULL_SETTINGS)).tools}
    config = cast(GatewayConfig, found.config)
    clashes = [tool.name for tool in config.tools if tool.name in own]
    if clashes:
        raise Refused(
            f"Everkept already has tools with these names: {clip_text(', '.join(clashes), 200)}.",
            hint="Pass --prefix notes__, or --prefix '' to keep the names for `everkept serve --toolsets gateway`.",
        )


def _write_file(target: Path, text: str) -> Path | None:
    """Write the file. Return the copy of an earlier one."""
    before = config_files.read_config_file(target)
    if before is not None:
        with suppress(PermissionError):  # it belongs to another user
            # It may contain a password, and its copy gets its rights.
            target.chmod(PRIVATE_FILE)
    kept = None if before is None else config_files.back_up(target, before.raw, config_files.format_backup_moment())
    config_files.replace_config_file(target, text.encode("utf-8"))
    return kept


def _is_used(flags: dict[str, Any], target: Path) -> bool:
    """Return whether the file is read without a flag."""
    return read_settings({**flags, "gateway_config": None}).gateway_config == target


def _print_file(target: Path, kept: Path | None, found: ParsedFile, *, as_json: bool, is_used: bool) -> None:
    config = cast(GatewayConfig, found.config)
    names = [tool.name for tool in config.tools]
    if as_json:
        warnings = [{"line": each.line, "message": each.message, "fix": each.fix} for each in found.warnings]
        copy = str(kept) if kept else None
        print_json({"written": str(target), "kept": copy, "tools": names, "warnings": warnings})
        return
    click.echo(f"Wrote {target}" + (f" (copy of the old file: {kept})." if kept else "."))
    click.echo(f"{format_count(len(names), 'tool')}: {clip_text(', '.join(names), 500)}")
    for warning in found.warnings:
        click.echo(f"{target}, {warning}", err=True)
    named = "" if is_used else f" --gateway-config {target}"
    click.echo(f"To compare it with its servers, run `everkept gateway check{named}`.")
    if is_used:
        click.echo("A running server that watches this file has the tools now, others after a restart.")
    else:
        click.echo(f"To use it, run `everkept serve{named}`.")


ERROR_LEVEL: Final = "error"
WARNING_LEVEL: Final = "warning"
NOTE_LEVEL: Final = "note"
NAME_TAKEN = "Everkept already has a tool with that name."
RENAME_HINT = "Give it another name or a `prefix`, or serve only `--toolsets gateway`."
NOT_SERVED = "The file is not served with these toolsets, because one of its tools has the name of another tool."
_LEVEL_COLOURS: Mapping[str, str | None] = {ERROR_LEVEL: "red", WARNING_LEVEL: "yellow", NOTE_LEVEL: None}


class UpstreamCheck(Value):
    """Result of asking one server."""

    name: str
    listed: Sequence[JSON] = ()
    found: Sequence[Drift] = ()
    passed: Sequence[str] = ()  # names of its passed-through tools
    failure: EverkeptError | None = None


class GatewayCheck(Value):
    """All results of a check."""

    path: Path
    loaded: LoadedGateway
    asked: Sequence[UpstreamCheck]
    names: Sequence[Drift]  # clashes of names
    is_served: bool  # False if a name clash disables the whole file

    def has_level(self, level: str) -> bool:
        of_file = (_get_level(each) for each in self.loaded.warnings)
        drifted = (each.level for one in self.asked for each in one.found)
        return level in (*of_file, *drifted, *(each.level for each in self.names))

    def get_exit_status(self, *, is_strict: bool) -> int:
        if not self.is_served:
            return 2
        is_wrong = any(one.failure for one in self.asked) or self.has_level(ERROR_LEVEL)
        return 1 if is_wrong or (is_strict and self.has_level(WARNING_LEVEL)) else 0


@click.command()
@add_common_options
@gateway_config
@click.option("--strict", "is_strict", is_flag=True, help="Exit with 1 for warnings too.")
def check(as_json: bool, is_strict: bool, **flags: Any) -> None:
    """Compare the gateway's file with its servers.

    Reads the file, connects to every server in it, and lists tools and parameters that are missing, new, or of another
    type. Exits with 0 if all tools work. Exits with 1 if a server is unreachable or a tool would fail. Exits with 2 if
    the file is invalid or cannot be served with the chosen toolsets.
    """
    settings = load_command_settings(**flags)
    path = get_gateway_file(settings)
    try:
        loaded = load_file(path)
    except InvalidInput as error:
        if "problems" not in error.facts:
            raise
        _print_problems(path, error.facts["problems"], as_json=as_json)
        sys.exit(2)
    with silence_warnings(settings, GATEWAY_LOGS), show_tool_progress("Asking the servers"):
        asked = asyncio.run(report_if_slow(_ask_all(loaded.config), "the servers"))
    names = [*_find_clashes(settings, loaded.config, asked), *_find_command_clashes(loaded.config)]
    beside = list_own_names(settings)
    is_served = not any(tool.name in beside for tool in loaded.config.tools)
    found = GatewayCheck(path, loaded, asked, names, is_served)
    status = found.get_exit_status(is_strict=is_strict)
    if as_json:
        print_json(_describe_check(found) | {"served": is_served, "ok": status == 0})
    else:
        _print_check(found)
    sys.exit(status)


async def _ask_all(config: GatewayConfig) -> list[UpstreamCheck]:
    """Ask all servers at the same time, each within its own time limits."""
    async with open_upstreams(each.reach for each in config.upstreams.values()) as upstreams:
        return await asyncio.gather(*(_ask(config, each) for each in upstreams.values()))


async def _ask(config: GatewayConfig, upstream: Upstream) -> UpstreamCheck:
    name = upstream.name
    try:
        listed = await upstream.list_tools()
    except EverkeptError as error:
        return UpstreamCheck(name, failure=error)
    names = [each.ours for each in find_passed(config, name, listed) if find_fault(each.listing) is None]
    return UpstreamCheck(name, listed, find_drift(config, name, listed), names)


def _find_clashes(settings: Settings, config: GatewayConfig, asked: Sequence[UpstreamCheck]) -> list[Drift]:
    """Find names that our tools have too, and passed-through names of two servers."""
    every = replace(settings, toolsets="all", bank_extras=True, mode_tools=False)
    served, known = list_own_names(settings), list_own_names(every)
    lines = {tool.name: tool.line for tool in config.tools}
    lines |= {name: config.upstreams[one.name].get_line() for one in asked for name in one.passed}
    found = [
        Drift(ERROR_LEVEL if name in served else NOTE_LEVEL, name, NAME_TAKEN, RENAME_HINT, line)
        for name, line in lines.items()
        if name in known
    ]
    return [*found, *find_clashes(config, {one.name: one.listed for one in asked})]


def _find_command_clashes(config: GatewayConfig) -> list[Drift]:
    """Find tools that would have the same command."""
    found: list[Drift] = []
    first: dict[str, str] = {}
    for tool in config.tools:
        command = to_command_name(tool.name)
        owner = first.setdefault(command, tool.name)
        if owner != tool.name:
            message = f"`everkept {command}` is the command of {owner} already."
            reached = f"`everkept gateway call {tool.name}` reaches it."
            found.append(Drift(NOTE_LEVEL, tool.name, message, reached, tool.line))
    return found


def _print_problems(path: Path, problems: Sequence[JSON], *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(path), "ok": False, "problems": list(problems)})
    for problem in problems:
        told = f"{problem['message']} {problem['fix']}".rstrip()
        click.echo(f"{path}:{problem['line']}: {told}", err=True)
    click.echo(f"{format_count(len(problems), 'problem')}: the file is not used.", err=True)


def _print_check(found: GatewayCheck) -> None:
    config, asked = found.loaded.config, found.asked
    servers = format_count(len(asked), "server")
    click.echo(f"{found.path}: {format_count(len(config.tools), 'tool')} in front of {servers}.")
    for warning in found.loaded.warnings:
        level = click.style(_get_level(warning), fg=_LEVEL_COLOURS[_get_level(warning)])
        told = _join_lines(f"{warning.message} {warning.fix}")
        click.echo(f"  line {warning.line}, {level}: {told}")
    for one in asked:
        colour = None if one.failure is None else _LEVEL_COLOURS[ERROR_LEVEL]
        click.secho(_join_lines(_describe_upstream(one, config)), fg=colour)
        if one.failure is not None and one.failure.hint:
            click.echo(f"  {_join_lines(one.failure.hint)}")
        _print_drift(one.found)
    if found.names:
        click.echo("Names:")
        _print_drift(found.names)
    if not found.is_served:
        click.secho(NOT_SERVED, fg=_LEVEL_COLOURS[ERROR_LEVEL])
    elif found.has_level(ERROR_LEVEL):
        click.echo("Items marked as errors do not work.")


def _get_level(warning: FileProblem) -> Level:
    return ERROR_LEVEL if warning.fails_calls else WARNING_LEVEL


def _describe_upstream(one: UpstreamCheck, config: GatewayConfig) -> str:
    if one.failure is not None:
        said = one.failure.message
        return said if said.startswith(one.name) else f"{one.name}: {said}"
    tools = sum(tool.upstream == one.name for tool in config.tools)
    wrong = {each.tool for each in one.found if each.tool and each.level == ERROR_LEVEL}
    parts: list[str] = []
    if tools:
        state = f"{len(wrong)} failing" if wrong else "all found"
        parts.append(f"{format_count(tools, 'tool')}, {state}")
    if config.upstreams[one.name].pass_through is not None:
        parts.append(f"{len(one.passed)} passed through")
    return f"{one.name}: {'; '.join(parts) or 'reachable, but none of its tools is offered'}."


def _print_drift(found: Sequence[Drift]) -> None:
    for each in found:
        place = f"line {each.line}, " if each.line else ""
        of_tool = f"{_join_lines(each.tool)}: " if each.tool else ""
        level = click.style(each.level, fg=_LEVEL_COLOURS[each.level])
        told = _join_lines(f"{each.message} {each.fix}")
        click.echo(f"  {place}{of_tool}{level}: {told}")


def _join_lines(said: str) -> str:
    """Join lines that may contain a server's text, so that none looks like ours."""
    return replace_controls(" ".join(said.split()))


def _describe_check(found: GatewayCheck) -> JSON:
    return {
        "file": str(found.path),
        "problems": [],
        "warnings": [
            {"level": _get_level(each), "line": each.line, "message": each.message, "fix": each.fix}
            for each in found.loaded.warnings
        ],
        "upstreams": [
            {
                "name": one.name,
                "reached": one.failure is None,
                "error": None if one.failure is None else one.failure.to_envelope(),
                "tools": [t.name for t in found.loaded.config.tools if t.upstream == one.name],
                "passed_through": list(one.passed),
                "drift": [_build_row(each) for each in one.found],
            }
            for one in found.asked
        ],
        "clashes": [_build_row(each) for each in found.names],
    }


def _build_row(each: Drift) -> JSON:
    return {"level": each.level, "tool": each.tool, "line": each.line, "message": each.message, "fix": each.fix}


@click.group()
def gateway() -> None:
    """Serve other MCP servers' tools under stable names."""


@gateway.command()
@add_common_options
def schema(**_flags: Any) -> None:
    """Print the JSON Schema of the gateway's file."""
    from everkept.families.gateway.draft import build_file_schema

    print_json(build_file_schema())


gateway.add_command(init)
gateway.add_command(check)
gateway.add_command(call)
