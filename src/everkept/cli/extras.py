"""`everkept extras`: optional packages, listed and installed."""

import subprocess
import sys
from typing import Any

import click

from everkept.cli.options import add_common_options
from everkept.cli.render import build_console, build_table
from everkept.cli.runner import echo, print_json
from everkept.core.extras import BOOTSTRAP, EXTRAS, find_own_checkout, format_install_hint
from everkept.errors import Refused, Unavailable


@click.command()
@add_common_options
@click.argument("names", nargs=-1, metavar="[NAME]...", type=click.Choice(list(EXTRAS)))
def extras(names: tuple[str, ...], as_json: bool, **_flags: Any) -> None:
    """List optional packages, or install those of each NAME.

    They are for other databases, other machines and teams. Nothing else needs them.
    """
    missing = [name for name in dict.fromkeys(names) if not EXTRAS[name].is_installed]
    if missing:
        _install(missing)
    if as_json:
        held = [{"name": e.name, "installed": e.is_installed, "purpose": e.purpose} for e in EXTRAS.values()]
        print_json({"extras": held, "added": missing})
    elif missing:
        echo(f"Installed {', '.join(missing)}. Start your assistants again, so that their servers use it.")
    elif names:
        echo(f"Already installed: {', '.join(names)}. Nothing changed.")
    else:
        rows = [{"extra": e.name, "installed": e.is_installed, "for": e.purpose} for e in EXTRAS.values()]
        build_console().print(build_table("extras", rows))
        echo("To install one, run `everkept extras NAME`.")


def _install(names: list[str]) -> None:
    checkout = find_own_checkout()
    if checkout is None:
        raise Refused(
            "Another program installed Everkept, so it cannot add packages.", hint=format_install_hint(*names)
        )
    words = [sys.executable, "-E", "-s", str(checkout / BOOTSTRAP), " ".join(["run", *names]), sys.prefix]
    if subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False).returncode:
        raise Unavailable("The packages could not be installed. Nothing changed.", hint="Try again.")
