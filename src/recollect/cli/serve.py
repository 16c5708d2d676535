"""`recollect serve`: the MCP server."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from recollect.app.app import App
from recollect.cli.options import common, settings_from
from recollect.settings import Settings
from recollect.transports.dispatch import Dispatcher


@click.command()
@common
@click.option("--transport", type=click.Choice(["stdio", "http"]), help="Default: stdio.")
@click.option("--host", help="HTTP: address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=int, help="HTTP: port to listen on. Default: 8081.")
@click.option("--path", type=click.Path(path_type=Path), help="Working folder for --project auto.")
@click.option("--toolsets", help="Families of tools to offer, with commas, or `all`.")
@click.option("--read-only", is_flag=True, default=None, help="Offer only tools that read.")
@click.option(
    "--dialect", type=click.Choice(["recollect", "server-memory"]), help="Names and shapes."
)
@click.option("--no-token", is_flag=True, default=None, help="HTTP on loopback without a token.")
@click.option("--conformance", is_flag=True, default=None, hidden=True)
def serve(as_json: bool, **flags: Any) -> None:
    """Serve assistants over MCP, on stdio or HTTP."""
    settings = settings_from(**flags)
    if settings.transport == "http":
        _serve_http(settings)
    elif sys.stdin.isatty():
        _explain(settings)
    else:
        _serve_stdio(settings)


def _serve_stdio(settings: Settings) -> None:
    from recollect.transports.stdio import claim_wire, serve_stdio  # noqa: PLC0415

    async def run() -> None:
        app = App(settings)
        try:
            await serve_stdio(Dispatcher(app), read, written)
        finally:
            await app.close()

    read, written = claim_wire()
    asyncio.run(run())


def _serve_http(settings: Settings) -> None:
    raise NotImplementedError


def _explain(settings: Settings) -> None:
    raise NotImplementedError
