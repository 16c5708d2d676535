"""`everkept completion`: what a shell needs to complete our commands."""

from typing import Any

import click
from click.shell_completion import get_completion_class

from everkept.cli.options import common


@click.command()
@common
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(context: click.Context, shell: str, **_flags: Any) -> None:
    """Print the completion script for a SHELL.

    \b
    bash: everkept completion bash > ~/.local/share/bash-completion/completions/everkept
    zsh:  everkept completion zsh > ~/.zfunc/_everkept   (with ~/.zfunc in fpath)
    fish: everkept completion fish > ~/.config/fish/completions/everkept.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}.")
    root = context.find_root()
    click.echo(kind(root.command, {}, "everkept", "_EVERKEPT_COMPLETE").source())
