"""`everkept console`: what is remembered, in the browser."""

import sys
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everkept.cli.options import add_common_options, load_command_settings
from everkept.cli.serve import serve_over_http
from everkept.settings import AUTO
from everkept.values import replace

if TYPE_CHECKING:
    from everkept.console.access import ConsoleAccess


@click.command()
@add_common_options
@click.option("--path", "-p", type=click.Path(path_type=Path), help="Working folder. Default: the current folder.")
@click.option("--port", type=int, default=0, help="Port to listen on. Default: a free one.")
@click.option("--no-open", is_flag=True, help="Print the address instead of opening the browser.")
def console(as_json: bool, path: Path | None, port: int, *, no_open: bool, **flags: Any) -> None:
    """Open what is remembered in the browser: search it, change it, undo changes.

    The console runs on this machine and loads nothing from the network. It ends with Ctrl-C. Only your browser can use
    it: the address contains a code that works once, within a minute.
    """
    own: dict[str, Any] = {"transport": "http", "host": "127.0.0.1", "port": port, "console": True, "no_token": False}
    own["trusted_proxies"] = ""  # only the browser of this machine asks
    own["path"] = path or Path.cwd()
    settings = load_command_settings(**flags, **own, toolsets="graph,memories,history,bank")
    if settings.project is None:
        settings = replace(settings, project=AUTO)  # like other commands

    def open_page(address: str, access: "ConsoleAccess") -> None:
        _show(address, access, opens=not no_open)
        if sys.stdin.isatty():
            threading.Thread(target=_renew, args=(address, access), daemon=True).start()

    serve_over_http(settings, open_page)


def _show(address: str, access: "ConsoleAccess", *, opens: bool) -> None:
    from everkept.console.pages import PATH

    place = f"{address}{PATH}#code={access.create_code()}"
    is_open = opens and _open_browser(place)
    click.echo(f"The console runs at {address}{PATH} until you press Ctrl-C." if is_open else place)
    if sys.stdin.isatty():
        click.echo("To open it again, press Enter.", err=True)


def _open_browser(place: str) -> bool:
    try:
        return webbrowser.open(place)
    except webbrowser.Error:
        return False


def _renew(address: str, access: "ConsoleAccess") -> None:
    for _ in sys.stdin:
        _show(address, access, opens=True)
