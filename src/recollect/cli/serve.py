"""`recollect serve`: the MCP server."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from recollect.app.app import App
from recollect.cli.options import common, settings_from
from recollect.errors import InvalidInput, Refused
from recollect.settings import (
    AUTO,
    GATEWAY,
    NO_FILE,
    BankMode,
    Settings,
    chosen_toolsets,
    gateway_target,
    remote_bank,
)
from recollect.transports.dispatch import Dispatcher

if TYPE_CHECKING:  # not loaded before the handshake is answered
    from recollect.core.ports import Library

HTTP_PATH = "/mcp"
BANK_MODES: tuple[str, ...] = get_args(BankMode)


def _bank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Those of the public memory bank server; each adds the bank to the tools."""
    for option in reversed(
        [
            click.option("--mode", "-m", type=click.Choice(BANK_MODES), help="Bank: its mode."),
            click.option("--folder", "-f", help="Bank: its folder. Default: memory-bank."),
            click.option("--username", "-u", help="Bank: who makes the entries."),
            click.option("--debug", "-d", is_flag=True, help="The same as --log-level debug."),
            click.option("--remote", "-r", is_flag=True, default=None, help="Bank: over SSH."),
            click.option("--remote-user", "ssh_user", help="Bank over SSH: the user there."),
            click.option("--remote-host", "ssh_host", help="Bank over SSH: host or host:port."),
            click.option("--remote-path", "ssh_path", help="Bank over SSH: the project's folder."),
            click.option("--ssh-key", "-k", metavar="FILE", help="Bank over SSH: private key."),
            click.option("--known-hosts", metavar="FILE", help="Bank over SSH: known hosts."),
            click.option("--bank-extras", is_flag=True, default=None, help="Bank: 8 more tools."),
            click.option(
                "--mode-tools", is_flag=True, default=None, help="Bank: only the mode's tools."
            ),
        ]
    ):
        command = option(command)
    return command


@click.command()
@common
@click.option("--transport", type=click.Choice(["stdio", "http"]), help="Default: stdio.")
@click.option("--host", help="HTTP: address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=int, help="HTTP: port to listen on. Default: 8081.")
@click.option("--path", "-p", type=click.Path(path_type=Path), help="Working folder.")
@click.option("--toolsets", help="Families of tools to offer, with commas, or `all`.")
@click.option("--read-only", is_flag=True, default=None, help="Offer only tools that read.")
@click.option(
    "--dialect", type=click.Choice(["recollect", "server-memory"]), help="Names and shapes."
)
@click.option("--gateway-config", metavar="FILE", help="Gateway: its file, or `none`.")
@click.option("--no-token", is_flag=True, default=None, help="HTTP on loopback without a token.")
@_bank_options
@click.option("--conformance", is_flag=True, default=None, hidden=True)
def serve(as_json: bool, debug: bool, **flags: Any) -> None:
    """Serve assistants over MCP, on stdio or HTTP."""
    if debug:
        flags["log_level"] = flags["log_level"] or "debug"
    settings = settings_from(**flags)
    _check_places(settings)
    _check_gateway(settings, flags["gateway_config"])
    if settings.transport == "http":
        _serve_http(settings)
    elif sys.stdin.isatty():
        _explain(settings)
    else:
        _serve_stdio(settings)


def _check_places(settings: Settings) -> None:
    """Mistakes are told before anything starts, where they can be."""
    remote = remote_bank(settings)
    if remote is not None:
        from recollect.filestores.finding import parsed_address

        parsed_address(remote)
    for name, flag in (("path", "--path"), ("ssh_key", "--ssh-key")):
        path: Path | None = getattr(settings, name)
        if path is not None and not path.exists():
            raise InvalidInput(
                f"{flag} names {path}, which does not exist.", argument=flag, value=str(path)
            )


def _check_gateway(settings: Settings, named: str | None) -> None:
    """A gateway that is all there is must work; beside other tools its fault is only told."""
    chosen = chosen_toolsets(settings) if settings.dialect == "recollect" else ()
    if (GATEWAY in chosen) == (named == NO_FILE) and named is not None:
        raise InvalidInput(
            f"--gateway-config is {named}, and "
            + ("the toolsets have a gateway." if GATEWAY in chosen else "no gateway is served."),
            hint="Leave it out, or name `gateway` among the --toolsets.",
            argument="gateway_config",
            value=named,
        )
    if chosen == (GATEWAY,):
        from recollect.app.gateway.file import load

        load(gateway_target(settings))


def _serve_stdio(settings: Settings) -> None:
    from recollect.transports.stdio import claim_wire, serve_stdio

    async def run() -> None:
        app = App(settings)
        try:
            app.start()
            await serve_stdio(_dispatcher(app), read, written)
        finally:
            await app.end_sessions()
            await app.close()

    read, written = claim_wire()
    asyncio.run(run())


def _serve_http(settings: Settings) -> None:
    from recollect.transports.listening import is_loopback, listen

    local = is_loopback(settings.host)

    async def run() -> None:
        app = App(settings)
        try:
            await _require_token(settings, app.library, local=local)
            app.start(at_once=True)
            with listen(settings.host, settings.port) as listening:
                # The SDK takes a second to load; mistakes are told before that.
                from recollect.transports.http import serve_http

                port = listening.getsockname()[1]
                await serve_http(
                    _dispatcher(app),
                    listening,
                    host=settings.host,
                    path=HTTP_PATH,
                    knows_token=None if settings.no_token else app.library.knows_token,
                    on_ready=lambda: _tell_address(settings, port, local=local),
                )
        finally:
            await app.end_sessions()
            await app.close()

    asyncio.run(run())


async def _require_token(settings: Settings, library: "Library", *, local: bool) -> None:
    if settings.no_token and not local:
        raise InvalidInput(
            f"--no-token works on a loopback address only, and {settings.host} is none.",
            hint="`recollect token` makes a token; clients send it as `Authorization: Bearer`.",
            argument="no_token",
            value=True,
        )
    if not settings.no_token and not await library.tokens():
        hint = "`recollect token` makes one."
        if local:
            hint += " `recollect serve --transport http --no-token` serves this machine without."
        raise Refused("HTTP needs a token, and there is none yet.", hint=hint)


def _tell_address(settings: Settings, port: int, *, local: bool) -> None:
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    asking = "no token asked" if settings.no_token else "token needed"
    click.echo(f"recollect: serving http://{host}:{port}{HTTP_PATH} ({asking})", err=True)
    if not local:
        click.echo(
            "recollect: other machines can reach this memory, each with a token of "
            "`recollect token`; the traffic is not encrypted.",
            err=True,
        )


def _dispatcher(app: App) -> Dispatcher:
    dispatcher = Dispatcher(app)
    if app.settings.conformance:
        from recollect.transports.conformance import add_fixtures

        add_fixtures(dispatcher)
    return dispatcher


def _explain(settings: Settings) -> None:
    """A person started the server by hand: tell how a client starts it."""
    from recollect.clients.programs import own_program

    program = own_program(settings.launcher, sys.argv[0], sys.executable)
    # With the options that were given: they are what this person wants the client to use.
    command = [*program, *sys.argv[1:]]
    if settings.project is None and settings.dialect == "recollect":
        command += ["--project", AUTO]
    server = {"command": command[0], "args": command[1:]}
    own, line = shlex.join(program), shlex.join(command)
    click.echo(
        f"""Recollect is a memory for AI assistants. They start it themselves and talk to it over
standard input and output, so there is nothing to see here. To connect one, let it write the
client's configuration; it shows the change and asks first:

{own} setup claude-code    or claude-desktop, codex, cursor, gemini, vscode, windsurf

Or do it by hand:

Claude Code   claude mcp add recollect -- {line}
Codex         codex mcp add recollect -- {line}
VS Code       code --add-mcp {shlex.quote(json.dumps({"name": "recollect", **server}))}

Claude Desktop, Cursor and most others take this in their MCP configuration:

{json.dumps({"mcpServers": {"recollect": server}}, indent=2)}

Over HTTP: `recollect token`, then `recollect serve --transport http`.
Everything is kept in {settings.data_dir}"""
    )
