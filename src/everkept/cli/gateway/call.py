"""`everkept gateway call`: one call of a tool, the way that a server goes."""

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import click

from everkept.app.app import App
from everkept.app.gateway.file import load
from everkept.cli.gateway.asking import told_once
from everkept.cli.gateway.options import gateway_config, gateway_file
from everkept.cli.gateway.values import arguments_from
from everkept.cli.options import common, settings_from
from everkept.cli.progress import reported
from everkept.cli.running import THE_GATEWAY, harmless, print_json, run_with_app
from everkept.core.sessions import Session
from everkept.core.text import clipped
from everkept.errors import NotFound
from everkept.families.gateway.naming import likeliest
from everkept.tools.schema import JSON
from everkept.tools.tool import Result, Tool


@click.command()
@common
@gateway_config
@click.argument("tool")
@click.argument("words", nargs=-1, metavar="[KEY=VALUE | JSON | -]...")
def call(tool: str, words: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Call a TOOL of the gateway, as an assistant would.

    Values are read by the tool's schema: text, numbers, true and false; objects as JSON, and a
    list by giving its key again. All arguments together may be a JSON object, or come as one on
    standard input by `-`. Tools that are passed through can be called too.
    """

    async def work(app: App) -> Result:
        found = await _found(app, tool)
        return await called(app, found.name, arguments_from(words, found.input_schema))

    show(run_gateway(work, **flags), as_json=as_json)


def run_gateway(work: Callable[[App], Awaitable[Result]], **flags: Any) -> Result:
    """Like run_with_app, for the tools of the gateway; what is wrong with its file comes first."""
    settings = settings_from(**flags)
    load(gateway_file(settings))
    with told_once(settings):
        return run_with_app(work, offering=THE_GATEWAY, **flags)


async def called(app: App, name: str, arguments: JSON) -> Result:
    session = Session(client="command line", is_conversation=False)
    with reported(name) as report:
        return await app.call(session, name, arguments, report)


def show(result: Result, *, as_json: bool) -> None:
    """What the tool answered; ends the program with status 1 where that is an error."""
    if as_json:
        print_json(result.structured if result.wire is None else result.wire)
    elif result.text:
        out = sys.stderr if result.is_error else sys.stdout
        shown = harmless(result.text) if out.isatty() else result.text
        click.echo(shown, file=out, color=True)
    else:
        print_json(result.structured)
    if result.is_error:
        sys.exit(1)


async def _found(app: App, name: str) -> Tool:
    """A tool that is passed through is known only to its server."""
    assert app.gateway is not None
    if name not in (known := {tool.name: tool for tool in app.gateway.tools()}):
        with reported("Asking for tools"):
            await app.gateway.refresh(patience=None)
        known = {tool.name: tool for tool in app.gateway.tools()}
    if name not in known:
        if (failure := app.gateway.failure_behind(name)) is not None:
            raise failure
        close = likeliest(name, known)
        listed = clipped(", ".join(known), 500) or "none"
        hint = f"Did you mean `{close}`?" if close else f"The gateway has: {listed}."
        raise NotFound("tool", clipped(name), hint=hint)
    return known[name]
