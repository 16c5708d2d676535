"""The command line's entry: a group that loads a command's module when it is asked for."""

import importlib
import sys
from typing import Any

import click

from recollect import __version__
from recollect.errors import InvalidInput, RecollectError

# Each command and the module that defines it, as `module:attribute`. The tools' own commands
# come from the application, so they are looked up last.
COMMANDS = {
    "serve": "recollect.cli.serve:serve",
}


class Commands(click.Group):
    """Imports only what is called: a start of the server must not pay for tables and colours."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        return getattr(importlib.import_module(module), attribute)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recollect")
def cli() -> None:
    """One memory for every AI assistant, on your own machine."""


def main(arguments: list[str] | None = None) -> None:
    """Exit status: 0 done, 2 the caller's mistake, 1 anything else."""
    try:
        cli.main(arguments, prog_name="recollect", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        sys.exit(exit_.exit_code)
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except RecollectError as error:
        sys.exit(report(error))


def report(error: RecollectError) -> int:
    """Prints the error for a person and gives the exit status."""
    click.echo(f"recollect: {error.message}", err=True)
    if error.hint:
        click.echo(f"  {error.hint}", err=True)
    candidates: Any = error.facts.get("candidates", ())
    for candidate in candidates:
        click.echo(f"  - {candidate['use']}  {candidate['id']}", err=True)
    return 2 if isinstance(error, InvalidInput) else 1


if __name__ == "__main__":
    main()
