"""`everkept gateway` and its `check`: the gateway's file beside what its servers have now."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from everkept.app.gateway_file import Loaded, load, names_beside
from everkept.cli.gateway_call import (
    call,
    gateway_config,
    gateway_file,
    opened,
    told_if_slow,
    told_once,
)
from everkept.cli.gateway_commands import command_of
from everkept.cli.gateway_init import init
from everkept.cli.options import common, settings_from
from everkept.cli.runner import harmless, print_json, reported
from everkept.core.text import counted
from everkept.core.upstreams import Upstream
from everkept.errors import EverkeptError, InvalidInput
from everkept.families.gateway.drift import Drift, Level, clashes, drift
from everkept.families.gateway.model import GatewayConfig, Problem
from everkept.families.gateway.upstream_tools import fault_in, passed
from everkept.settings import Settings
from everkept.tools.schema import JSON
from everkept.values import Value, replace

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
        loaded = load(path)
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
