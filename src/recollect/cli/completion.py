"""`recollect completion`: what a shell needs to complete our commands."""

from typing import Any

import click
from click.shell_completion import get_completion_class

from recollect.cli.options import common


@click.command()
@common
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@click.pass_context
def completion(context: click.Context, shell: str, **_flags: Any) -> None:
    """Print the completion script for a SHELL.

    \b
    bash: recollect completion bash > ~/.local/share/bash-completion/completions/recollect
    zsh:  recollect completion zsh > ~/.zfunc/_recollect   (with ~/.zfunc in fpath)
    fish: recollect completion fish > ~/.config/fish/completions/recollect.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click has no completion for {shell}.")
    root = context.find_root()
    click.echo(kind(root.command, {}, "recollect", "_RECOLLECT_COMPLETE").source())
