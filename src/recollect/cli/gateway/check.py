"""`recollect gateway check`: the gateway's file beside what the servers behind it have now."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import click

from recollect.app.gateway.beside import names_beside
from recollect.app.gateway.file import Loaded, load
from recollect.cli.gateway.asking import opened, told_once
from recollect.cli.gateway.options import gateway_config, gateway_file
from recollect.cli.options import common, settings_from
from recollect.cli.progress import reported
from recollect.cli.running import harmless, print_json
from recollect.core.text import counted
from recollect.core.upstreams import Upstream
from recollect.errors import InvalidInput, RecollectError
from recollect.families.gateway.drifting.drift import Drift, clashes, drift
from recollect.families.gateway.listings import fault_in, passed
from recollect.families.gateway.model import GatewayConfig
from recollect.settings import Settings
from recollect.tools.schema import JSON

ERROR: Final = "error"
NOTE: Final = "note"
TAKEN = "Recollect itself has a tool of that name."
SET_APART = "Give it another name or a `prefix`, or serve with `--toolsets gateway` alone."
_COLOURS: Mapping[str, str | None] = {ERROR: "red", "warning": "yellow", NOTE: None}


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of asking one server."""

    name: str
    listed: Sequence[JSON] = ()
    found: Sequence[Drift] = ()
    passed: Sequence[str] = ()  # names under which its tools are passed through
    failure: RecollectError | None = None


@click.command()
@common
@gateway_config
def check(as_json: bool, **flags: Any) -> None:
    """Compare the gateway's file with the servers behind it.

    Reads the file, connects to every server that it names, and tells which tools and parameters
    are gone, new, or of another type. Ends with status 0 where all is well, 1 where a server
    cannot be reached or a tool would fail, 2 where the file itself is wrong.
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
        asked = asyncio.run(_ask_all(loaded.config))
    names = _clashes(settings, loaded.config, asked)
    is_well = not any(each.failure for each in asked) and not _errors(asked, names)
    if as_json:
        print_json(_described(path, loaded, asked, names) | {"ok": is_well})
    else:
        _tell(path, loaded, asked, names)
    sys.exit(0 if is_well else 1)


async def _ask_all(config: GatewayConfig) -> list[Asked]:
    """Side by side; each is as patient as its own time limits."""
    async with opened(each.reach for each in config.upstreams.values()) as upstreams:
        return await asyncio.gather(*(_ask(config, each) for each in upstreams.values()))


async def _ask(config: GatewayConfig, upstream: Upstream) -> Asked:
    name = upstream.name
    try:
        listed = await upstream.tools()
    except RecollectError as error:
        return Asked(name, failure=error)
    names = [each.ours for each in passed(config, name, listed) if fault_in(each.listing) is None]
    return Asked(name, listed, drift(config, name, listed), names)


def _clashes(settings: Settings, config: GatewayConfig, asked: Sequence[Asked]) -> list[Drift]:
    """Names that our own tools have too, and those that two servers pass through."""
    every = replace(settings, toolsets="all", bank_extras=True, mode_tools=False)
    served, known = names_beside(settings), names_beside(every)
    lines = {tool.name: tool.line for tool in config.tools}
    lines |= {name: config.upstreams[one.name].line for one in asked for name in one.passed}
    found = [
        Drift(ERROR if name in served else NOTE, name, TAKEN, SET_APART, line)
        for name, line in lines.items()
        if name in known
    ]
    return [*found, *clashes(config, {one.name: one.listed for one in asked})]


def _tell_problems(path: Path, problems: Sequence[JSON], *, as_json: bool) -> None:
    if as_json:
        print_json({"file": str(path), "ok": False, "problems": list(problems)})
    for problem in problems:
        told = f"{problem['message']} {problem['fix']}".rstrip()
        click.echo(f"{path}:{problem['line']}: {told}", err=True)
    click.echo(f"{counted(len(problems), 'problem')}: the file is not used as it is.", err=True)


def _tell(path: Path, loaded: Loaded, asked: Sequence[Asked], names: Sequence[Drift]) -> None:
    servers = counted(len(asked), "server")
    click.echo(f"{path}: {counted(len(loaded.config.tools), 'tool')} in front of {servers}.")
    for warning in loaded.warnings:
        click.secho(f"  {_on_one_line(str(warning))}", fg=_COLOURS["warning"])
    for one in asked:
        colour = None if one.failure is None else _COLOURS[ERROR]
        click.secho(_on_one_line(_in_words(one, loaded.config)), fg=colour)
        if one.failure is not None and one.failure.hint:
            click.echo(f"  {_on_one_line(one.failure.hint)}")
        _tell_drift(one.found)
    if names:
        click.echo("Names:")
        _tell_drift(names)
    if _errors(asked, names):
        click.echo("What is marked as an error does not work.")


def _errors(asked: Sequence[Asked], names: Sequence[Drift]) -> list[Drift]:
    found = (each for one in asked for each in one.found)
    return [each for each in (*found, *names) if each.level == ERROR]


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


def _described(path: Path, loaded: Loaded, asked: Sequence[Asked], names: Sequence[Drift]) -> JSON:
    return {
        "file": str(path),
        "problems": [],
        "warnings": [
            {"line": each.line, "message": each.message, "fix": each.fix}
            for each in loaded.warnings
        ],
        "upstreams": [
            {
                "name": one.name,
                "reached": one.failure is None,
                "error": None if one.failure is None else one.failure.envelope(),
                "tools": [tool.name for tool in loaded.config.tools if tool.upstream == one.name],
                "passed_through": list(one.passed),
                "drift": [_row(each) for each in one.found],
            }
            for one in asked
        ],
        "clashes": [_row(each) for each in names],
    }


def _row(each: Drift) -> JSON:
    return {
        "level": each.level,
        "tool": each.tool,
        "line": each.line,
        "message": each.message,
        "fix": each.fix,
    }
